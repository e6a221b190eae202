package host

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/spec"
)

// TestSyncComesToRest syncs, stores something more, and wants that no event moves any more once both ends have all, through many renewals.
func TestSyncComesToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delivered atomic.Int64
		rigs := fleet(t, transport.NewMemory("memory"), 3, func(_ int, cfg *Config) {
			cfg.observe = func(a *arrival) {
				if a.m.Type == string(spec.MsgSyncDeliver) {
					delivered.Add(int64(len(a.m.Attachments)))
				}
			}
		})
		defer stopAll(rigs)
		rigs[0].put(100, "before ")
		linked(t, rigs, ring(3), spec.TierMember, mesh.ModeBoth, mesh.ModeBoth)
		rigs[1].put(50, "after ")
		<-time.After(30 * time.Second)
		synctest.Wait()
		wantAll(t, rigs, 150)
		before := delivered.Load()
		<-time.After(30 * time.Minute)
		synctest.Wait()
		if more := delivered.Load() - before; more != 0 {
			t.Errorf("%d envelopes moved although nothing was new", more)
		}
		honest(t, rigs)
	})
}

// TestLiveSurvivesCutAndRestart cuts a live session and restarts a node, stores events meanwhile, and wants them at the other end soon after,
// without anything that was there before moving again.
func TestLiveSurvivesCutAndRestart(t *testing.T) {
	for _, how := range []string{"cut", "restart of the initiator", "restart of the responder"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var delivered atomic.Int64
				rigs := fleet(t, transport.NewMemory("memory"), 2, func(_ int, cfg *Config) {
					cfg.observe = func(a *arrival) {
						if a.m.Type == string(spec.MsgSyncDeliver) {
							delivered.Add(int64(len(a.m.Attachments)))
						}
					}
				})
				defer stopAll(rigs)
				rigs[0].put(200, "before ")
				linked(t, rigs, [][2]int{{0, 1}}, spec.TierMember, "", mesh.ModePull) // the second fetches
				wantAll(t, rigs, 200)
				n := 200
				for i := range 3 {
					switch how {
					case "cut":
						rigs[0].host.mu.Lock()
						l := rigs[0].host.link(rigs[1].pub)
						rigs[0].host.mu.Unlock()
						l.close()
					case "restart of the initiator":
						rigs[1].restart()
					default:
						rigs[0].restart()
					}
					rigs[0].put(5, fmt.Sprint("round ", i, " "))
					n += 5
					<-time.After(time.Minute)
					synctest.Wait()
					wantAll(t, rigs, n)
				}
				if got := delivered.Load(); got != int64(n) {
					t.Errorf("%d envelopes for %d events", got, n)
				}
				<-time.After(5 * time.Minute)
				synctest.Wait()
				honest(t, rigs)
			})
		})
	}
}
