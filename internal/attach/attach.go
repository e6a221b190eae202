// Package attach makes somebody's existing relay the store of a node: events stay where they are, and are read, written and reconciled over
// NIP-01 and NIP-77 as any client does. Beside the relay stands a store of the node's own, for what the relay is not asked to keep: the
// node's own events, the fleet's records and the refused index.
//
// What the relay says is believed as far as its events prove it: signatures are checked before anything is passed on. Which events are in the
// set is the relay's business: it decides what it replaces, deletes and refuses.
package attach

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Config says which relay, and what stays here.
type Config struct {
	Relay   string // ws:// or wss://
	Dial    gateway.Options
	Local   store.Store  // the node's own
	Self    nostr.PubKey // whose events stay here
	Log     *slog.Logger // nil discards
	Timeout time.Duration
}

// Store is a store.Store whose events are at the relay.
type Store struct {
	cfg      Config
	link     *gateway.Link
	verifier nostr.Verifier

	mu       sync.Mutex
	arrivals arrivals
	indexes  []*index                  // the latest used last
	bodies   map[nostr.ID]*nostr.Event // some events that came by, so that they need not be asked for again
	order    []nostr.ID                // of bodies, oldest first
	coming   map[nostr.ID]bool         // events that the live stream brought and that are on their way through the node's own door
	ours     map[nostr.ID]int64        // events that went out through us, and when: the live stream will bring them back
}

// Bounds of what is remembered.
const (
	maxIndexes = 16
	maxBodies  = 4096
	oursLife   = 300 // seconds
	askIDs     = 200 // ids in one REQ
)

// ErrNoArrivals says that a relay does not tell in which order its events came: what is known is what came since the node started.
var ErrNoArrivals = errors.New("the attached relay does not tell in which order its events came before this node started: export from the relay itself")

// New makes a Store. The relay need not be there yet: what needs it fails until it is.
func New(cfg Config) (*Store, error) {
	if _, err := nostr.NormalizeRelayURL(cfg.Relay); err != nil {
		return nil, fmt.Errorf("attach to %q: %w", cfg.Relay, err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	return &Store{
		cfg: cfg, link: gateway.NewLink(cfg.Relay, cfg.Dial), verifier: nostr.NewVerifier(),
		arrivals: newArrivals(time.Now()), bodies: map[nostr.ID]*nostr.Event{}, coming: map[nostr.ID]bool{}, ours: map[nostr.ID]int64{},
	}, nil
}

// fleetKinds are the records of the protocol itself: they concern nodes and not the relay's users.
var fleetKinds = []nostr.Kind{
	spec.KindDescriptor, spec.KindRevocation, spec.KindComputeProvider, spec.KindHeartbeat, spec.KindDiagnostics, spec.KindGrant, spec.KindReport,
	spec.KindCoverage, spec.KindGossipRoster, spec.KindComputeAsk, spec.KindComputeReceipt,
}

// stays says whether an event is kept here.
func (s *Store) stays(e *nostr.Event) bool {
	return e.PubKey == s.cfg.Self || slices.Contains(fleetKinds, e.Kind)
}

// asked says whether the relay may hold anything that a filter wants.
func (s *Store) asked(f *nostr.Filter) bool {
	if f.MatchesNothing() || len(f.Authors) > 0 && !slices.ContainsFunc(f.Authors, func(k nostr.PubKey) bool { return k != s.cfg.Self }) {
		return false
	}
	return len(f.Kinds) == 0 || slices.ContainsFunc(f.Kinds, func(k nostr.Kind) bool { return !slices.Contains(fleetKinds, k) })
}

// conn connects with the relay, and bounds what is done there.
func (s *Store) conn(ctx context.Context) (*gateway.Conn, context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	c, err := s.link.Conn(ctx)
	if err != nil {
		cancel()
		return nil, nil, nil, fmt.Errorf("reach the attached relay %s: %w", s.cfg.Relay, err)
	}
	return c, ctx, cancel, nil
}

// on runs f on a connection, and once more on a new one if the first was lost on the way.
func (s *Store) on(ctx context.Context, f func(context.Context, *gateway.Conn) error) error {
	for again := true; ; again = false {
		c, cctx, cancel, err := s.conn(ctx)
		if err != nil {
			return err
		}
		err = f(cctx, c)
		cancel()
		var lost *gateway.LostError
		if err == nil || !again || !errors.As(err, &lost) {
			return err
		}
	}
}

// keep remembers a body. s.mu is held.
func (s *Store) keep(e *nostr.Event) {
	if _, ok := s.bodies[e.ID]; ok {
		return
	}
	if len(s.order) >= maxBodies {
		for _, id := range s.order[:maxBodies/4] {
			delete(s.bodies, id)
		}
		s.order = append([]nostr.ID(nil), s.order[maxBodies/4:]...)
	}
	s.bodies[e.ID] = e
	s.order = append(s.order, e.ID)
}

func (s *Store) body(id nostr.ID) *nostr.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[id]
}

// Insert implements store.Store: what stays here goes into the node's own store, the rest to the relay.
func (s *Store) Insert(ctx context.Context, events []*nostr.Event, now int64) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(events))
	var here, there []*nostr.Event
	var hereAt, thereAt []int
	for i, e := range events {
		switch {
		case s.arrived(e):
			out[i] = store.Stored // the live stream brought it: it is at the relay
		case s.stays(e):
			here, hereAt = append(here, e), append(hereAt, i)
		default:
			there, thereAt = append(there, e), append(thereAt, i)
		}
	}
	if len(here) > 0 {
		got, err := s.cfg.Local.Insert(ctx, here, now)
		if err != nil {
			return nil, err
		}
		for k, o := range got {
			if out[hereAt[k]] = o; o == store.Stored {
				s.came(here[k])
			}
		}
	}
	if len(there) > 0 {
		got, err := s.offer(ctx, there, now)
		if err != nil {
			return nil, err
		}
		for k, o := range got {
			out[thereAt[k]] = o
		}
	}
	return out, nil
}

