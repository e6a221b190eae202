package mesh

import (
	"encoding/json"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// publish signs a report as a host does.
func (w *pair) publish(e *end, eff PublishReport) Input {
	w.t.Helper()
	if w.unable {
		return ReportPublished{Subject: eff.Subject, Thread: eff.Thread}
	}
	ev, err := eff.Report.Event()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := identity.SignEvent(e.agent, ev); err != nil {
		w.t.Fatal(err)
	}
	w.reports = append(w.reports, ev)
	return ReportPublished{Subject: eff.Subject, Thread: eff.Thread, Event: ev.ID}
}

// supported demands that a stranger who holds nothing but the report finds it supported.
func (w *pair) supported(e *nostr.Event, want spec.Severity) {
	w.t.Helper()
	r, layers, j := ledger.Verify(e, ledger.Known{Now: w.now.Unix()})
	if j.Support != ledger.Supported || r.Outcome != want {
		w.t.Errorf("%+v, want a supported %s\n%+v\n%s", j, want, layers, e.JSON())
	}
}

// rogue is a as a modified program: what its own node would not send.
type rogue struct {
	w     *pair
	chain *ledger.Chain
	n     int
}

// rogues peers a and b, and lets a's clock go by its own books.
func rogues(t *testing.T) *rogue {
	t.Helper()
	w := newPair(t)
	w.step(w.b(), AddPeer{Peer: w.a().key, Tier: spec.TierMember, Wants: []Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: ModePull}}})
	w.step(w.a(), AddPeer{Peer: w.b().key})
	w.step(w.b(), Described{Descriptor: descriptor(w.a())})
	w.step(w.a(), Described{Descriptor: descriptor(w.b())})
	w.quiet()
	w.pass(3 * time.Minute)
	return &rogue{w: w}
}

// quiet ends the sessions that b began by itself.
func (w *pair) quiet() {
	for _, s := range w.syncs {
		w.step(w.nodes[s.Peer].other(w), SyncEnded{Peer: s.Peer, Session: s.Session})
	}
	w.syncs = nil
}

func (e *end) other(w *pair) *end {
	if e == w.a() {
		return w.b()
	}
	return w.a()
}

// window begins a window afresh.
func (r *rogue) window() {
	r.w.quiet()
	r.w.pass(time.Duration(61-r.w.now.Unix()%60) * time.Second)
	r.w.quiet()
	p := r.w.b().node.peers[r.w.a().key]
	g, win := p.Issued.at(r.w.now.Unix(), r.w.now.Unix())
	r.chain = ledger.NewChain(g.ID, win, r.w.a().key)
}

// push delivers so many envelopes in one message, whatever was granted.
func (r *rogue) push(envelopes int64) (passed bool) {
	w := r.w
	r.n++
	thread := string(rune('A'+r.n)) + "push"
	w.openPush(thread, `{"kinds":[1]}`)
	for _, eff := range w.step(w.b(), Received{From: w.a().key, Type: spec.MsgSyncDeliver, Thread: thread, Created: w.now.Unix(), Octets: 2000, Envelopes: envelopes, Body: json.RawMessage(`{"count":1}`)}) {
		if _, ok := eff.(Pass); ok {
			passed = true
		}
		// What was refused was verified before it was.
		w.step(w.b(), Taken{Peer: w.a().key, Session: thread, Window: r.chain.Window.Epoch, Sample: r.envelope()})
	}
	w.step(w.b(), SyncEnded{Peer: w.a().key, Session: thread})
	return passed
}

// envelope is one that a signed its hop on.
func (r *rogue) envelope() json.RawMessage {
	e := &nostr.Event{CreatedAt: r.w.now.Unix(), Kind: 1, Content: "told on"}
	if err := e.Sign(key(77)); err != nil {
		r.w.t.Fatal(err)
	}
	env := &ledger.Envelope{Event: e, Grant: r.chain.Grant, Window: r.chain.Window.Epoch}
	if err := env.SignHop(r.w.a().agent, r.w.now.Unix()); err != nil {
		r.w.t.Fatal(err)
	}
	return env.JSON()
}

// claim sends a receipt that says what it likes of events; the rest it says as b counted it.
func (r *rogue) claim(events int64) *ledger.Receipt {
	c := r.w.b().node.peers[r.w.a().key].Measured
	counters := ledger.Counters{}
	if b := lookup(c, r.chain.Window.Epoch); b != nil {
		counters = b.Counters.Clone()
	}
	counters[spec.CounterEventsIn] = events
	rc, err := r.chain.Next(r.w.a().agent, counters, nil, r.w.now.Unix())
	if err != nil {
		r.w.t.Fatal(err)
	}
	r.tell(rc)
	return rc
}

