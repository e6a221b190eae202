package mesh

import (
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/spec"
)

// A node that forgot a grant in a crash dials without knowing that it is metered: it could never claim what is counted against it.
func TestASessionIsNotCountedBeforeTheGrantIsKnown(t *testing.T) {
	w := newPair(t)
	w.drop = func(s Send) bool { return s.Type == spec.MsgPeeringAccept && s.To == w.b().key }
	w.step(w.a(), AddPeer{Peer: w.b().key})
	w.step(w.a(), Described{Descriptor: descriptor(w.b())})
	counted := func() (n int64) {
		for _, b := range w.a().node.peers[w.b().key].Measured {
			n += b.Counters[spec.CounterConnOpen]
		}
		return n
	}
	if len(w.a().node.peers[w.b().key].Issued) == 0 || len(w.b().node.peers[w.a().key].Held) != 0 {
		t.Fatalf("the grant was not lost on its way: %+v", w.tells)
	}
	w.step(w.a(), Connected{Peer: w.b().key, Inbound: true, Created: w.now.Unix()})
	if n := counted(); n != 0 {
		t.Fatalf("%d sessions are counted under a grant that the peer never saw", n)
	}
	w.drop = nil
	w.pass(2 * retrySeconds * time.Second) // the acceptance goes again, and is answered
	w.step(w.a(), Connected{Peer: w.b().key, Inbound: true, Created: w.now.Unix()})
	if n := counted(); n != 1 {
		t.Fatalf("%d sessions are counted, want 1", n)
	}
}
