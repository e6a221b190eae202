package host

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
	"fleetmesh.org/fleetmesh/spec"
)

// session is one side of a sync: it streams what mesh allowed. Mesh sees each message's header before it is
// sent or read, and none of its content.
type session struct {
	h      *Host
	peer   nostr.PubKey
	thread string
	ctx    context.Context
	cancel context.CancelFunc
	in     chan *bulk

	way        ledger.Direction // of what we deliver: push when we began the session, pull when we serve it
	shard      string
	mode       string       // of the interest: who delivers
	filter     nostr.Filter // of the interest, with its time range
	now        current      // once it is live
	reconciled bool         // it is live
	stale      bool         // the peer had what we brought: it has to be reconciled anew
	have, need int64        // events delivered and taken
	trace      SyncTrace
	unwanted   atomic.Bool // the operator wants something else by now
	zip        atomic.Bool // the peer said in this session that it reads what is compressed
}

// bulk is a message of a session that mesh let through, with the window it was metered in.
type bulk struct {
	m      *didcomm.Message
	window int64
}

const (
	sessionSilence = 60 * time.Second // after which a session is given up
	sessionQueue   = 16
	negFrame       = 30_000    // octets of a negentropy message before hex
	wantBatch      = 200       // ids in one want
	wantsInFlight  = 8         // so that a round trip of 100 ms keeps nobody waiting
	pushesInFlight = 4         // what a cut loses of them is noise in the accounts
	serveBytes     = 256 << 10 // of envelopes in one deliver that was asked for
	pushBytes      = 48 << 10  // of envelopes in one deliver that was not: small, so that a lost one is noise in the accounts
)

// refusal ends a session for a reason that has a code.
type refusal struct {
	code  spec.Code
	until int64 // unix second at which a used up budget is new, 0: unknown
}

func (r *refusal) Error() string { return "refused: " + string(r.code) }

var errSilence = errors.New("the peer said nothing for too long")

// newSession makes a session that messages are routed to. h.mu is held.
func (h *Host) newSession(peer nostr.PubKey, thread string, way ledger.Direction, shard, mode string) *session {
	s := &session{h: h, peer: peer, thread: thread, in: make(chan *bulk, sessionQueue), way: way, shard: shard, mode: mode, trace: untraced{}}
	s.now.nudge = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(h.ctx)
	h.sessions[thread] = s
	return s
}

// begin starts a sync as its initiator. h.mu is held.
func (h *Host) begin(eff mesh.StartSync) {
	s := h.newSession(eff.Peer, eff.Session, ledger.Push, eff.Want.Shard, eff.Want.Mode)
	s.trace = h.traced(roleInitiator, eff.Want.Mode)
	h.work.Go(func() { s.end(s.initiate(eff.Want)) })
}

// serve answers an accepted open. A peer that opens a shard anew has given up what was live of it. h.mu is held.
func (h *Host) serve(eff mesh.ServeSync) {
	for _, old := range h.sessions {
		if old.peer == eff.Peer && !old.ours() && old.shard == eff.Open.Shard {
			old.cancel()
		}
	}
	s := h.newSession(eff.Peer, eff.Session, ledger.Pull, eff.Open.Shard, eff.Open.Mode)
	s.trace = h.traced(roleResponder, eff.Open.Mode)
	h.work.Go(func() { s.end(s.respond(eff.Open)) })
}

// route hands a message to its session, and waits while the session is busy: that is the back-pressure.
func (h *Host) route(a *arrival, window int64) {
	h.mu.Lock()
	s := h.sessions[a.m.Thread()]
	h.mu.Unlock()
	if s == nil || s.peer != a.from {
		return
	}
	select {
	case s.in <- &bulk{a.m, window}:
	case <-s.ctx.Done():
	}
}

// refuseSession answers a message that mesh did not let through.
func (h *Host) refuseSession(a *arrival, code spec.Code) {
	if a.anonymous || !strings.HasPrefix(a.m.Type, spec.PIURISync) || a.m.Type == string(spec.MsgSyncRefuse) || a.m.Type == string(spec.MsgSyncDone) || a.m.Type == string(spec.MsgSyncDelivered) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link(a.from).enqueue(h.message(mesh.Send{To: a.from, Type: spec.MsgSyncRefuse, ID: newID(), Thread: a.m.Thread(), Body: mesh.RefuseBody{Code: code}}), false)
}

