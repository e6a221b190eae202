package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// querier is a transaction or a database.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// portion is how many parameters of a kind go into one statement.
const portion = 512

// each calls f with every row.
func (s *Store) each(ctx context.Context, from querier, q string, args []any, f func(rows *sql.Rows) error) error {
	rows, err := from.QueryContext(ctx, s.bind(q), args...)
	if err != nil {
		return s.failure("query", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.failure("query", err)
	}
	return nil
}

func octets[T ~[32]byte](k T) any { return k[:] }

// fill reads a 32-octet column.
func fill[T ~[32]byte](dst *T, b sql.RawBytes) error {
	if len(b) != 32 {
		return fmt.Errorf("a key of %d octets in the tables, not 32: they were changed by something else", len(b))
	}
	*dst = T([32]byte(b))
	return nil
}

// scanKey reads a row of one 32-octet column.
func scanKey[T ~[32]byte](rows *sql.Rows, dst *T) error {
	var b sql.RawBytes
	if err := rows.Scan(&b); err != nil {
		return err
	}
	return fill(dst, b)
}

// one reads an event, nil if there is none.
func (s *Store) one(ctx context.Context, from querier, id nostr.ID) (*nostr.Event, error) {
	var body []byte
	err := from.QueryRowContext(ctx, s.bind(`SELECT body FROM events WHERE id = ?`), id[:]).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.failure("read an event", err)
	}
	return parse(id, body)
}

// parse reads an event's text. Its id is computed anew: not every database guards what it holds with checksums.
func parse(id nostr.ID, body []byte) (*nostr.Event, error) {
	e, err := nostr.ParseEvent(body)
	if err != nil {
		return nil, fmt.Errorf("event %s is damaged in the tables: %w", id, err)
	}
	if e.ID != id {
		return nil, fmt.Errorf("event %s is damaged in the tables: its text is of %s", id, e.ID)
	}
	return e, nil
}

// foresee looks up in bulk what deciding about the batch will ask for.
func (d *draft) foresee(events []*nostr.Event) error {
	var ids []nostr.ID
	var asks []ask
	var addresses [][32]byte
	var keys []nostr.PubKey
	for _, e := range events {
		ids = append(ids, e.ID)
		asks = append(asks, ask{e.ID, e.PubKey})
		keys = append(keys, e.PubKey)
		if a, ok := e.Address(); ok {
			addresses = append(addresses, store.AddressKey(a))
		}
		if e.Kind == 1059 {
			for v := range e.TagValues("p") {
				if k, err := nostr.ParsePubKey(v); err == nil {
					keys = append(keys, k)
				}
			}
		}
		if e.Kind != 5 {
			continue
		}
		for v := range e.TagValues("e") {
			if id, err := nostr.ParseID(v); err == nil {
				ids = append(ids, id)
				asks = append(asks, ask{id, e.PubKey})
			}
		}
	}
	return errors.Join(d.loadSlots(ids), d.loadRefused(ids), d.loadAsked(asks), d.loadCurrent(addresses), d.loadBounds(addresses),
		d.loadFloors(addresses), d.loadVanished(keys))
}

// unknown keeps the keys that the map lacks, each once, and enters them as not found.
func unknown[K comparable, V any](m map[K]V, keys []K, none func() V) []K {
	var out []K
	for _, k := range keys {
		if _, ok := m[k]; !ok {
			m[k] = none()
			out = append(out, k)
		}
	}
	return out
}

