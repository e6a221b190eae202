package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// route is the way to one mediator of a peer: a stream of its own, on which nothing but forwards from nobody goes, so that the mediator does
// not learn from it who sends.
type route struct {
	stream  transport.Stream
	last    transport.Endpoint
	retryAt time.Time // after a failure
	backoff time.Duration
	recent  []handed // messages that went out a moment ago: they are sent again if the stream ends now
}

// handed is a forward that a mediator's carrier took. Nothing says whether the mediator has written it down.
type handed struct {
	at    time.Time
	frame []byte
}

const (
	recall    = 10 * time.Second // how long before the end of a stream what went out on it is in doubt
	recalled  = 256              // messages in doubt at most
	againLife = 10 * time.Minute // how long they are tried again
)

// via names the mediators that what goes to a peer has to pass; none for one that is reached directly. A leaf sends everything by way of its own
// mediators: they alone learn its address (§ Privacy rules).
func (h *Host) via(ctx context.Context, peer nostr.PubKey) []nostr.PubKey {
	if mine := h.mediators(); len(mine) > 0 {
		if slices.Contains(mine, peer) {
			return nil
		}
		return mine
	}
	d, err := h.descriptor(ctx, peer, false)
	if err != nil || len(d.Endpoints) > 0 {
		return nil
	}
	return d.Mediators
}

func mediates(d *identity.Descriptor, key nostr.PubKey) bool {
	return slices.Contains(d.Mediators, key)
}

// roundabout reports whether a peer is reached through mediators, none of which we are: what it sends comes on streams that are not its own.
func (h *Host) roundabout(peer nostr.PubKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.peers[peer]
	return d != nil && len(d.Endpoints) == 0 && len(d.Mediators) > 0 && !mediates(d, h.selfKey)
}

// sendVia sends a sealed frame by way of mediators: a message through each, so that one of them may be lost with what it holds; a frame of a
// session through the first that takes it. One that takes it is enough.
func (l *link) sendVia(ctx context.Context, via []nostr.PubKey, frame []byte, o *outgoing) error {
	f := didcomm.Forward{Next: identity.FormatDID(l.peer), Envelope: frame}
	if o.m != nil {
		f.ExpiresTime = o.m.ExpiresTime
	}
	var failed []error
	took := 0
	for _, m := range via {
		err := l.forward(ctx, m, f, o)
		if err != nil {
			failed = append(failed, fmt.Errorf("mediator %s: %w", m.String()[:12], err))
			continue
		}
		took++
		if o.frame != nil {
			break
		}
	}
	if o.trace != nil {
		o.trace.Carrier, o.trace.Fresh = "mediator", true
	}
	if took == 0 {
		return errors.Join(failed...)
	}
	return nil
}

// forward hands a forward to one mediator.
func (l *link) forward(ctx context.Context, mediator nostr.PubKey, f didcomm.Forward, o *outgoing) error {
	h := l.h
	if mediator == h.selfKey {
		return h.mediation.offer(ctx, f)
	}
	d, err := h.descriptorFrom(ctx, mediator, l.peer)
	if err != nil {
		return err
	}
	key, err := agreementOf(d, Now().Unix())
	if err != nil {
		return err
	}
	frame, err := f.Wrap(newID(), key)
	if err != nil {
		return fmt.Errorf("seal a forward: %w", err)
	}
	if len(h.mediators()) > 0 {
		return h.hand(ctx, mediator, frame)
	}
	return l.sendRouted(ctx, mediator, d, frame, o.m != nil)
}

// sendRouted sends a sealed forward on the route to its mediator. keep has it sent again if the stream ends soon after.
func (l *link) sendRouted(ctx context.Context, mediator nostr.PubKey, d *identity.Descriptor, frame []byte, keep bool) error {
	r := l.route(mediator)
	for {
		s, fresh, err := r.open(ctx, l, mediator, d)
		if err != nil {
			return err
		}
		if keep {
			l.mu.Lock()
			r.recent = append(r.doubtful(Now()), handed{Now(), frame})
			l.mu.Unlock()
		}
		if err = s.Send(ctx, frame); err == nil {
			return nil
		}
		l.drop(r)
		if fresh {
			return r.failed(fmt.Errorf("send: %w", err))
		}
	}
}

