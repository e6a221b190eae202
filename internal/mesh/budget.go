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
}

// load is what one message costs. out says that it goes from the responder to the initiator. A refusal costs nothing: it may
// have to be sent when the budget is gone, and by an end that never had a session.
func load(m *spec.MessageSpec, octets, envelopes int64, out bool) ledger.Counters {
	c := ledger.Counters{}
	if m.Name == "refuse" {
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
		g, w := p.Held.at(in.Created, t.now)
		find(&p.Used, g, w).Counters.Add(load(m, in.Octets, in.Envelopes, true))
		t.save(p, true)
		return w.Epoch, ""
	}
	g, w := p.Issued.at(in.Created, t.now)
	b := find(&p.Measured, g, w)
	c := load(m, in.Octets, in.Envelopes, false)
	over := exceeds(g.Limits, b.Counters, c)
	b.Counters.Add(c)
	t.save(p, true)
	if over != "" {
		t.do(Tell{Peer: p.Key, What: "over-budget", Window: w.Epoch, Code: spec.CodeOverBudget, Detail: string(over)})
		return w.Epoch, spec.CodeOverBudget
	}
	return w.Epoch, ""
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
	list, books := p.Held, &p.Used
	if !s.ours {
		list, books = p.Issued, &p.Measured
	}
	if len(list) == 0 {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	g, w := list.at(in.Created, t.now)
	b := find(books, g, w)
	c := load(m, in.Octets, in.Envelopes, !s.ours)
	if over := exceeds(g.Limits, b.Counters, c); over != "" {
		t.do(Withhold{Code: spec.CodeOverBudget, Limit: over, Until: w.End()})
		return
	}
	b.Counters.Add(c)
	t.save(p, true)
	t.do(Permit{Window: w.Epoch, Grant: g.ID})
	t.receiptIfDue(p, g, b)
}

// connected counts a session: the dialler is the subject.
func (t *turn) connected(in Connected) {
	p := t.peers[in.Peer]
	if p == nil {
		return
	}
	list, books := p.Held, &p.Used
	if in.Inbound {
		list, books = p.Issued, &p.Measured
	}
	if len(list) > 0 {
		g, w := list.at(in.Created, t.now)
		find(books, g, w).Counters.Add(ledger.Counters{spec.CounterConnOpen: 1})
		t.save(p, true)
	}
	t.startIfActive(p)
}

// fault counts a message that could not be used, and tells its sender, who counts it too.
func (t *turn) fault(p *peer, thread string, code spec.Code) {
	if len(p.Issued) > 0 {
		g, w := p.Issued.at(t.now, t.now)
		find(&p.Measured, g, w).Counters.Add(ledger.Counters{spec.CounterErrors: 1})
		t.save(p, true)
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
		find(&p.Used, g, w).Counters.Add(ledger.Counters{spec.CounterErrors: 1})
		t.save(p, true)
	}
	t.do(Tell{Peer: p.Key, What: "problem-reported", Code: in.Code})
}

// taken counts the duplicates among events that the peer pushed.
func (t *turn) taken(in Taken) {
	if p := t.peers[in.Peer]; p != nil && in.Duplicate > 0 && !t.ours(in.Session) {
		if b := lookup(p.Measured, in.Window); b != nil {
			b.Counters.Add(ledger.Counters{spec.CounterDupsSent: in.Duplicate})
			t.save(p, true)
		}
	}
}

// fate counts the duplicates among events that we pushed, as the receiver tells them.
func (t *turn) fate(in Fate) {
	if p := t.peers[in.Peer]; p != nil && in.Duplicate > 0 && t.ours(in.Session) {
		if b := lookup(p.Used, in.Window); b != nil {
			b.Counters.Add(ledger.Counters{spec.CounterDupsSent: in.Duplicate})
			t.save(p, true)
		}
	}
}

// receiptIfDue asks for a receipt where the cadence wants one.
func (t *turn) receiptIfDue(p *peer, g *ledger.Grant, b *book) {
	if !b.Signing && g.ReceiptDue(b.chain(t.cfg.Self), b.Counters, t.now) {
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
	b.Last = in.Receipt
	typ := spec.MsgBudgetReceipt
	if t.now >= b.Window.End() {
		typ, b.Closed = spec.MsgBudgetClose, true
	}
	t.save(p, false)
	t.do(Send{To: p.Key, Type: typ, ID: t.newID(), Thread: p.Thread, Body: in.Receipt, Durable: b.Closed})
	t.do(Tell{Peer: p.Key, What: "receipt-sent", Window: b.Window.Epoch})
}

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
		t.tell(p, "receipt-late", "window %d is settled or not begun", r.Window)
		return
	}
	g := p.Issued.of(w.Start())
	b := find(&p.Measured, g, w)
	if b.Last == nil && p.Issued.has(r.Grant) {
		b.Grant = r.Grant // a subject that was away may claim under the grant it knows; what it may use is for us to say
	}
	chain := b.chain(p.Key)
	switch err := chain.Add(r, t.now); identity.CodeOf(err) {
	case "":
		b.Last = r
		t.save(p, false)
	case ledger.ReceiptStale: // sent again: answered again
	default:
		t.badReceipt(p, b, in, err)
		return
	}
	ack := chain.Acknowledge(g.Limits, b.Counters, in.Type == spec.MsgBudgetClose, t.now)
	t.do(Send{To: p.Key, Type: spec.MsgBudgetReceiptAck, ID: t.newID(), Thread: p.Thread,
		Body: ackBody{Head: hex.EncodeToString(ack.Head[:]), Status: ack.Status, Grant: b.Grant, Window: r.Window, Seq: r.Seq}})
	t.do(Tell{Peer: p.Key, What: "receipt-" + string(ack.Status), Window: r.Window})
}

