package selftest_test

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/selftest"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func here(c *relay.Config) { c.PublicURLs = nil }

// start runs a relay and returns its URL.
func start(t *testing.T, options ...relaytest.Option) string {
	t.Helper()
	r := relaytest.Start(t, store.NewMemory(), append([]relaytest.Option{here}, options...)...)
	return "ws://" + r.Addr
}

func run(t *testing.T, url string, o selftest.Options) map[int]selftest.Result {
	t.Helper()
	out := map[int]selftest.Result{}
	for _, r := range selftest.Run(t.Context(), url, o) {
		t.Log(r.Line())
		out[r.NIP] = r
	}
	return out
}

func TestOwnRelayPasses(t *testing.T) {
	url := start(t)
	results := selftest.Run(t.Context(), url, selftest.Options{})
	for _, r := range results {
		t.Log(r.Line())
		if !r.OK {
			t.Errorf("NIP-%02d: %s", r.NIP, r.Detail)
		}
	}
	if len(results) < 17 || !strings.Contains(selftest.Total(results), "0 failed, 0 skipped") || selftest.ExitCode(results) != spec.ExitOK {
		t.Errorf("%d results, exit code %d", len(results), selftest.ExitCode(results))
	}
}

// TestSwitchedOff: what is not advertised is skipped.
func TestSwitchedOff(t *testing.T) {
	url := start(t, func(c *relay.Config) {
		c.Off = relay.Features{Count: true, Search: true, Hints: true, Negentropy: true}
	})
	got := run(t, url, selftest.Options{Only: []int{1, 2, 42, 45, 50, 59, 67, 70, 77}})
	for _, nip := range []int{45, 50, 67, 77} {
		if !got[nip].Skipped {
			t.Errorf("NIP-%d is not skipped", nip)
		}
	}
	for nip, r := range got {
		if r.Failed() {
			t.Errorf("NIP-%02d: %s", nip, r.Detail)
		}
	}
}

// TestAuthToRead: where reading needs authentication, the probes authenticate.
func TestAuthToRead(t *testing.T) {
	url := start(t, func(c *relay.Config) { c.AuthToRead = true })
	for nip, r := range run(t, url, selftest.Options{Only: []int{1, 2, 9, 17, 42, 45, 50, 59, 62, 65, 67, 70, 77}}) {
		if !r.OK {
			t.Errorf("NIP-%02d: %s", nip, r.Detail)
		}
	}
}

// TestFalseClaims: a relay that advertises what it has switched off is found out.
func TestFalseClaims(t *testing.T) {
	honest := start(t, func(c *relay.Config) {
		c.Off = relay.Features{Auth: true, Count: true, Search: true, Hints: true, Negentropy: true}
	})
	target := strings.TrimPrefix(honest, "ws://")
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Accept") == "application/nostr+json" {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			_, _ = w.Write([]byte(`{"supported_nips":[1,9,11,42,45,50,67,77,86]}`))
			return
		}
		pipe(t, w, req, target)
	}))
	defer liar.Close()
	url := "ws" + strings.TrimPrefix(liar.URL, "http")
	got := run(t, url, selftest.Options{})
	for nip, want := range map[int]bool{1: true, 9: true, 11: true, 42: false, 45: false, 50: false, 67: false, 77: false} {
		if r := got[nip]; r.OK != want || r.Skipped {
			t.Errorf("NIP-%02d: %+v", nip, r)
		}
	}
	if r := got[86]; !r.Skipped || !strings.Contains(r.Detail, "no probe") {
		t.Errorf("NIP-86: %+v", r)
	}
	if r := got[62]; !r.Skipped {
		t.Errorf("NIP-62: %+v", r)
	}
}

// pipe joins the raw connection with one to the target.
func pipe(t *testing.T, w http.ResponseWriter, req *http.Request, target string) {
	t.Helper()
	up, err := net.Dial("tcp", target)
	if err != nil {
		t.Error(err)
		return
	}
	defer up.Close()
	if err := req.Write(up); err != nil {
		t.Error(err)
		return
	}
	down, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer down.Close()
	go func() {
		_, _ = buf.WriteTo(up)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = buf.ReadFrom(up)
	_ = buf.Flush()
}

func TestWorkIsDone(t *testing.T) {
	url := start(t, func(c *relay.Config) { c.Policy = policy.Chain{policy.MinPoW{Bits: 8}} })
	got := run(t, url, selftest.Options{Only: []int{1, 9, 13, 59}})
	for _, nip := range []int{1, 9, 13} {
		if !got[nip].OK {
			t.Errorf("NIP-%02d: %s", nip, got[nip].Detail)
		}
	}
}

// TestClosedShop: a relay that says it takes only chosen authors' events cannot be probed by a stranger.
func TestClosedShop(t *testing.T) {
	url := start(t, func(c *relay.Config) { c.Policy = policy.Chain{policy.NewAuthors([]nostr.PubKey{{1}}, nil)} })
	got := run(t, url, selftest.Options{Only: []int{1, 9, 77}})
	for nip, r := range got {
		if !r.Skipped || !strings.Contains(r.Detail, "restricted") {
			t.Errorf("NIP-%02d: %+v", nip, r)
		}
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "ws://" + l.Addr().String()
	l.Close()
	results := selftest.Run(t.Context(), url, selftest.Options{})
	if code := selftest.ExitCode(results); code != spec.ExitUnreachable {
		t.Errorf("exit code %d: %+v", code, results[0])
	}
	results = selftest.Run(t.Context(), "mailto:x", selftest.Options{})
	if code := selftest.ExitCode(results); code == spec.ExitOK {
		t.Error("a bad URL passes")
	}
}

func TestRender(t *testing.T) {
	results := []selftest.Result{
		{NIP: 1, Name: "basic protocol", OK: true, Detail: "fine"},
		{NIP: 50, Name: "search", Skipped: true, Detail: "not advertised"},
		{NIP: 77, Name: "negentropy", Detail: "advertised, but: <no>"},
	}
	var text bytes.Buffer
	if err := selftest.Render(&text, results, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "ok    NIP-01") || !strings.HasPrefix(lines[1], "skip  NIP-50") ||
		!strings.HasPrefix(lines[2], "FAIL  NIP-77") || lines[3] != "1 ok, 1 failed, 1 skipped" {
		t.Errorf("%s", text.String())
	}
	text.Reset()
	if err := selftest.Render(&text, results, true); err != nil {
		t.Fatal(err)
	}
	if strings.Count(text.String(), "\n") != 1 {
		t.Errorf("not one object a line: %s", text.String())
	}
	var doc struct {
		OK      bool
		Results []struct {
			NIP    int
			Status string
			Detail string
		}
	}
	if err := json.Unmarshal(text.Bytes(), &doc); err != nil || doc.OK || len(doc.Results) != 3 || doc.Results[2].Status != "failed" || doc.Results[2].Detail != "advertised, but: <no>" {
		t.Errorf("%v: %s", err, text.String())
	}
	if selftest.ExitCode(results) != spec.ExitFailure || selftest.ExitCode(results[:2]) != spec.ExitOK {
		t.Error("exit codes")
	}
}
