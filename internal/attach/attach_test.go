package attach

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// rig is a Store attached to a relay of this process.
type rig struct {
	*Store
	relay  *relay.Relay
	remote store.Store
	local  store.Store
	server *httptest.Server
	key    nostr.SecretKey
}

func newRig(t *testing.T, change func(*relay.Config)) *rig {
	t.Helper()
	remote, local := store.NewMemory(), store.NewMemory()
	cfg := relay.Config{Store: remote, Limits: relay.Limits{EventsPerSecond: -1, RequestsPerSecond: -1, BytesPerSecond: -1}}
	if change != nil {
		change(&cfg)
	}
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r)
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Relay: "ws" + strings.TrimPrefix(server.URL, "http"), Local: local, Self: key.PubKey(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return &rig{s, r, remote, local, server, key}
}

// notes makes n signed events by one stranger.
func notes(t *testing.T, n int, change func(i int, e *nostr.Event)) []*nostr.Event {
	t.Helper()
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]*nostr.Event, n)
	for i := range out {
		e := &nostr.Event{CreatedAt: time.Now().Unix() - int64(n-i)/2, Kind: 1, Content: fmt.Sprint("note ", i)}
		if change != nil {
			change(i, e)
		}
		if err := e.Sign(key); err != nil {
			t.Fatal(err)
		}
		out[i] = e
	}
	return out
}

func insert(t *testing.T, s store.Store, events []*nostr.Event) []store.Outcome {
	t.Helper()
	out, err := s.Insert(t.Context(), events, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ids(t *testing.T, s store.Store, f nostr.Filter) (out []nostr.ID) {
	t.Helper()
	for e, err := range s.Query(t.Context(), []nostr.Filter{f}, store.View{}, 0, time.Now().Unix()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.ID)
	}
	return out
}

var notesOnly = nostr.Filter{Kinds: []nostr.Kind{1}}

func TestEventsAreAtTheRelay(t *testing.T) {
	r := newRig(t, nil)
	now := time.Now().Unix()
	old, fresh := notes(t, 700, nil), notes(t, 30, nil)
	insert(t, r.remote, old)
	for i, o := range insert(t, r, fresh) {
		if o != store.Stored {
			t.Fatalf("event %d: %v", i, o)
		}
	}
	for _, o := range insert(t, r, append(slices.Clone(fresh[:3]), old[:3]...)) {
		if o != store.Duplicate {
			t.Errorf("once more: %v", o)
		}
	}
	if n, err := r.remote.Count(t.Context(), []nostr.Filter{notesOnly}, store.View{}, now); n != 730 || err != nil {
		t.Errorf("the relay holds %d, %v", n, err)
	}
	if n, err := r.local.Count(t.Context(), []nostr.Filter{{}}, store.View{}, now); n != 0 || err != nil {
		t.Errorf("%d events were moved here, %v", n, err)
	}
	if got, want := ids(t, r, notesOnly), ids(t, r.remote, notesOnly); !slices.Equal(got, want) {
		t.Errorf("%d ids in another order than the relay's %d", len(got), len(want))
	}
	for _, e := range []*nostr.Event{old[0], fresh[0]} {
		if got, err := r.Get(t.Context(), e.ID, now); err != nil || got.ID != e.ID {
			t.Errorf("get: %v", err)
		}
	}
	if _, err := r.Get(t.Context(), nostr.ID{1}, now); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get what is nowhere: %v", err)
	}
}

// TestTheSetFollowsTheRelay compares fingerprints with the relay's own store through changes at either end.
func TestTheSetFollowsTheRelay(t *testing.T) {
	for name, off := range map[string]relay.Features{"NIP-77": {}, "paging": {Negentropy: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *relay.Config) { c.Off = off })
			now := time.Now().Unix()
			same := func(what string, n int) {
				t.Helper()
				want, err := r.remote.FingerprintRange(t.Context(), notesOnly, 0, 1<<40, now)
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.FingerprintRange(t.Context(), notesOnly, 0, 1<<40, now)
				if err != nil || got != want {
					t.Errorf("%s: fingerprints %x and %x, %v", what, got, want, err)
				}
				if c, err := r.Count(t.Context(), []nostr.Filter{notesOnly}, store.View{}, now); c != n || err != nil {
					t.Errorf("%s: %d events, %v, want %d", what, c, err, n)
				}
			}
			events := notes(t, 1100, nil)
			insert(t, r.remote, events[:1000])
			same("at first", 1000)
			insert(t, r.remote, events[1000:1050])
			same("after others wrote", 1050)
			insert(t, r, events[1050:])
			same("after we wrote", 1100)
			if _, err := r.remote.Purge(t.Context(), []nostr.ID{events[3].ID, events[700].ID}, store.ReasonPurged, now); err != nil {
				t.Fatal(err)
			}
			same("after the relay deleted", 1098)
			list, err := r.EnumerateRange(t.Context(), notesOnly, events[10].CreatedAt, events[10].CreatedAt, now)
			if err != nil || !slices.Contains(list, events[10].ID) || len(list) > 3 {
				t.Errorf("one second: %d ids, %v", len(list), err)
			}
		})
	}
}