// badReceipt prices a receipt that breaks its chain: what the peer's own signature contradicts is malice, the rest is a fault.
func (t *turn) badReceipt(p *peer, b *book, in Received, err error) {
	if found, ok := ledger.StructuralOf(identity.CodeOf(err)); ok {
		t.do(Tell{Peer: p.Key, What: "finding", Window: b.Window.Epoch, Severity: found.Price(), Detail: err.Error()})
		t.close(p, b, ledger.Evaluation{}, found)
		return
	}
	t.fault(p, in.Thread, spec.CodeMalformed)
}

func (t *turn) receiptAck(p *peer, in Received) {
	if p == nil {
		return
	}
	var body ackBody
	if err := json.Unmarshal(in.Body, &body); err != nil {
		t.fault(p, in.Thread, spec.CodeMalformed)
		return
	}
	t.do(Tell{Peer: p.Key, What: "receipt-acknowledged", Window: body.Window, Detail: string(body.Status)})
}

// closeWindow claims what is used of every open window of a peer, as a node does before it goes.
func (t *turn) closeWindow(p *peer) {
	for _, b := range p.Used {
		if !b.Signing && !b.Closed && !claimed(b) {
			t.claim(p, b)
		}
	}
}

// claimed reports whether the last receipt covers all that was used. Where nothing was used, silence is honest.
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
	for _, p := range t.sorted() {
		t.receiptsDue(p)
		t.windowsDue(p)
		if p.Stands.ZeroUntil > 0 && p.Stands.ZeroUntil <= t.now && p.Stage == active {
			p.Stands = p.Stands.Resume(t.now)
			t.reissue(p, spec.CauseRemedy)
		}
		if p.NextSync > 0 && p.NextSync <= t.now {
			p.NextSync = 0
			t.startIfActive(p)
		}
	}
}

