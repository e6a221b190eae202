package sqlstore

import (
	"context"
	"database/sql"
	"math"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// ending is an item that leaves a set when it expires.
type ending struct {
	at int64
	negentropy.Item
}

// listing is what a set is made of, in no order.
type listing struct {
	items   []negentropy.Item
	endings []ending
}

func (l *listing) add(it negentropy.Item, expires int64) {
	l.items = append(l.items, it)
	if expires != noExpiry {
		l.endings = append(l.endings, ending{expires, it})
	}
}

func (l *listing) addEvent(e *nostr.Event) {
	l.add(negentropy.Item{Time: uint64(e.CreatedAt), ID: e.ID}, store.HeldOf(e).Expires)
}

// items lists the events of any of the filters as a set has them, limits ignored.
func (s *Store) items(ctx context.Context, filters []nostr.Filter, view *store.View, now int64) (*listing, error) {
	out := new(listing)
	for i := range filters {
		f := &filters[i]
		if f.MatchesNothing() {
			continue
		}
		open, hidden := visible(f, view)
		looked := []*nostr.Filter{hidden}
		if len(store.ParseSearch(f.Search)) > 0 {
			looked = append(looked, open)
		} else if err := s.listed(ctx, open, view, now, out); err != nil {
			return nil, err
		}
		for _, f := range looked {
			if f == nil {
				continue
			}
			for e, err := range s.merge(ctx, []nostr.Filter{*f}, view, false, now) {
				if err != nil {
					return nil, err
				}
				out.addEvent(e)
			}
		}
	}
	return out, nil
}

// listed appends what the tables alone can tell: the events of a filter that are of no hidden kind.
func (s *Store) listed(ctx context.Context, f *nostr.Filter, view *store.View, now int64, out *listing) error {
	c, err := whole(f, now)
	if err != nil {
		return err
	}
	if len(view.Hide) > 0 {
		addIn(&c, "e.kind NOT", view.Hide, kindArg, "")
	}
	return s.each(ctx, s.read, "SELECT e.created_at, e.id, e.expires FROM events e WHERE "+c.String(), c.args, func(r *sql.Rows) error {
		var at, expires int64
		var id sql.RawBytes
		if err := r.Scan(&at, &id, &expires); err != nil {
			return err
		}
		it := negentropy.Item{Time: uint64(at)}
		if err := fill(&it.ID, id); err != nil {
			return err
		}
		out.add(it, expires)
		return nil
	})
}

// Set implements store.Store. The first one of a filter costs a read of all its items, 40 octets and some microseconds each; a later one
// reads what came and went meanwhile, for as long as the set is kept.
func (s *Store) Set(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (negentropy.Set, func(), error) {
	if err := s.check(ctx); err != nil {
		return nil, nil, err
	}
	v, err := s.set(ctx, filters, &view, now)
	if err != nil {
		return nil, nil, err
	}
	return v, func() {}, nil
}

// within is a set in which the items from lo to hi are those of a filter in a range of time: the whole filter's, if that is kept.
func (s *Store) within(ctx context.Context, f *nostr.Filter, since, until, now int64) (v *negentropy.Vector, lo, hi int, err error) {
	if err := s.check(ctx); err != nil {
		return nil, 0, 0, err
	}
	if s.sets.tooLarge(setKey([]nostr.Filter{*f}, &store.View{})) {
		v, err = s.set(ctx, []nostr.Filter{store.Within(*f, since, until)}, &store.View{}, now)
		if err != nil {
			return nil, 0, 0, err
		}
		return v, 0, v.Len(), nil
	}
	if v, err = s.set(ctx, []nostr.Filter{*f}, &store.View{}, now); err != nil {
		return nil, 0, 0, err
	}
	if since > 0 {
		lo = v.Search(negentropy.Item{Time: uint64(since)})
	}
	switch {
	case until == math.MaxInt64:
		hi = v.Len()
	case until >= 0:
		hi = v.Search(negentropy.Item{Time: uint64(until) + 1})
	}
	return v, lo, max(lo, hi), nil
}

// FingerprintRange implements store.Store.
func (s *Store) FingerprintRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([16]byte, error) {
	v, lo, hi, err := s.within(ctx, &f, since, until, now)
	if err != nil {
		return [16]byte{}, err
	}
	return negentropy.RangeFingerprint(v, lo, hi), nil
}

// EnumerateRange implements store.Store.
func (s *Store) EnumerateRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([]nostr.ID, error) {
	v, lo, hi, err := s.within(ctx, &f, since, until, now)
	if err != nil {
		return nil, err
	}
	ids := make([]nostr.ID, 0, hi-lo)
	for _, it := range v.Items()[lo:hi] {
		ids = append(ids, it.ID)
	}
	return ids, nil
}
