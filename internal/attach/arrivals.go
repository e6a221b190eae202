package attach

import (
	"context"
	"iter"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// arrivals is the order in which events came since the node started, through it or by the relay's live stream. It is numbered from the
// microsecond of the start, so that no place of an earlier run is taken for one of this.
type arrivals struct {
	first uint64 // arrivals after this place are here
	ids   []nostr.ID
}

const maxArrivals = 1 << 16

func newArrivals(now time.Time) arrivals { return arrivals{first: uint64(now.UnixMicro())} }

func (a *arrivals) last() uint64 { return a.first + uint64(len(a.ids)) }

func (a *arrivals) add(id nostr.ID) {
	if len(a.ids) >= maxArrivals {
		n := len(a.ids) / 4
		a.ids = append([]nostr.ID(nil), a.ids[n:]...)
		a.first += uint64(n)
	}
	a.ids = append(a.ids, id)
}

// came takes note of a new event.
func (s *Store) came(e *nostr.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(e)
	s.arrivals.add(e.ID)
}

// LastSeq implements store.Store.
func (s *Store) LastSeq(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrivals.last(), nil
}

// Arrivals implements store.Store for what came since the node started; ErrNoArrivals for a place before that, or too long ago.
func (s *Store) Arrivals(ctx context.Context, after uint64, now int64) iter.Seq2[store.Arrival, error] {
	return func(yield func(store.Arrival, error) bool) {
		s.mu.Lock()
		first := s.arrivals.first
		var ids []nostr.ID
		if after >= first && after < s.arrivals.last() {
			ids = slices.Clone(s.arrivals.ids[after-first:])
		}
		s.mu.Unlock()
		if after < first {
			yield(store.Arrival{}, ErrNoArrivals)
			return
		}
		for n, chunk := 0, ids; len(chunk) > 0; n, chunk = n+min(askIDs, len(chunk)), chunk[min(askIDs, len(chunk)):] {
			events, err := s.either(ctx, chunk[:min(askIDs, len(chunk))], now)
			if err != nil {
				yield(store.Arrival{}, err)
				return
			}
			for i, e := range events {
				if e != nil && !yield(store.Arrival{Seq: after + uint64(n+i) + 1, Event: e}, nil) {
					return
				}
			}
		}
	}
}

// either returns events from wherever they are, nil for those that are nowhere any more.
func (s *Store) either(ctx context.Context, ids []nostr.ID, now int64) ([]*nostr.Event, error) {
	out := make([]*nostr.Event, len(ids))
	var ask []nostr.ID
	var at []int
	for i, id := range ids {
		if here, err := s.cfg.Local.Has(ctx, id, now); err != nil {
			return nil, err
		} else if !here {
			ask, at = append(ask, id), append(at, i)
			continue
		}
		e, err := s.cfg.Local.Get(ctx, id, now)
		if err != nil {
			return nil, err
		}
		out[i] = e
	}
	got, err := s.fetch(ctx, ask, now)
	for k, e := range got {
		out[at[k]] = e
	}
	return out, err
}
