package mesh

import (
	"encoding/json"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// budgetOfTen peers a and b; b's grant to a allows ten events a window, of kind 1 alone.
func budgetOfTen(t *testing.T) *pair {
	t.Helper()
	w := newPair(t)
	limits := ledger.Seeded(spec.TierMember)
	limits[spec.LimitEventsIn] = 10
	w.b().node.peers[w.a().key] = &peer{Key: w.a().key, Stage: known, Added: true, Stands: ledger.Standing{Tier: spec.TierMember, Limits: limits},
		Wants: []Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: ModePull}}}
	w.step(w.a(), AddPeer{Peer: w.b().key, Wants: []Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: ModePush}}})
	w.step(w.a(), Described{Descriptor: descriptor(w.b())})
	w.syncs = nil
	return w
}

// restart takes a node up from its journal.
func (w *pair) restart(e *end) {
	w.t.Helper()
	e.node = New(e.cfg)
	if err := e.node.Restore(e.journal); err != nil {
		w.t.Fatal(err)
	}
	w.step(e, Woken{})
}

// openPush opens a session of a's at b, past a's own node.
func (w *pair) openPush(thread, filter string) {
	w.t.Helper()
	w.step(w.b(), Received{From: w.a().key, Type: spec.MsgSyncOpen, ID: thread, Thread: thread, Created: w.now.Unix(), Octets: 500,
		Body: json.RawMessage(`{"shard":"notes","filter":` + filter + `,"mode":"push","neg":"61"}`)})
}

// TestCase51TheIssuerAgainstAFlood is case 51 from the side that grants: a peer that keeps to no budget offers a hundred events, the granting node is
// killed, and a hundred more come in the same window. Exactly ten get through; another kind than the granted one is out of scope.
func TestCase51TheIssuerAgainstAFlood(t *testing.T) {
	w := budgetOfTen(t)
	passed, refused := 0, 0
	flood := func(thread string) {
		w.openPush(thread, `{"kinds":[1]}`)
		for range 100 {
			got := w.step(w.b(), Received{From: w.a().key, Type: spec.MsgSyncDeliver, Thread: thread, Created: w.now.Unix(), Octets: 900, Envelopes: 1, Body: json.RawMessage(`{"count":1}`)})
			switch got := got[0].(type) {
			case Pass:
				passed++
			case Withhold:
				if got.Code.Refusal().Prefix != "rate-limited" {
					t.Fatalf("refused with %+v", got)
				}
				refused++
			}
		}
	}
	flood("first")
	w.restart(w.b())
	flood("second")
	if passed != 10 || refused != 190 {
		t.Errorf("%d passed and %d were refused, want 10 and 190", passed, refused)
	}
	w.restart(w.b())
	w.openPush("third", `{"kinds":[7]}`)
	if _, last := w.told("sync-refused"); last.Code != spec.CodeOutOfScope || last.Code.Refusal().Prefix != "restricted" {
		t.Errorf("another kind: %+v", last)
	}
}

// TestCase51TheSubjectsBucket is case 51 from the side that is granted: two hundred parallel wishes, with a restart in between, take exactly ten, and the
// receipt counts ten under a head that both ends hold.
func TestCase51TheSubjectsBucket(t *testing.T) {
	w := budgetOfTen(t)
	permitted := 0
	try := func() {
		p := w.a().node.peers[w.b().key]
		p.NextSync = 0
		turn := &turn{Node: w.a().node, now: w.now.Unix()}
		clear(w.a().node.threads)
		turn.startIfActive(p)
		var session string
		for _, eff := range turn.effects {
			if s, ok := eff.(StartSync); ok {
				session = s.Session
			}
		}
		w.openPush(session, `{"kinds":[1]}`)
		w.step(w.a(), Sending{Peer: w.b().key, Session: session, Type: spec.MsgSyncOpen, Created: w.now.Unix(), Octets: 500})
		w.step(w.a(), Received{From: w.b().key, Type: spec.MsgSyncFrame, Thread: session, Created: w.now.Unix(), Octets: 300, Body: json.RawMessage(`{"neg":"61"}`)})
		w.step(w.b(), Sending{Peer: w.a().key, Session: session, Type: spec.MsgSyncFrame, Created: w.now.Unix(), Octets: 300})
		for range 100 {
			got := w.step(w.a(), Sending{Peer: w.b().key, Session: session, Type: spec.MsgSyncDeliver, Created: w.now.Unix(), Octets: 900, Envelopes: 1})
			if _, ok := got[0].(Permit); ok {
				permitted++
				w.step(w.b(), Received{From: w.a().key, Type: spec.MsgSyncDeliver, Thread: session, Created: w.now.Unix(), Octets: 900, Envelopes: 1, Body: json.RawMessage(`{"count":1}`)})
				w.step(w.b(), Sending{Peer: w.a().key, Session: session, Type: spec.MsgSyncDelivered, Created: w.now.Unix(), Octets: 400})
				w.step(w.a(), Received{From: w.b().key, Type: spec.MsgSyncDelivered, Thread: session, Created: w.now.Unix(), Octets: 400, Body: json.RawMessage(`{"stored":1,"duplicate":0,"refused":[]}`)})
			}
		}
		for _, e := range []*end{w.a(), w.b()} {
			other := w.b()
			if e == other {
				other = w.a()
			}
			w.step(e, SyncEnded{Peer: other.key, Session: session})
		}
	}
	try()
	w.restart(w.a())
	w.step(w.a(), Described{Descriptor: descriptor(w.b())})
	try()
	if permitted != 10 {
		t.Fatalf("%d permitted, want 10", permitted)
	}
	w.pass(70 * time.Second)
	sent, held := w.a().node.peers[w.b().key].Used[0].Last, w.b().node.peers[w.a().key].Measured[0].Last
	if sent == nil || held == nil || sent.Link() != held.Link() || held.Counters[spec.CounterEventsIn] != 10 {
		t.Errorf("receipts %+v and %+v\n%+v", sent, held, w.tells)
	}
}
