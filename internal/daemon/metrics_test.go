package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// sampleLine is a line of Prometheus' text form.
var sampleLine = regexp.MustCompile(`^(?:# TYPE meshnode_[a-z_]+ (?:gauge|counter)|(meshnode_[a-z_]+)(?:\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})? -?[0-9.e+-]+)$`)

func (d *declare) page(path string) (int, string) {
	d.t.Helper()
	resp, err := http.Get(strings.Replace(d.relay, "ws", "http", 1) + path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Every metric that the dashboard names is on a running node's page, and nothing there names anybody.
func TestDashboardNamesWhatThereIs(t *testing.T) {
	d := startDeclared(t)
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, text := d.page("/ready")
		if status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("never ready: %d %s", status, text)
		}
	}
	if status, text := d.page("/health"); status != http.StatusOK || text != "ok\n" {
		t.Errorf("/health: %d %q", status, text)
	}
	_, text := d.page("/metrics")
	there := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("no line of the text form: %q", line)
			continue
		}
		there[m[1]] = true
	}
	if strings.Contains(text, d.get().DID[10:]) {
		t.Error("the metrics name the node's key")
	}
	raw, err := os.ReadFile("../../packaging/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil || len(board.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	names := regexp.MustCompile(`meshnode_[a-z_]+`)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range names.FindAllString(target.Expr, -1) {
				if !there[name] {
					t.Errorf("panel %q: no %s on the page", p.Title, name)
				}
			}
		}
	}
}

// The counters are read, and with nothing else than a read.
func TestMetricsAreOnlyRead(t *testing.T) {
	n := &node{}
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodTrace, http.MethodConnect, http.MethodPut} {
		w := httptest.NewRecorder()
		n.guardMetrics(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}