// end closes a session's books.
func (s *session) end(err error) {
	s.cancel()
	code := spec.Code("")
	var no *refusal
	switch {
	case errors.As(err, &no):
		code = no.code
	case err != nil:
		code = spec.CodeError
		if s.h.ctx.Err() == nil {
			s.h.Stressed(strain.Peer, identity.FormatDID(s.peer), s.peer)
		}
		s.h.cfg.Log.Info("a sync ended early", "peer", s.peer.String()[:12], "err", err)
	}
	s.h.mu.Lock()
	delete(s.h.sessions, s.thread)
	s.h.mu.Unlock()
	s.trace.End(string(code), s.have, s.need)
	s.h.step(mesh.SyncEnded{Peer: s.peer, Session: s.thread, Code: code, Have: s.have, Need: s.need})
}

// send seals one message, takes its budget from mesh, and sends it. The body and the envelopes must already name the grant and
// window that the message is charged to at created.
func (s *session) send(typ spec.MessageType, content any, created int64, envelopes []*ledger.Envelope) error {
	_, err := s.charged(typ, content, created, envelopes)
	return err
}

// charged is send, and returns the window that the message was metered in.
func (s *session) charged(typ spec.MessageType, content any, created int64, envelopes []*ledger.Envelope) (window int64, err error) {
	m := &didcomm.Message{ID: newID(), Type: string(typ), From: s.h.self, To: []string{identity.FormatDID(s.peer)}, ThreadID: s.thread, CreatedTime: created}
	if typ == spec.MsgSyncOpen || typ == spec.MsgStandingQuery {
		m.ID, m.ThreadID = s.thread, ""
	}
	raw, err := body(content)
	if err != nil {
		return 0, err
	}
	m.Body = raw
	s.h.cfg.tamper.passes(s.h.cfg.Agent, envelopes, created)
	for _, e := range envelopes {
		// Without a media type: data.json says what it is, and it would be a tenth of a small event.
		m.Attachments = append(m.Attachments, didcomm.Attachment{ID: attachEnvelope, Data: didcomm.AttachmentData{JSON: e.JSON()}})
	}
	s.offerZip(m)
	frame, err := s.h.seal(s.ctx, s.peer, m, didcomm.PackOptions{Zip: s.zip.Load()})
	if err != nil {
		return 0, err
	}
	answers := s.h.step(s.h.cfg.tamper.counts(mesh.Sending{Peer: s.peer, Session: s.thread, Type: typ, Created: created, Octets: int64(len(frame)), Envelopes: int64(len(envelopes))}))
	if len(answers) == 0 {
		return 0, errors.New("federation has stopped")
	}
	switch a := answers[0].(type) {
	case mesh.Withhold:
		return 0, &refusal{a.Code, a.Until}
	case mesh.Permit:
		window = a.Window
	}
	o := &outgoing{frame: frame, created: created, done: make(chan error, 1)}
	s.h.mu.Lock()
	l := s.h.link(s.peer)
	s.h.mu.Unlock()
	l.push(o)
	select {
	case err := <-o.done:
		if err == nil && len(envelopes) > 0 && s.h.cfg.Left != nil {
			s.h.cfg.Left(s.peer, envelopes)
		}
		return window, err
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

// receive waits for the session's next message.
func (s *session) receive() (*bulk, error) {
	t := time.NewTimer(sessionSilence)
	defer t.Stop()
	select {
	case b := <-s.in:
		s.hearZip(b.m)
		return b, nil
	case <-t.C:
		return nil, errSilence
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// set freezes what is reconciled: the filter and the time range, without what never leaves and what mesh may not carry.
func (s *session) set(filter nostr.Filter, since, until int64) (negentropy.Set, func(), error) {
	narrow(&filter, since, until)
	s.filter = filter
	var err error
	if s.now.from, err = s.h.tail.mark(s.ctx); err != nil {
		return nil, nil, fmt.Errorf("mark the arrivals: %w", err)
	}
	set, release, err := s.h.cfg.Store.Set(s.ctx, []nostr.Filter{filter}, s.h.cfg.View, Now().Unix())
	if err != nil {
		return nil, nil, fmt.Errorf("freeze the shard: %w", err)
	}
	return set, release, nil
}

// narrow intersects a filter with a time range; 0 is open.
func narrow(f *nostr.Filter, since, until int64) {
	if since > 0 && (f.Since == nil || *f.Since < since) {
		f.Since = &since
	}
	if until > 0 && (f.Until == nil || *f.Until > until) {
		f.Until = &until
	}
}

// respond serves a session that the peer began.
func (s *session) respond(open mesh.OpenBody) error {
	filter, err := nostr.ParseFilter(open.Filter)
	if err != nil {
		return &refusal{code: spec.CodeMalformed}
	}
	set, release, err := s.set(filter, open.Since, open.Until)
	if err != nil {
		return err
	}
	release = sync.OnceFunc(release)
	defer release()
	server := negentropy.NewServer(set, negFrame)
	if err := s.answerFrame(server, open.Neg); err != nil {
		return err
	}
	done, err := s.answerAll(server)
	if err != nil || !done {
		return err
	}
	release()
	return s.live()
}

// answerAll answers until the initiator has what it needs: done tells that it said so.
func (s *session) answerAll(server *negentropy.Server) (done bool, err error) {
	for {
		b, err := s.receive()
		if err != nil {
			return false, err
		}
		switch spec.MessageType(b.m.Type) {
		case spec.MsgSyncFrame:
			var f mesh.FrameBody
			if err := b.m.DecodeBody(&f); err != nil {
				return false, err
			}
			err = s.answerFrame(server, f.Neg)
		case spec.MsgSyncWant:
			err = s.answerWant(b)
		case spec.MsgSyncDeliver:
			err = s.takeDeliver(b)
		case spec.MsgSyncDone:
			return true, nil
		case spec.MsgSyncRefuse:
			return false, refusedBy(b)
		}
		if err != nil {
			s.giveUp(err)
			return false, err
		}
	}
}

// giveUp tells the peer why a session ends.
func (s *session) giveUp(err error) {
	code := spec.CodeError
	var no *refusal
	if errors.As(err, &no) {
		code = no.code
	}
	if s.ctx.Err() == nil {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		s.h.link(s.peer).enqueue(s.h.message(mesh.Send{To: s.peer, Type: spec.MsgSyncRefuse, ID: newID(), Thread: s.thread, Body: mesh.RefuseBody{Code: code}}), false)
	}
}

func refusedBy(b *bulk) error {
	var r mesh.RefuseBody
	if err := b.m.DecodeBody(&r); err != nil {
		return err
	}
	return &refusal{code: r.Code}
}

func (s *session) answerFrame(server *negentropy.Server, neg string) error {
	msg, err := hex.DecodeString(neg)
	if err != nil {
		return &refusal{code: spec.CodeMalformed}
	}
	answer, err := server.Reconcile(msg)
	if err != nil {
		return &refusal{code: spec.CodeMalformed}
	}
	return s.send(spec.MsgSyncFrame, mesh.FrameBody{Neg: hex.EncodeToString(answer)}, Now().Unix(), nil)
}

// answerWant answers with one deliver, which holds the first of the events that are here and may cross; where there are none, with a refusal
// of the want alone.
func (s *session) answerWant(b *bulk) (err error) {
	var w mesh.WantBody
	if err := b.m.DecodeBody(&w); err != nil {
		return err
	}
	ids := make([]nostr.ID, len(w.IDs))
	for i, text := range w.IDs {
		if ids[i], err = nostr.ParseID(text); err != nil {
			return &refusal{code: spec.CodeMalformed}
		}
	}
	if err := s.prefetch(ids); err != nil {
		return err
	}
	created := Now().Unix()
	var list []*ledger.Envelope
	size := 0
	for _, id := range ids {
		e, err := s.wrap(id, created)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		if size += len(e.Event.JSON()) + hopOctets; size > serveBytes && len(list) > 0 {
			break
		}
		list = append(list, e)
	}
	if len(list) == 0 {
		return s.send(spec.MsgSyncRefuse, mesh.RefuseBody{Code: spec.CodeExpired}, created, nil)
	}
	s.have += int64(len(list))
	return s.send(spec.MsgSyncDeliver, mesh.DeliverBody{Count: len(list)}, created, list)
}

// prefetch tells a store that has to ask for its events which ones are needed now.
func (s *session) prefetch(ids []nostr.ID) error {
	p, ok := s.h.cfg.Store.(store.Prefetcher)
	if !ok {
		return nil
	}
	if err := p.Prefetch(s.ctx, ids, Now().Unix()); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return nil
}

// wrap puts an event that may cross into an envelope with our hop; nil where it is not here, may not cross, came from the
// peer itself, or has gone as far as events go.
func (s *session) wrap(id nostr.ID, created int64) (*ledger.Envelope, error) {
	e, err := s.h.cfg.Store.Get(s.ctx, id, created)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	g, w, ok := s.charge(created)
	if !ok {
		return nil, &refusal{code: spec.CodeNotGranted}
	}
	if !s.gives(e) || ledger.CheckScope(g.Scopes, s.way, e, created) != nil {
		return nil, nil
	}
	if !s.leaving(e) {
		return nil, nil
	}
	path, err := s.h.provenance.Path(id)
	if err != nil {
		return nil, err
	}
	for _, hop := range path {
		if hop.Node == s.peer {
			return nil, nil
		}
	}
	env := &ledger.Envelope{Event: e, Path: path, Grant: g.ID, Window: w.Epoch}
	if env.SignHop(s.h.cfg.Agent, created) != nil {
		return nil, nil // the hop limit
	}
	return env, nil
}

// leaving asks whether the operator lets an event go to the peer.
func (s *session) leaving(e *nostr.Event) bool {
	return s.h.cfg.Leaving == nil || s.h.cfg.Leaving(s.ctx, s.peer, e)
}

func (s *session) charge(created int64) (*ledger.Grant, ledger.Window, bool) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.h.node.Charge(s.peer, s.thread, created, Now())
}

// inward is the direction of what the peer delivers, seen from the subject of the session's grant.
func (s *session) inward() ledger.Direction {
	if s.ours() {
		return ledger.Pull
	}
	return ledger.Push
}

// judge holds a delivered envelope against the grant and the session's interest; "" is the code of one that may stay.
func (s *session) judge(env *ledger.Envelope, d ledger.Delivery) spec.Code {
	if err := env.Check(d); err != nil {
		return refusalOf(err)
	}
	switch {
	case recipientsOnly(env.Event.Kind) && (!s.reconciled || !s.h.addressed(s.ctx, env.Event, s.h.ownRelays())):
		return spec.CodeNever
	case !s.takes() || !s.filter.Matches(env.Event):
		return spec.CodeOutOfScope
	}
	return ""
}

// refusalOf maps a rule that an envelope broke to the code that the peer is told.
func refusalOf(err error) spec.Code {
	switch identity.CodeOf(err) {
	case ledger.OutOfScope:
		return spec.CodeOutOfScope
	case ledger.NeverCrosses, ledger.ProtectedHere:
		return spec.CodeNever
	case ledger.ExpiredEvent:
		return spec.CodeExpired
	case ledger.HopLimit, ledger.HopLoop:
		return spec.CodeHopLimit
	case ledger.WrongGrant, ledger.WrongWindow, "":
		return spec.CodeNotGranted
	}
	return spec.CodeInvalid
}

func originOf(env *ledger.Envelope, from nostr.PubKey, now int64) Origin {
	o := Origin{Event: env.Event.ID, From: from, Grant: env.Grant, Window: env.Window, At: now}
	for _, hop := range env.Path {
		o.Path = append(o.Path, Hop{hop.Node, hop.At, hop.Sig.String()})
	}
	return o
}

func parseSig(s string) (sig nostr.Sig, err error) {
	if len(s) != 2*len(sig) {
		return sig, errors.New("a hop's signature has the wrong length")
	}
	_, err = hex.Decode(sig[:], []byte(s))
	return sig, err
}
