package mesh

import (
	"testing"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// TestStrangersAreForgotten describes more nodes than are remembered. Those that the operator added stay.
func TestStrangersAreForgotten(t *testing.T) {
	w := newPair(t)
	a := w.a()
	added := nostr.PubKey{0: 0xff}
	w.step(a, AddPeer{Peer: added})
	for i := range 3 * maxStrangers {
		d := &identity.Descriptor{Subject: nostr.PubKey{0: 1, 30: byte(i >> 8), 31: byte(i)}, Class: spec.ClassEdge, Protocols: protocols(), Digest: spec.DigestHex()}
		w.step(a, Described{Descriptor: d})
		if n := len(a.node.peers); n > maxStrangers+1 {
			t.Fatalf("%d nodes are remembered", n)
		}
	}
	if p := a.node.peers[added]; p == nil || !p.Added {
		t.Error("a node that the operator added is forgotten")
	}
}
