package daemon

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Two nodes sync, and the collector of one is told how it went and with whom not.
func TestSyncsAreTraced(t *testing.T) {
	var mu sync.Mutex
	var posted strings.Builder
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		io.Copy(&posted, r.Body)
	}))
	defer srv.Close()
	d := startDeclared(t, func(c *Config) { c.Spec.Tracing.Endpoint = srv.URL + "/v1/traces" })
	other := startDeclared(t)
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	e := &nostr.Event{CreatedAt: time.Now().Unix(), Kind: 1, Tags: []nostr.Tag{}, Content: "nobody's business"}
	if err := e.Sign(key); err != nil {
		t.Fatal(err)
	}
	if err := other.ctl.Call(t.Context(), "events.import", ImportParams{Lines: []Line{{No: 1, Text: string(e.JSON())}}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	d.apply(strings.Replace(baseline(""), "  class: edge\n", "  class: edge\n  tracing: {endpoint: '"+srv.URL+"/v1/traces'}\n", 1) + peeringOf(other, "{kinds: [1]}"))
	if err := other.ctl.Call(t.Context(), "peer.add", PeerParams{DID: d.get().DID, Relays: []string{d.relay}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	told := func() string {
		mu.Lock()
		defer mu.Unlock()
		return posted.String()
	}
	for deadline := time.Now().Add(40 * time.Second); !strings.Contains(told(), `"name":"sync.reconcile"`); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("no trace of the sync: %s", told())
		}
	}
	text := told()
	if !strings.Contains(text, `{"key":"fleetmesh.sync.events_taken","value":{"intValue":"1"}}`) {
		t.Errorf("%s", text)
	}
	for _, secret := range []string{e.ID.String(), e.PubKey.String(), e.Content, d.get().DID[10:], other.get().DID[10:], "127.0.0.1", "ws://"} {
		if strings.Contains(text, secret) {
			t.Errorf("a span says %q: %s", secret, text)
		}
	}
}
