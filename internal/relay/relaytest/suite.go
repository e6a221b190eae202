package relaytest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// T0 is the time of most events in the cases.
const T0 = 1700000000

// URL is the public URL of the relay in the cases.
const URL = "wss://relay.test:7447/"

// NewStore makes an empty store for one test, and closes it at its end.
type NewStore func(t *testing.T) store.Store

// Relay is a relay under test on 127.0.0.1.
type Relay struct {
	*relay.Relay
	Addr  string // host:port
	Store store.Store
	shift atomic.Int64 // seconds by which its clock is ahead
}

// Ahead moves the relay's clock forward.
func (r *Relay) Ahead(seconds int64) { r.shift.Add(seconds) }

// Option changes the configuration of a relay under test.
type Option func(*relay.Config)

// Unlimited switches the rates off.
func Unlimited(c *relay.Config) {
	c.Limits.EventsPerSecond, c.Limits.RequestsPerSecond, c.Limits.BytesPerSecond = -1, -1, -1
}

// Start runs a relay as the cases describe it until the test ends.
func Start(t testing.TB, s store.Store, options ...Option) *Relay {
	t.Helper()
	r := &Relay{Store: s}
	cfg := relay.Config{Store: s, PublicURLs: []string{URL}}
	cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(r.shift.Load()) * time.Second) }
	cfg.Limits.ConnectionsPerIP = -1
	// On a busy machine a test's client may be slow; no test but those about it is to fail for that.
	cfg.Limits.PingInterval, cfg.Limits.ReadTimeout, cfg.Limits.WriteTimeout = time.Hour, time.Hour, time.Hour
	Unlimited(&cfg)
	for _, o := range options {
		o(&cfg)
	}
	var err error
	if r.Relay, err = relay.New(cfg); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.Handler(r.Relay))
	r.Addr = srv.Listener.Addr().(*net.TCPAddr).String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		srv.Close()
	})
	return r
}

// Dial connects a client.
func (r *Relay) Dial(t testing.TB) *Client {
	t.Helper()
	return Dial(t, r.Addr, "/")
}

// cases are the functions of the suite by number.
var cases = map[string]func(t *testing.T, newStore NewStore){}

// Run runs every case against stores of a kind.
func Run(t *testing.T, newStore NewStore) {
	for _, n := range slices.Sorted(maps.Keys(cases)) {
		t.Run("Case"+n, func(t *testing.T) { cases[n](t, newStore) })
	}
}

// One runs the case of a number, such as "07".
func One(t *testing.T, number string, newStore NewStore) {
	f := cases[number]
	if f == nil {
		t.Fatalf("there is no case %s", number)
	}
	f(t, newStore)
}

// want fails the test unless got is what it should be.
func want[T comparable](t testing.TB, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %v, want %v", what, got, wanted)
	}
}

// wantList compares lists in order.
func wantList(t testing.TB, what string, got []string, wanted ...string) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, wanted)
	}
}

// wantSet compares lists regardless of order.
func wantSet(t testing.TB, what string, got []string, wanted ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(wanted)
	wantList(t, what, got, wanted...)
}

func (o OK) accepted(t testing.TB, what string) {
	t.Helper()
	if !o.OK {
		t.Errorf("%s: refused: %s", what, o.Reason)
	}
}

func (o OK) refused(t testing.TB, what string, prefixes ...string) {
	t.Helper()
	if o.OK || !slices.Contains(prefixes, o.prefix()) {
		t.Errorf("%s: got %v %q, want a refusal with one of %v", what, o.OK, o.Reason, prefixes)
	}
}

func hasPrefix(s string, prefixes ...string) bool {
	p, _, ok := strings.Cut(s, ":")
	return ok && slices.Contains(prefixes, p)
}

// pub is a public key in hex.
func pub(k nostr.SecretKey) string { return k.PubKey().String() }

// live lists "sub content" of the EVENT messages among those seen.
func (c *Client) live(seen []Message) []string {
	out := []string{}
	for _, m := range seen {
		if m.Label() == "EVENT" {
			out = append(out, m.String(1)+" "+c.event(m).Content)
		}
	}
	return out
}

func q(format string, args ...any) string { return fmt.Sprintf(format, args...) }
