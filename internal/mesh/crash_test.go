package mesh

import (
	"encoding/json"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
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

// What the issuer counted and a crash or a torn stream kept from us never comes: it must not be taken for what a later session brings.
func TestWhatGotLostHidesNothingOfTheNextSession(t *testing.T) {
	w := newPair(t)
	w.peering()
	g := w.a().node.peers[w.b().key].Held.current()
	b := find(&w.a().node.peers[w.b().key].Used, g, ledger.WindowAt(w.now.Unix(), g.Window))
	b.told(ledger.Counters{spec.CounterEventsIn: 35}, g.Limits)
	begun := len(w.syncs)
	w.step(w.a(), SyncEnded{Peer: w.b().key, Session: w.syncs[len(w.syncs)-1].Session, Code: spec.CodeError})
	w.step(w.a(), AddPeer{Peer: w.b().key, Tier: spec.TierMember, Wants: w.a().node.peers[w.b().key].Wants})
	if len(w.syncs) == begun {
		t.Fatal("no session was begun")
	}
	b.saw(ledger.Counters{spec.CounterEventsIn: 31}, g.Limits)
	if n := b.Counters[spec.CounterEventsIn]; n != 66 {
		t.Fatalf("%d events are known to be counted, want 66", n)
	}
}

// A message that waited is too old by our clock to count in its own window, and may not be so by the clock of a peer that is behind.
func TestADialIsTakenInEveryWindowThatThePeerMayCountItIn(t *testing.T) {
	w := newPair(t)
	w.peering()
	skew := spec.C().Window.SkewSeconds
	w.pass(5 * time.Minute)
	created := w.now.Unix() - skew - 25
	w.step(w.a(), Dialling{Peer: w.b().key, Created: created})
	p := w.a().node.peers[w.b().key]
	for _, behind := range []int64{0, 44, skew} {
		_, v := p.Held.at(created, w.now.Unix()-behind)
		if b := lookup(p.Used, v.Epoch); b == nil || b.spent()[spec.CounterConnOpen] != 1 {
			t.Errorf("a peer whose clock is %d s behind counts the session in window %d, where we took nothing", behind, v.Epoch)
		}
	}
}

// A proposal that was overtaken by the peer's own may arrive when that one was answered: the ends then speak on two threads.
func TestAProposalThatComesLateLeavesNoPeeringHalfDone(t *testing.T) {
	w := newPair(t)
	a, b := w.a(), w.b()
	var late *Send
	w.drop = func(s Send) bool {
		switch {
		case s.Type == spec.MsgPeeringPropose && s.To == a.key:
			late = &s
			return true
		case s.Type == spec.MsgPeeringAccept && s.To == b.key:
			return late != nil
		}
		return false
	}
	w.step(b, AddPeer{Peer: a.key})
	w.step(b, Described{Descriptor: descriptor(a)})
	w.step(a, AddPeer{Peer: b.key})
	w.step(a, Described{Descriptor: descriptor(b)})
	w.drop = nil
	w.deliver(b, *late)
	w.pass(2 * time.Minute)
	for _, e := range w.nodes {
		for _, p := range e.node.peers {
			if p.Stage != active || !p.knowsCurrent() {
				t.Errorf("the peering is %s, known %v, thread %s", p.Stage, p.knowsCurrent(), p.Thread)
			}
		}
	}
	if one, other := a.node.peers[b.key].Thread, b.node.peers[a.key].Thread; one != other {
		t.Errorf("one end speaks on %s, the other on %s", one, other)
	}
}

// A refusal leaves a book behind that is empty. What is used of it later reaches the disk lazily, so a machine that crashes takes it up empty; when its
// window is over it has to be asked about, and not forgotten: the issuer waits for a claim of what it counted.
func TestABookThatACrashLeftEmptyIsAskedAbout(t *testing.T) {
	w := newPair(t)
	w.peering()
	a, b := w.a(), w.b()
	p := a.node.peers[b.key]
	g, v := p.Held.at(w.now.Unix(), w.now.Unix())
	open(&p.Used, g, v)
	before := books{p.Key, p.Back, p.Alive, p.Forgot, p.Measured, p.Used}.encode()
	w.talk(20)
	a.journal[booksKey+b.key.String()] = before
	w.now = time.Unix(v.End()+2*spec.C().Window.SkewSeconds, 0)
	w.restart(a)
	w.pass(time.Minute)
	w.talk(1)
	w.pass(5 * time.Minute)
	n := 0
	for _, c := range b.node.Peers(w.now)[0].Windows {
		n++
		if c.Severity != "S0" {
			t.Errorf("window %d is closed with %s: measured %v, claimed %v", c.Window, c.Severity, c.Measured, c.Claimed)
		}
	}
	if n < 2 {
		t.Errorf("%d windows were closed\n%+v", n, w.tells)
	}
}

// What opens a settled window again is durable at once, and what an acknowledgement told before is not counted twice.
func TestASettledWindowIsOpenedAgainDurably(t *testing.T) {
	w := newPair(t)
	w.peering()
	a, b := w.a(), w.b()
	p := a.node.peers[b.key]
	g, v := p.Held.at(w.now.Unix(), w.now.Unix())
	s := w.syncs[len(w.syncs)-1]
	k := find(&p.Used, g, v)
	durable := func(in Input) bool {
		k.Settled, k.Last = true, nil
		for _, eff := range a.node.Step(w.now, in) {
			if e, ok := eff.(Persist); ok && !e.Lazy && e.Key == booksKey+b.key.String() {
				return !k.Settled
			}
		}
		return false
	}
	if !durable(Received{From: b.key, Type: spec.MsgSyncFrame, Thread: s.Session, Created: w.now.Unix(), Octets: 700, Body: json.RawMessage(`{"neg":"61"}`)}) {
		t.Error("an answer that came late may be forgotten")
	}
	if !durable(Problem{Peer: b.key, Code: spec.CodeMalformed, Created: w.now.Unix()}) {
		t.Error("an error may be forgotten")
	}
	if !durable(Fate{Peer: b.key, Session: s.Session, Window: v.Epoch, Duplicate: 2}) {
		t.Error("duplicates may be forgotten")
	}
	k.told(ledger.Counters{spec.CounterDupsSent: 5}, g.Limits)
	a.node.Step(w.now, Fate{Peer: b.key, Session: s.Session, Window: v.Epoch, Duplicate: 3})
	if n := k.Counters[spec.CounterDupsSent]; n != 5 {
		t.Errorf("%d duplicates are counted, want the 5 that were told", n)
	}
}

// A grant that was lowered by disuse may come in the middle of a window that it binds by its date. What was used before is claimed all the same: the issuer
// holds a window to the more generous of the two until it knows that we know.
func TestAGrantThatComesInMidWindowHidesNothing(t *testing.T) {
	w := newPair(t)
	w.peering()
	a, b := w.a(), w.b()
	p := a.node.peers[b.key]
	old := *p.Held.current()
	w.pass(3 * time.Minute)
	g, v := p.Held.at(w.now.Unix(), w.now.Unix())
	k := find(&p.Used, g, v)
	k.send(ledger.Counters{spec.CounterEventsIn: old.Limits[spec.LimitEventsIn]})
	lower := *g
	lower.ID[0] ^= 1
	lower.CreatedAt = v.Start() - spec.C().Window.SkewSeconds
	lower.Limits = old.Limits.Clone()
	lower.Limits[spec.LimitEventsIn] -= 100
	p.Held = p.Held.push(&lower)
	if got := p.Held.of(v.Start()); got != &lower {
		t.Fatalf("the window is under %+v", got)
	}
	if k.told(ledger.Counters{spec.CounterEventsIn: old.Limits[spec.LimitEventsIn]}, p.heldTo(k)); !k.pendingZero() {
		t.Errorf("%v stays in doubt, %v is claimed", k.Pending, k.Counters)
	}
}

// A deliver is counted when it leaves, by the clock of who sends it: in a window, perhaps, of which nothing else ever reaches the other end. Where the way
// breaks, or a node crashes, it has to ask about that window too.
func TestAWindowOfWhichNothingArrivedIsAskedAbout(t *testing.T) {
	for _, crash := range []bool{false, true} {
		w := newPair(t)
		w.peering()
		a, b := w.a(), w.b()
		s := w.syncs[len(w.syncs)-1]
		v := ledger.WindowAt(w.now.Unix(), a.node.peers[b.key].Held.current().Window)
		w.now = time.Unix(v.End()-3, 0)
		step := func(from, to *end, typ spec.MessageType, created, envelopes int64, lost bool, body string) {
			t.Helper()
			if got := w.step(from, Sending{Peer: to.key, Session: s.Session, Type: typ, Created: created, Octets: 900, Envelopes: envelopes}); len(got) != 1 {
				t.Fatalf("sending %s: %v", typ, got)
			}
			if !lost {
				w.step(to, Received{From: from.key, Type: typ, Thread: s.Session, Created: created, Octets: 900, Envelopes: envelopes, Body: json.RawMessage(body)})
			}
		}
		at := w.now.Unix()
		step(a, b, spec.MsgSyncOpen, at, 0, false, `{"shard":"notes","filter":{"kinds":[1]},"mode":"pull","neg":"61"}`)
		step(b, a, spec.MsgSyncFrame, at, 0, false, `{"neg":"61"}`)
		step(a, b, spec.MsgSyncWant, at, 0, false, `{"ids":[]}`)
		step(b, a, spec.MsgSyncDeliver, v.End()+1, 7, true, "") // its clock is ahead
		w.syncs = nil
		if crash {
			w.now = w.now.Add(10 * time.Minute)
			w.restart(a)
		} else {
			w.step(a, SyncEnded{Peer: b.key, Session: s.Session, Code: spec.CodeError})
		}
		w.step(b, SyncEnded{Peer: a.key, Session: s.Session, Code: spec.CodeError})
		w.pass(10 * time.Minute)
		w.talk(1)
		w.pass(5 * time.Minute)
		found := false
		for _, c := range b.node.Peers(w.now)[0].Windows {
			if c.Severity != "S0" {
				t.Errorf("crash %v: window %d is closed with %s: measured %v, claimed %v", crash, c.Window, c.Severity, c.Measured, c.Claimed)
			}
			found = found || c.Window == v.Epoch+1 && c.Claimed[spec.CounterEventsIn] == 7
		}
		if !found {
			t.Errorf("crash %v: what was lost is not claimed: %+v", crash, b.node.Peers(w.now)[0].Windows)
		}
	}
}

// A dial is on the disk before it is made. What is not known to have been counted can be asked for, but not without one more session: a machine that forgot one
// in every crash would be beyond its limit before it had asked.
func TestADialIsDurableBeforeItIsMade(t *testing.T) {
	w := newPair(t)
	w.peering()
	for range 2 {
		durable := false
		for _, eff := range w.a().node.Step(w.now, Dialling{Peer: w.b().key, Created: w.now.Unix()}) {
			switch eff := eff.(type) {
			case Persist:
				durable = !eff.Lazy
			case Permit:
				if !durable {
					t.Error("the dial may be forgotten")
				}
			}
		}
		w.step(w.a(), Connected{Peer: w.b().key, Created: w.now.Unix()})
	}
}

// A dial that the peer may count in the window before is not made where that one is full, whichever the peer would have counted it in.
func TestADialFitsInEveryWindowThatItMayBeCountedIn(t *testing.T) {
	w := newPair(t)
	w.peering()
	p := w.a().node.peers[w.b().key]
	skew := spec.C().Window.SkewSeconds
	w.now = time.Unix(w.now.Unix()/60*60+6*60+5, 0)
	before := ledger.WindowAt(w.now.Unix()-skew, p.Held.current().Window)
	find(&p.Used, p.Held.of(before.Start()), before).Counters[spec.CounterConnOpen] = p.Held.of(before.Start()).Limits[spec.LimitConnRate]
	if got := w.a().node.Step(w.now, Dialling{Peer: w.b().key, Created: w.now.Unix() - skew - 1}); len(got) == 0 {
		t.Fatal("no answer")
	} else if _, ok := got[0].(Withhold); !ok {
		t.Errorf("the dial is let through: %+v", got[0])
	}
}
