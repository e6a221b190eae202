package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// link is the way to one peer: a queue of its own, so that a dead peer delays nobody, and at most one dial at a time.
type link struct {
	h    *Host
	peer nostr.PubKey
	wake chan struct{}
	kick chan struct{} // ends a pause between attempts: somebody waits, or the peer has shown itself

	mu     sync.Mutex
	queue  []*outgoing
	stream transport.Stream
	proven bool               // the stream proved to be the peer's
	since  time.Time          // when it was adopted
	ours   bool               // we dialled it
	last   transport.Endpoint // that carried the last session
	climb  []transport.Attempt
	idle   chan struct{} // closed while nothing is queued
	routes map[nostr.PubKey]*route
	idler  bool      // run has ended for want of work; the next message starts it again
	climbs time.Time // when a better rung than the last resort is tried again
	relay  bool      // carries what clients of our mediation send out: the peer is no partner in a session
}

// outgoing is a frame, or a message that is sealed when its turn comes.
type outgoing struct {
	m         *didcomm.Message
	anonymous bool
	frame     []byte
	created   int64
	done      chan error   // for those who decide for themselves what a lost frame means: it is tried once
	key       string       // of its record in the journal, "" for what need not survive
	live      bool         // goes out on the stream there is, or not at all
	until     int64        // unix second after which it is not worth sending; 0: as long as it takes
	trace     *Pong        // told how it went
	routed    nostr.PubKey // frame is a forward for this mediator; zero for all else
}

const (
	maxQueued   = 4096
	sendTimeout = 30 * time.Second
	idleLife    = 15 * time.Minute // of a link without stream and work: strangers come and go
	proofTime   = 30 * time.Second // within which a stream proves to be the peer's, or is used no more while there is another way
	minBackoff  = time.Second
	maxBackoff  = 2 * time.Minute
)

// link returns the link to a peer. h.mu is held.
func (h *Host) link(peer nostr.PubKey) *link {
	l := h.links[peer]
	if l == nil {
		l = h.newLink(peer)
		h.links[peer] = l
	}
	return l
}

func (h *Host) newLink(peer nostr.PubKey) *link {
	l := &link{h: h, peer: peer, last: h.ways[peer], wake: make(chan struct{}, 1), kick: make(chan struct{}, 1), idle: make(chan struct{}), routes: map[nostr.PubKey]*route{}}
	close(l.idle)
	h.work.Go(l.run)
	return l
}

// enqueue queues a message. When the queue is full the oldest goes: a peer that is away for so long has to be told anew.
func (l *link) enqueue(m *didcomm.Message, anonymous bool) {
	if m != nil {
		l.push(&outgoing{m: m, anonymous: anonymous, created: m.CreatedTime})
	}
}

func (l *link) push(o *outgoing) {
	if lost := l.put(o, false); lost != nil {
		l.h.cfg.Log.Warn("the queue for a peer is full; the oldest message is dropped", "peer", l.peer.String()[:12])
		lost.tell(errors.New("the queue for the peer is full"))
	}
}

// put queues o, in front of everything if first, and returns what had to go for it. Durable messages do not go: mesh makes few of them.
func (l *link) put(o *outgoing, first bool) (lost *outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idler {
		l.idler = false
		l.h.work.Go(l.run)
	}
	if len(l.queue) == 0 {
		l.idle = make(chan struct{})
	}
	if len(l.queue) >= maxQueued {
		if i := slices.IndexFunc(l.queue, func(o *outgoing) bool { return o.key == "" }); i >= 0 {
			lost = l.queue[i]
			l.queue = slices.Delete(l.queue, i, i+1)
		}
	}
	if first {
		l.queue = slices.Insert(l.queue, 0, o)
		signal(l.kick)
	} else {
		l.queue = append(l.queue, o)
	}
	signal(l.wake)
	return lost
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// tell says to whoever waits how it went; its fate may have been told already.
func (o *outgoing) tell(err error) {
	if o.done == nil {
		return
	}
	select {
	case o.done <- err:
	default:
	}
}

func (l *link) head() *outgoing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0]
}