func (r *rogue) tell(rc *ledger.Receipt) {
	r.w.step(r.w.b(), Received{From: r.w.a().key, Type: spec.MsgBudgetReceipt, ID: "r", Thread: "r", Created: r.w.now.Unix(), Octets: 900, Body: rc.JSON()})
}

// closed lets the window close: the peer comes back after its grace.
func (r *rogue) closed() {
	r.w.pass(3 * time.Minute)
	r.w.quiet()
	r.w.openPush("back", `{"kinds":[1]}`)
	r.w.step(r.w.b(), SyncEnded{Peer: r.w.a().key, Session: "back"})
}

func (r *rogue) limit() int64 {
	g := r.w.b().node.peers[r.w.a().key].Issued.current()
	return g.Limits[spec.LimitEventsIn]
}

func (r *rogue) cases() []*Complaint { return r.w.b().node.peers[r.w.a().key].Cases.Ours }

func TestALiarIsToldAndThenReported(t *testing.T) {
	r := rogues(t)
	w := r.w
	r.window()
	r.push(1000)
	r.claim(200)
	r.closed()
	if len(r.cases()) != 1 || r.cases()[0].Stage != caseWaits || r.cases()[0].Outcome != spec.S2 {
		t.Fatalf("%+v\n%+v", r.cases(), w.tells)
	}
	if n, _ := w.told("complaint-received"); n != 1 || r.cases()[0].Answer != answerContest {
		t.Errorf("the notice was heard %d times and answered %q\n%+v", n, r.cases()[0].Answer, w.a().node.peers[w.b().key].Cases.Theirs[0])
	}
	if len(w.reports) != 0 {
		t.Fatal("published before the notice stood for a window")
	}
	w.pass(time.Minute)
	if len(w.reports) != 1 || r.cases()[0].Stage != casePublished || r.cases()[0].Published-r.cases()[0].Noticed < 60 {
		t.Fatalf("%d reports, %+v", len(w.reports), r.cases()[0])
	}
	w.supported(w.reports[0], spec.S2)
	if p := w.b().node.Peers(w.now)[0]; p.Tier != spec.TierProbation {
		t.Errorf("tier %s", p.Tier)
	}
}

func TestASilentOneIsReportedWithWhatItDelivered(t *testing.T) {
	r := rogues(t)
	r.window()
	r.push(1000)
	r.closed()
	r.w.pass(time.Minute)
	if len(r.w.reports) != 1 {
		t.Fatalf("%+v\n%+v", r.cases(), r.w.tells)
	}
	r.w.supported(r.w.reports[0], spec.S2)
}

func TestAFirstOverrunStaysBetweenTheTwo(t *testing.T) {
	r := rogues(t)
	w := r.w
	for i := range 2 {
		r.window()
		n := r.limit() * 6 / 5
		r.push(n)
		r.claim(n)
		r.closed()
		if c := r.cases()[i]; c.Outcome != spec.S1 || c.Answer != answerAccept {
			t.Fatalf("overrun %d: %+v\n%+v", i+1, c, w.tells)
		}
		w.pass(2 * time.Minute)
		if len(w.reports) != i {
			t.Fatalf("%d reports after overrun %d", len(w.reports), i+1)
		}
	}
	if r.cases()[0].Stage != caseKept {
		t.Errorf("the first is %s", r.cases()[0].Stage)
	}
	w.supported(w.reports[0], spec.S1)
}

func TestAnOverspenderAndAForkArePublishedAtOnce(t *testing.T) {
	r := rogues(t)
	w := r.w
	r.window()
	n := r.limit() * 6
	r.push(n)
	r.claim(n)
	r.closed()
	if len(w.reports) != 1 || r.cases()[0].Outcome != spec.S3 {
		t.Fatalf("%+v\n%+v", r.cases(), w.tells)
	}
	w.supported(w.reports[0], spec.S3)
	if _, ok := r.cases()[0].waits(); ok {
		t.Error("an S3 waits")
	}
	r.window()
	one := r.claim(0)
	other := *one
	other.Counters = one.Counters.Clone()
	other.Counters[spec.CounterBytesIn]++
	sig, err := w.a().agent.Sign(other.Link())
	if err != nil {
		t.Fatal(err)
	}
	other.Sig = sig
	r.tell(&other)
	if len(w.reports) != 2 {
		t.Fatalf("%d reports\n%+v", len(w.reports), w.tells)
	}
	w.supported(w.reports[1], spec.S4)
	if p := w.b().node.Peers(w.now)[0]; p.Stage != string(ended) || p.Tier != spec.TierRevoked {
		t.Errorf("%s, tier %s", p.Stage, p.Tier)
	}
	if w.reports[1].CreatedAt <= w.reports[0].CreatedAt {
		t.Error("the second report does not replace the first")
	}
}

func (c *Complaint) waits() (at int64, ok bool) { return c.PublishAt, c.Stage == caseWaits }

