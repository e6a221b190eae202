package border_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway/border"
	"fleetmesh.org/fleetmesh/internal/gateway/gatewaytest"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// world is a gateway between two relays.
type world struct {
	n            *gatewaytest.Network
	mesh, estate *gatewaytest.Peer
	stores       border.Stores
	dir          string
	g            *border.Gateway
	stop         func()
}

func newWorld(t *testing.T) *world {
	n := gatewaytest.New()
	node := nostr.PubKey{9, 9}
	return &world{
		n: n, mesh: n.Relay(t, "mesh", func(c *relay.Config) { c.Info.Self = node.String() }), estate: n.Relay(t, "estate"), dir: t.TempDir(),
		stores: border.Stores{Quarantine: store.NewMemory(), Released: store.NewMemory(), Estate: store.NewMemory()},
	}
}

func (w *world) run(t *testing.T, change func(*border.Config)) {
	t.Helper()
	c := &border.Config{
		Dir: w.dir, Estate: border.Side{Relays: []string{"ws://estate"}}, Mesh: border.Side{Relays: []string{"ws://mesh"}},
		Ingress: border.Ingress{Filters: []map[string]any{{"kinds": []int{0, 1, 5, 10000, 10050, 1059}}}, QuarantineSeconds: 100},
		Egress:  border.Egress{Filters: []map[string]any{{"kinds": []int{0, 1, 4, 5, 10000}}}},
	}
	if change != nil {
		change(c)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	w.g, err = border.New(border.Options{Config: c, Stores: w.stores, Key: &key, HTTP: w.n.Client(), Verifier: gatewaytest.Yes{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.g.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != ctx.Err() {
			t.Error(err)
		}
		w.g.Close()
	}
}

func TestGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fromMesh, fromEstate := gatewaytest.Notes(100, "mesh"), gatewaytest.Notes(100, "estate")
		w.mesh.Add(t, fromMesh...)
		w.estate.Add(t, fromEstate...)
		w.mesh.Add(t, gatewaytest.Note(7, 946684800, "outside the filter"))
		w.run(t, nil)
		gatewaytest.Rest(50 * time.Second)
		gatewaytest.All(t, true, w.mesh, fromEstate, "egress")
		gatewaytest.All(t, false, w.estate, fromMesh, "in quarantine")
		where, err := w.g.Where(t.Context(), fromMesh[3].ID)
		if err != nil || where.Origin == nil || where.Origin.Relay != "ws://mesh/" || !where.Quarantine || where.Released {
			t.Errorf("%+v %v", where, err)
		}
		// A deletion that comes while its target waits keeps it out of the estate.
		gone := gatewaytest.Note(5, 946684900, "", nostr.Tag{"e", fromMesh[0].ID.String()})
		gone.PubKey = fromMesh[0].PubKey
		gone.ID = gone.ComputeID()
		w.mesh.Add(t, gone)
		gatewaytest.Rest(time.Second)
		live := gatewaytest.Note(1, 946684800, "live")
		w.estate.Add(t, live)
		gatewaytest.Rest(time.Minute)
		gatewaytest.All(t, true, w.mesh, []*nostr.Event{live}, "live egress")
		gatewaytest.All(t, true, w.estate, fromMesh[1:], "released")
		gatewaytest.All(t, false, w.estate, fromMesh[:1], "deleted in quarantine")
		gatewaytest.NoEcho(t, w.estate, append(fromEstate, live))
		gatewaytest.NoEcho(t, w.mesh, fromMesh)
		late := gatewaytest.Note(1, 946684800, "the node is known by now")
		w.mesh.Add(t, late)
		gatewaytest.Rest(time.Second)
		where, err = w.g.Where(t.Context(), late.ID)
		if err != nil || where.Origin == nil || where.Origin.Node != "did:nostr:"+(nostr.PubKey{9, 9}).String() {
			t.Errorf("%+v %v", where.Origin, err)
		}
		st, err := w.g.Status(t.Context())
		if err != nil || st.Quarantine != 2 || st.Released != 99 { // the deletion and the late one wait
			t.Errorf("%+v %v", st, err)
		}
		w.stop()

		// A restart forgets nothing and repeats nothing.
		offers := w.estate.All() + w.mesh.All()
		w.run(t, nil)
		gatewaytest.Rest(30 * time.Second)
		if n := w.estate.All() + w.mesh.All() - offers; n != 0 {
			t.Errorf("%d events were offered again after a restart", n)
		}
		gatewaytest.Rest(2 * time.Minute)
		gatewaytest.All(t, true, w.estate, []*nostr.Event{late}, "released after a restart")
		where, err = w.g.Where(t.Context(), late.ID)
		if err != nil || where.Origin == nil || !where.Released || len(where.Left) != 1 || where.Left[0].To != "ws://estate/" {
			t.Errorf("%+v %v", where, err)
		}
		w.stop()
	})
}