func (l *link) pop(o *outgoing, err error) {
	l.mu.Lock()
	if i := slices.Index(l.queue, o); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		if len(l.queue) == 0 {
			close(l.idle)
		}
	}
	l.mu.Unlock()
	o.tell(err)
}

// flush waits until the queue is empty, where there is a stream to empty it into.
func (l *link) flush(ctx context.Context) {
	l.mu.Lock()
	idle, up := l.idle, l.stream != nil
	l.mu.Unlock()
	if !up {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// run sends what is queued, in order.
func (l *link) run() {
	backoff := minBackoff
	for {
		o := l.head()
		if o == nil {
			rest := time.NewTimer(idleLife)
			select {
			case <-l.wake:
			case <-rest.C:
				if l.retire() {
					return
				}
			case <-l.h.ctx.Done():
				rest.Stop()
				l.close()
				return
			}
			rest.Stop()
			continue
		}
		err := errOutdated
		if o.until == 0 || Now().Unix() < o.until {
			err = l.send(o)
		}
		switch {
		case l.h.ctx.Err() != nil:
			l.pop(o, l.h.ctx.Err())
			l.close()
			return
		case err == nil:
			l.pop(o, nil)
			l.h.sent(o)
			backoff = minBackoff
			continue
		case o.done != nil:
			l.pop(o, err)
			continue
		case errors.Is(err, errNever), errors.Is(err, errRevoked):
			l.pop(o, err)
			l.h.undeliverable(l.peer, o, err)
			continue
		}
		l.h.seekAnew(l.h.ctx, l.peer) // it may have moved
		l.h.cfg.Log.Info("a peer is not reached; trying again", "peer", l.peer.String()[:12], "in", backoff, "err", err)
		pause := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-pause.C:
		case <-l.kick:
		case <-l.h.ctx.Done():
		}
		pause.Stop()
		backoff = min(2*backoff, maxBackoff)
	}
}

// retire ends a link that nothing is connected with and nothing waits in. Whoever still holds it starts it again with the next message.
func (l *link) retire() bool {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || l.stream != nil {
		return false
	}
	for _, r := range l.routes {
		if r.stream != nil {
			return false
		}
	}
	l.idler = true
	for _, m := range []map[nostr.PubKey]*link{l.h.links, l.h.relays} {
		if m[l.peer] == l {
			delete(m, l.peer)
		}
	}
	return true
}

// What no later attempt will change.
var (
	errNever    = errors.New("it can never be sent")
	errOutdated = fmt.Errorf("%w: its time is over", errNever)
	errAsleep   = errors.New("the peer is not connected")
)

// send seals a message if need be and sends it: by way of mediators, on the stream there is, or on a new one.
func (l *link) send(o *outgoing) error {
	ctx, cancel := context.WithTimeout(l.h.ctx, sendTimeout)
	defer cancel()
	frame := o.frame
	if frame == nil {
		var err error
		if frame, err = l.h.pack(ctx, l.peer, o.m, o.anonymous); err != nil {
			return err
		}
	}
	if o.live {
		return l.sendLive(ctx, frame)
	}
	if o.routed != (nostr.PubKey{}) {
		d, err := l.h.descriptorFrom(ctx, o.routed, l.peer)
		if err != nil {
			return err
		}
		return l.sendRouted(ctx, o.routed, d, frame, true)
	}
	if via := l.h.via(ctx, l.peer); len(via) > 0 && !l.connected() {
		return l.sendVia(ctx, via, frame, o)
	}
	s, fresh, err := l.open(ctx, "")
	if err != nil {
		return l.traced(o, false, err)
	}
	wider, err := l.sendOn(ctx, s, frame, o)
	if err != nil && !fresh && !errors.Is(err, errNever) { // an old stream may have died long ago
		if s, fresh, err = l.open(ctx, ""); err == nil {
			wider, err = l.sendOn(ctx, s, frame, o)
		}
	}
	if err != nil && fresh && !errors.Is(err, errNever) { // the rung did not hold: on to the others, once
		if other, _, none := l.open(ctx, s.Scheme()); none == nil {
			s = other
			wider, err = l.sendOn(ctx, s, frame, o)
		}
	}
	if err != nil {
		return l.traced(o, true, err)
	}
	if (fresh || wider) && !o.anonymous && !l.relay {
		l.h.step(mesh.Connected{Peer: l.peer, Created: o.created})
	}
	return l.traced(o, fresh || wider, nil)
}

// sendOn sends on one stream, which is lost if that fails. A frame that the carrier does not take is tried on the other rungs: wider says that
// one of them held, and is used from now on. If none does, the frame never goes out.
func (l *link) sendOn(ctx context.Context, s transport.Stream, frame []byte, o *outgoing) (wider bool, err error) {
	err = sendFrame(ctx, s, frame, o)
	switch {
	case err == nil:
		return false, nil
	case !errors.Is(err, transport.ErrFrameTooLarge):
		l.lost(s)
		return false, fmt.Errorf("send: %w", err)
	case len(frame) > transport.MaxFrame:
		return false, fmt.Errorf("%w: %w", errNever, err)
	}
	// The stream is whole, and stays the one that is sent on unless a wider one holds: what went out on it before is still being read.
	restore := l.aside(s)
	other, fresh, climbErr := l.open(ctx, s.Scheme())
	if climbErr != nil {
		restore()
		return false, fmt.Errorf("%w by %s, of which no frame may have %d octets, and nothing else holds: %w", errNever, s.Scheme(), len(frame), climbErr)
	}
	s.Close()
	if err := sendFrame(ctx, other, frame, o); err != nil {
		l.lost(other)
		return false, fmt.Errorf("send: %w", err)
	}
	return fresh, nil
}

func sendFrame(ctx context.Context, s transport.Stream, frame []byte, o *outgoing) error {
	if o.key != "" {
		return transport.SendDurable(ctx, s, frame)
	}
	return s.Send(ctx, frame)
}

func (l *link) sendLive(ctx context.Context, frame []byte) error {
	l.mu.Lock()
	s := l.stream
	l.mu.Unlock()
	if s == nil {
		return errAsleep
	}
	if err := s.Send(ctx, frame); err != nil {
		l.lost(s)
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stream != nil
}

// traced notes for whoever waits what the way was.
func (l *link) traced(o *outgoing, fresh bool, err error) error {
	if o.trace == nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.trace.Fresh, o.trace.Attempts = fresh, l.climb
	if l.stream != nil {
		o.trace.Carrier = l.stream.Scheme()
	}
	if l.ours {
		o.trace.Rung = l.last.Address
	}
	return err
}

// open returns the stream to the peer, climbing the ladder if there is none; rungs of the scheme without are left out.
func (l *link) open(ctx context.Context, without string) (s transport.Stream, fresh bool, err error) {
	l.mu.Lock()
	s, last := l.stream, l.last
	doubtful := !l.proven && Now().Sub(l.since) > proofTime // somebody who only said that he is the peer must not keep us from it
	l.mu.Unlock()
	back := s != nil && !doubtful && lastResort(s) && l.climbsBack()
	if s != nil && !doubtful && !back {
		return s, false, nil
	}
	if back { // only what is better than what there is
		last, without = transport.Endpoint{}, s.Scheme()
	}
	if climbed, fresh, err := l.dial(ctx, last, without); err == nil || s == nil {
		return climbed, fresh, err
	}
	return s, false, nil
}

// dial climbs the ladder.
func (l *link) dial(ctx context.Context, last transport.Endpoint, without string) (s transport.Stream, fresh bool, err error) {
	d, err := l.descriptor(ctx)
	if err != nil {
		return nil, false, err
	}
	rungs := slices.DeleteFunc(transport.Ladder(*l.h.ours.Load(), endpoints(d)), func(r transport.Rung) bool { return r.Endpoint.Scheme == without })
	if err := l.permitted(); err != nil {
		return nil, false, err
	}
	s, attempts, err := transport.Climb(ctx, transport.Remembered(rungs, last), func(ctx context.Context, ep transport.Endpoint) (transport.Stream, error) {
		return l.h.dialers[ep.Scheme].Dial(ctx, ep, l.peer)
	})
	l.mu.Lock()
	l.climb = attempts
	l.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	l.remember(attempts[len(attempts)-1].Rung.Endpoint)
	if kept := l.adopt(s, true, true); kept != s { // the peer was faster
		s.Close()
		return kept, false, nil
	}
	l.h.work.Go(func() { l.h.read(s, l) })
	return s, true, nil
}

// descriptor returns the peer's. That of a node to which a client of ours sends is looked for: nothing brings it here.
func (l *link) descriptor(ctx context.Context) (*identity.Descriptor, error) {
	if l.relay {
		return l.h.descriptorFrom(ctx, l.peer, l.peer)
	}
	return l.h.descriptor(ctx, l.peer, false)
}

// permitted asks mesh whether the budget allows one more session with the peer.
func (l *link) permitted() error {
	if l.relay {
		return nil
	}
	for _, eff := range l.h.step(mesh.Dialling{Peer: l.peer}) {
		if w, ok := eff.(mesh.Withhold); ok {
			return fmt.Errorf("no session may be opened before %s: the peer's grant allows no more of them in this window", time.Unix(w.Until, 0).UTC().Format(time.TimeOnly))
		}
	}
	return nil
}

func endpoints(d *identity.Descriptor) (out []transport.Endpoint) {
	for _, e := range d.Endpoints {
		out = append(out, transport.Endpoint{Scheme: e.Scheme, Address: e.Address, Preference: e.Preference})
	}
	return transport.LastResort(out)
}

// adopt makes a stream the one that is sent on, unless there is a better one, and returns the one that is sent on now. What is sent is sealed
// to the peer, so a first contact, which proves nothing, may be answered on its own stream; a stream that proved its peer takes the place of one
// that did not, and a newer one that of a peer which dials again because the old one is dead. Where both ends dialled at once, both keep the stream that the lower key dialled: one session a peer.
func (l *link) adopt(s transport.Stream, proven, ours bool) transport.Stream {
	l.mu.Lock()
	old := l.stream
	switch {
	case old == s:
		l.proven = l.proven || proven
		l.mu.Unlock()
		return s
	case old == nil, proven && !l.proven, proven && lastResort(old) && !lastResort(s), proven && !ours && !l.ours, proven && l.ours && !ours && bytes.Compare(l.peer[:], l.h.selfKey[:]) < 0:
		l.stream, l.proven, l.ours, l.since = s, proven, ours, Now()
	}
	kept := l.stream
	l.mu.Unlock()
	signal(l.wake)
	signal(l.kick)
	if kept == s && old != nil {
		old.Close() // what was sent on it is read to its end
	}
	return kept
}

// lastResort reports whether a stream goes through relays because nothing else held when it was opened.
func lastResort(s transport.Stream) bool { return s.Scheme() == "giftwrap" }

// climbEvery is how often a link on its last resort looks whether a better rung holds again.
const climbEvery = 2 * time.Minute

// climbsBack says whether it is time for that. The first look comes when the stream is as old as a proof may be.
func (l *link) climbsBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := Now()
	if now.Before(l.climbs) || now.Sub(l.since) < proofTime {
		return false
	}
	l.climbs = now.Add(climbEvery)
	return true
}

// aside stops sending on a stream without closing it. restore takes it back, unless another has come.
func (l *link) aside(s transport.Stream) (restore func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream != s {
		return func() {}
	}
	proven, ours, since := l.proven, l.ours, l.since
	l.stream, l.proven, l.ours = nil, false, false
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.stream == nil {
			l.stream, l.proven, l.ours, l.since = s, proven, ours, since
		}
	}
}

