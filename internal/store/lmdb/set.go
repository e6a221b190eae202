//go:build lmdb && cgo

package lmdb

import (
	"context"
	"encoding/binary"
	"slices"

	db "github.com/PowerDNS/lmdb-go/lmdb"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// items lists the events of any of the filters, limits ignored. Where the index alone can tell, no event is read.
func (s *Store) items(ctx context.Context, filters []nostr.Filter, view *store.View, now int64) (*negentropy.Vector, error) {
	var out []negentropy.Item
	err := s.view(ctx, func(txn *db.Txn) error {
		const all = int(^uint(0) >> 1)
		ended, err := s.ended(txn, now, all)
		if err != nil {
			return err
		}
		for i := range filters {
			p := planOf(&filters[i])
			err := s.scan(txn, &p, p.from(), func(at place, v []byte) (bool, error) {
				id := at.id()
				if _, gone := ended[id]; gone {
					return true, nil
				}
				ok, err := s.shows(txn, &p, view, id, v)
				if ok {
					out = append(out, negentropy.Item{Time: uint64(at.at()), ID: id})
				}
				return err == nil && (len(out)%1024 != 0 || ctx.Err() == nil), err
			})
			if err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return negentropy.NewVector(out), nil
}

// shows says whether an event matches a plan's filter and the reader may see it, from its kind if that is enough.
func (s *Store) shows(txn *db.Txn, p *plan, view *store.View, id nostr.ID, v []byte) (bool, error) {
	if p.ids == nil {
		kind := nostr.Kind(binary.BigEndian.Uint16(v[8:]))
		if p.f.Kinds != nil && !slices.Contains(p.f.Kinds, kind) {
			return false, nil
		}
		hidden := slices.Contains(view.Hide, kind)
		if hidden && len(view.Reveal) == 0 {
			return false, nil
		}
		if p.exact && !hidden {
			return true, nil
		}
	}
	e, err := s.text(txn, v[:8], id)
	if err != nil {
		return false, err
	}
	return p.f.Matches(e) && view.Allows(e) && p.terms.Match(e), nil
}

// Count implements store.Store.
func (s *Store) Count(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (int, error) {
	v, err := s.items(ctx, filters, &view, now)
	if err != nil {
		return 0, err
	}
	return v.Len(), nil
}

// Set implements store.Store. It costs a walk over the index entries of all its items, and 40 octets each.
func (s *Store) Set(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (negentropy.Set, func(), error) {
	v, err := s.items(ctx, filters, &view, now)
	if err != nil {
		return nil, nil, err
	}
	return v, func() {}, nil
}

// FingerprintRange implements store.Store.
func (s *Store) FingerprintRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([16]byte, error) {
	v, err := s.items(ctx, []nostr.Filter{store.Within(f, since, until)}, &store.View{}, now)
	if err != nil {
		return [16]byte{}, err
	}
	return negentropy.RangeFingerprint(v, 0, v.Len()), nil
}

// EnumerateRange implements store.Store.
func (s *Store) EnumerateRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([]nostr.ID, error) {
	v, err := s.items(ctx, []nostr.Filter{store.Within(f, since, until)}, &store.View{}, now)
	if err != nil {
		return nil, err
	}
	ids := make([]nostr.ID, 0, v.Len())
	for _, it := range v.Items() {
		ids = append(ids, it.ID)
	}
	return ids, nil
}