// TestSwitches cuts either side, by the verb and by the file, and wants nothing across within a second.
func TestSwitches(t *testing.T) {
	for _, side := range []string{border.MeshSide, border.EstateSide} {
		for _, how := range []string{"verb", "file"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				early := gatewaytest.Notes(10, "early")
				w.mesh.Add(t, early...)
				w.run(t, nil)
				gatewaytest.Rest(99 * time.Second) // they are about to be released
				var err error
				if how == "verb" {
					err = w.g.Cut(side, true)
				} else {
					err = os.WriteFile(filepath.Join(w.dir, "kill."+side), nil, 0o600)
					gatewaytest.Rest(900 * time.Millisecond)
				}
				if err != nil {
					t.Fatal(err)
				}
				into, out := gatewaytest.Note(1, 946684800, "into"), gatewaytest.Note(1, 946684800, "out")
				w.mesh.Add(t, into)
				w.estate.Add(t, out)
				gatewaytest.Rest(10 * time.Minute)
				what := fmt.Sprintf("%s cut by %s", side, how)
				gatewaytest.All(t, false, w.estate, append(early, into), what)
				gatewaytest.All(t, false, w.mesh, []*nostr.Event{out}, what)
				w.stop()
				w.run(t, nil) // it stays cut over a restart
				gatewaytest.Rest(10 * time.Minute)
				gatewaytest.All(t, false, w.estate, append(early, into), what+", restarted")
				gatewaytest.All(t, false, w.mesh, []*nostr.Event{out}, what+", restarted")
				if err := w.g.Cut(side, false); err != nil {
					t.Fatal(err)
				}
				gatewaytest.Rest(10 * time.Minute)
				gatewaytest.All(t, true, w.estate, append(early, into), what+", and restored")
				gatewaytest.All(t, true, w.mesh, []*nostr.Event{out}, what+", and restored")
				w.stop()
			})
		}
	}
}

// TestManualRelease: nothing comes in but what the operator lets in, and he cannot let in what never crosses.
func TestManualRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list := gatewaytest.Notes(3, "mesh")
		dying := gatewaytest.Note(1, 946684800, "dying", nostr.Tag{"expiration", fmt.Sprint(time.Now().Unix() + 60)})
		w.mesh.Add(t, append(list, dying)...)
		w.run(t, func(c *border.Config) { c.Ingress.Release = "manual" })
		gatewaytest.Rest(30 * time.Second)
		waiting, err := w.g.Waiting(t.Context(), 0)
		if err != nil || len(waiting) != 4 {
			t.Fatalf("%d wait: %v", len(waiting), err)
		}
		gatewaytest.Rest(time.Hour)
		if n, err := w.g.Decide(t.Context(), []nostr.ID{list[0].ID, dying.ID}, true); n != 1 || err != nil {
			t.Errorf("%d released: %v", n, err)
		}
		if n, err := w.g.Decide(t.Context(), []nostr.ID{list[1].ID}, false); n != 1 || err != nil {
			t.Errorf("%d refused: %v", n, err)
		}
		gatewaytest.Rest(3 * time.Hour)
		gatewaytest.All(t, true, w.estate, list[:1], "released by hand")
		gatewaytest.All(t, false, w.estate, append(list[1:], dying), "not released")
		where, err := w.g.Where(t.Context(), list[1].ID)
		if err != nil || where.Refused != "operator" {
			t.Errorf("%+v %v", where, err)
		}
		w.stop()
	})
}

// TestPlugins: rules at the end of the quarantine and before what leaves.
func TestPlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		bad, good := gatewaytest.Note(1, 946684800, "bad author"), gatewaytest.Note(1, 946684800, "fine")
		out, kept := gatewaytest.Note(1, 946684800, "may leave here"), gatewaytest.Note(0, 946684800, "a profile stays")
		w.mesh.Add(t, bad, good)
		w.estate.Add(t, out, kept)
		w.run(t, func(c *border.Config) {
			c.Ingress.QuarantineSeconds = 0
			c.Ingress.PluginIn = &policy.SeamConfig{DenyPubkeys: []string{bad.PubKey.String()}}
			c.Egress.PluginOut = &policy.SeamConfig{Refuse: []map[string]any{{"kinds": []int{0}}}}
		})
		gatewaytest.Rest(3 * time.Hour)
		gatewaytest.All(t, true, w.estate, []*nostr.Event{good}, "passes pluginIn")
		gatewaytest.All(t, false, w.estate, []*nostr.Event{bad}, "stopped by pluginIn")
		gatewaytest.All(t, true, w.mesh, []*nostr.Event{out}, "passes pluginOut")
		gatewaytest.All(t, false, w.mesh, []*nostr.Event{kept}, "stopped by pluginOut")
		w.stop()
	})
}

// TestNothingForbidden walks what never crosses through both directions of a gateway whose filters ask for all of it.
func TestNothingForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		forbidden := gatewaytest.Forbidden(t, "m")
		back := gatewaytest.Forbidden(t, "e")
		in, out := gatewaytest.Note(1, 946684800, "may come in"), gatewaytest.Note(1, 946684800, "may go")
		everything := []map[string]any{{}}
		w.run(t, func(c *border.Config) {
			c.Ingress.Filters, c.Egress.Filters, c.Ingress.QuarantineSeconds = everything, everything, 10
		})
		gatewaytest.Rest(5 * time.Second)
		w.mesh.Add(t, append(forbidden, in)...) // live
		w.estate.Add(t, append(back, out)...)
		gatewaytest.Rest(5 * time.Minute)
		w.n.Cut("")
		gatewaytest.Rest(2 * time.Hour) // by reconciliation
		gatewaytest.All(t, true, w.estate, []*nostr.Event{in}, "what may come in")
		gatewaytest.All(t, true, w.mesh, []*nostr.Event{out}, "what may go")
		for _, e := range forbidden {
			if w.estate.Offered(e.ID) > 0 {
				t.Errorf("kind %d %q crossed into the estate", e.Kind, e.Content)
			}
		}
		for _, e := range back {
			if w.mesh.Offered(e.ID) > 0 {
				t.Errorf("kind %d %q crossed into the mesh", e.Kind, e.Content)
			}
		}
		w.stop()
	})
}