func (l *link) lost(s transport.Stream) {
	l.mu.Lock()
	was := l.stream == s
	if was {
		l.stream, l.proven, l.ours = nil, false, false
	}
	l.mu.Unlock()
	s.Close()
	if was {
		l.h.parted(l.peer)
	}
}

func (l *link) close() {
	l.mu.Lock()
	s := l.stream
	l.stream, l.proven, l.ours = nil, false, false
	l.mu.Unlock()
	if s != nil {
		s.Close()
		l.h.parted(l.peer)
	}
	l.closeRoutes()
}

// accept takes inbound streams until the listener or the host ends.
func (h *Host) accept(l transport.Listener) { h.acceptInto(l, nil) }

// acceptInto is accept, and keeps track of streams that are to be drained.
func (h *Host) acceptInto(l transport.Listener, all *drained) {
	for {
		s, err := l.Accept(h.ctx)
		if err != nil {
			return
		}
		if transport.OneWay(s) {
			h.acceptFrame(s)
		} else {
			leave := all.enter(s)
			h.work.Go(func() {
				defer leave()
				h.read(s, nil)
			})
		}
	}
}

// acceptFrame opens the one frame of a stream before the next stream is accepted: where each frame is a stream of its own, the first of two
// introduces the sender without whom the second cannot be opened.
func (h *Host) acceptFrame(s transport.Stream) {
	defer s.Close()
	frame, err := s.Receive(h.ctx)
	if err != nil {
		return
	}
	if a, err := h.opened(s, frame); err == nil {
		h.work.Go(func() { h.handle(s, nil, a, true, true) })
	}
}

