package host

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// linked peers rigs pairwise, as pairs says, each wanting the notes in the mode, and waits until all have reconciled.
func linked(t *testing.T, rigs []*rig, pairs [][2]int, tier spec.Tier, modes ...string) {
	t.Helper()
	for _, p := range pairs {
		for k, mode := range modes {
			r, other := rigs[p[k]], rigs[p[1-k]]
			var want []mesh.Want
			if mode != "" {
				want = []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mode}}
			}
			if err := r.host.AddPeer(t.Context(), other.pub, tier, want, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-time.After(30 * time.Second)
	synctest.Wait()
}

// ring names the pairs of a ring.
func ring(n int) (pairs [][2]int) {
	for i := range n {
		pairs = append(pairs, [2]int{i, (i + 1) % n})
	}
	return pairs
}

func (r *rig) holds() int {
	r.t.Helper()
	n, err := r.store.Count(r.t.Context(), []nostr.Filter{{Kinds: []nostr.Kind{1}}}, r.cfg.View, time.Now().Unix())
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func wantAll(t *testing.T, rigs []*rig, n int) {
	t.Helper()
	for i, r := range rigs {
		if got := r.holds(); got != n {
			t.Errorf("node %d holds %d events, want %d", i, got, n)
		}
	}
}

func honest(t *testing.T, rigs []*rig) {
	t.Helper()
	for i, r := range rigs {
		for _, p := range r.host.Peers() {
			if p.Worst != "S0" {
				r.dump(t)
				t.Errorf("node %d charges %s with %s: %+v", i, p.Key.String()[:6], p.Worst, p.Windows)
			}
		}
		for _, tell := range r.told("fault") {
			t.Errorf("node %d: a fault: %+v", i, tell)
		}
	}
}

func stopAll(rigs []*rig) {
	for _, r := range rigs {
		r.stop()
	}
}

// TestLiveWithinASecond stores events at one end and the other, and wants each at the other end a second later, in every mode.
func TestLiveWithinASecond(t *testing.T) {
	for _, modes := range [][]string{{mesh.ModeBoth, mesh.ModeBoth}, {mesh.ModePull, mesh.ModePull}, {mesh.ModePush, mesh.ModePush}, {mesh.ModePull, ""}} {
		t.Run(fmt.Sprint(modes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rigs := fleet(t, transport.NewMemory("memory"), 2, nil)
				defer stopAll(rigs)
				linked(t, rigs, [][2]int{{0, 1}}, spec.TierMember, modes...)
				for i := range 5 {
					from := i % 2
					if modes[1] == "" {
						from = 1
					}
					rigs[from].put(1+i, fmt.Sprint("round ", i, " "))
					<-time.After(time.Second)
					synctest.Wait()
					wantAll(t, rigs, (i+1)*(i+2)/2)
				}
				<-time.After(10 * time.Minute) // windows close, and sessions are renewed
				synctest.Wait()
				honest(t, rigs)
			})
		})
	}
}

// TestLiveBurst stores more at once than is dealt out ahead to a session: none of it may be skipped.
func TestLiveBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rigs := fleet(t, transport.NewMemory("memory"), 2, nil)
		defer stopAll(rigs)
		linked(t, rigs, [][2]int{{0, 1}}, spec.TierAnchor, mesh.ModePull, mesh.ModePull)
		const n = 5*dealtAhead + 7
		rigs[0].put(n, "burst ")
		<-time.After(20 * time.Second) // no session ends by its age in that time
		synctest.Wait()
		wantAll(t, rigs, n)
		honest(t, rigs)
	})
}

// TestLiveRing stores events in a ring of five, and wants them everywhere two seconds later, and no honest node charged for the two ways
// round.
func TestLiveRing(t *testing.T) {
	for _, mode := range []string{mesh.ModeBoth, mesh.ModePush} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rigs := fleet(t, transport.NewMemory("memory"), 5, nil)
				defer stopAll(rigs)
				linked(t, rigs, ring(5), spec.TierMember, mode, mode)
				n := 0
				for i := range 40 {
					rigs[i%5].put(10, fmt.Sprint("round ", i, " "))
					n += 10
					<-time.After(2 * time.Second)
					synctest.Wait()
					if mode == mesh.ModeBoth { // where nobody fetches, what a peer may have from others is left to a reconciliation
						wantAll(t, rigs, n)
					}
				}
				<-time.After(10 * time.Minute)
				synctest.Wait()
				wantAll(t, rigs, n)
				honest(t, rigs)
			})
		})
	}
}
