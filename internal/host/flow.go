package host

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// A session that has reconciled stays open: what is stored at one end from then on is delivered to the other as it comes, in delivers that are
// charged and answered like all others. The initiator's done begins it; a second done of either end, which the other answers with its own, ends
// it. After liveLife the initiator ends it and reconciles anew, so that nothing that was missed stays missing.

const (
	liveLife     = 300 * time.Second
	liveInFlight = 4
	partTime     = 10 * time.Second // for the answer to a done
	dealtAhead   = 256              // events dealt out to a session and not sent yet
	lateIDs      = 64               // of what went to a peer last, for sessions that join later
	leftTime     = time.Second      // after which what was left to the reconciliation is reconciled, at the earliest
	leftRanges   = 8                // sync_ranges that such a reconciliation may take, of those that are granted for a window
)

// flow deals what arrives out to the live sessions with one peer: each event once, whichever of them carries it.
type flow struct {
	h    *Host
	peer nostr.PubKey

	mu    sync.Mutex
	at    uint64 // arrivals up to here are dealt out
	lives []*session
	sent  []nostr.ID // what went last
	next  int        // place in sent
	given int64      // events of others that we pushed lately
	dups  int64      // and of them those that the peer had
}

// current is a session's part in the flow of its peer. flow.mu guards it.
type current struct {
	from   uint64    // arrivals up to here are no affair of the session's
	queue  []*fresh  // dealt out, to be sent
	until  time.Time // when there is budget again
	behind time.Time // from when on the session is over: something could not be dealt out, and only a reconciliation tells what
	nudge  chan struct{}
	// patience is how long what was left to the reconciliation waits for it: as long as the grant can afford one each time.
	patience time.Duration
}

// flows are those to all peers that ever had a live session.
type flows struct {
	mu sync.Mutex
	to map[nostr.PubKey]*flow
}

// flow returns the flow to a peer.
func (h *Host) flow(peer nostr.PubKey) *flow {
	h.flows.mu.Lock()
	defer h.flows.mu.Unlock()
	f := h.flows.to[peer]
	if f == nil {
		f = &flow{h: h, peer: peer}
		h.flows.to[peer] = f
	}
	return f
}

func (f *flow) join(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lives) == 0 || s.now.from < f.at {
		for _, other := range f.lives {
			other.now.from = max(other.now.from, f.at)
		}
		f.at = s.now.from
	}
	f.lives = append(f.lives, s)
	f.h.tail.join(s.now.from)
}

func (f *flow) leave(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lives = slices.DeleteFunc(f.lives, func(o *session) bool { return o == s })
	f.h.tail.leave()
	if s.ours() && f.given > 0 { // what was found out about the peer is not true for ever
		f.given, f.dups = f.given/2, f.dups/2
	}
}

// deal hands arrivals out until a session that can send has enough.
func (f *flow) deal(s *session) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if f.full() {
			return nil
		}
		list, err := f.h.tail.after(s.ctx, f.at)
		if err != nil {
			return fmt.Errorf("read what has arrived: %w", err)
		}
		if len(list) == 0 {
			return nil
		}
		for _, e := range list {
			if f.full() { // the rest is read again when there is room
				return nil
			}
			f.at = e.seq
			f.give(e, s)
		}
	}
}

// full reports whether a session that can send has enough. f.mu is held.
func (f *flow) full() bool {
	return slices.ContainsFunc(f.lives, func(o *session) bool { return len(o.now.queue) >= dealtAhead && o.free() })
}

// give deals one arrival out. by is who asks, and needs no waking.
func (f *flow) give(e *fresh, by *session) {
	if slices.Contains(f.sent, e.event.ID) || e.heldBy(f.peer) || len(e.path) >= spec.C().Forwarding.MaxHops {
		return
	}
	var best *session
	for _, s := range f.lives {
		if s.now.from < e.seq && s.givesLive(e.event) && (best == nil || f.rank(s, e) < f.rank(best, e)) {
			best = s
		}
	}
	switch {
	case best == nil:
		return
	case f.rank(best, e) == unfit:
		best.lag(Now().Add(best.now.patience))
	case len(best.now.queue) >= 2*dealtAhead:
		best.lag(later(best.now.until, Now()))
	default:
		best.now.queue = append(best.now.queue, e)
		f.remember(e.event.ID)
	}
	if best != by {
		signal(best.now.nudge)
	}
}

func (f *flow) remember(id nostr.ID) {
	if len(f.sent) < lateIDs {
		f.sent = append(f.sent, id)
		return
	}
	f.sent[f.next] = id
	f.next = (f.next + 1) % lateIDs
}

// unfit is the rank of a session that must not carry an event.
const unfit = 3

