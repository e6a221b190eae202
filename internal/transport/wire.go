package transport

import (
	"context"
	"errors"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// wire is the one connection to a relay that all its streams and its listener
// share. It lives as long as one of them does.
type wire struct {
	g   *GiftWrap
	url string

	ready chan struct{} // closed once connected or failed
	err   error         // set before ready is closed
	relay Relay
	stop  context.CancelFunc

	refs int // under g.mu

	mu       sync.Mutex
	streams  map[nostr.PubKey]*wrapStream
	listener *wrapListener
	dead     bool
}

// attach returns the wire to a relay, connecting if there is none. Whoever gets it
// must detach once.
func (g *GiftWrap) attach(ctx context.Context, url string) (*wire, error) {
	g.mu.Lock()
	w := g.wires[url]
	first := w == nil
	if first {
		w = &wire{g: g, url: url, ready: make(chan struct{}), streams: map[nostr.PubKey]*wrapStream{}}
		g.wires[url] = w
	}
	w.refs++
	g.mu.Unlock()
	if first {
		w.err = w.connect(ctx)
		close(w.ready)
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		w.detach()
		return nil, ctx.Err()
	}
	if w.err != nil {
		w.bury()
		w.detach()
		return nil, w.err
	}
	return w, nil
}

func (w *wire) connect(ctx context.Context) error {
	relay, err := w.g.cfg.Connect(ctx, w.url)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	abandon := context.AfterFunc(ctx, stop) // subscribing may block too
	events, err := relay.Subscribe(life, w.g.filter())
	if !abandon() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		relay.Close()
		return err
	}
	w.relay, w.stop = relay, stop
	go w.run(events)
	return nil
}

// filter asks for all wraps to us. Wraps are dated back, so since is too.
func (g *GiftWrap) filter() nostr.Filter {
	f := nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindEphemeralGiftWrap, nostr.KindGiftWrap},
		Tags:  []nostr.TagFilter{{Letter: 'p', Values: []string{g.pub.String()}}},
	}
	if !g.cfg.Since.IsZero() {
		since := max(0, g.cfg.Since.Add(-wrapBackdate).Unix())
		f.Since = &since
	}
	return f
}

// detach gives up one hold; the last one closes the connection.
func (w *wire) detach() {
	w.g.mu.Lock()
	w.refs--
	last := w.refs == 0
	if last && w.g.wires[w.url] == w {
		delete(w.g.wires, w.url)
	}
	w.g.mu.Unlock()
	if last && w.relay != nil {
		w.stop()
		w.relay.Close()
	}
}

// bury takes a wire that is of no use any more out of the way of the next attach.
func (w *wire) bury() {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if w.g.wires[w.url] == w {
		delete(w.g.wires, w.url)
	}
}

// run hands out what arrives until the relay is gone, then closes everything.
func (w *wire) run(events <-chan *nostr.Event) {
	for e := range events {
		w.deliver(e)
	}
	w.bury()
	w.mu.Lock()
	w.dead = true
	streams, l := w.streams, w.listener
	w.streams = nil
	w.mu.Unlock()
	for _, s := range streams {
		s.in.close()
	}
	if l != nil {
		l.queue.close()
	}
}

// deliver puts a frame into its peer's stream, making one for the listener if
// there is none. It never waits: one peer must not hold up the others.
func (w *wire) deliver(e *nostr.Event) {
	if !w.g.firstSight(e.ID) {
		return
	}
	frame, from, ok := w.g.receive(e)
	if !ok {
		return
	}
	s, offerTo := w.streamFrom(from)
	delivered := s != nil && s.in.trySend(frame)
	if offerTo != nil && !offerTo.queue.tryOffer(s) {
		s.Close()
		delivered = false
	}
	if !delivered {
		w.g.forget(e.ID)
		w.g.dropped(from)
	}
}

// streamFrom returns the peer's stream, or a new one and the listener it must be
// offered to, or nil when nobody would take it.
func (w *wire) streamFrom(peer nostr.PubKey) (*wrapStream, *wrapListener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.streams[peer]; s != nil {
		return s, nil
	}
	if w.listener == nil || w.dead {
		return nil, nil
	}
	s := w.newStream(peer)
	w.hold()
	w.streams[peer] = s
	return s, w.listener
}

// hold takes one more hold on the wire. Locks nest wire, then carrier.
func (w *wire) hold() {
	w.g.mu.Lock()
	w.refs++
	w.g.mu.Unlock()
}

// open makes the stream of a dialler. The caller's hold on the wire becomes the
// stream's.
func (w *wire) open(peer nostr.PubKey) (*wrapStream, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.New("the relay closed the connection")
	}
	s := w.newStream(peer)
	if old := w.streams[peer]; old != nil {
		// Two streams to one peer cannot be told apart on arrival: the newer takes
		// over, and what the older has not read.
		old.in.close()
		for len(old.in.ch) > 0 {
			s.in.trySend(<-old.in.ch)
		}
	}
	w.streams[peer] = s
	return s, nil
}

func (w *wire) newStream(peer nostr.PubKey) *wrapStream {
	return &wrapStream{wire: w, peer: peer, in: newPipe(wrapQueue), closed: make(chan struct{})}
}

// wrapStream is a conversation with one peer through one relay.
type wrapStream struct {
	wire   *wire
	peer   nostr.PubKey
	in     *pipe
	once   sync.Once
	closed chan struct{}
}

func (s *wrapStream) Scheme() string { return "giftwrap" }

// Peer is who sealed what Receive returns.
func (s *wrapStream) Peer() nostr.PubKey { return s.peer }

func (s *wrapStream) Send(ctx context.Context, frame []byte) error {
	return s.send(ctx, frame, false)
}

// SendDurable implements DurableStream: kind 1059.
func (s *wrapStream) SendDurable(ctx context.Context, frame []byte) error {
	return s.send(ctx, frame, true)
}

func (s *wrapStream) send(ctx context.Context, frame []byte, durable bool) error {
	if len(frame) > s.wire.g.cfg.MaxFrame {
		return ErrFrameTooLarge
	}
	select {
	case <-s.closed:
		return ErrClosed
	default:
	}
	e, err := s.wire.g.wrap(frame, s.peer, durable)
	if err != nil {
		return streamError("wrap", err)
	}
	if err := s.wire.relay.Publish(ctx, e); err != nil {
		return streamError("publish", err)
	}
	return nil
}

func (s *wrapStream) Receive(ctx context.Context) ([]byte, error) {
	select {
	case <-s.closed:
		return nil, ErrClosed
	default:
		return s.in.receive(ctx)
	}
}

func (s *wrapStream) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.in.close()
		s.wire.mu.Lock()
		if s.wire.streams[s.peer] == s {
			delete(s.wire.streams, s.peer)
		}
		s.wire.mu.Unlock()
		s.wire.detach()
	})
	return nil
}

type wrapListener struct {
	wire  *wire
	ep    Endpoint
	queue *acceptQueue
	once  sync.Once

	mu    sync.Mutex
	unctx func() bool
}

func (l *wrapListener) start(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unctx = context.AfterFunc(ctx, func() { l.Close() })
}

func (l *wrapListener) Accept(ctx context.Context) (Stream, error) { return l.queue.accept(ctx) }
func (l *wrapListener) Endpoint() Endpoint                         { return l.ep }

func (l *wrapListener) Close() error {
	l.once.Do(func() {
		l.wire.mu.Lock()
		if l.wire.listener == l {
			l.wire.listener = nil
		}
		l.wire.mu.Unlock()
		l.queue.close()
		l.wire.detach()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unctx()
	})
	return nil
}
