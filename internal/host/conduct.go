package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// publishReport signs and publishes a report and the scores that it projects onto the subject's endpoints. One that cannot be published now stays
// for later: federation goes on.
func (h *Host) publishReport(eff mesh.PublishReport) mesh.Input {
	done := mesh.ReportPublished{Subject: eff.Subject, Thread: eff.Thread}
	e, err := eff.Report.Event()
	if err == nil {
		err = h.announce(e)
	}
	if err != nil {
		h.cfg.Log.Error("a report is not published; it is tried again", "subject", eff.Subject.String()[:12], "outcome", eff.Report.Outcome, "err", err)
		return done
	}
	done.Event = e.ID
	d := h.peers[eff.Subject]
	if d == nil {
		return done
	}
	for _, ep := range d.Endpoints {
		u, err := nostr.NormalizeRelayURL(ep.Address)
		if ep.Scheme != "wss" || err != nil {
			continue
		}
		if err := h.announce(ledger.Project(eff.Report, u)); err != nil {
			h.cfg.Log.Warn("the score that follows from a report is not published", "endpoint", u, "err", err)
		}
	}
	return done
}

// announce signs an event of ours and publishes it, here and where others read it.
func (h *Host) announce(e *nostr.Event) error {
	if err := identity.SignEvent(h.cfg.Agent, e); err != nil {
		return fmt.Errorf("sign an event of kind %d: %w", e.Kind, err)
	}
	if h.cfg.Announce != nil {
		return h.cfg.Announce(h.ctx, e)
	}
	return h.cfg.Publish(h.ctx, e)
}

// retract deletes a report of ours.
func (h *Host) retract(eff mesh.RetractReport) {
	address := nostr.Address{Kind: spec.KindReport, PubKey: h.selfKey, D: eff.Subject.String()}
	gone := &nostr.Event{CreatedAt: Now().Unix(), Kind: nostr.KindDeletion, Tags: []nostr.Tag{{"a", address.String()}, {"e", eff.Event.String()}}}
	if err := h.announce(gone); err != nil {
		h.cfg.Log.Error("a report that was withdrawn still stands", "event", eff.Event.String(), "err", err)
	}
}

// WithdrawComplaint takes complaints about a peer back: the one of the thread, or all.
func (h *Host) WithdrawComplaint(peer nostr.PubKey, thread, note string) {
	h.step(mesh.WithdrawComplaint{Peer: peer, Thread: thread, Note: note})
}

// Case is what there is of complaints between this node and a peer.
type Case struct {
	Peer   nostr.PubKey      `json:"peer"`
	Ours   []mesh.Complaint  `json:"ours"`
	Theirs []mesh.Accusation `json:"theirs"`
}

// Cases lists complaints by peer, and what others reported that this node has read.
func (h *Host) Cases() (cases []Case, findings []mesh.Finding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cases = []Case{}
	for _, p := range h.node.Peers(Now()) {
		if ours, theirs := h.node.Cases(p.Key); len(ours)+len(theirs) > 0 {
			cases = append(cases, Case{p.Key, ours, theirs})
		}
	}
	return cases, h.node.Findings()
}

// ReadReport judges somebody's report by its own artefacts, and by what the store holds of the public events that it refers to.
func (h *Host) ReadReport(ctx context.Context, e *nostr.Event) error {
	if !identity.Verify(e.PubKey, e.ID, e.Sig) {
		return errors.New("the report's signature does not hold")
	}
	r, err := ledger.ParseReport(e)
	if err != nil {
		return fmt.Errorf("read a report: %w", err)
	}
	h.mu.Lock()
	news := h.node.News(r)
	h.mu.Unlock()
	if !news {
		return nil
	}
	now := Now().Unix()
	known := ledger.Known{Now: now, Event: func(id nostr.ID) *nostr.Event {
		held, err := h.cfg.Store.Get(ctx, id, now)
		if err != nil {
			return nil
		}
		return held
	}}
	if granted := known.Event(r.Grant); granted != nil {
		if f, err := ledger.ParseFrame(granted); err == nil {
			known.Frame = f
		}
	}
	h.step(mesh.ReportJudged{Report: r, Judgement: r.Judge(known)})
	return nil
}

// HeldReports reads what the store holds of the reporters; none: of everybody.
func (h *Host) HeldReports(ctx context.Context, reporters []nostr.PubKey) error {
	filter := nostr.Filter{Kinds: []nostr.Kind{spec.KindReport}, Authors: reporters}
	var list []*nostr.Event
	for e, err := range h.cfg.Store.Query(ctx, []nostr.Filter{filter}, store.View{}, 0, Now().Unix()) {
		if err != nil {
			return fmt.Errorf("look for reports: %w", err)
		}
		list = append(list, e)
	}
	for _, e := range list {
		if err := h.ReadReport(ctx, e); err != nil {
			h.cfg.Log.Debug("a report is no use", "event", e.ID.String(), "err", err)
		}
	}
	return nil
}

// Found brings a structural finding about a peer that somebody else than a session made, with what the peer signed that shows it.
func (h *Host) Found(peer nostr.PubKey, finding ledger.Structural, detail string, events ...*nostr.Event) {
	f := mesh.Found{Peer: peer, Finding: finding, Created: Now().Unix(), Detail: detail}
	for _, e := range events {
		f.Evidence = append(f.Evidence, mesh.Exhibit{Type: ledger.EvidenceEvent, Text: e.JSON()})
	}
	h.step(f)
}

// Amend is the operator's hand on a grant of ours.
func (h *Host) Amend(a mesh.Amend) { h.step(a) }

// Stressed notes something that the node survived.
func (h *Host) Stressed(side strain.Side, name string, peer nostr.PubKey) {
	h.step(mesh.Stressed{Side: side, Name: name, Peer: peer})
}