// lookUp runs a query whose last condition is an IN list over the keys, in portions.
func lookUp[K any](d *draft, q string, keys []K, arg func(K) any, f func(rows *sql.Rows) error) error {
	for part := range slices.Chunk(keys, portion) {
		var args []any
		text := q + " IN " + in(&args, part, arg)
		if err := d.s.each(d.ctx, d.tx, text, args, f); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) loadSlots(ids []nostr.ID) error {
	ids = unknown(d.slots, ids, func() *slot { return &slot{} })
	return lookUp(d, `SELECT id FROM events WHERE id`, ids, octets, func(rows *sql.Rows) error {
		var id nostr.ID
		if err := scanKey(rows, &id); err != nil {
			return err
		}
		*d.slots[id] = slot{held: true, saved: true}
		return nil
	})
}

func (d *draft) loadRefused(ids []nostr.ID) error {
	ids = unknown(d.refused, ids, func() (k known[store.Refusal]) { return k })
	return lookUp(d, `SELECT id, reason, at FROM refused WHERE id`, ids, octets, func(rows *sql.Rows) error {
		r, err := scanRefusal(rows)
		d.refused[r.ID] = known[store.Refusal]{value: r, found: true}
		return err
	})
}

func scanRefusal(rows *sql.Rows) (store.Refusal, error) {
	var r store.Refusal
	var b sql.RawBytes
	if err := rows.Scan(&b, &r.Reason, &r.At); err != nil {
		return r, err
	}
	return r, fill(&r.ID, b)
}

func (d *draft) loadAsked(asks []ask) error {
	asks = unknown(d.asked, asks, func() (k known[struct{}]) { return k })
	var ids []nostr.ID
	for _, a := range asks {
		ids = append(ids, a.id)
	}
	return lookUp(d, `SELECT id, pubkey FROM asked WHERE id`, ids, octets, func(rows *sql.Rows) error {
		var id, by sql.RawBytes
		var a ask
		if err := rows.Scan(&id, &by); err != nil {
			return err
		}
		if err := errors.Join(fill(&a.id, id), fill(&a.by, by)); err != nil {
			return err
		}
		if !d.asked[a].changed {
			d.asked[a] = known[struct{}]{found: true}
		}
		return nil
	})
}

func (d *draft) loadCurrent(keys [][32]byte) error {
	keys = unknown(d.current, keys, func() (k known[store.Held]) { return k })
	return lookUp(d, `SELECT address, id, created_at, expires FROM events WHERE address`, keys, octets, func(rows *sql.Rows) error {
		var address, id sql.RawBytes
		var key [32]byte
		k := known[store.Held]{found: true}
		if err := rows.Scan(&address, &id, &k.value.CreatedAt, &k.value.Expires); err != nil {
			return err
		}
		if err := errors.Join(fill(&key, address), fill(&k.value.ID, id)); err != nil {
			return err
		}
		d.current[key] = k
		return nil
	})
}

func (d *draft) loadBounds(keys [][32]byte) error {
	return loadTimes(d, d.bounds, `SELECT address, until FROM bounds WHERE address`, keys)
}

func (d *draft) loadVanished(keys []nostr.PubKey) error {
	return loadTimes(d, d.vanished, `SELECT pubkey, until FROM vanished WHERE pubkey`, keys)
}

func loadTimes[K interface {
	~[32]byte
	comparable
}](d *draft, into map[K]known[int64], q string, keys []K) error {
	keys = unknown(into, keys, func() (k known[int64]) { return k })
	return lookUp(d, q, keys, octets, func(rows *sql.Rows) error {
		var b sql.RawBytes
		var key K
		k := known[int64]{found: true}
		if err := rows.Scan(&b, &k.value); err != nil {
			return err
		}
		if err := fill(&key, b); err != nil {
			return err
		}
		into[key] = k
		return nil
	})
}

func (d *draft) loadFloors(keys [][32]byte) error {
	keys = unknown(d.floors, keys, func() (k known[store.Version]) { return k })
	return lookUp(d, `SELECT address, created_at, id FROM floors WHERE address`, keys, octets, func(rows *sql.Rows) error {
		var address, id sql.RawBytes
		var key [32]byte
		k := known[store.Version]{found: true}
		if err := rows.Scan(&address, &k.value.CreatedAt, &id); err != nil {
			return err
		}
		if err := errors.Join(fill(&key, address), fill(&k.value.ID, id)); err != nil {
			return err
		}
		d.floors[key] = k
		return nil
	})
}

// covered lists the events in the database that a vanish of key up to a time may cover: those of the key, and gift wraps to it.
func (d *draft) covered(key nostr.PubKey, until int64) ([]nostr.ID, error) {
	var out []nostr.ID
	term := store.TagKey('p', key.String())
	q := `SELECT id FROM events WHERE pubkey = ? AND created_at <= ? UNION SELECT id FROM tags WHERE term = ? AND kind = 1059 AND created_at <= ?`
	err := d.s.each(d.ctx, d.tx, q, []any{key[:], until, term[:], until}, func(rows *sql.Rows) error {
		var id nostr.ID
		if err := scanKey(rows, &id); err != nil {
			return err
		}
		out = append(out, id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, d.loadSlots(out)
}
