package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

	mu     sync.Mutex
	queue  []*outgoing
	stream transport.Stream
	proven bool               // the stream proved to be the peer's
	last   transport.Endpoint // that carried the last session
	idle   chan struct{}      // closed while nothing is queued
}

// outgoing is a frame, or a message that is sealed when its turn comes.
type outgoing struct {
	m         *didcomm.Message
	anonymous bool
	frame     []byte
	created   int64
	done      chan error // bulk only
}

const (
	maxQueued   = 4096
	sendTimeout = 30 * time.Second
	minBackoff  = time.Second
	maxBackoff  = 2 * time.Minute
)

// link returns the link to a peer. h.mu is held.
func (h *Host) link(peer nostr.PubKey) *link {
	l := h.links[peer]
	if l == nil {
		l = &link{h: h, peer: peer, wake: make(chan struct{}, 1), idle: make(chan struct{})}
		close(l.idle)
		h.links[peer] = l
		h.work.Go(l.run)
	}
	return l
}

// enqueue queues a message. When the queue is full the oldest goes: a peer that is away for so long has to be told anew.
func (l *link) enqueue(m *didcomm.Message, anonymous bool) {
	if m != nil {
		l.push(&outgoing{m: m, anonymous: anonymous, created: m.CreatedTime})
	}
}

func (l *link) push(o *outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.idle = make(chan struct{})
	}
	if len(l.queue) >= maxQueued {
		l.h.cfg.Log.Warn("the queue for a peer is full; the oldest message is dropped", "peer", l.peer.String()[:12])
		if l.queue[0].done != nil {
			l.queue[0].done <- errors.New("the queue for the peer is full")
		}
		l.queue = l.queue[1:]
	}
	l.queue = append(l.queue, o)
	select {
	case l.wake <- struct{}{}:
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
	defer l.mu.Unlock()
	if len(l.queue) > 0 && l.queue[0] == o {
		l.queue = l.queue[1:]
		if len(l.queue) == 0 {
			close(l.idle)
		}
	}
	if o.done != nil {
		o.done <- err
	}
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
			select {
			case <-l.wake:
				continue
			case <-l.h.ctx.Done():
				l.close()
				return
			}
		}
		err := l.send(o)
		if l.h.ctx.Err() != nil {
			l.pop(o, l.h.ctx.Err())
			l.close()
			return
		}
		if err == nil {
			l.pop(o, nil)
			backoff = minBackoff
			continue
		}
		if o.done != nil { // a session decides for itself what a lost frame means
			l.pop(o, err)
			continue
		}
		l.h.seekAnew(l.h.ctx, l.peer) // it may have moved
		l.h.cfg.Log.Info("a peer is not reached; trying again", "peer", l.peer.String()[:12], "in", backoff, "err", err)
		pause := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-pause.C:
		case <-l.h.ctx.Done():
			pause.Stop()
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// send seals a message if need be and sends it on the stream there is, or a new one.
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
	s, fresh, err := l.open(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(ctx, frame); err != nil {
		l.lost(s)
		if fresh {
			return fmt.Errorf("send: %w", err)
		}
		if s, _, err = l.open(ctx); err != nil { // an old stream may have died long ago
			return err
		}
		if err := s.Send(ctx, frame); err != nil {
			l.lost(s)
			return fmt.Errorf("send: %w", err)
		}
		fresh = true
	}
	if fresh && !o.anonymous {
		l.h.step(mesh.Connected{Peer: l.peer, Created: o.created})
	}
	return nil
}

// open returns the stream to the peer, climbing the ladder if there is none.
func (l *link) open(ctx context.Context) (s transport.Stream, fresh bool, err error) {
	l.mu.Lock()
	s, last := l.stream, l.last
	l.mu.Unlock()
	if s != nil {
		return s, false, nil
	}
	d, err := l.h.descriptor(ctx, l.peer, false)
	if err != nil {
		return nil, false, err
	}
	rungs := transport.Remembered(transport.Ladder(l.h.cfg.Ours, endpoints(d)), last)
	s, attempts, err := transport.Climb(ctx, rungs, func(ctx context.Context, ep transport.Endpoint) (transport.Stream, error) {
		return l.h.dialers[ep.Scheme].Dial(ctx, ep, l.peer)
	})
	if err != nil {
		return nil, false, err
	}
	l.adopt(s, true) // we dialled what the peer's descriptor names
	l.mu.Lock()
	l.last = attempts[len(attempts)-1].Rung.Endpoint
	l.mu.Unlock()
	l.h.work.Go(func() { l.h.read(s, l) })
	return s, true, nil
}

func endpoints(d *identity.Descriptor) (out []transport.Endpoint) {
	for _, e := range d.Endpoints {
		out = append(out, transport.Endpoint{Scheme: e.Scheme, Address: e.Address, Preference: e.Preference})
	}
	return transport.LastResort(out)
}

// adopt makes a stream the one that is sent on. What is sent is sealed to the peer, so a first contact, which proves nothing, may be
// answered on its own stream; a stream that proved its peer takes the place of one that did not.
func (l *link) adopt(s transport.Stream, proven bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream == nil || (proven && !l.proven) {
		l.stream, l.proven = s, proven
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) lost(s transport.Stream) {
	l.mu.Lock()
	if l.stream == s {
		l.stream = nil
	}
	l.mu.Unlock()
	s.Close()
}

func (l *link) close() {
	l.mu.Lock()
	s := l.stream
	l.stream = nil
	l.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// accept takes inbound streams until the listener or the host ends.
func (h *Host) accept(l transport.Listener) {
	for {
		s, err := l.Accept(h.ctx)
		if err != nil {
			return
		}
		h.work.Go(func() { h.read(s, nil) })
	}
}

// read handles the frames of a stream until it ends. l is nil until the peer of an inbound stream is known.
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
		a, err := h.open(frame)
		if err != nil {
			h.cfg.Log.Info("a frame cannot be used", "err", err)
			if l == nil {
				return // from nobody known
			}
			continue
		}
		if l != nil && a.from != l.peer {
			h.cfg.Log.Info("a second sender on one stream", "err", "the stream is closed")
			return
		}
		if l == nil {
			h.mu.Lock()
			l = h.link(a.from)
			h.mu.Unlock()
		}
		l.adopt(s, !a.anonymous)
		if first && inbound && !a.anonymous {
			h.step(mesh.Connected{Peer: a.from, Inbound: true, Created: a.m.CreatedTime})
		}
		h.take(a)
	}
}
