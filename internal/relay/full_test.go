package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// fullStore fails as a store does whose disk is full, until there is room.
type fullStore struct {
	store.Store
	room atomic.Bool
}

func (s *fullStore) Insert(ctx context.Context, events []*nostr.Event, now int64) ([]store.Outcome, error) {
	if s.room.Load() {
		return s.Store.Insert(ctx, events, now)
	}
	return nil, fmt.Errorf("%w until it is opened again: %w", store.ErrReadOnly, store.ErrFull)
}

// lines is a log that a test can read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// TestFullStoreIsLoggedOnce: every EVENT is told why, the log once, and once again when there is room.
func TestFullStoreIsLoggedOnce(t *testing.T) {
	s, log := &fullStore{Store: memory(t)}, &lines{}
	r := relaytest.Start(t, s, func(c *relay.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	c := r.Dial(t)
	for i := range 20 {
		ok := c.Publish(relaytest.Event(relaytest.A, relaytest.T0, 1, nil, fmt.Sprint(i)))
		if ok.OK || ok.Reason != "error: the store is full" {
			t.Fatalf("event %d: %v %s", i, ok.OK, ok.Reason)
		}
	}
	if n := log.count("store a batch"); n != 1 {
		t.Errorf("%d log lines for 20 events, want 1", n)
	}
	s.room.Store(true)
	if ok := c.Publish(relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "room")); !ok.OK {
		t.Errorf("with room: %s", ok.Reason)
	}
	if n := log.count("takes events again"); n != 1 {
		t.Errorf("the end of it stands in the log %d times", n)
	}
}
