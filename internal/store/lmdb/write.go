//go:build lmdb && cgo

package lmdb

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	db "github.com/PowerDNS/lmdb-go/lmdb"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// do runs f in the one writing transaction.
func (s *Store) do(ctx context.Context, now int64, f func(d *draft) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.update(func(txn *db.Txn) error {
		d := &draft{s: s, txn: txn, now: now}
		if err := f(d); err != nil {
			return err
		}
		return d.err
	})
}

// Insert implements store.Store. The batch is one transaction.
func (s *Store) Insert(ctx context.Context, events []*nostr.Event, now int64) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(events))
	swept := false
	err := s.do(ctx, now, func(d *draft) (err error) {
		for i, e := range events {
			c, err := s.rules.Decide(d, e, now)
			if err == nil {
				err = d.err
			}
			if err != nil {
				return fmt.Errorf("decide: %w", err)
			}
			if err := d.apply(&c); err != nil {
				return fmt.Errorf("store event %s: %w", e.ID, err)
			}
			out[i] = c.Outcome
		}
		if swept, err = d.sweep(); err != nil {
			return fmt.Errorf("remove what has expired: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if swept {
		s.write.Lock()
		s.swept = max(s.swept, now)
		s.write.Unlock()
	}
	return out, nil
}

const (
	sweepEvery = 60   // seconds between two removals of expired events
	sweepMost  = 1000 // events removed at a time, so that nobody waits long
)

// sweep removes events that have expired, now and then; true once none is left.
func (d *draft) sweep() (bool, error) {
	if d.now-d.s.swept < sweepEvery {
		return false, nil
	}
	gone, err := d.s.ended(d.txn, d.now, sweepMost)
	if err != nil {
		return false, err
	}
	for id := range gone {
		if err := d.drop(id, store.ReasonExpired); err != nil {
			return false, err
		}
	}
	return len(gone) < sweepMost, nil
}

// ended lists events that have expired and are still in the tables.
func (s *Store) ended(txn *db.Txn, now int64, most int) (map[nostr.ID]struct{}, error) {
	c, err := txn.OpenCursor(s.expires)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := make(map[nostr.ID]struct{})
	for op := uint(db.First); len(out) < most; op = db.Next {
		key, _, err := c.Get(nil, nil, op)
		if db.IsNotFound(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(key) != 40 {
			return nil, damaged("expires")
		}
		if unS64(key) > now {
			break
		}
		out[nostr.ID(key[8:])] = struct{}{}
	}
	return out, nil
}

// Purge implements store.Store. An address keeps the purged version as its floor, so that older versions do not come back in its place.
func (s *Store) Purge(ctx context.Context, ids []nostr.ID, reason string, now int64) (int, error) {
	var n int
	err := s.do(ctx, now, func(d *draft) error {
		n = 0
		for _, id := range ids {
			held, err := d.purge(id, reason)
			if err != nil {
				return fmt.Errorf("purge %s: %w", id, err)
			}
			if held {
				n++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (d *draft) purge(id nostr.ID, reason string) (held bool, err error) {
	e, err := d.Held(id)
	if err != nil {
		return false, err
	}
	if e == nil {
		return false, d.refuse(store.Refusal{ID: id, Reason: reason, At: d.now})
	}
	if held = !e.ExpiredAt(d.now); held {
		if a, ok := e.Address(); ok {
			if err := d.raise(store.Floor{Address: a, Version: store.VersionOf(e)}); err != nil {
				return false, err
			}
		}
	}
	return held, d.drop(id, reason)
}

// Refuse implements store.Store. Ids that are held are left alone.
func (s *Store) Refuse(ctx context.Context, refusals []store.Refusal) error {
	return s.do(ctx, 0, func(d *draft) error {
		for _, r := range refusals {
			if d.Has(r.ID) {
				continue
			}
			if err := d.refuse(r); err != nil {
				return fmt.Errorf("refuse %s: %w", r.ID, err)
			}
		}
		return nil
	})
}

func refusal(key, v []byte) (store.Refusal, error) {
	if len(key) != 32 || len(v) < 16 {
		return store.Refusal{}, damaged("refused")
	}
	return store.Refusal{ID: nostr.ID(key), Reason: string(v[16:]), At: unS64(v)}, nil
}

// Refusal implements store.Store.
func (s *Store) Refusal(ctx context.Context, id nostr.ID) (r store.Refusal, ok bool, err error) {
	err = s.view(ctx, func(txn *db.Txn) error {
		v, err := get(txn, s.refused, id[:])
		if err != nil || v == nil {
			return err
		}
		ok = true
		r, err = refusal(id[:], v)
		return err
	})
	return r, ok, err
}

// Refusals implements store.Store. They are read a page at a time.
func (s *Store) Refusals(ctx context.Context) iter.Seq2[store.Refusal, error] {
	return paged(ctx, s, func(*Store) db.DBI { return s.refused }, []byte{}, refusal, func(r store.Refusal) []byte { return r.ID[:] })
}

// Arrivals implements store.Store.
func (s *Store) Arrivals(ctx context.Context, after uint64, now int64) iter.Seq2[store.Arrival, error] {
	parse := func(key, v []byte) (a store.Arrival, err error) {
		if len(key) != 8 {
			return a, damaged("events")
		}
		a.Seq = binary.BigEndian.Uint64(key)
		if a.Event, err = nostr.ParseEvent(bytes.Clone(v)); err != nil {
			return a, fmt.Errorf("the event that arrived as number %d is damaged in the LMDB file: %w", a.Seq, err)
		}
		return a, nil
	}
	return func(yield func(store.Arrival, error) bool) {
		for a, err := range paged(ctx, s, func(s *Store) db.DBI { return s.events }, u64(after), parse, func(a store.Arrival) []byte { return u64(a.Seq) }) {
			if err == nil && a.Event.ExpiredAt(now) {
				continue
			}
			if !yield(a, err) {
				return
			}
		}
	}
}

// paged yields the rows of a table whose keys come after one, a page at a time: a slow reader holds no transaction.
func paged[T any](ctx context.Context, s *Store, table func(*Store) db.DBI, after []byte, read func(key, v []byte) (T, error), keyOf func(T) []byte) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			page, err := readPage(ctx, s, table, after, read)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
			if len(page) < pageRows {
				return
			}
			after = keyOf(page[len(page)-1])
		}
	}
}

func readPage[T any](ctx context.Context, s *Store, table func(*Store) db.DBI, after []byte, read func(key, v []byte) (T, error)) (page []T, err error) {
	err = s.view(ctx, func(txn *db.Txn) error {
		c, err := txn.OpenCursor(table(s))
		if err != nil {
			return err
		}
		defer c.Close()
		var key, v []byte
		if len(after) == 0 {
			key, v, err = c.Get(nil, nil, db.First)
		} else {
			key, v, err = c.Get(after, nil, db.SetRange)
		}
		for ; err == nil && len(page) < pageRows; key, v, err = c.Get(nil, nil, db.Next) {
			if string(key) == string(after) {
				continue
			}
			row, err := read(key, v)
			if err != nil {
				return err
			}
			page = append(page, row)
		}
		if db.IsNotFound(err) {
			err = nil
		}
		return err
	})
	return page, err
}