// rank says which of several sessions carries an event: the one in which the peer fetches, so that what it turns out to have is nobody's fault;
// then ours; then one whose budget is used up for now. What we pass on for others the peer may have from them: where that has shown too
// often, it is left to the reconciliation.
func (f *flow) rank(s *session, e *fresh) int {
	switch {
	case s.ours() && len(e.path) > 0 && 10*f.dups > max(f.given, 10):
		return unfit
	case !s.free():
		return 2
	case s.ours():
		return 1
	}
	return 0
}

// lag has the session end at a time, to be reconciled. flow.mu is held.
func (s *session) lag(at time.Time) {
	if s.now.behind.IsZero() || at.Before(s.now.behind) {
		s.now.behind = at
	}
}

// free reports whether the session may send for all that is known. flow.mu is held.
func (s *session) free() bool { return !s.now.until.After(Now()) }

// ours reports whether we began the session.
func (s *session) ours() bool { return s.way == ledger.Push }

// delivers and takes say which ends deliver in a session of its mode.
func (s *session) delivers() bool {
	return s.mode == mesh.ModeBoth || s.ours() == (s.mode == mesh.ModePush)
}

func (s *session) takes() bool {
	return s.mode == mesh.ModeBoth || s.ours() == (s.mode == mesh.ModePull)
}

// gives reports whether an event belongs to what we deliver in this session.
func (s *session) gives(e *nostr.Event) bool {
	return s.delivers() && s.filter.Matches(e) && s.h.cfg.View.Allows(e)
}

// givesLive is gives for what has just arrived: gift wraps cross in no other way, so never in bulk.
func (s *session) givesLive(e *nostr.Event) bool {
	if !recipientsOnly(e.Kind) {
		return s.gives(e)
	}
	return s.delivers() && s.filter.Matches(e) && s.h.addressed(s.ctx, e, s.h.peerRelays(s.peer))
}

// flight is a deliver that was not answered yet.
type flight struct {
	window    int64
	forwarded int64
	sent      time.Time
}

// live runs a session that has reconciled until one of the ends is done with it.
func (s *session) live() error {
	g, _, ok := s.charge(Now().Unix())
	if !ok {
		return &refusal{code: spec.CodeNotGranted}
	}
	s.now.patience = max(leftTime, time.Duration(leftRanges*g.Window/max(1, g.Limits[spec.LimitSyncRanges]))*time.Second)
	f := s.h.flow(s.peer)
	f.join(s)
	defer f.leave(s)
	if s.stale {
		s.now.behind = time.Now().Add(s.now.patience)
	}
	s.reconciled = true
	s.trace.Live(s.have, s.need)
	s.h.step(mesh.SyncLive{Peer: s.peer, Session: s.thread, Have: s.have, Need: s.need})
	r := &running{s: s, f: f, over: Now().Add(liveLife)}
	for {
		changed := s.h.tail.changes()
		if err := r.sendAll(); err != nil {
			return err
		}
		if r.said && r.told {
			return nil
		}
		pause := time.NewTimer(r.pause())
		select {
		case <-changed:
		case <-s.now.nudge:
		case b := <-s.in:
			s.hearZip(b.m)
			if err := r.take(b); err != nil {
				pause.Stop()
				s.giveUp(err)
				return err
			}
		case <-pause.C:
		case <-s.ctx.Done():
			pause.Stop()
			return s.ctx.Err()
		}
		pause.Stop()
		if err := r.overdue(); err != nil {
			return err
		}
	}
}

// running is the state of a live session's own goroutine.
type running struct {
	s      *session
	f      *flow
	flight []flight
	over   time.Time // when we end it
	said   bool      // we sent our last done
	told   bool      // the peer sent its last
	asked  time.Time // when we said it
}