// Purge implements store.Store. The relay is not ours to delete from: the events are hidden here, and refused from now on.
func (s *Store) Purge(ctx context.Context, ids []nostr.ID, reason string, now int64) (int, error) {
	held := 0
	events, err := s.fetch(ctx, ids, now)
	if err != nil {
		return 0, err
	}
	for _, e := range events {
		if e != nil {
			held++
		}
	}
	if _, err := s.cfg.Local.Purge(ctx, ids, reason, now); err != nil {
		return 0, err
	}
	s.forget(ids)
	return held, nil
}

// Refuse implements store.Store.
func (s *Store) Refuse(ctx context.Context, refusals []store.Refusal) error {
	return s.cfg.Local.Refuse(ctx, refusals)
}

// Refusal implements store.Store.
func (s *Store) Refusal(ctx context.Context, id nostr.ID) (store.Refusal, bool, error) {
	return s.cfg.Local.Refusal(ctx, id)
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context) iter.Seq2[store.Refusal, error] {
	return s.cfg.Local.Refusals(ctx)
}

// hidden says whether the operator took an event out of what this node shows.
func (s *Store) hidden(ctx context.Context, id nostr.ID) (bool, error) {
	r, ok, err := s.cfg.Local.Refusal(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	return r.Reason == store.ReasonPurged, nil
}

// forget drops what is remembered of events.
func (s *Store) forget(ids []nostr.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.bodies, id)
		for _, x := range s.indexes {
			x.drop(id)
		}
	}
}

// Stats implements store.Store: the node's own store's, and of the relay's events those of the largest shard that was reconciled.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	st, err := s.cfg.Local.Stats(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 0
	for _, x := range s.indexes {
		most = max(most, x.size())
	}
	st.Events += int64(most)
	return st, err
}

// Close implements store.Store.
func (s *Store) Close() error { return errors.Join(s.link.Close(), s.cfg.Local.Close()) }

var (
	_ store.Store      = (*Store)(nil)
	_ store.Prefetcher = (*Store)(nil)
)
