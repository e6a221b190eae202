package mesh

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Every message of a metered session is charged to one grant: the one that the session's responder issued to its
// initiator. What the initiator sends counts as bytes_in, what the responder sends as bytes_out, and delivery envelopes count as
// events_in whichever way they go. Both ends see the same octets and the same created_time, so they count alike.

type ackBody struct {
	Head   string           `json:"head"`
	Status ledger.AckStatus `json:"status"`
	Grant  nostr.ID         `json:"grant"`
	Window int64            `json:"window"`
	Seq    int64            `json:"seq"`
	// Measured is what the issuer counted so far. What got lost on the way, or in a crash, only the issuer knows.
	Measured ledger.Counters `json:"measured,omitempty"`
}

// load is what one message costs. out says that it goes from the responder to the initiator. A refusal costs nothing: it may
// have to be sent when the budget is gone, and by an end that never had a session.
func load(m *spec.MessageSpec, octets, envelopes int64, out bool) ledger.Counters {
	c := ledger.Counters{}
	if m.Name == "refuse" || m.Name == "decline" {
		return c
	}
	if out {
		c[spec.CounterBytesOut] = octets
	} else {
		c[spec.CounterBytesIn] = octets
	}
	for _, name := range m.Counts {
		switch {
		case name == spec.CounterEventsIn:
			c[name] = envelopes
		case !out: // frames and requests that the subject sent
			c[name] = 1
		}
	}
	return c
}

// exceeds returns the first limit that adding c would break, "" if none.
func exceeds(limits ledger.Limits, used, c ledger.Counters) spec.Limit {
	for _, l := range spec.C().Limits {
		if more := c.Of(l.Name); more > 0 && used.Of(l.Name)+more > limits[l.Name] {
			return l.Name
		}
	}
	return ""
}

// ours reports whether we began the session that a message belongs to.
func (t *turn) ours(thread string) bool {
	s := t.threads[thread]
	return s != nil && s.ours
}

// meterIn counts a message that came in, and refuses what the peer had no budget for: it is counted all the same, since the
// peer chose to send it.
func (t *turn) meterIn(p *peer, in Received, m *spec.MessageSpec) (window int64, code spec.Code) {
	if t.ours(in.Thread) {
		t.answered(p, in)
		g, w := p.Held.at(in.Created, t.now)
		b, known := open(&p.Used, g, w)
		b.saw(load(m, in.Octets, in.Envelopes, true), p.heldTo(b))
		again := !claimed(b) && b.reopen() // an answer begun before the window was settled, and sent after it
		t.threads[in.Thread].heard = t.now
		t.used(p, known && !again)
		return w.Epoch, ""
	}
	g, w := p.Issued.at(in.Created, t.now)
	t.cameBack(p, w, in.Created)
	if p.Stage == ended {
		return w.Epoch, spec.CodeNotGranted
	}
	b, known := open(&p.Measured, g, w)
	c := load(m, in.Octets, in.Envelopes, false)
	over := exceeds(p.allowed(w), b.Counters, c)
	t.meter(b, c)
	t.account(p, known)
	if over != "" {
		t.do(Tell{Peer: p.Key, What: "over-budget", Window: w.Epoch, Code: spec.CodeOverBudget, Detail: string(over)})
		return w.Epoch, spec.CodeOverBudget
	}
	return w.Epoch, ""
}

// answers lists which messages of ours an answer of the responder's shows to have arrived. A refusal shows nothing: it may have come
// from before the meter.
var answers = map[spec.MessageType][]spec.MessageType{
	spec.MsgSyncFrame:     {spec.MsgSyncOpen, spec.MsgSyncFrame},
	spec.MsgSyncDeliver:   {spec.MsgSyncWant},
	spec.MsgSyncDelivered: {spec.MsgSyncDeliver},

	spec.MsgStandingAnswer: {spec.MsgStandingQuery},
}

// answered takes the oldest message that an answer belongs to out of doubt.
func (t *turn) answered(p *peer, in Received) {
	s := t.threads[in.Thread]
	i := slices.IndexFunc(s.flight, func(f inFlight) bool { return slices.Contains(answers[in.Type], f.typ) })
	if i < 0 {
		return
	}
	if b := lookup(p.Used, s.flight[i].window); b != nil {
		b.confirm(s.flight[i].cost)
	}
	s.flight = slices.Delete(s.flight, i, i+1)
}

