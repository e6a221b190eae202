package sqlstore

import (
	"context"
	"database/sql"
	"iter"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Purge implements store.Store. An address keeps the purged version as its floor, so that older versions do not come back in its place.
func (s *Store) Purge(ctx context.Context, ids []nostr.ID, reason string, now int64) (int, error) {
	n := 0
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		d := s.draft(ctx, tx, now)
		if err := d.loadSlots(ids); err != nil {
			return err
		}
		if err := d.loadRefused(ids); err != nil {
			return err
		}
		for _, id := range ids {
			e, err := d.Held(id)
			if err != nil {
				return err
			}
			if e == nil {
				d.refuse(store.Refusal{ID: id, Reason: reason, At: now})
				continue
			}
			if !e.ExpiredAt(now) {
				n++
				if a, ok := e.Address(); ok {
					d.raise(store.Floor{Address: a, Version: store.VersionOf(e)})
				}
			}
			if err := d.drop(id, reason); err != nil {
				return err
			}
		}
		if d.err != nil {
			return d.err
		}
		return d.flush()
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Refuse implements store.Store. Ids that are held are left alone.
func (s *Store) Refuse(ctx context.Context, refusals []store.Refusal) error {
	ids := make([]nostr.ID, len(refusals))
	for i, r := range refusals {
		ids[i] = r.ID
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		d := s.draft(ctx, tx, 0)
		if err := d.loadSlots(ids); err != nil {
			return err
		}
		if err := d.loadRefused(ids); err != nil {
			return err
		}
		for _, r := range refusals {
			if !d.Has(r.ID) {
				d.refuse(r)
			}
		}
		if d.err != nil {
			return d.err
		}
		return d.flush()
	})
}

// Refusal implements store.Store.
func (s *Store) Refusal(ctx context.Context, id nostr.ID) (r store.Refusal, ok bool, err error) {
	if err := s.check(ctx); err != nil {
		return r, false, err
	}
	err = s.each(ctx, s.read, `SELECT id, reason, at FROM refused WHERE id = ?`, []any{id[:]}, func(rows *sql.Rows) error {
		ok = true
		r, err = scanRefusal(rows)
		return err
	})
	return r, ok, err
}

// Refusals implements store.Store. They are read a page at a time.
func (s *Store) Refusals(ctx context.Context) iter.Seq2[store.Refusal, error] {
	return func(yield func(store.Refusal, error) bool) {
		after := []byte{}
		for {
			var page []store.Refusal
			err := s.check(ctx)
			if err == nil {
				err = s.each(ctx, s.read, `SELECT id, reason, at FROM refused WHERE id > ? ORDER BY id LIMIT ?`, []any{after, pageRows}, func(rows *sql.Rows) error {
					r, err := scanRefusal(rows)
					page = append(page, r)
					return err
				})
			}
			if err != nil {
				yield(store.Refusal{}, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
			}
			if len(page) < pageRows {
				return
			}
			after = append(after[:0], page[len(page)-1].ID[:]...)
		}
	}
}
