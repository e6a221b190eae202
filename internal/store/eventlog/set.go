package eventlog

import (
	"context"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// Set implements store.Store.
func (s *Store) Set(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (negentropy.Set, func(), error) {
	if err := s.check(ctx); err != nil {
		return nil, nil, err
	}
	n := s.snapshot()
	defer n.release()
	all := &merged{limit: -1}
	for i := range filters {
		st, err := s.search(n, s.plan(&filters[i], &view), now, -1)
		if err != nil {
			return nil, nil, err
		}
		all.from = append(all.from, st)
	}
	var items []negentropy.Item
	for {
		h, ok, err := all.next()
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			return negentropy.NewVector(items), func() {}, nil
		}
		items = append(items, negentropy.Item{Time: uint64(h.doc.at), ID: h.id})
	}
}

// FingerprintRange implements store.Store.
func (s *Store) FingerprintRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([16]byte, error) {
	set, release, err := s.Set(ctx, []nostr.Filter{store.Within(f, since, until)}, store.View{}, now)
	if err != nil {
		return [16]byte{}, err
	}
	defer release()
	return negentropy.RangeFingerprint(set, 0, set.Len()), nil
}

// EnumerateRange implements store.Store.
func (s *Store) EnumerateRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([]nostr.ID, error) {
	set, release, err := s.Set(ctx, []nostr.Filter{store.Within(f, since, until)}, store.View{}, now)
	if err != nil {
		return nil, err
	}
	defer release()
	ids := make([]nostr.ID, set.Len())
	for i := range ids {
		ids[i] = set.Item(i).ID
	}
	return ids, nil
}