// read handles the frames of a stream until it ends. l is nil until the peer of an inbound stream is known. It stays unknown where senders
// come through mediators: then one stream carries the frames of many, or of nobody.
func (h *Host) read(s transport.Stream, l *link) {
	inbound := l == nil
	defer func() {
		if l != nil {
			l.lost(s)
		}
		s.Close()
	}()
	for first := true; ; first = false {
		frame, err := s.Receive(h.ctx)
		if err != nil {
			return
		}
		a, err := h.opened(s, frame)
		if err != nil {
			if l == nil && !known(err) {
				return // from nobody known
			}
			continue
		}
		var more bool
		if l, more = h.handle(s, l, a, inbound, first); !more {
			return
		}
	}
}

// opened opens a frame, says why where it cannot, and takes up whom it introduces.
func (h *Host) opened(s transport.Stream, frame []byte) (*arrival, error) {
	a, err := h.open(frame)
	if err != nil {
		h.cfg.Log.Info("a frame cannot be used", "carrier", s.Scheme(), "err", err)
		return nil, err
	}
	a.carrier = s.Scheme()
	if a.m.Type != didcomm.TypeForward {
		h.introduced(a)
	}
	return a, nil
}

// handle takes what came on a stream whose peer is that of l, or not known yet, and returns the peer's link once it is. inbound is a stream
// that the peer opened, first the first frame of a stream. False ends the stream.
func (h *Host) handle(s transport.Stream, l *link, a *arrival, inbound, first bool) (*link, bool) {
	if a.m.Type == didcomm.TypeForward {
		h.takeForward(a, l)
		return l, true
	}
	if l == nil && h.roundabout(a.from) {
		h.take(a)
		return l, true
	}
	if l != nil && (a.from != l.peer || l.relay) {
		h.cfg.Log.Info("a second sender on one stream", "err", "the stream is closed")
		return l, false
	}
	if l == nil {
		h.mu.Lock()
		l = h.link(a.from)
		h.mu.Unlock()
	}
	if !transport.OneWay(s) {
		l.adopt(s, !a.anonymous, !inbound)
	}
	if first && inbound && !a.anonymous {
		h.step(mesh.Connected{Peer: a.from, Inbound: true, Created: a.m.CreatedTime})
	}
	h.take(a)
	return l, true
}

// known says of a frame that could not be used that it was one that we know: a copy, or one that came too late.
func known(err error) bool {
	return errors.Is(err, didcomm.ErrReplay) || errors.Is(err, didcomm.ErrExpired) || errors.Is(err, didcomm.ErrStale)
}
