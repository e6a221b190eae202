package attach

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id nostr.ID, now int64) (*nostr.Event, error) {
	e, err := s.cfg.Local.Get(ctx, id, now)
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return e, err
	}
	got, err := s.fetch(ctx, []nostr.ID{id}, now)
	if err != nil {
		return nil, err
	}
	if got[0] == nil {
		return nil, store.ErrNotFound
	}
	return got[0], nil
}

// Has implements store.Store from what is known here: the relay is not asked for each event that comes. Where it holds one that is not known
// here, Insert says so.
func (s *Store) Has(ctx context.Context, id nostr.ID, now int64) (bool, error) {
	s.mu.Lock()
	coming, known := s.coming[id], s.bodies[id] != nil || slices.ContainsFunc(s.indexes, func(x *index) bool { return x.holds(id, now) })
	s.mu.Unlock()
	if coming {
		return false, nil
	}
	if known {
		hidden, err := s.hidden(ctx, id)
		return !hidden, err
	}
	return s.cfg.Local.Has(ctx, id, now)
}

// Prefetch brings events that will be asked for one by one, so that they cost one question together.
func (s *Store) Prefetch(ctx context.Context, ids []nostr.ID, now int64) error {
	_, err := s.fetch(ctx, ids, now)
	return err
}

// fetch returns events of the relay by id, nil for those that are not there or not for anybody to see.
func (s *Store) fetch(ctx context.Context, ids []nostr.ID, now int64) ([]*nostr.Event, error) {
	out := make([]*nostr.Event, len(ids))
	at := map[nostr.ID]int{}
	var missing []nostr.ID
	for i, id := range ids {
		hidden, err := s.hidden(ctx, id)
		if err != nil {
			return nil, err
		}
		if hidden {
			continue
		}
		if out[i] = s.body(id); out[i] == nil {
			at[id] = i
			missing = append(missing, id)
		}
	}
	for len(missing) > 0 {
		n := min(len(missing), askIDs)
		err := s.on(ctx, func(ctx context.Context, c *gateway.Conn) error {
			events, err := c.QueryAll(ctx, nostr.Filter{IDs: missing[:n]})
			if err != nil {
				return err
			}
			for _, e := range s.verified(events) {
				if i, ok := at[e.ID]; ok {
					out[i] = e
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("ask the attached relay for events: %w", err)
		}
		missing = missing[n:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range out {
		switch {
		case e == nil:
		case e.ExpiredAt(now):
			out[i] = nil
		default:
			s.keep(e)
		}
	}
	return out, nil
}

// verified leaves out what does not prove itself.
func (s *Store) verified(events []*nostr.Event) []*nostr.Event {
	good := events[:0]
	verdicts := s.verifier.Verify(events)
	for i, e := range events {
		if verdicts[i] {
			good = append(good, e)
			continue
		}
		s.cfg.Log.Warn("the attached relay gave an event whose signature does not hold; it is left out", "event", e.ID.String())
	}
	return good
}

// Query implements store.Store: the answers of both, in one order.
func (s *Store) Query(ctx context.Context, filters []nostr.Filter, view store.View, most int, now int64) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		list, err := s.query(ctx, filters, view, most, now)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *Store) query(ctx context.Context, filters []nostr.Filter, view store.View, most int, now int64) ([]*nostr.Event, error) {
	var all []*nostr.Event
	seen := map[nostr.ID]bool{}
	for _, f := range filters {
		list, err := s.queryOne(ctx, f, view, most, now)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			if !seen[e.ID] {
				seen[e.ID] = true
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, newest)
	if most > 0 {
		all = all[:min(most, len(all))]
	}
	return all, nil
}

// newest is NIP-01's order of answers.
func newest(a, b *nostr.Event) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
}

// queryOne answers one filter, whose limit holds for both places together.
func (s *Store) queryOne(ctx context.Context, f nostr.Filter, view store.View, most int, now int64) (all []*nostr.Event, err error) {
	limit := most
	if f.Limit != nil && (limit == 0 || *f.Limit < limit) {
		if limit = *f.Limit; limit == 0 {
			return nil, nil
		}
	}
	for e, err := range s.cfg.Local.Query(ctx, []nostr.Filter{f}, view, limit, now) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if !s.asked(&f) {
		return all, nil
	}
	if limit > 0 {
		f.Limit = &limit
	}
	err = s.on(ctx, func(ctx context.Context, c *gateway.Conn) error {
		events, err := c.QueryAll(ctx, f)
		if err != nil && !errors.Is(err, gateway.ErrIncomplete) {
			return err
		}
		for _, e := range s.verified(events) {
			hidden, err := s.hidden(ctx, e.ID)
			if err != nil {
				return err
			}
			if !hidden && !s.stays(e) && view.Allows(e) && !e.ExpiredAt(now) {
				all = append(all, e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("query the attached relay: %w", err)
	}
	slices.SortFunc(all, newest)
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return all, nil
}
