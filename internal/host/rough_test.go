package host

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Peers of the hub in TestRoughPeersDelayNobody, by number.
const (
	hubNode = iota
	willing
	capping
	refusing
	stalling
	flooding
)

// TestRoughPeersDelayNobody peers a hub with one node that is willing, one that caps what the hub may bring, one that refuses every event, one that takes
// frames and answers nothing, and one that floods it with messages that nobody can use. What the hub stores is at the willing peer a second later, as if
// nobody else were there; what the others make it hold is bounded; and nobody is charged but the flood.
func TestRoughPeersDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rigs := fleet(t, transport.NewMemory("memory"), 6, rough)
		defer stopAll(rigs)
		for i := 1; i < len(rigs); i++ {
			linked(t, rigs, [][2]int{{hubNode, i}}, spec.TierMember, mesh.ModeBoth, mesh.ModeBoth)
		}
		hub := rigs[hubNode]
		rigs[capping].host.Amend(mesh.Amend{Peer: hub.pub, Limits: map[spec.Limit]int64{spec.LimitEventsIn: 5}})
		<-time.After(3 * time.Minute) // a grant binds from a later window on
		synctest.Wait()
		before, put := runtime.NumGoroutine(), 0
		for round := range 15 {
			for range 100 {
				rigs[flooding].junk(hub.pub)
			}
			hub.put(2, fmt.Sprint("round ", round, " "))
			put += 2
			<-time.After(time.Second)
			synctest.Wait()
			if got := rigs[willing].holds(); got != put {
				t.Fatalf("round %d: the willing peer holds %d events a second later, want %d", round, got, put)
			}
		}
		if after := runtime.NumGoroutine(); after > before+len(rigs)*8 {
			t.Errorf("%d goroutines became %d", before, after)
		}
		if got := rigs[refusing].holds(); got != 0 {
			t.Errorf("the one that refuses holds %d", got)
		}
		held := 0
		hub.host.mu.Lock()
		for _, l := range hub.host.links {
			l.mu.Lock()
			held += len(l.queue)
			l.mu.Unlock()
		}
		happened := len(hub.host.history)
		hub.host.mu.Unlock()
		if held > len(rigs)*maxQueued || happened > historyLength {
			t.Errorf("%d messages and %d happenings are held", held, happened)
		}
		<-time.After(5 * time.Minute) // windows close
		synctest.Wait()
		roughlyPriced(t, rigs)
	})
}

func rough(i int, c *Config) {
	switch i {
	case refusing:
		c.Take = func(_ context.Context, list []*nostr.Event) ([]store.Outcome, error) {
			out := make([]store.Outcome, len(list))
			for k := range out {
				out[k] = store.Refused
			}
			return out, nil
		}
	case stalling:
		take := c.Take
		c.Take = func(ctx context.Context, list []*nostr.Event) ([]store.Outcome, error) {
			for _, e := range list {
				if e.Kind == 1 {
					<-ctx.Done() // it took the frame, and never says what became of it
					return nil, ctx.Err()
				}
			}
			return take(ctx, list)
		}
	}
}

// junk sends a message of a form that nobody can use.
func (r *rig) junk(to nostr.PubKey) {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	r.host.link(to).enqueue(r.host.message(mesh.Send{To: to, Type: spec.MsgPeeringAmend, ID: newID(), Thread: newID(), Body: json.RawMessage(`{"grant":7}`)}), false)
}

// roughlyPriced wants S0 for all but the flood, as the hub sees it, and for the hub, as all see it.
func roughlyPriced(t *testing.T, rigs []*rig) {
	t.Helper()
	for _, p := range rigs[hubNode].host.Peers() {
		flood := p.Key == rigs[flooding].pub
		if (p.Worst == spec.S0.String()) == flood {
			rigs[hubNode].dump(t)
			t.Errorf("the hub charges %s with %s; is it the flood: %v\n%+v", p.Key.String()[:6], p.Worst, flood, p.Windows)
		}
	}
	for i, r := range rigs[1:] {
		for _, p := range r.host.Peers() {
			if p.Worst != spec.S0.String() {
				r.dump(t)
				t.Errorf("peer %d charges the hub with %s", i+1, p.Worst)
			}
		}
	}
}