// doubtful are the messages that went out a moment ago. l.mu is held.
func (r *route) doubtful(now time.Time) []handed {
	i := slices.IndexFunc(r.recent, func(h handed) bool { return now.Sub(h.at) <= recall })
	if i < 0 {
		return nil
	}
	return r.recent[max(i, len(r.recent)-recalled+1):]
}

// sendAgain sends what a mediator may have lost with its stream, once it is there again. It keeps nobody waiting, and the mediator knows what it
// has.
func (h *Host) sendAgain(l *link, mediator nostr.PubKey, list []handed) {
	deadline, backoff := Now().Add(againLife), minBackoff
	for len(list) > 0 && Now().Before(deadline) {
		o := &outgoing{frame: list[0].frame, routed: mediator, done: make(chan error, 1)}
		l.push(o)
		select {
		case err := <-o.done:
			if err == nil {
				list, backoff = list[1:], minBackoff
				continue
			}
		case <-h.ctx.Done():
			return
		}
		pause := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-pause.C:
		case <-h.ctx.Done():
			pause.Stop()
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// hand sends a leaf's frame on the one session that it has with a mediator of its own.
func (h *Host) hand(ctx context.Context, mediator nostr.PubKey, frame []byte) error {
	o := &outgoing{frame: frame, done: make(chan error, 1), live: true}
	h.mu.Lock()
	l := h.link(mediator)
	h.mu.Unlock()
	l.push(o)
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// descriptorFrom returns a mediator's descriptor, looking where the descriptor of its client was found if it is not at hand.
func (h *Host) descriptorFrom(ctx context.Context, mediator, client nostr.PubKey) (*identity.Descriptor, error) {
	d, err := h.descriptor(ctx, mediator, false)
	if err == nil {
		return d, nil
	}
	h.mu.Lock()
	if len(h.hints[mediator]) == 0 {
		h.hints[mediator] = slices.Concat(h.hints[client], h.cfg.MediatorHints)
	}
	h.mu.Unlock()
	return h.descriptor(ctx, mediator, true)
}

func (l *link) route(mediator nostr.PubKey) *route {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.routes[mediator]
	if r == nil {
		r = &route{backoff: minBackoff}
		l.routes[mediator] = r
	}
	return r
}

var errResting = errors.New("it was not reached a moment ago")

// open returns the route's stream. Only the link's own goroutine calls it.
func (r *route) open(ctx context.Context, l *link, mediator nostr.PubKey, d *identity.Descriptor) (transport.Stream, bool, error) {
	l.mu.Lock()
	s := r.stream
	l.mu.Unlock()
	if s != nil {
		return s, false, nil
	}
	if Now().Before(r.retryAt) {
		return nil, false, errResting
	}
	rungs := transport.Remembered(transport.Ladder(*l.h.ours.Load(), endpoints(d)), r.last)
	s, attempts, err := transport.Climb(ctx, rungs, func(ctx context.Context, ep transport.Endpoint) (transport.Stream, error) {
		return l.h.dialers[ep.Scheme].Dial(ctx, ep, mediator)
	})
	if err != nil {
		return nil, false, r.failed(err)
	}
	r.last, r.backoff = attempts[len(attempts)-1].Rung.Endpoint, minBackoff
	l.mu.Lock()
	r.stream = s
	l.mu.Unlock()
	l.h.work.Go(func() { l.h.drain(s, l, mediator) })
	return s, true, nil
}

func (r *route) failed(err error) error {
	r.retryAt = Now().Add(r.backoff)
	r.backoff = min(2*r.backoff, maxBackoff)
	return err
}

// drain waits for the end of a stream that only forwards go out on, so that a dead one is noticed.
func (h *Host) drain(s transport.Stream, l *link, mediator nostr.PubKey) {
	for {
		if _, err := s.Receive(h.ctx); err != nil {
			break
		}
	}
	r := l.route(mediator)
	l.mu.Lock()
	if r.stream == s {
		r.stream = nil
	}
	again := r.doubtful(Now())
	r.recent = nil
	l.mu.Unlock()
	s.Close()
	if len(again) > 0 && h.ctx.Err() == nil {
		h.work.Go(func() { h.sendAgain(l, mediator, again) })
	}
}

func (l *link) drop(r *route) {
	l.mu.Lock()
	s := r.stream
	r.stream = nil
	l.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

func (l *link) closeRoutes() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.routes {
		if r.stream != nil {
			r.stream.Close()
			r.stream = nil
		}
	}
}
