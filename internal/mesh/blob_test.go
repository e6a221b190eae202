package mesh

import (
	"encoding/json"
	"testing"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// TestBlobsOnBothSides has a fetch blobs of b's under a grant of 1,000 octets: both ends count the same, the subject stops before the limit, and
// the issuer refuses a subject that does not.
func TestBlobsOnBothSides(t *testing.T) {
	w := newPair(t)
	limits := ledger.Seeded(spec.TierMember)
	limits[spec.LimitBlobBytes] = 1000
	w.b().node.peers[w.a().key] = &peer{Key: w.a().key, Stage: known, Added: true, Stands: ledger.Standing{Tier: spec.TierMember, Limits: limits},
		Wants: []Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: ModePull}}}
	w.step(w.a(), AddPeer{Peer: w.b().key, Wants: []Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: ModePush}}})
	w.step(w.a(), Described{Descriptor: descriptor(w.b())})
	answer := func(e *end, in Input) Effect {
		t.Helper()
		for _, eff := range w.step(e, in) {
			switch eff.(type) {
			case Permit, Withhold:
				return eff
			}
		}
		t.Fatalf("%T got no answer", in)
		return nil
	}
	created := w.now.Unix()
	fetch := func(octets int64, served bool) Effect {
		t.Helper()
		got := answer(w.a(), BlobFetching{Peer: w.b().key, Created: created, Octets: octets})
		if p, ok := got.(Permit); ok {
			if served {
				if a, ok := answer(w.b(), BlobAsked{Peer: w.a().key, Created: created, Octets: octets}).(Permit); !ok || a.Window != p.Window || a.Grant != p.Grant {
					t.Fatalf("the issuer says %+v, the subject %+v", a, p)
				}
			}
			w.step(w.a(), BlobFetched{Peer: w.b().key, Window: p.Window, Octets: octets, Served: served})
		}
		return got
	}
	if _, ok := fetch(600, true).(Permit); !ok {
		t.Fatal("600 of 1000 octets are withheld")
	}
	if no, ok := fetch(600, true).(Withhold); !ok || no.Limit != spec.LimitBlobBytes || no.Code != spec.CodeOverBudget || no.Until <= created {
		t.Fatalf("1200 of 1000 octets: %+v", no)
	}
	if _, ok := fetch(400, false).(Permit); !ok {
		t.Fatal("what was refused is charged")
	}
	if _, ok := fetch(400, true).(Permit); !ok {
		t.Fatal("the budget of a refused request did not come back")
	}
	if no, ok := answer(w.b(), BlobAsked{Peer: w.a().key, Created: created, Octets: 1}).(Withhold); !ok || no.Limit != spec.LimitBlobBytes {
		t.Fatalf("the issuer lets a flood in: %+v", no)
	}
	if no, ok := answer(w.a(), BlobFetching{Peer: key(9).PubKey(), Created: created, Octets: 1}).(Withhold); !ok || no.Code != spec.CodeNotGranted {
		t.Fatalf("a stranger's blob: %+v", no)
	}
	held, issued := w.a().node.Peers(w.now)[0].Held.Used, w.b().node.Peers(w.now)[0].Issued.Used
	for _, c := range []spec.Counter{spec.CounterBlobBytes, spec.CounterReq} {
		if held[c] != issued[c] {
			t.Errorf("%s is %d at the subject and %d at the issuer", c, held[c], issued[c])
		}
	}
	if issued[spec.CounterBlobBytes] != 1000 {
		t.Errorf("%d octets are counted", issued[spec.CounterBlobBytes])
	}
}
