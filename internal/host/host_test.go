package host

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// rig is one host on a memory store, reached by a memory transport.
type rig struct {
	t     *testing.T
	host  *Host
	store store.Store
	key   nostr.SecretKey
	pub   nostr.PubKey
	desc  *nostr.Event
	cfg   Config
	net   *transport.Memory
	name  string
	door  transport.Listener
}

func newRig(t *testing.T, net *transport.Memory, name string, secret byte, enrolment mesh.Enrolment, others func(nostr.PubKey) *nostr.Event) *rig {
	t.Helper()
	return newRigWith(t, net, name, secret, enrolment, others, nil, nil)
}

// newRigWith lets a test change the descriptor and the configuration before the host is made.
func newRigWith(t *testing.T, net *transport.Memory, name string, secret byte, enrolment mesh.Enrolment, others func(nostr.PubKey) *nostr.Event, describe func(*identity.Descriptor), change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, store: store.NewMemory(), key: nostr.SecretKey{31: secret}, net: net, name: name}
	r.pub = r.key.PubKey()
	agent, err := identity.NewKeyAgent(r.key)
	if err != nil {
		t.Fatal(err)
	}
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	d := identity.Descriptor{Subject: r.pub, CreatedAt: now, Class: spec.ClassEdge, Protocol: spec.C().Protocol.Name, Digest: spec.DigestHex(),
		Agreement: []identity.BoundKey{{Key: identity.AgreementKey(agreement.PublicKey().Bytes())}}, Transport: []identity.TransportKey{identity.TransportSecret{secret}.Public()},
		Endpoints: []identity.Endpoint{{Scheme: net.Scheme(), Address: name, Preference: 10}},
		Protocols: []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync, spec.PIURIComplaint, spec.PIURIStanding}, Expiration: now + 86400}
	if describe != nil {
		describe(&d)
	}
	r.desc = d.Event()
	if err := identity.SignEvent(agent, r.desc); err != nil {
		t.Fatal(err)
	}
	take := func(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error) {
		defer func() {
			if r.host != nil {
				r.host.Arrived()
			}
		}()
		return r.store.Insert(ctx, events, time.Now().Unix())
	}
	cfg := Config{
		Agent: agent, Agreement: agreement, Dir: t.TempDir(), Store: r.store, View: policy.NewGate(policy.PrivateKinds, true).View(nil),
		Take: take, Publish: func(ctx context.Context, e *nostr.Event) error { _, err := take(ctx, []*nostr.Event{e}); return err },
		Find:       func(_ context.Context, k nostr.PubKey, _ []string) (*nostr.Event, error) { return others(k), nil },
		Descriptor: func() *nostr.Event { return r.desc },
		Transports: []transport.Transport{net}, Ours: []transport.Endpoint{{Scheme: net.Scheme()}},
		Mesh: mesh.Config{Self: r.pub, Class: d.Class, Digest: spec.DigestHex(), Protocols: d.Protocols, Descriptor: r.desc.ID, Enrolment: enrolment, Window: 60, Serve: []json.RawMessage{json.RawMessage(`{}`)}},
	}
	if change != nil {
		change(&cfg)
	}
	r.cfg = cfg
	r.start()
	return r
}

// start makes the host of what the directory holds, and runs it.
func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.host, err = New(r.cfg); err != nil {
		r.t.Fatal(err)
	}
	if r.door, err = r.net.Listen(context.Background(), transport.Endpoint{Scheme: r.net.Scheme(), Address: r.name}); err != nil {
		r.t.Fatal(err)
	}
	r.host.Start(r.door)
}

// restart stops the host and makes another of its directory.
func (r *rig) restart() {
	r.t.Helper()
	r.door.Close()
	r.stop()
	r.start()
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.host.Stop(ctx); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) put(n int, content string) {
	r.t.Helper()
	for i := range n {
		e := &nostr.Event{CreatedAt: 1_700_000_000 + int64(i), Kind: 1, Content: fmt.Sprint(content, i)}
		if err := e.Sign(nostr.SecretKey{31: 99}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := r.store.Insert(context.Background(), []*nostr.Event{e}, time.Now().Unix()); err != nil {
			r.t.Fatal(err)
		}
	}
	r.host.Arrived()
}

func (r *rig) print() [16]byte {
	r.t.Helper()
	fp, err := r.store.FingerprintRange(context.Background(), nostr.Filter{Kinds: []nostr.Kind{1}}, 0, 1<<53-1, time.Now().Unix())
	if err != nil {
		r.t.Fatal(err)
	}
	return fp
}

func (r *rig) told(what string) (list []mesh.Tell) {
	all, _ := r.host.History(nostr.PubKey{})
	for _, h := range all {
		if h.Tell.What == what {
			list = append(list, h.Tell)
		}
	}
	return list
}

func (r *rig) dump(t *testing.T) {
	all, _ := r.host.History(nostr.PubKey{})
	for _, h := range all {
		t.Logf("%s %+v", r.pub.String()[:6], h.Tell)
	}
}

// TestThread runs the thin thread: descriptors, grants, a shard in envelopes both ways, receipts, a clean window on both sides.
func TestThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		rigs := map[nostr.PubKey]*rig{}
		find := func(k nostr.PubKey) *nostr.Event { return rigs[k].desc }
		a := newRig(t, net, "a", 1, mesh.EnrolClosed, find)
		b := newRig(t, net, "b", 2, mesh.EnrolClosed, find)
		rigs[a.pub], rigs[b.pub] = a, b
		defer a.stop()
		defer b.stop()
		a.put(300, "of a ")
		b.put(500, "of b ")
		want := []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModeBoth}}
		for _, p := range []struct{ r, other *rig }{{b, a}, {a, b}} {
			if err := p.r.host.AddPeer(t.Context(), p.other.pub, spec.TierMember, want, nil); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(4 * time.Minute) // of the bubble's clock: receipts, the close, and the verdict
		synctest.Wait()
		if a.print() != b.print() {
			a.dump(t)
			b.dump(t)
			t.Fatal("the shards differ")
		}
		for _, r := range []*rig{a, b} {
			p := r.host.Peers()[0]
			if p.Stage != "active" || p.Worst != "S0" || p.Clean == 0 || len(p.Windows) == 0 || p.Windows[0].Receipts == 0 {
				r.dump(t)
				t.Errorf("peering %+v", p)
			}
		}
		for _, tell := range append(a.told("fault"), b.told("fault")...) {
			t.Errorf("a fault: %+v", tell)
		}
	})
}
