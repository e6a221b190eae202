package bridge

import (
	"context"
	"sync"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Local is this end of a bridge.
type Local struct {
	Store store.Store
	Sink  gateway.Sink // takes what comes in; it must ring the bell
	Bell  *Bell        // rings when something may have been stored
	URLs  []string     // under which recipients of gift wraps name this relay in their kind 10050
}

// Bell tells that something has happened, without saying what. The zero Bell is ready.
type Bell struct {
	mu  sync.Mutex
	ear map[chan struct{}]struct{}
}

// Ring wakes all who listen; it never waits.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.ear {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Listen returns a channel that gets a value after every Ring, or after several; stop ends it.
func (b *Bell) Listen() (wake <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ear == nil {
		b.ear = map[chan struct{}]struct{}{}
	}
	b.ear[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ear, ch)
	}
}

// RingingSink is a Sink that rings a bell after what it took.
type RingingSink struct {
	gateway.Sink
	Bell *Bell
}

// Offer implements gateway.Sink.
func (s *RingingSink) Offer(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error) {
	out, err := s.Sink.Offer(ctx, events)
	s.Bell.Ring()
	return out, err
}

// memory is a bounded set of ids: where it is full, the oldest goes.
type memory struct {
	mu   sync.Mutex
	ring []nostr.ID
	next int
	set  map[nostr.ID]struct{}
}

// memorySize bounds what is remembered of one relay: some ten MiB.
const memorySize = 1 << 17

func (m *memory) add(id nostr.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.set[id]; ok {
		return
	}
	if m.set == nil {
		m.set = map[nostr.ID]struct{}{}
	}
	if len(m.ring) < memorySize {
		m.ring = append(m.ring, id)
	} else {
		delete(m.set, m.ring[m.next])
		m.ring[m.next] = id
		m.next = (m.next + 1) % memorySize
	}
	m.set[id] = struct{}{}
}

func (m *memory) has(id nostr.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.set[id]
	return ok
}