// Load is what the node says of its own load, and what it survived.
func (h *Host) Load() (mesh.Capacity, strain.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node.Capacity(), h.node.Stress()
}

// answerTime of a question is how long a peer may take to answer one.
const queryTime = 15 * time.Second

// AskStanding asks a peer what it found of somebody. answered is false where the peer declined, which says nothing.
func (h *Host) AskStanding(ctx context.Context, peer nostr.PubKey, q mesh.QueryBody) (a mesh.AnswerBody, answered bool, err error) {
	thread := newID()
	h.mu.Lock()
	s := h.newSession(peer, thread, ledger.Push, "", "")
	answers := h.stepLocked(mesh.AskStanding{Peer: peer, Thread: thread})
	h.mu.Unlock()
	defer h.queryOver(s)
	if len(answers) == 0 {
		return a, false, errors.New("federation has stopped")
	}
	if no, ok := answers[0].(mesh.Withhold); ok {
		return a, false, &Refused{no.Code}
	}
	if err := s.send(spec.MsgStandingQuery, q, Now().Unix(), nil); err != nil {
		var no *refusal
		if errors.As(err, &no) {
			return a, false, &Refused{no.code}
		}
		return a, false, err
	}
	wait := time.NewTimer(queryTime)
	defer wait.Stop()
	select {
	case b := <-s.in:
		if spec.MessageType(b.m.Type) != spec.MsgStandingAnswer {
			return a, false, nil
		}
		return a, true, b.m.DecodeBody(&a)
	case <-wait.C:
		return a, false, &Refused{spec.CodeTimeout}
	case <-ctx.Done():
		return a, false, ctx.Err()
	case <-s.ctx.Done():
		return a, false, s.ctx.Err()
	}
}

// Refused says with a code of the closed list why something was not done.
type Refused struct{ Code spec.Code }

func (e *Refused) Error() string { return e.Code.Refusal().Meaning }

// answerStanding sends an answer within the asker's budget; else a decline, which costs nothing and tells nothing. h.mu is held.
func (h *Host) answerStanding(eff mesh.AnswerStanding) {
	s := h.newSession(eff.To, eff.Thread, ledger.Pull, "", "")
	h.work.Go(func() {
		defer h.queryOver(s)
		if err := s.send(spec.MsgStandingAnswer, eff.Body, Now().Unix(), nil); err == nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.link(eff.To).enqueue(h.message(mesh.Send{To: eff.To, Type: spec.MsgStandingDecline, ID: newID(), Thread: eff.Thread, Body: struct{}{}}), false)
	})
}

func (h *Host) queryOver(s *session) {
	s.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s.thread)
	h.stepLocked(mesh.QueryEnded{Thread: s.thread})
}

// conduct is what a deliver shows about the peer beside its events.
type conduct struct {
	s      *session
	way    ledger.Direction
	sample []byte // the envelope that shows that the peer was there
}

// maxSample is the largest envelope that is kept as a sample.
const maxSample = 16 << 10

// broken looks at an envelope that was refused. What the peer put its own name to, charged to our grant and outside it, or come too far, is a finding; an
// envelope whose signatures do not hold says nothing against anybody, and one outside the session's interest alone is a mistake.
func (c *conduct) broken(env *ledger.Envelope, form error, g *ledger.Grant, created int64) {
	if c.way != ledger.Push || g == nil || env.Grant != g.ID || env.Deliverer() != c.s.peer {
		return
	}
	rule := form
	if rule == nil {
		rule = ledger.CheckScope(g.Scopes, c.way, env.Event, Now().Unix())
	}
	finding, ok := ledger.StructuralOf(identity.CodeOf(rule))
	if !ok || ledger.VerifyEnvelope(env) != nil {
		return
	}
	shown := []mesh.Exhibit{{Type: ledger.EvidenceEnvelope, Text: env.JSON()}}
	if finding == ledger.HopLimitAbuse { // one is a mistake
		before := c.s.h.keepDeep(c.s.peer, shown[0])
		if before == nil {
			return
		}
		shown = append(shown, *before)
	}
	c.s.h.step(mesh.Found{Peer: c.s.peer, Finding: finding, Created: created, Detail: string(identity.CodeOf(rule)), Evidence: shown})
}

// keepDeep remembers an envelope that came too far, and returns the one that came before it in the last day, if it is another.
func (h *Host) keepDeep(peer nostr.PubKey, x mesh.Exhibit) *mesh.Exhibit {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, ok := h.deep[peer]
	if ok && string(before.Text) == string(x.Text) {
		return nil
	}
	if h.deep == nil || len(h.deep) > 1000 {
		h.deep = map[nostr.PubKey]mesh.Exhibit{}
	}
	h.deep[peer] = x
	if !ok {
		return nil
	}
	return &before
}

// forged looks at an envelope whose signatures do not hold: a peer that signed its own hop over one that nobody made did so knowingly, since who
// passes an event on has verified its way.
func (c *conduct) forged(env *ledger.Envelope, rule error, created int64) {
	if identity.CodeOf(rule) != ledger.HopSignature || env.Deliverer() != c.s.peer || !env.Triples()[len(env.Path)-1].Holds() {
		return
	}
	c.s.h.step(mesh.Found{Peer: c.s.peer, Finding: ledger.ForgedSignature, Created: created, Detail: "a hop",
		Evidence: []mesh.Exhibit{{Type: ledger.EvidenceEnvelope, Text: env.JSON()}}})
}

// good keeps a small envelope that holds.
func (c *conduct) good(env *ledger.Envelope) {
	if c.sample != nil || c.way != ledger.Push || len(env.Event.Content) > maxSample/2 {
		return
	}
	c.sample = env.JSON()
}