func TestAComplaintSurvivesARestart(t *testing.T) {
	r := rogues(t)
	w := r.w
	w.drop = func(s Send) bool { return s.Type == spec.MsgComplaintNotice }
	r.window()
	r.push(1000)
	r.claim(200)
	r.closed()
	w.drop = nil
	w.restart(w.b())
	w.step(w.b(), Described{Descriptor: descriptor(w.a())})
	w.step(w.b(), Woken{})
	if c := r.cases()[0]; c.Stage != caseWaits || c.Answer == "" {
		t.Fatalf("the notice did not go again: %+v", c)
	}
	if tier := w.b().node.peers[w.a().key].Stands.Tier; tier != spec.TierProbation {
		t.Errorf("the remedy was forgotten: tier %s", tier)
	}
	w.unable = true
	w.pass(time.Minute)
	if c := r.cases()[0]; c.Stage != casePublishing || len(w.reports) != 0 {
		t.Fatalf("%+v", c)
	}
	w.unable = false
	w.restart(w.b())
	w.pass(2 * time.Second)
	if len(w.reports) != 1 || r.cases()[0].Stage != casePublished {
		t.Fatalf("%d reports, %+v", len(w.reports), r.cases()[0])
	}
	w.restart(w.b())
	w.pass(20 * time.Minute)
	if len(w.reports) != 1 {
		t.Errorf("%d reports after another restart", len(w.reports))
	}
}

func TestAComplaintIsWithdrawn(t *testing.T) {
	r := rogues(t)
	w := r.w
	r.window()
	r.push(1000)
	r.claim(200)
	r.closed()
	w.pass(time.Minute)
	w.step(w.b(), WithdrawComplaint{Peer: w.a().key, Note: "a mistake of ours"})
	if len(w.retracted) != 1 || w.retracted[0] != w.reports[0].ID || r.cases()[0].Stage != caseWithdrawn {
		t.Errorf("%+v", r.cases()[0])
	}
	if a := w.a().node.peers[w.b().key].Cases.Theirs; len(a) != 1 || !a[0].Withdrawn {
		t.Errorf("the other side holds %+v", a)
	}
}

// A finding that nothing of the peer's own proves to others has its remedy and no report: it would cost the reporter its voice.
func TestWhatProvesNothingIsNotPublished(t *testing.T) {
	r := rogues(t)
	w := r.w
	r.window()
	w.step(w.b(), Found{Peer: w.a().key, Finding: ledger.ForgedSignature, Created: w.now.Unix(), Detail: "hop"})
	w.pass(2 * time.Minute)
	if len(w.reports) != 0 || r.cases()[0].Stage != caseUnproven {
		t.Errorf("%d reports, %+v", len(w.reports), r.cases())
	}
	if p := w.b().node.Peers(w.now)[0]; p.Stage != string(ended) {
		t.Errorf("%s", p.Stage)
	}
}

func TestAFalseComplaintIsContested(t *testing.T) {
	w := newPair(t)
	w.peering()
	w.talk(20)
	w.pass(30 * time.Second)
	body := noticeBody{Grant: w.a().node.peers[w.b().key].Held.current().ID, Windows: [2]int64{30_000_000, 30_000_000}, Observed: map[spec.Limit]noticeLine{spec.LimitEventsIn: {5000, 3000}},
		Claimed: map[spec.Limit]int64{}, Evidence: map[nostr.ID]json.RawMessage{}, Outcome: spec.S1}
	w.deliver(w.b(), Send{To: w.a().key, Type: spec.MsgComplaintNotice, ID: "n", Body: body})
	if a := w.a().node.peers[w.b().key].Cases.Theirs; len(a) != 1 || a[0].Answer != answerContest {
		t.Errorf("%+v", a)
	}
	if last := w.sent[len(w.sent)-1]; last.Type != spec.MsgComplaintResponse || len(last.Body.(responseBody).Evidence) != 0 {
		t.Errorf("answered with %+v", last)
	}
}

// A remedy is in force at once: what is over it is refused in the window that runs, and charged to nobody.
func TestARemedyIsInForceAtOnce(t *testing.T) {
	r := rogues(t)
	w := r.w
	r.window()
	if !r.push(100) {
		t.Fatal("refused before anything was found")
	}
	w.step(w.b(), Found{Peer: w.a().key, Finding: ledger.MalformedFlood, Created: w.now.Unix()})
	if r.push(1) {
		t.Error("an S3 goes on in the window that runs")
	}
	w.restart(w.b())
	if r.push(1) {
		t.Error("an S3 is forgotten by a restart")
	}
	r.claim(100)
	w.pass(25 * time.Hour)
	r.window()
	if !r.push(1) {
		t.Errorf("nothing is let through when the time is over: %+v", w.b().node.Peers(w.now)[0].Issued)
	}
}