func TestWhatStaysHere(t *testing.T) {
	r := newRig(t, nil)
	now := time.Now().Unix()
	own := &nostr.Event{CreatedAt: now, Kind: 1, Content: "the node's own"}
	if err := own.Sign(r.key); err != nil {
		t.Fatal(err)
	}
	fleet := notes(t, 1, func(_ int, e *nostr.Event) { e.Kind = spec.KindGrant; e.Tags = []nostr.Tag{{"d", "x"}} })[0]
	insert(t, r, []*nostr.Event{own, fleet})
	for _, e := range []*nostr.Event{own, fleet} {
		if has, err := r.remote.Has(t.Context(), e.ID, now); has || err != nil {
			t.Errorf("kind %d went to the relay, %v", e.Kind, err)
		}
		if _, err := r.Get(t.Context(), e.ID, now); err != nil {
			t.Errorf("kind %d is not here: %v", e.Kind, err)
		}
	}
	if n, err := r.Count(t.Context(), []nostr.Filter{{}}, store.View{}, now); n != 2 || err != nil {
		t.Errorf("%d events in the set, %v", n, err)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, func(c *relay.Config) { c.Policy = policy.Chain{policy.NewKinds(nil, []nostr.Kind{7})} })
	now := time.Now().Unix()
	list := notes(t, 3, func(i int, e *nostr.Event) { e.Kind = []nostr.Kind{1, 7, 1}[i] })
	if out := insert(t, r, list); out[0] != store.Stored || out[1] != store.Refused || out[2] != store.Stored {
		t.Errorf("%v", out)
	}
	if _, ok, err := r.Refusal(t.Context(), list[1].ID); !ok || err != nil {
		t.Errorf("the refusal is not remembered: %v", err)
	}
	if n, err := r.Purge(t.Context(), []nostr.ID{list[0].ID}, store.ReasonPurged, now); n != 1 || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	if _, err := r.Get(t.Context(), list[0].ID, now); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what was purged is shown: %v", err)
	}
	if got := ids(t, r, notesOnly); len(got) != 1 {
		t.Errorf("%d events after the purge", len(got))
	}
	if n, err := r.Count(t.Context(), []nostr.Filter{notesOnly}, store.View{}, now); n != 1 || err != nil {
		t.Errorf("%d in the set after the purge, %v", n, err)
	}
	if out := insert(t, r, list[:1]); out[0] != store.Refused {
		t.Errorf("what was purged came back: %v", out)
	}
}

func TestTheLiveStreamComesIn(t *testing.T) {
	r := newRig(t, nil)
	start, err := r.LastSeq(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	taken, done := make(chan nostr.ID, 10), make(chan struct{})
	go func() {
		defer close(done)
		r.Follow(ctx, func(ctx context.Context, events []*nostr.Event) error {
			out, err := r.Insert(ctx, events, time.Now().Unix()) // as the node's own door does
			if err == nil && out[0] == store.Stored {
				taken <- events[0].ID
			}
			return err
		})
	}()
	defer func() { cancel(); <-done }()
	e := notes(t, 2, nil)
	if _, err := r.relay.Publish(t.Context(), e[:1], policy.FromClient); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-taken:
		if id != e[0].ID {
			t.Errorf("another event came: %s", id)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
	}
	insert(t, r, e[1:]) // what goes out through us does not come in again
	var got []nostr.ID
	for a, err := range r.Arrivals(t.Context(), start, time.Now().Unix()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a.Event.ID)
	}
	if !slices.Equal(got, []nostr.ID{e[0].ID, e[1].ID}) {
		t.Errorf("arrivals %v", got)
	}
	for _, err := range r.Arrivals(t.Context(), 0, time.Now().Unix()) {
		if !errors.Is(err, ErrNoArrivals) {
			t.Errorf("arrivals from before: %v", err)
		}
	}
	if len(taken) != 0 {
		t.Error("an event of our own came in again")
	}
}

// TestFailsBothWays: a relay that is away fails what needs it, and what is here still answers.
func TestFailsBothWays(t *testing.T) {
	r := newRig(t, nil)
	now := time.Now().Unix()
	e := notes(t, 2, nil)
	insert(t, r, e[:1])
	r.server.CloseClientConnections()
	r.Store.cfg.Timeout = 300 * time.Millisecond
	r.server.Config.Handler = nil // answers 404 from now on
	r.Store.link.Close()
	if _, err := r.Insert(t.Context(), e[1:], now); err == nil || !strings.Contains(err.Error(), "attached relay") {
		t.Errorf("an insert into nothing: %v", err)
	}
	if _, _, err := r.Set(t.Context(), []nostr.Filter{notesOnly}, store.View{}, now); err == nil {
		t.Error("a set of nothing")
	}
	if got := ids(t, r, nostr.Filter{Kinds: []nostr.Kind{spec.KindGrant}}); len(got) != 0 {
		t.Errorf("grants %v", got)
	}
}
