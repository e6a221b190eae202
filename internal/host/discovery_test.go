package host

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// peered runs two hosts that granted each other a budget.
func peered(t *testing.T) (a, b *rig) {
	t.Helper()
	net := transport.NewMemory("memory")
	rigs := map[nostr.PubKey]*rig{}
	find := func(k nostr.PubKey) *nostr.Event { return rigs[k].desc }
	a = newRig(t, net, "a", 1, mesh.EnrolClosed, find)
	b = newRig(t, net, "b", 2, mesh.EnrolClosed, find)
	rigs[a.pub], rigs[b.pub] = a, b
	for _, p := range []struct{ r, other *rig }{{a, b}, {b, a}} {
		want := []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModePull}}
		if err := p.r.host.AddPeer(t.Context(), p.other.pub, spec.TierMember, want, nil); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	if sa, sb := stageOf(a, b), stageOf(b, a); sa != "active" || sb != "active" {
		t.Fatalf("the peering is %s and %s", sa, sb)
	}
	return a, b
}

// settle lets both ends come to rest.
func settle() {
	synctest.Wait()
	<-time.After(5 * time.Second)
	synctest.Wait()
}

func stageOf(r, other *rig) string {
	for _, p := range r.host.Peers() {
		if p.Key == other.pub {
			return p.Stage
		}
	}
	return ""
}

// TestRevokedPeerLosesEverything revokes a key in the middle of a peering with a session under way.
func TestRevokedPeerLosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := peered(t)
		defer b.stop()
		defer a.stop()
		a.host.mu.Lock()
		s := a.host.newSession(b.pub, "a session under way", ledger.Push, "notes", mesh.ModeBoth)
		l := a.host.link(b.pub)
		a.host.mu.Unlock()
		a.host.Revoke(b.pub, "key-compromise")
		if s.ctx.Err() == nil {
			t.Error("the session goes on")
		}
		settle()
		l.mu.Lock()
		if l.stream != nil || len(l.queue) != 0 {
			t.Errorf("a stream stands, or %d messages wait", len(l.queue))
		}
		l.mu.Unlock()
		if got := stageOf(a, b); got != "ended" {
			t.Errorf("the peering is %s", got)
		}
		if _, err := a.host.Descriptor(t.Context(), b.pub); !errors.Is(err, errRevoked) {
			t.Errorf("its descriptor is believed: %v", err)
		}
		if err := a.host.Learn(b.desc); !errors.Is(err, errRevoked) {
			t.Errorf("its descriptor is learnt: %v", err)
		}
		// Whatever the key signs or seals from now on finds no ear.
		b.host.EndPeer(a.pub, "too late")
		settle()
		if got := stageOf(a, b); got != "ended" || len(a.told("revoked")) != 1 {
			t.Errorf("then the peering is %s", got)
		}
	})
}

// TestFormerAgreementKeyOpensDuringTheOverlap rotates a's key: what b seals to the old one is opened, and what a seals with the new one is
// opened once b has sought a's descriptor anew.
func TestFormerAgreementKeyOpensDuringTheOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := peered(t)
		defer b.stop()
		defer a.stop()
		old := a.host.agreement()
		fresh, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		a.host.SetAgreement(fresh, []*ecdh.PrivateKey{old})
		d, err := identity.ParseDescriptor(a.desc)
		if err != nil {
			t.Fatal(err)
		}
		d.CreatedAt++
		d.Agreement = []identity.BoundKey{{Key: identity.AgreementKey(fresh.PublicKey().Bytes())}, {Key: d.Agreement[0].Key, Expires: time.Now().Unix() + 3600}}
		e := d.Event()
		if err := identity.SignEvent(a.cfg.Agent, e); err != nil {
			t.Fatal(err)
		}
		a.desc = e
		if err := b.ping(a); err != nil { // b knows the old descriptor alone
			t.Errorf("sealed to the former key: %v", err)
		}
		a.host.EndPeer(b.pub, "sealed with the new key")
		settle()
		if got := stageOf(b, a); got != "ended" {
			t.Errorf("a message sealed with the new key was not opened: the peering is %s", got)
		}
		// After the overlap the former key opens nothing.
		a.host.SetAgreement(fresh, nil)
		frame, err := b.sealTo(d.Agreement[1].Key, a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.host.unseal(frame); err == nil {
			t.Error("the former key opens an envelope after its time")
		}
	})
}

// ping seals a message to the key that is known of the other and lets the other open it.
func (r *rig) ping(other *rig) error {
	m := r.host.message(mesh.Send{To: other.pub, Type: spec.MsgPeeringEnd, ID: newID(), Body: map[string]string{}})
	frame, err := r.host.pack(context.Background(), other.pub, m, false)
	if err != nil {
		return err
	}
	_, err = other.host.unseal(frame)
	return err
}

// sealTo seals a message to a key of the other.
func (r *rig) sealTo(k identity.AgreementKey, other *rig) ([]byte, error) {
	d := &identity.Descriptor{Subject: other.pub, CreatedAt: 1 << 40, Agreement: []identity.BoundKey{{Key: k}}, Expiration: 1 << 41}
	r.host.mu.Lock()
	r.host.peers[other.pub] = d
	r.host.mu.Unlock()
	m := r.host.message(mesh.Send{To: other.pub, Type: spec.MsgPeeringEnd, ID: newID(), Body: map[string]string{}})
	return r.host.pack(context.Background(), other.pub, m, false)
}