// sending takes the budget of a message before it leaves.
func (t *turn) sending(in Sending) {
	p := t.peers[in.Peer]
	_, m, ok := spec.LookupMessage(in.Type)
	s := t.threads[in.Session]
	if p == nil || !ok || s == nil || s.peer != in.Peer || p.Stage == ended {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	if s.ours {
		t.spend(p, s, in, m)
		return
	}
	if len(p.Issued) == 0 {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	g, w := p.Issued.at(in.Created, t.now)
	b, known := open(&p.Measured, g, w)
	c := load(m, in.Octets, in.Envelopes, true)
	if over := exceeds(p.allowed(w), b.Counters, c); over != "" {
		t.do(Withhold{Code: spec.CodeOverBudget, Limit: over, Until: w.End()})
		return
	}
	t.meter(b, c)
	t.account(p, known)
	t.do(Permit{Window: w.Epoch, Grant: g.ID})
}

// spend takes the budget of a message of a session that we began.
func (t *turn) spend(p *peer, s *session, in Sending, m *spec.MessageSpec) {
	if len(p.Held) == 0 {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	g, w := p.Held.at(in.Created, t.now)
	if t.owes(p, in.Created) {
		t.do(Withhold{Code: spec.CodeOverBudget, Until: t.now + busySeconds})
		return
	}
	b, known := open(&p.Used, g, w)
	c := load(m, in.Octets, in.Envelopes, false)
	if over := exceeds(g.Limits, b.spent(), c); over != "" {
		t.do(Withhold{Code: spec.CodeOverBudget, Limit: over, Until: w.End()})
		return
	}
	b.send(c)
	again := b.reopen()
	s.flight = append(s.flight, inFlight{in.Type, w.Epoch, c})
	t.used(p, known && !again)
	t.do(Permit{Window: w.Epoch, Grant: g.ID})
	t.receiptIfDue(p, g, b)
}

// owes reports whether an account with the peer has to be settled before anything more is used. An issuer can not tell a
// receipt that got lost from one that was never written, so it holds a silence against a peer only when the peer comes back for more. A node
// that does not come back before it has settled is therefore never charged for what the network did.
func (t *turn) owes(p *peer, at int64) bool {
	return slices.ContainsFunc(p.Used, func(b *book) bool {
		return b.Doubt || !b.Settled && dueAt(b.Window) <= at && !b.spent().Zero()
	})
}

// dialling takes the budget of one more session before it is opened: a crash on the way must not make us forget it. An attempt that
// failed leaves its budget to the next.
func (t *turn) dialling(in Dialling) {
	p := t.peers[in.Peer]
	if p == nil || len(p.Held) == 0 {
		t.do(Permit{}) // a first contact: nothing is granted and nothing counted yet
		return
	}
	g, w := p.Held.at(in.Created, t.now)
	if p.Dialling && p.DialWindow == w.Epoch {
		t.do(Permit{Window: w.Epoch, Grant: g.ID})
		return
	}
	windows := t.mayCountDial(in.Created, w)
	for _, v := range windows {
		used := ledger.Counters{}
		if b := lookup(p.Used, v.Epoch); b != nil {
			used = b.spent()
		}
		if over := exceeds(p.Held.of(v.Start()).Limits, used, oneSession); over != "" {
			t.do(Withhold{Code: spec.CodeOverBudget, Limit: over, Until: v.End()})
			return
		}
	}
	p.Dialling, p.DialWindow = true, w.Epoch
	for _, v := range windows {
		t.dials(p, p.Held.of(v.Start()), v)
	}
	t.used(p, false) // not even a machine's crash may make us forget it: to ask what was counted is one more session
	t.do(Permit{Window: w.Epoch, Grant: g.ID})
}

// mayCountDial lists the windows that the peer may count a session in whose first message was made at created: that of the message or, by its own clock, that
// of its arrival. A message that is too old by our clock may not be so by the peer's, which may be behind ours.
func (t *turn) mayCountDial(created int64, w ledger.Window) []ledger.Window {
	skew := spec.C().Window.SkewSeconds
	out := []ledger.Window{w}
	for _, at := range []int64{max(created, t.now-2*skew), t.now - skew, t.now, t.now + skew} {
		if v := ledger.WindowAt(at, w.Length); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

var oneSession = ledger.Counters{spec.CounterConnOpen: 1}

// dials counts a session that we open, in doubt until the peer says what it counted.
func (t *turn) dials(p *peer, g *ledger.Grant, w ledger.Window) {
	b, known := open(&p.Used, g, w)
	b.send(oneSession)
	again := b.reopen()
	t.used(p, known && !again)
}

// connected counts a session: the dialler is the subject. One that did not show yet that it holds our grant may have dialled to ask for it, or
// to bring its own, and can not claim under a grant that it never saw: such a session is a first contact, which nobody counts.
func (t *turn) connected(in Connected) {
	p := t.peers[in.Peer]
	if p == nil {
		return
	}
	switch {
	case in.Inbound && p.showedGrant():
		g, w := p.Issued.at(in.Created, t.now)
		b, known := open(&p.Measured, g, w)
		t.meter(b, oneSession)
		t.account(p, known)
	case !in.Inbound && len(p.Held) > 0:
		if !p.Dialling { // nobody asked before
			g, w := p.Held.at(in.Created, t.now)
			t.dials(p, g, w)
		}
		p.Dialling = false
	}
	t.startIfActive(p)
}

// found applies a structural finding at once.
func (t *turn) found(in Found) {
	p := t.peers[in.Peer]
	if p == nil || len(p.Issued) == 0 {
		return
	}
	g, w := p.Issued.at(in.Created, t.now)
	t.do(Tell{Peer: p.Key, What: "finding", Window: w.Epoch, Severity: in.Finding.Price(), Detail: string(in.Finding) + " " + in.Detail})
	t.close(p, find(&p.Measured, g, w), ledger.Evaluation{}, in.Evidence, in.Finding)
	t.save(p, false)
	t.refresh(p)
	t.pursue(p)
}

// fault counts a message that could not be used, and tells its sender, who counts it too.
func (t *turn) fault(p *peer, thread string, code spec.Code) {
	if len(p.Issued) > 0 {
		g, w := p.Issued.at(t.now, t.now)
		b, known := open(&p.Measured, g, w)
		t.meter(b, ledger.Counters{spec.CounterErrors: 1})
		t.account(p, known)
	}
	t.do(SendProblem{To: p.Key, Thread: thread, Code: code, Created: t.now})
	t.do(Tell{Peer: p.Key, What: "fault", Code: code})
}

func (t *turn) faulted(in Faulted) {
	if p := t.peers[in.Peer]; p != nil {
		t.fault(p, in.Thread, in.Code)
	}
}

// problem counts an error of ours that the peer told us of.
func (t *turn) problem(in Problem) {
	p := t.peers[in.Peer]
	if p == nil {
		return
	}
	if len(p.Held) > 0 {
		g, w := p.Held.at(in.Created, t.now)
		b, known := open(&p.Used, g, w)
		b.saw(ledger.Counters{spec.CounterErrors: 1}, nil)
		again := b.reopen()
		t.account(p, known && !again)
	}
	t.do(Tell{Peer: p.Key, What: "problem-reported", Code: in.Code})
}

// taken counts the duplicates among events that the peer pushed.
func (t *turn) taken(in Taken) {
	p := t.peers[in.Peer]
	if p == nil || t.ours(in.Session) {
		return
	}
	b := lookup(p.Measured, in.Window)
	if b == nil {
		return
	}
	t.keepSample(p, b, in.Sample)
	if in.Duplicate > 0 {
		t.meter(b, ledger.Counters{spec.CounterDupsSent: in.Duplicate})
		t.account(p, true)
	}
}

// fate counts the duplicates among events that we pushed, as the receiver tells them.
func (t *turn) fate(in Fate) {
	if p := t.peers[in.Peer]; p != nil && in.Duplicate > 0 && t.ours(in.Session) {
		if b := lookup(p.Used, in.Window); b != nil {
			b.saw(ledger.Counters{spec.CounterDupsSent: in.Duplicate}, nil) // an acknowledgement may have said so before
			again := !claimed(b) && b.reopen()
			t.account(p, !again)
		}
	}
}

// receiptIfDue asks for a receipt where the cadence wants one.
func (t *turn) receiptIfDue(p *peer, g *ledger.Grant, b *book) {
	if !b.Signing && (b.Last == nil || b.Acked) && g.ReceiptDue(b.chain(t.cfg.Self), b.Counters, t.now) {
		t.claim(p, b)
	}
}

// claim asks the host to sign the window's next receipt.
func (t *turn) claim(p *peer, b *book) {
	r, err := b.chain(t.cfg.Self).Next(unsigned{t.cfg.Self}, b.Counters, nil, t.now)
	if err != nil {
		t.tell(p, "receipt-impossible", "%v", err)
		return
	}
	b.Signing = true
	t.do(SignReceipt{Issuer: p.Key, Receipt: r})
}

// unsigned stands for the host's key where a receipt is made: the host signs it before anybody sees it.
type unsigned struct{ self nostr.PubKey }

func (u unsigned) PubKey() nostr.PubKey                   { return u.self }
func (unsigned) Sign([32]byte) (sig nostr.Sig, err error) { return sig, nil }
func (unsigned) SharedX(nostr.PubKey) (x [32]byte, e error) {
	return x, errors.New("mesh holds no key")
}

var _ identity.Agent = unsigned{}

// receiptSigned journals a receipt and sends it: journaled first, so that it is never made again with other numbers.
func (t *turn) receiptSigned(in ReceiptSigned) {
	p := t.peers[in.Issuer]
	if p == nil {
		return
	}
	b := lookup(p.Used, in.Receipt.Window)
	if b == nil {
		return
	}
	b.Signing = false
	if err := b.chain(t.cfg.Self).Check(in.Receipt, t.now); err != nil {
		t.tell(p, "receipt-impossible", "%v", err)
		return
	}
	b.Last, b.Acked = in.Receipt, false
	b.Closed = t.now >= b.Window.End()
	t.account(p, false)
	b.Asks = 0
	t.sendReceipt(p, b)
}

// sendReceipt sends a window's last receipt, which is journaled. It goes again until the issuer has answered it.
func (t *turn) sendReceipt(p *peer, b *book) {
	typ := spec.MsgBudgetReceipt
	if t.now >= b.Window.End() {
		typ = spec.MsgBudgetClose
	}
	b.AskAt = t.now + min(int64(retrySeconds)<<min(b.Asks, 8), retryMost)
	b.Asks++
	t.do(Send{To: p.Key, Type: typ, ID: t.newID(), Thread: p.Thread, Body: b.Last, Durable: typ == spec.MsgBudgetClose})
	t.do(Tell{Peer: p.Key, What: "receipt-sent", Window: b.Window.Epoch, Slip: &Slip{Sent: true, Head: headOf(b.Last), Receipt: b.Last}})
}

// What was not answered is said again, at first after so many seconds, then ever more rarely.
const (
	retrySeconds = 15
	retryMost    = 600
)

// receipt takes the peer's claim about a window of our grant and answers with the head that stands.
func (t *turn) receipt(p *peer, in Received) {
	if p == nil || len(p.Issued) == 0 {
		return
	}
	r, err := ledger.ParseReceipt(in.Body)
	if err != nil {
		t.fault(p, in.Thread, spec.CodeMalformed)
		return
	}
	w := ledger.Window{Epoch: r.Window, Length: p.Issued.current().Window}
	if r.Window < p.Settled || w.Start() > t.now+spec.C().Window.SkewSeconds {
		t.lateReceipt(p, r)
		return
	}
	b, _ := open(&p.Measured, p.Issued.of(w.Start()), w)
	if b.Last == nil && p.Issued.has(r.Grant) {
		b.Grant = r.Grant // a subject that was away may claim under the grant it knows; what it may use is for us to say
	}
	t.knows(p, r.Grant)
	chain, slip := b.chain(p.Key), &Slip{}
	switch err := chain.Add(r, t.now); identity.CodeOf(err) {
	case "":
		b.Last, slip.Receipt = r, r
		b.believe(p.limits(w))
		t.account(p, false)
	case ledger.ReceiptStale, ledger.ReceiptGap: // the answer names the head that is held
	default:
		t.badReceipt(p, b, in, err)
		return
	}
	ack := chain.Acknowledge(p.limits(w), b.Counters, in.Type == spec.MsgBudgetClose, t.now)
	body := ackBody{Head: hex.EncodeToString(ack.Head[:]), Status: ack.Status, Grant: b.Grant, Window: r.Window, Measured: b.Counters.Clone()}
	if b.Last != nil {
		body.Seq = b.Last.Seq
	}
	t.do(Send{To: p.Key, Type: spec.MsgBudgetReceiptAck, ID: t.newID(), Thread: p.Thread, Body: body})
	slip.Head, slip.Status, slip.Measured = body.Head, ack.Status, body.Measured
	t.do(Tell{Peer: p.Key, What: "receipt-" + string(ack.Status), Window: r.Window, Slip: slip})
}

// believe takes the peer's higher claim for a book that was taken up from the journal: a crash may have lost what was counted last, and
// nobody claims more than was used to gain by it.
func (b *book) believe(limits ledger.Limits) {
	if !b.Doubt || b.Last == nil {
		return
	}
	for i := range spec.C().Limits {
		l := spec.C().Limits[i].Name
		n := spec.C().CounterOf(l)
		b.Counters[n] = max(b.Counters[n], min(b.Last.Counters[n], limits[l]))
	}
}

// lateReceipt answers a claim about a window that is closed, so that its sender knows that nothing is open.
func (t *turn) lateReceipt(p *peer, r *ledger.Receipt) {
	t.tell(p, "receipt-late", "window %d is closed or not begun", r.Window)
	if r.Window >= p.Settled || !r.Triple(p.Key).Holds() {
		return
	}
	link := r.Link()
	t.do(Send{To: p.Key, Type: spec.MsgBudgetReceiptAck, ID: t.newID(), Thread: p.Thread,
		Body: ackBody{Head: hex.EncodeToString(link[:]), Status: ledger.Accepted, Grant: r.Grant, Window: r.Window, Seq: r.Seq, Measured: r.Counters}})
}

// badReceipt prices a receipt that breaks its chain: what the peer's own signature contradicts is malice, the rest is a fault.
func (t *turn) badReceipt(p *peer, b *book, in Received, err error) {
	if found, ok := ledger.StructuralOf(identity.CodeOf(err)); ok {
		t.do(Tell{Peer: p.Key, What: "finding", Window: b.Window.Epoch, Severity: found.Price(), Detail: err.Error()})
		shown := []Exhibit{{ledger.EvidenceReceipt, in.Body}}
		if b.Last != nil {
			shown = append(shown, Exhibit{ledger.EvidenceReceipt, b.Last.JSON()})
		}
		t.close(p, b, ledger.Evaluation{}, shown, found)
		t.save(p, false)
		t.refresh(p)
		t.pursue(p)
		return
	}
	t.fault(p, in.Thread, spec.CodeMalformed)
}

// receiptAck takes the issuer's answer. Where it counted more than we know of, we claim that too; when nothing is open any more, the
// window is settled.
func (t *turn) receiptAck(p *peer, in Received) {
	if p == nil {
		return
	}
	var body ackBody
	if err := json.Unmarshal(in.Body, &body); err != nil {
		t.fault(p, in.Thread, spec.CodeMalformed)
		return
	}
	b := lookup(p.Used, body.Window)
	known := b != nil && b.Last != nil && headOf(b.Last) == body.Head
	t.do(acknowledged(p, &body, known))
	if b == nil || b.Last == nil {
		return
	}
	if !known {
		return // about an older receipt; the last one goes again in time
	}
	b.Acked, b.Doubt, b.Asks = true, false, 0
	if len(p.Held) > 0 && b.told(body.Measured, p.heldTo(b)) {
		t.forget(p, b.Window.Epoch)
	}
	over := in.Created >= b.Window.End() && (b.pendingZero() || in.Created >= b.Window.End()+spec.C().Window.SkewSeconds)
	switch {
	case !claimed(b):
		if !b.Signing && (over || t.now >= b.Window.End()) {
			t.account(p, false)
			t.claim(p, b)
			return
		}
	case over:
		b.Settled, b.Pending = true, nil
	}
	if t.now >= b.Window.End() {
		b.AskAt = max(b.Window.End()+spec.C().Window.SkewSeconds, t.now+retrySeconds)
	}
	t.account(p, false)
	if p.Waiting && !t.owes(p, t.now) {
		t.startIfActive(p)
	}
}

func (b *book) pendingZero() bool { return b.Pending.Zero() }

// forget leaves what is in flight of a window to the issuer's word: an answer could no longer be told apart from it.
func (t *turn) forget(p *peer, window int64) {
	for _, s := range t.threads {
		if s.peer == p.Key {
			s.flight = slices.DeleteFunc(s.flight, func(f inFlight) bool { return f.window == window })
		}
	}
}

// closeWindow claims what is used of every open window of a peer, as a node does before it goes.
func (t *turn) closeWindow(p *peer) {
	for _, b := range p.Used {
		if !b.Signing && (b.Last == nil || b.Acked) && !claimed(b) {
			t.claim(p, b)
		}
	}
}

// claimed reports whether the last receipt covers all that is known to be used. Where nothing was used, silence is honest.
func claimed(b *book) bool {
	if b.Last == nil {
		return b.Counters.Zero()
	}
	return b.Last.Counters.Covers(b.Counters)
}

func (t *turn) sayGoodbye() {
	for _, p := range t.sorted() {
		if p.Stage == active {
			t.closeWindow(p)
		}
	}
}

// wakeUp does what is due.
func (t *turn) wakeUp() {
	t.wake = 0
	t.press()
	for _, p := range t.sorted() {
		if p.Live > 0 && p.Stage == active && p.Alive+t.cfg.Window <= t.now {
			t.used(p, true) // a session lives, though nothing is said
		}
		t.receiptsDue(p)
		t.windowsDue(p)
		if p.Stands.ZeroUntil > 0 && p.Stands.ZeroUntil <= t.now && p.Stage == active {
			p.Stands, p.Cause = p.Stands.Resume(t.now), spec.CauseRemedy
			t.save(p, false)
		}
		t.refresh(p)
		t.pursue(p)
		t.repeat(p)
		if p.NextSync > 0 && p.NextSync <= t.now {
			p.NextSync = 0
			t.startIfActive(p)
		}
	}
}

// receiptsDue sends receipts at their cadence, closes windows that have ended, and says again what was not answered.
func (t *turn) receiptsDue(p *peer) {
	kept := p.Used[:0]
	for _, b := range p.Used {
		switch {
		case b.Settled && b.Window.Due(t.now-2*spec.C().Window.SkewSeconds), b.Window.Due(t.now) && b.spent().Zero() && b.Last == nil && !b.Doubt:
			// Closed on both ends, or never used: forget it. One that a crash left empty may have been used since it was written, which only
			// the issuer knows. Not before nothing more can be charged to it, by any clock that is allowed: a book that is opened
			// anew would begin its chain a second time.
			p.Forgot = max(p.Forgot, b.Window.Epoch+1)
			continue
		case b.Signing || b.Settled || p.Stage != active:
		case b.unanswered():
			if t.now >= b.AskAt {
				t.sendReceipt(p, b)
			}
		case b.Last == nil && (b.Doubt || t.now >= b.Window.End() && !b.spent().Zero()), !claimed(b) && t.now >= b.Window.End():
			t.claim(p, b)
		case b.Last != nil && t.now >= b.Window.End():
			if t.now >= b.AskAt {
				t.sendReceipt(p, b) // the issuer's last word on the window is asked for
			}
		case t.now < b.Window.End():
			if g := p.Held.of(b.Window.Start()); g != nil {
				t.receiptIfDue(p, g, b)
			}
		}
		kept = append(kept, b)
	}
	p.Used = kept
}

// unanswered reports whether the last receipt has to be answered before there can be another.
func (b *book) unanswered() bool { return b.Last != nil && (!b.Acked || b.Doubt) }

// windowsDue evaluates every window of our grant whose time has come, idle ones too. A window whose claim does not agree with what was
// counted stays open until the peer comes back for more: before that, nobody knows that the claim was not lost.
func (t *turn) windowsDue(p *peer) {
	g := p.Issued.current()
	if g == nil {
		return
	}
	if p.Settled == 0 {
		p.Settled = p.Issued[len(p.Issued)-1].WindowAt(p.Issued[len(p.Issued)-1].CreatedAt).Epoch
	}
	for w := (ledger.Window{Epoch: p.Settled, Length: g.Window}); w.Due(t.now) && p.Stage != ended; w = w.Next() {
		b := lookup(p.Measured, w.Epoch)
		if b == nil {
			b = &book{Window: w, Grant: p.Issued.of(w.Start()).ID, Counters: ledger.Counters{}}
		}
		var claim ledger.Counters
		if b.Last != nil {
			claim = b.Last.Counters
		}
		v := t.cfg.Ladder.Evaluate(p.limits(w), b.Counters, claim)
		if p.Back < dueAt(w) && slices.ContainsFunc(v.Lines, func(l ledger.Line) bool { return l.Diverges }) {
			return
		}
		p.Settled = w.Epoch + 1
		p.Measured = slices.DeleteFunc(p.Measured, func(b *book) bool { return b.Window.Epoch <= w.Epoch })
		t.close(p, b, v, nil)
		t.save(p, false)
	}
}

// cameBack notes that the peer uses our grant at a time of its own clock, and closes what it left open before that.
func (t *turn) cameBack(p *peer, w ledger.Window, created int64) {
	if d := created - t.now; d > spec.C().Window.SkewSeconds || -d > spec.C().Window.SkewSeconds {
		created = t.now
	}
	if created <= p.Back {
		return
	}
	p.Back = created
	if p.Settled < w.Epoch {
		t.windowsDue(p)
		t.refresh(p)
		t.pursue(p)
	}
}

// close applies a window's outcome to the peer's standing. shown is what proves structural findings.
func (t *turn) close(p *peer, b *book, v ledger.Evaluation, shown []Exhibit, found ...ledger.Structural) {
	next, move, withheld := ledger.Standing{}, ledger.Move{}, ""
	if t.shadowed(p) {
		next, move, withheld = t.shade(p, v, found)
	} else {
		p.Shadow = nil
		next, move = t.cfg.Ladder.Close(p.Stands, v, t.now, found...)
	}
	p.Stands = next
	p.capped()
	p.Worst = p.Worst.Worse(move.Severity)
	if v.Evaluated || len(found) > 0 {
		c := WindowClose{Window: b.Window.Epoch, At: t.now, Severity: move.Severity.String(), Measured: b.Counters.Clone(), Limits: p.limits(b.Window), Withheld: withheld}
		if b.Last != nil {
			c.Claimed, c.Receipts = b.Last.Counters, b.Last.Seq+1
		}
		if worst, ok := v.Worst(); ok {
			c.Limit = worst.Limit
		}
		p.report(c)
		t.do(Tell{Peer: p.Key, What: "window-closed", Window: b.Window.Epoch, Severity: move.Severity, Detail: string(c.Limit)})
	}
	if withheld != "" {
		t.do(Tell{Peer: p.Key, What: "remedy-withheld", Window: b.Window.Epoch, Severity: move.Severity, Detail: withheld})
	} else if move.Severity > spec.S0 {
		t.complain(p, b, v, move.Severity, shown, found)
	}
	switch {
	case move.Delete:
		t.finish(p, "revoked: "+move.Severity.String())
		t.do(Send{To: p.Key, Type: spec.MsgPeeringEnd, ID: t.newID(), Thread: p.Thread, Durable: true, Body: endBody{"revoked"}})
	case move.Amended && move.Cause != "" && p.Cause != spec.CauseRemedy:
		p.Cause = move.Cause
	}
}

// due returns the next second at which a peer needs attention, 0 if none.
func (t *turn) due(p *peer) (at int64) {
	earliest := func(s int64) {
		if s > 0 && (at == 0 || s < at) {
			at = max(s, t.now+1)
		}
	}
	earliest(p.caseDue())
	if p.Stage == ended {
		return at
	}
	for _, b := range p.Used {
		if b.Signing || p.Stage != active {
			continue
		}
		switch {
		case b.Settled || b.spent().Zero() && b.Last == nil && !b.Doubt:
			earliest(dueAt(b.Window))
		case b.unanswered():
			earliest(max(b.AskAt, 1))
		case b.Last == nil && b.Doubt:
			earliest(t.now)
		case t.now >= b.Window.End():
			earliest(max(b.AskAt, 1))
		default:
			earliest(b.Window.End())
			if g := p.Held.of(b.Window.Start()); g != nil && !claimed(b) {
				since := b.Window.Start()
				if b.Last != nil {
					since = b.Last.At
				}
				earliest(min(since+g.ReceiptSeconds, b.Window.End()))
			}
		}
	}
	if g := p.Issued.current(); g != nil && p.Settled > 0 {
		if w := (ledger.Window{Epoch: p.Settled, Length: g.Window}); !w.Due(t.now) { // a window that stays open waits for the peer
			earliest(dueAt(w))
		}
	} else if g != nil {
		earliest(dueAt(g.WindowAt(g.CreatedAt)))
	}
	if p.Live > 0 {
		earliest(p.Alive + t.cfg.Window)
	}
	earliest(p.Stands.ZeroUntil)
	earliest(p.NextSync)
	earliest(p.RetryAt)
	return at
}

// dueAt is the first second at which a window may be evaluated.
func dueAt(w ledger.Window) int64 { return max(w.GraceEnd(), w.End()+spec.C().Window.SkewSeconds) }