// receiptsDue sends receipts at their cadence, and closes windows that have ended.
func (t *turn) receiptsDue(p *peer) {
	kept := p.Used[:0]
	for _, b := range p.Used {
		switch {
		case b.Signing:
		case t.now >= b.Window.End() && !b.Closed && !b.Counters.Zero():
			t.claim(p, b)
		case t.now < b.Window.End():
			if g := p.Held.of(b.Window.Start()); g != nil {
				t.receiptIfDue(p, g, b)
			}
		case b.Window.Due(t.now):
			continue // closed on both ends: forget it
		}
		kept = append(kept, b)
	}
	p.Used = kept
}

// windowsDue evaluates every window of our grant whose time has come, idle ones too.
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
		t.close(p, b, ledger.Evaluate(p.Issued.of(w.Start()).Limits, b.Counters, claim))
		p.Settled = w.Epoch + 1
		p.Measured = slices.DeleteFunc(p.Measured, func(b *book) bool { return b.Window.Epoch <= w.Epoch })
		t.save(p, false)
	}
}

// close applies a window's outcome to the peer's standing.
func (t *turn) close(p *peer, b *book, v ledger.Evaluation, found ...ledger.Structural) {
	next, move := p.Stands.Close(v, t.now, found...)
	p.Stands = next
	p.Worst = p.Worst.Worse(move.Severity)
	if v.Evaluated || len(found) > 0 {
		c := WindowClose{Window: b.Window.Epoch, At: t.now, Severity: move.Severity.String(), Measured: b.Counters.Clone()}
		if b.Last != nil {
			c.Claimed, c.Receipts = b.Last.Counters, b.Last.Seq+1
		}
		if worst, ok := v.Worst(); ok {
			c.Limit = worst.Limit
		}
		p.Reported = append(p.Reported, c)
		p.Reported = p.Reported[max(0, len(p.Reported)-keptVerdicts):]
		what := "window-closed"
		t.do(Tell{Peer: p.Key, What: what, Window: b.Window.Epoch, Severity: move.Severity, Detail: string(c.Limit)})
	}
	switch {
	case move.Delete:
		t.finish(p, "revoked: "+move.Severity.String())
		t.do(Send{To: p.Key, Type: spec.MsgPeeringEnd, ID: t.newID(), Thread: p.Thread, Durable: true, Body: endBody{"revoked"}})
	case move.Amended && p.Stage == active:
		t.reissue(p, move.Cause)
	}
}

// reissue publishes the grant anew at the peer's present standing. Growth has no cause: it is told as an accept.
func (t *turn) reissue(p *peer, cause spec.Cause) {
	p.Cause = cause
	t.do(IssueGrant{Subject: p.Key, Grant: t.grant(p)})
}

// due returns the next second at which a peer needs attention, 0 if none.
func (t *turn) due(p *peer) (at int64) {
	earliest := func(s int64) {
		if s > 0 && (at == 0 || s < at) {
			at = max(s, t.now+1)
		}
	}
	if p.Stage == ended {
		return 0
	}
	for _, b := range p.Used {
		if b.Signing {
			continue
		}
		if b.Closed || b.Counters.Zero() {
			earliest(dueAt(b.Window))
			continue
		}
		earliest(b.Window.End())
		if g := p.Held.of(b.Window.Start()); g != nil && !claimed(b) {
			since := b.Window.Start()
			if b.Last != nil {
				since = b.Last.At
			}
			earliest(min(since+g.ReceiptSeconds, b.Window.End()))
		}
	}
	if g := p.Issued.current(); g != nil && p.Settled > 0 {
		earliest(dueAt(ledger.Window{Epoch: p.Settled, Length: g.Window}))
	} else if g != nil {
		earliest(dueAt(g.WindowAt(g.CreatedAt)))
	}
	earliest(p.Stands.ZeroUntil)
	earliest(p.NextSync)
	return at
}

// dueAt is the first second at which a window may be evaluated.
func dueAt(w ledger.Window) int64 { return max(w.GraceEnd(), w.End()+spec.C().Window.SkewSeconds) }
