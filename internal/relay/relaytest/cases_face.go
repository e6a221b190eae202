package relaytest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/nostr"
)

func init() {
	cases["45"] = case45
	cases["47"] = case47
}

func (r *Relay) http(t testing.TB, method, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+r.Addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// Case 45: the information document.
func case45(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t), func(c *relay.Config) {
		c.Off = relay.Features{Negentropy: true, Search: true}
		c.Info = relay.Info{Name: "<name>", Self: pub(A)}
		c.Policy = policy.Chain{policy.Size{ContentRunes: 1000, Tags: 50}, policy.CreatedAt{Newest: 900}}
		c.Limits.MaxMessageBytes = 70000
	})
	for _, accept := range []string{"application/nostr+json", "text/html;q=0.5, application/nostr+json"} {
		res, body := r.http(t, "GET", "/", "Accept: "+accept)
		want(t, "type for "+accept, res.Header.Get("Content-Type"), "application/nostr+json")
		cors(t, res)
		var doc struct {
			Name       string
			Self       string
			NIPs       []int `json:"supported_nips"`
			Limitation map[string]any
		}
		if err := json.Unmarshal([]byte(body), &doc); err != nil {
			t.Fatalf("the document: %v: %s", err, body)
		}
		want(t, "name", doc.Name, "<name>")
		want(t, "self", doc.Self, pub(A))
		for nip, there := range map[int]bool{1: true, 11: true, 42: true, 45: true, 59: true, 77: false, 50: false, 13: false} {
			want(t, fmt.Sprintf("NIP-%d in %v", nip, doc.NIPs), slices.Contains(doc.NIPs, nip), there)
		}
		for k, v := range map[string]any{"max_message_length": 70000., "max_content_length": 1000., "max_event_tags": 50., "max_limit": 5000.,
			"created_at_upper_limit": 900., "auth_required": false, "payment_required": false} {
			want(t, k, doc.Limitation[k], v)
		}
	}
	for _, accept := range []string{"text/html", "application/nostr+json;q=0.1, text/html", "application/nostr+json;q=0", "*/*"} {
		res, body := r.http(t, "GET", "/any/path", "Accept: "+accept)
		want(t, "status for "+accept, res.StatusCode, 200)
		want(t, "type for "+accept, res.Header.Get("Content-Type"), "text/html; charset=utf-8")
		if strings.Contains(body, "<name>") {
			t.Error("the page does not escape the name")
		}
	}
	res, _ := r.http(t, "OPTIONS", "/", "Origin: https://client.test", "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: x-own")
	want(t, "status of OPTIONS", res.StatusCode/100, 2)
	want(t, "headers allowed", res.Header.Get("Access-Control-Allow-Headers"), "x-own")
	cors(t, res)
	res, _ = r.http(t, "POST", "/")
	want(t, "status of POST", res.StatusCode, http.StatusMethodNotAllowed)
	res, body := r.http(t, "GET", "/health")
	want(t, "health", fmt.Sprint(res.StatusCode, body), "200ok\n")
	off := Start(t, newStore(t), func(c *relay.Config) { c.Off.Auth = true })
	for _, nip := range []int{42, 59, 17} {
		want(t, fmt.Sprintf("NIP-%d without AUTH", nip), slices.Contains(off.SupportedNIPs(), nip), false)
	}
	if a := off.Dial(t).Req("w", `{"kinds":[1059]}`); !hasPrefix(a.Closed, "blocked") {
		t.Errorf("wraps without AUTH: %+v", a)
	}
}

func cors(t testing.TB, res *http.Response) {
	t.Helper()
	want(t, "origin allowed", res.Header.Get("Access-Control-Allow-Origin"), "*")
	for _, h := range []string{"Access-Control-Allow-Headers", "Access-Control-Allow-Methods"} {
		if res.Header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
}

// Case 47: the client that does not read. Its query pauses at the window; live events fill it up to
// the cap, and then it is shed; the others notice nothing.
func case47(t *testing.T, newStore NewStore) {
	const events = 3000
	const cap = 1 << 20
	r := Start(t, newStore(t), func(c *relay.Config) { c.Limits.MaxLimit, c.Limits.MaxOutboundBytes = 1<<30, cap })
	n := r.Dial(t)
	text := strings.Repeat("x", 2048)
	var batch []*nostr.Event
	for i := range events {
		batch = append(batch, Event(A, T0+int64(i), 1, nil, text))
	}
	if _, err := r.Publish(t.Context(), batch, policy.FromImport); err != nil {
		t.Fatal(err)
	}
	s := r.Dial(t)
	s.Alive()
	s.smallWindow()
	s.Send(`["REQ","all",{"limit":1000000}]`)
	var slowest time.Duration
	for i := range 200 {
		start := time.Now()
		n.MustPublish(Event(B, T0+int64(i), 7, nil, "+"))
		want(t, "events read by N", len(n.Get(q(`{"kinds":[7],"since":%d}`, T0+i)).Events), 1)
		slowest = max(slowest, time.Since(start))
		if owed := r.Owed(); owed > cap {
			t.Fatalf("%d octets are owed, more than the cap %d", owed, cap)
		}
	}
	t.Logf("slowest of N beside a client that does not read: %v", slowest)
	for i := 0; r.Metrics().Shed == 0; i++ {
		n.MustPublish(Event(B, T0+int64(i), 8, nil, text))
		if owed := r.Owed(); owed > cap {
			t.Fatalf("%d octets are owed, more than the cap %d", owed, cap)
		}
		if i > 10*cap/len(text) {
			t.Fatal("the client that does not read is never shed")
		}
	}
	n.Alive()

	// A client that reads again after a pause gets everything: its query only waited.
	p := r.Dial(t)
	p.Alive()
	p.smallWindow()
	p.Send(`["REQ","all",{"kinds":[1],"limit":1000000}]`)
	n.Settle()
	want(t, "events after a pause", len(p.AwaitAnswer("all").Events), events)
}
