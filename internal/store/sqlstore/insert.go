package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// Insert implements store.Store. The batch is one transaction.
func (s *Store) Insert(ctx context.Context, events []*nostr.Event, now int64) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(events))
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		if err := s.room(ctx); err != nil {
			return err
		}
		d := s.draft(ctx, tx, now)
		if err := d.foresee(events); err != nil {
			return fmt.Errorf("look up what is held: %w", err)
		}
		for i, e := range events {
			c, err := s.rules.Decide(d, e, now)
			if err == nil {
				err = d.err
			}
			if err != nil {
				return fmt.Errorf("decide: %w", err)
			}
			if err := d.apply(&c); err != nil {
				return fmt.Errorf("decide: %w", err)
			}
			out[i] = c.Outcome
		}
		if err := d.sweep(); err != nil {
			return fmt.Errorf("remove what has expired: %w", err)
		}
		return d.flush()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

const (
	sweepEvery = 60   // seconds between two removals of expired events
	sweepMost  = 1000 // events removed at a time, so that nobody waits long
)

// sweep removes events that have expired, now and then.
func (d *draft) sweep() error {
	if d.now-d.s.swept < sweepEvery {
		return nil
	}
	var gone []nostr.ID
	err := d.s.each(d.ctx, d.tx, `SELECT id FROM events WHERE expires <= ? LIMIT ?`, []any{d.now, sweepMost}, func(rows *sql.Rows) error {
		gone = append(gone, nostr.ID{})
		return scanKey(rows, &gone[len(gone)-1])
	})
	if err != nil {
		return err
	}
	if len(gone) < sweepMost {
		d.s.swept = d.now
	}
	if err := d.loadSlots(gone); err != nil {
		return err
	}
	for _, id := range gone {
		if err := d.drop(id, store.ReasonExpired); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the draft's changes.
func (d *draft) flush() error {
	var gone, come []nostr.ID
	seen := make(map[nostr.ID]bool)
	for _, id := range d.fresh {
		if d.slots[id].held && !seen[id] {
			seen[id] = true
			come = append(come, id)
		}
	}
	for id, sl := range d.slots {
		if sl.saved && (!sl.held || seen[id]) {
			gone = append(gone, id)
		}
	}
	if err := d.remove(gone); err != nil {
		return d.s.failure("remove events", err)
	}
	if err := d.add(come); err != nil {
		return d.s.failure("add events", err)
	}
	if err := d.flushTombstones(); err != nil {
		return d.s.failure("write tombstones", err)
	}
	if err := d.flushRefusals(); err != nil {
		return d.s.failure("write refusals", err)
	}
	return nil
}

func (d *draft) remove(ids []nostr.ID) error {
	if len(ids) == 0 {
		return nil
	}
	last, err := d.take("gone", len(ids))
	if err != nil {
		return err
	}
	n := last - int64(len(ids))
	for part := range slices.Chunk(ids, portion) {
		var args []any
		among := ` IN ` + in(&args, part, octets)
		var items []negentropy.Item
		err := d.s.each(d.ctx, d.tx, `SELECT created_at, id FROM events WHERE id`+among, args, func(rows *sql.Rows) error {
			var at int64
			var id sql.RawBytes
			if err := rows.Scan(&at, &id); err != nil {
				return err
			}
			items = append(items, negentropy.Item{Time: uint64(at)})
			return fill(&items[len(items)-1].ID, id)
		})
		if err != nil {
			return err
		}
		var gone [][]any
		for i := range items {
			n++
			gone = append(gone, []any{n, int64(items[i].Time), items[i].ID[:]})
		}
		if err := d.rows(`INSERT INTO gone (n, created_at, id) VALUES `, "", gone); err != nil {
			return err
		}
		if err := d.exec(d.s.dialect.Words.Drop+` (SELECT seq FROM events WHERE id`+among+`)`, args); err != nil {
			return err
		}
		for _, table := range []string{"tags", "events"} {
			if err := d.exec(`DELETE FROM `+table+` WHERE id`+among, args); err != nil {
				return err
			}
		}
	}
	return d.exec(`DELETE FROM gone WHERE n <= ?`, []any{last - goneKept})
}

func (d *draft) exec(q string, args []any) error {
	_, err := d.tx.ExecContext(d.ctx, d.s.bind(q), args...)
	return err
}

// add writes events and gives them their arrival numbers, in order.
func (d *draft) add(ids []nostr.ID) error {
	if len(ids) == 0 {
		return nil
	}
	last, err := d.take("seq", len(ids))
	if err != nil {
		return err
	}
	var events, tags, words [][]any
	for i, id := range ids {
		e := d.slots[id].event
		h := store.HeldOf(e)
		var address any
		if a, ok := e.Address(); ok {
			key := store.AddressKey(a)
			address = key[:]
		}
		seq := last - int64(len(ids)-1-i)
		events = append(events, []any{id[:], seq, d.s.opt.Face, e.CreatedAt, int64(e.Kind), e.PubKey[:], address, h.Expires, e.JSON()})
		words = append(words, d.s.dialect.Words.row(seq, e)...)
		for _, term := range store.TagKeys(e) {
			tags = append(tags, []any{term[:], e.CreatedAt, id[:], int64(e.Kind)})
		}
	}
	if err := d.rows(`INSERT INTO events (id, seq, face, created_at, kind, pubkey, address, expires, body) VALUES `, "", events); err != nil {
		return err
	}
	if err := d.rows(`INSERT INTO tags (term, created_at, id, kind) VALUES `, "", tags); err != nil {
		return err
	}
	if err := d.rows(d.s.dialect.Words.Add, "", words); err != nil {
		return err
	}
	if d.s.dialect.Committing == nil {
		return nil
	}
	return d.s.dialect.Committing(d.ctx, d.tx, uint64(last)-uint64(len(ids)-1), uint64(last))
}

// take draws n numbers of a counter and returns the last.
func (d *draft) take(counter string, n int) (int64, error) {
	if err := d.exec(`UPDATE meta SET value = value + ? WHERE name = ?`, []any{int64(n), counter}); err != nil {
		return 0, err
	}
	var last int64
	err := d.tx.QueryRowContext(d.ctx, d.s.bind(`SELECT value FROM meta WHERE name = ?`), counter).Scan(&last)
	return last, err
}

// rows writes many rows with few different statements: their numbers of rows are powers of two.
func (d *draft) rows(before, after string, rows [][]any) error {
	for n := 256; len(rows) > 0; {
		for n > len(rows) {
			n /= 2
		}
		one := list(len(rows[0]))
		q := before + strings.Repeat(one+", ", n-1) + one + after
		if err := d.exec(q, slices.Concat(rows[:n]...)); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// changes lists the rows of the entries that the batch changed.
func changes[K comparable, V any](m map[K]known[V], row func(K, V) []any) [][]any {
	var out [][]any
	for k, v := range m {
		if v.changed && v.found {
			out = append(out, row(k, v.value))
		}
	}
	return out
}

func (d *draft) flushTombstones() error {
	asked := changes(d.asked, func(a ask, _ struct{}) []any { return []any{a.id[:], a.by[:]} })
	bounds := changes(d.bounds, func(k [32]byte, t int64) []any { return []any{k[:], t} })
	floors := changes(d.floors, func(k [32]byte, v store.Version) []any { return []any{k[:], v.CreatedAt, v.ID[:]} })
	vanished := changes(d.vanished, func(k nostr.PubKey, t int64) []any { return []any{k[:], t} })
	for _, w := range []struct {
		before, after string
		rows          [][]any
	}{
		{`INSERT INTO asked (id, pubkey) VALUES `, ` ON CONFLICT (id, pubkey) DO NOTHING`, asked},
		{`INSERT INTO bounds (address, until) VALUES `, ` ON CONFLICT (address) DO UPDATE SET until = excluded.until`, bounds},
		{`INSERT INTO floors (address, created_at, id) VALUES `, ` ON CONFLICT (address) DO UPDATE SET created_at = excluded.created_at, id = excluded.id`, floors},
		{`INSERT INTO vanished (pubkey, until) VALUES `, ` ON CONFLICT (pubkey) DO UPDATE SET until = excluded.until`, vanished},
	} {
		if err := d.rows(w.before, w.after, w.rows); err != nil {
			return err
		}
	}
	return nil
}

// flushRefusals writes the refused index. Entries of the bounded reasons get a place, by which the oldest are forgotten.
func (d *draft) flushRefusals() error {
	var gone []nostr.ID
	for id, k := range d.refused {
		if k.changed && !k.found {
			gone = append(gone, id)
		}
	}
	for part := range slices.Chunk(gone, portion) {
		var args []any
		if err := d.exec(`DELETE FROM refused WHERE id IN `+in(&args, part, octets), args); err != nil {
			return err
		}
	}
	places := make(map[nostr.ID]int64)
	if n := len(d.advisory); n > 0 {
		last, err := d.take("place", n)
		if err != nil {
			return err
		}
		for i, id := range d.advisory {
			places[id] = last - int64(n-1-i)
		}
	}
	rows := changes(d.refused, func(id nostr.ID, r store.Refusal) []any {
		var place any
		if p, ok := places[id]; ok && store.Bounded(r.Reason) {
			place = p
		}
		return []any{id[:], r.Reason, r.At, place}
	})
	after := ` ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, at = excluded.at, place = excluded.place`
	if err := d.rows(`INSERT INTO refused (id, reason, at, place) VALUES `, after, rows); err != nil {
		return err
	}
	return d.forget(len(d.advisory))
}

// forget drops the oldest bounded refusals over the limit, once enough have come.
func (d *draft) forget(n int) error {
	d.s.hints += n
	if d.s.hints <= d.s.opt.Advisory/16 {
		return nil
	}
	d.s.hints = 0
	var oldest sql.NullInt64
	q := d.s.bind(`SELECT place FROM refused WHERE place IS NOT NULL ORDER BY place DESC LIMIT 1 OFFSET ?`)
	err := d.tx.QueryRowContext(d.ctx, q, d.s.opt.Advisory).Scan(&oldest)
	if err == sql.ErrNoRows {
		return nil
	}
	if err != nil {
		return err
	}
	return d.exec(`DELETE FROM refused WHERE place <= ?`, []any{oldest.Int64})
}