// parting reports whether we want the session to end.
func (r *running) parting() bool {
	if r.told || r.s.ours() && !Now().Before(r.over) || r.s.unwanted.Load() {
		return true
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	at := r.s.now.behind
	return !at.IsZero() && !Now().Before(at)
}

// sendAll sends what there is to send, as far as the peer answers and the budget goes.
func (r *running) sendAll() error {
	s := r.s
	for !r.said && len(r.flight) < liveInFlight {
		if r.parting() {
			if len(r.flight) > 0 {
				return nil
			}
			r.said, r.asked = true, Now()
			return s.send(spec.MsgSyncDone, mesh.DoneBody{Have: s.have, Need: s.need}, Now().Unix(), nil)
		}
		if err := r.f.deal(s); err != nil {
			return err
		}
		batch := r.cut()
		if len(batch) == 0 {
			return nil
		}
		if err := r.deliver(batch); err != nil {
			return err
		}
	}
	return nil
}

// cut takes the next deliver's worth out of the queue.
func (r *running) cut() []*fresh {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	c := &r.s.now
	if !r.s.free() {
		return nil
	}
	n, size := 0, 0
	for n < len(c.queue) && (n == 0 || size+len(c.queue[n].event.JSON()) <= pushBytes) {
		size += len(c.queue[n].event.JSON()) + hopOctets
		n++
	}
	batch := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	return batch
}

// hopOctets is about what an envelope adds to an event.
const hopOctets = 400

// deliver sends one deliver, smaller if the budget does not suffice. What it does not suffice for waits until there is a new one.
func (r *running) deliver(batch []*fresh) error {
	s := r.s
	created := Now().Unix()
	list, forwarded, err := s.envelopes(batch, created)
	if err != nil {
		return err
	}
	for n := len(list); n > 0; n /= 2 {
		window, err := s.charged(spec.MsgSyncDeliver, mesh.DeliverBody{Count: n}, created, list[:n])
		var no *refusal
		switch {
		case err == nil:
			r.flight = append(r.flight, flight{window, forwarded, Now()})
			r.putBack(batch, list[n:], time.Time{})
			return nil
		case !errors.As(err, &no) || no.code != spec.CodeOverBudget:
			return err
		case n == 1:
			r.putBack(batch, list, time.Unix(max(no.until, created+1), 0))
			return nil
		}
	}
	return nil
}

// putBack puts what was not sent in front of the queue again.
func (r *running) putBack(batch []*fresh, rest []*ledger.Envelope, until time.Time) {
	if len(rest) == 0 {
		return
	}
	i := slices.IndexFunc(batch, func(e *fresh) bool { return e.event == rest[0].Event })
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.s.now.queue = slices.Insert(r.s.now.queue, 0, batch[i:]...)
	r.s.now.until = until
}

// envelopes wraps what may cross.
func (s *session) envelopes(batch []*fresh, created int64) (list []*ledger.Envelope, forwarded int64, err error) {
	g, w, ok := s.charge(created)
	if !ok {
		return nil, 0, &refusal{code: spec.CodeNotGranted}
	}
	for _, e := range batch {
		if ledger.CheckScope(g.Scopes, s.way, e.event, created) != nil || e.heldBy(s.peer) || !s.leaving(e.event) {
			continue
		}
		path, err := e.hops(s.h, created)
		if err != nil {
			continue // the hop limit
		}
		if len(e.path) > 0 {
			forwarded++
		}
		list = append(list, &ledger.Envelope{Event: e.event, Path: path, Grant: g.ID, Window: w.Epoch})
	}
	return list, forwarded, nil
}

// take handles a message of a live session.
func (r *running) take(b *bulk) error {
	s := r.s
	switch spec.MessageType(b.m.Type) {
	case spec.MsgSyncDeliver:
		return s.takeDeliver(b)
	case spec.MsgSyncDelivered:
		return r.answered(b)
	case spec.MsgSyncWant:
		if !s.ours() {
			return s.answerWant(b)
		}
	case spec.MsgSyncDone:
		r.told = true
		return nil
	case spec.MsgSyncRefuse:
		return refusedBy(b)
	}
	return &refusal{code: spec.CodeMalformed}
}

// answered notes the fate of the oldest deliver.
func (r *running) answered(b *bulk) error {
	if len(r.flight) == 0 {
		return &refusal{code: spec.CodeMalformed}
	}
	var d mesh.DeliveredBody
	if err := b.m.DecodeBody(&d); err != nil {
		return err
	}
	s, o := r.s, r.flight[0]
	r.flight = r.flight[1:]
	s.fate(&d, o.window)
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if s.ours() && o.forwarded > 0 {
		r.f.given += o.forwarded
		r.f.dups += int64(d.Duplicate)
	}
	return nil
}

// pause is how long there is nothing to do if nothing happens.
func (r *running) pause() time.Duration {
	at := r.over
	if !r.s.ours() {
		at = Now().Add(time.Hour)
	}
	if len(r.flight) > 0 {
		at = earlier(at, r.flight[0].sent.Add(sessionSilence))
	}
	if r.said {
		at = earlier(at, r.asked.Add(partTime))
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	for _, t := range []time.Time{r.s.now.until, r.s.now.behind} {
		if t.After(Now()) {
			at = earlier(at, t)
		}
	}
	return max(at.Sub(Now()), time.Millisecond)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// overdue gives up on a peer that does not answer.
func (r *running) overdue() error {
	if len(r.flight) > 0 && Now().Sub(r.flight[0].sent) >= sessionSilence || r.said && !r.told && Now().Sub(r.asked) >= partTime {
		return errSilence
	}
	return nil
}

// cut ends the sessions with a peer that has gone: what was on its way may be lost, so they are reconciled anew.
func (h *Host) cut(peer nostr.PubKey) {
	h.flows.mu.Lock()
	f := h.flows.to[peer]
	h.flows.mu.Unlock()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.lives {
		s.cancel()
	}
}
