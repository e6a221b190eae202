package transport

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// memoryFrames is how many frames a memory stream holds before Send waits.
const memoryFrames = 64

// Memory is a network inside one process, for tests: every Listen and Dial of one
// Memory meets by address. It works under testing/synctest.
type Memory struct {
	scheme string

	mu        sync.Mutex
	listeners map[string]*memoryListener
	cut       map[string]func(context.Context) error
}

// NewMemory returns an empty network whose endpoints have the given scheme;
// usually "memory", or another carrier's name to stand in for it.
func NewMemory(scheme string) *Memory {
	return &Memory{scheme: scheme, listeners: map[string]*memoryListener{}, cut: map[string]func(context.Context) error{}}
}

// Scheme implements Transport.
func (m *Memory) Scheme() string { return m.scheme }

// Cut makes every dial to the address call how instead: return an error to
// refuse, or wait for the context to play a black hole. A nil how restores it.
func (m *Memory) Cut(address string, how func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if how == nil {
		delete(m.cut, address)
		return
	}
	m.cut[address] = how
}

// BlackHole is a way to Cut: nothing ever answers.
func BlackHole(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Listen implements Transport. The address is any string that is not in use.
func (m *Memory) Listen(ctx context.Context, ep Endpoint) (Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[ep.Address] != nil {
		return nil, fmt.Errorf("listen on %s %q: address in use", m.scheme, ep.Address)
	}
	l := &memoryListener{net: m, ep: ep, queue: newAcceptQueue(memoryFrames)}
	m.listeners[ep.Address] = l
	l.stop = context.AfterFunc(ctx, func() { l.Close() })
	return l, nil
}

// Dial implements Transport.
func (m *Memory) Dial(ctx context.Context, ep Endpoint, _ nostr.PubKey) (Stream, error) {
	m.mu.Lock()
	l, cut := m.listeners[ep.Address], m.cut[ep.Address]
	m.mu.Unlock()
	if cut != nil {
		if err := cut(ctx); err != nil {
			return nil, fmt.Errorf("dial %s %q: %w", m.scheme, ep.Address, err)
		}
	}
	if l == nil {
		return nil, fmt.Errorf("dial %s %q: nobody listens", m.scheme, ep.Address)
	}
	there, back := newPipe(memoryFrames), newPipe(memoryFrames)
	ours := &memoryStream{scheme: m.scheme, out: there, in: back, closed: make(chan struct{})}
	theirs := &memoryStream{scheme: m.scheme, out: back, in: there, closed: make(chan struct{})}
	if err := l.queue.offer(ctx, theirs); err != nil {
		return nil, fmt.Errorf("dial %s %q: %w", m.scheme, ep.Address, err)
	}
	return ours, nil
}

type memoryListener struct {
	net   *Memory
	ep    Endpoint
	queue *acceptQueue
	stop  func() bool
}

func (l *memoryListener) Accept(ctx context.Context) (Stream, error) { return l.queue.accept(ctx) }
func (l *memoryListener) Endpoint() Endpoint                         { return l.ep }

func (l *memoryListener) Close() error {
	l.net.mu.Lock()
	if l.net.listeners[l.ep.Address] == l {
		delete(l.net.listeners, l.ep.Address)
	}
	stop := l.stop
	l.net.mu.Unlock()
	stop()
	l.queue.close()
	return nil
}

// memoryStream is two pipes. Closing either end closes both pipes; what was sent
// before can still be read by the other end, not by the one that closed.
type memoryStream struct {
	scheme  string
	out, in *pipe
	once    sync.Once
	closed  chan struct{}
}

func (s *memoryStream) Scheme() string { return s.scheme }

func (s *memoryStream) Send(ctx context.Context, frame []byte) error {
	if len(frame) > MaxFrame {
		return ErrFrameTooLarge
	}
	return s.out.send(ctx, bytes.Clone(frame))
}

func (s *memoryStream) Receive(ctx context.Context) ([]byte, error) {
	select {
	case <-s.closed:
		return nil, ErrClosed
	default:
		return s.in.receive(ctx)
	}
}

func (s *memoryStream) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.out.close()
		s.in.close()
	})
	return nil
}
