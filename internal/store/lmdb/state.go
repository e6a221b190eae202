//go:build lmdb && cgo

package lmdb

import (
	"bytes"
	"encoding/binary"
	"fmt"

	db "github.com/PowerDNS/lmdb-go/lmdb"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// draft is a writing transaction in which a batch is decided: it reads what it has written. It is the store.State of its decisions.
type draft struct {
	s   *Store
	txn *db.Txn
	now int64
	err error // the first look-up that failed
}

var _ store.State = (*draft)(nil)

// look reads a value; a failure is kept for the end.
func (d *draft) look(t db.DBI, key []byte, least int) ([]byte, bool) {
	v, err := get(d.txn, t, key)
	if err == nil && v != nil && len(v) < least {
		err = damaged("that was looked into")
	}
	if err != nil {
		if d.err == nil {
			d.err = err
		}
		return nil, false
	}
	return v, v != nil
}

// Has implements store.State.
func (d *draft) Has(id nostr.ID) bool {
	_, ok := d.look(d.s.ids, id[:], 16)
	return ok
}

// Held implements store.State.
func (d *draft) Held(id nostr.ID) (*nostr.Event, error) { return d.s.event(d.txn, id) }

// event reads an event, nil if there is none.
func (s *Store) event(txn *db.Txn, id nostr.ID) (*nostr.Event, error) {
	v, err := get(txn, s.ids, id[:])
	if err != nil || v == nil {
		return nil, err
	}
	if len(v) != 16 {
		return nil, damaged("ids")
	}
	return s.text(txn, v[:8], id)
}

// text reads an event by its arrival number. Its id is computed anew: LMDB guards nothing with checksums.
func (s *Store) text(txn *db.Txn, seq []byte, id nostr.ID) (*nostr.Event, error) {
	body, err := get(txn, s.events, seq)
	if err != nil {
		return nil, err
	}
	e, err := nostr.ParseEvent(bytes.Clone(body))
	if err != nil {
		return nil, fmt.Errorf("event %s is damaged in the LMDB file: %w", id, err)
	}
	if e.ID != id {
		return nil, fmt.Errorf("event %s is damaged in the LMDB file: its text is of %s", id, e.ID)
	}
	return e, nil
}

// Current implements store.State.
func (d *draft) Current(a nostr.Address) (store.Held, bool) {
	key := store.AddressKey(a)
	v, ok := d.look(d.s.current, key[:], 32)
	if !ok {
		return store.Held{}, false
	}
	e, err := d.Held(nostr.ID(v[:32]))
	if err != nil || e == nil {
		if err != nil && d.err == nil {
			d.err = err
		}
		return store.Held{}, false
	}
	return store.HeldOf(e), true
}

// RefusedAs implements store.State.
func (d *draft) RefusedAs(id nostr.ID) (string, bool) {
	v, ok := d.look(d.s.refused, id[:], 16)
	if !ok {
		return "", false
	}
	return string(v[16:]), true
}

// Asked implements store.State.
func (d *draft) Asked(id nostr.ID, by nostr.PubKey) bool {
	_, ok := d.look(d.s.asked, append(id[:], by[:]...), 1)
	return ok
}

// DeletedUpTo implements store.State.
func (d *draft) DeletedUpTo(a nostr.Address) (int64, bool) {
	key := store.AddressKey(a)
	return d.time(d.s.bounds, key[:])
}

// VanishedUpTo implements store.State.
func (d *draft) VanishedUpTo(k nostr.PubKey) (int64, bool) { return d.time(d.s.vanished, k[:]) }

func (d *draft) time(t db.DBI, key []byte) (int64, bool) {
	v, ok := d.look(t, key, 8)
	if !ok {
		return 0, false
	}
	return unS64(v), true
}

// Floor implements store.State.
func (d *draft) Floor(a nostr.Address) (store.Version, bool) {
	key := store.AddressKey(a)
	v, ok := d.look(d.s.floors, key[:], 40)
	if !ok {
		return store.Version{}, false
	}
	return store.Version{CreatedAt: unS64(v), ID: nostr.ID(v[8:40])}, true
}

func (d *draft) put(t db.DBI, key, value []byte) error { return d.txn.Put(t, key, value, 0) }

func (d *draft) del(t db.DBI, key []byte) error {
	if err := d.txn.Del(t, key, nil); err != nil && !db.IsNotFound(err) {
		return err
	}
	return nil
}

var nothing = []byte{0}

// apply writes a decision down.
func (d *draft) apply(c *store.Change) error {
	e := c.Event
	for _, gone := range c.Drops {
		if err := d.drop(gone.ID, gone.Reason); err != nil {
			return err
		}
	}
	for _, id := range c.Asked {
		if err := d.put(d.s.asked, append(id[:], e.PubKey[:]...), nothing); err != nil {
			return err
		}
	}
	for _, a := range c.Bounds {
		key := store.AddressKey(a)
		if err := d.latest(d.s.bounds, key[:], e.CreatedAt); err != nil {
			return err
		}
	}
	for _, f := range c.Floors {
		if err := d.raise(f); err != nil {
			return err
		}
	}
	if c.Refuse != "" {
		if err := d.refuse(store.Refusal{ID: e.ID, Reason: c.Refuse, At: d.now}); err != nil {
			return err
		}
	}
	if c.Outcome == store.Stored {
		if err := d.add(e); err != nil {
			return err
		}
	}
	if c.Vanish {
		if err := d.vanish(e); err != nil {
			return err
		}
	}
	return d.err
}

// latest keeps the later of two times.
func (d *draft) latest(t db.DBI, key []byte, at int64) error {
	if have, ok := d.time(t, key); ok && have >= at {
		return d.err
	}
	return d.put(t, key, s64(at))
}

func (d *draft) raise(f store.Floor) error {
	if v, ok := d.Floor(f.Address); ok && !f.Version.Beats(v) {
		return d.err
	}
	key := store.AddressKey(f.Address)
	return d.put(d.s.floors, key[:], append(s64(f.Version.CreatedAt), f.Version.ID[:]...))
}

// next draws a number of a counter.
func (d *draft) next(counter string) (uint64, error) {
	n, err := d.s.number(d.txn, counter)
	if err != nil {
		return 0, err
	}
	return n + 1, d.put(d.s.meta, []byte(counter), u64(n+1))
}

// add stores an event.
func (d *draft) add(e *nostr.Event) error {
	seq, err := d.next("seq")
	if err != nil {
		return err
	}
	if err := d.txn.Put(d.s.events, u64(seq), e.JSON(), db.Append); err != nil {
		return err
	}
	if err := d.put(d.s.ids, e.ID[:], append(u64(seq), s64(e.CreatedAt)...)); err != nil {
		return err
	}
	p := placeOf(e.CreatedAt, &e.ID)
	for _, key := range indexKeys(e) {
		if err := d.put(d.s.index, append(key, p[:]...), entry(seq, e.Kind)); err != nil {
			return err
		}
	}
	if h := store.HeldOf(e); h.Expires != store.NoExpiry {
		if err := d.put(d.s.expires, append(s64(h.Expires), e.ID[:]...), nothing); err != nil {
			return err
		}
	}
	if a, ok := e.Address(); ok {
		key := store.AddressKey(a)
		if err := d.put(d.s.current, key[:], e.ID[:]); err != nil {
			return err
		}
	}
	return d.unrefuse(e.ID)
}

// drop removes an event that is held, and remembers why.
func (d *draft) drop(id nostr.ID, reason string) error {
	v, ok := d.look(d.s.ids, id[:], 16)
	if !ok {
		return d.err
	}
	seq := bytes.Clone(v[:8])
	e, err := d.s.text(d.txn, seq, id)
	if err != nil {
		return err
	}
	p := placeOf(e.CreatedAt, &id)
	for _, key := range indexKeys(e) {
		if err := d.del(d.s.index, append(key, p[:]...)); err != nil {
			return err
		}
	}
	if h := store.HeldOf(e); h.Expires != store.NoExpiry {
		if err := d.del(d.s.expires, append(s64(h.Expires), id[:]...)); err != nil {
			return err
		}
	}
	if a, ok := e.Address(); ok {
		key := store.AddressKey(a)
		if v, ok := d.look(d.s.current, key[:], 32); ok && nostr.ID(v) == id {
			if err := d.del(d.s.current, key[:]); err != nil {
				return err
			}
		}
	}
	if err := d.del(d.s.events, seq); err != nil {
		return err
	}
	if err := d.del(d.s.ids, id[:]); err != nil {
		return err
	}
	return d.refuse(store.Refusal{ID: id, Reason: reason, At: d.now})
}

// refuse enters r. A binding entry is never replaced by an advisory one.
func (d *draft) refuse(r store.Refusal) error {
	if old, had := d.RefusedAs(r.ID); had && (old == r.Reason || store.Binding(old)) {
		return d.err
	}
	if err := d.unrefuse(r.ID); err != nil {
		return err
	}
	var at uint64
	if store.Bounded(r.Reason) {
		var err error
		if at, err = d.next("place"); err != nil {
			return err
		}
		if err := d.put(d.s.advisory, u64(at), r.ID[:]); err != nil {
			return err
		}
	}
	if err := d.put(d.s.refused, r.ID[:], append(append(s64(r.At), u64(at)...), r.Reason...)); err != nil {
		return err
	}
	return d.forget()
}

// unrefuse takes an entry out, if there is one.
func (d *draft) unrefuse(id nostr.ID) error {
	v, ok := d.look(d.s.refused, id[:], 16)
	if !ok {
		return d.err
	}
	at := bytes.Clone(v[8:16])
	if binary.BigEndian.Uint64(at) > 0 {
		if err := d.del(d.s.advisory, at); err != nil {
			return err
		}
	}
	return d.del(d.s.refused, id[:])
}

// forget drops the oldest bounded refusals over the limit.
func (d *draft) forget() error {
	st, err := d.txn.Stat(d.s.advisory)
	if err != nil || st.Entries <= uint64(d.s.opt.Advisory) {
		return err
	}
	c, err := d.txn.OpenCursor(d.s.advisory)
	if err != nil {
		return err
	}
	defer c.Close()
	for n := st.Entries - uint64(d.s.opt.Advisory); n > 0; n-- {
		_, id, err := c.Get(nil, nil, db.First)
		if err != nil {
			return err
		}
		id = bytes.Clone(id)
		if err := c.Del(0); err != nil {
			return err
		}
		if err := d.del(d.s.refused, id); err != nil {
			return err
		}
	}
	return nil
}

// vanish removes what a vanish request covers: events of the key, and gift wraps to it.
func (d *draft) vanish(e *nostr.Event) error {
	if err := d.latest(d.s.vanished, e.PubKey[:], e.CreatedAt); err != nil {
		return err
	}
	var ids []nostr.ID
	for _, prefix := range [][]byte{authorKey(&e.PubKey), tagKey('p', e.PubKey.String())} {
		until := placeOf(e.CreatedAt, new(nostr.ID))
		err := walk(d.txn, d.s.index, prefix, until, func(p place, _ []byte) (bool, error) {
			ids = append(ids, p.id())
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	for _, id := range ids {
		held, err := d.Held(id)
		if err != nil {
			return err
		}
		if held != nil && d.s.rules.Vanishing(held, e.PubKey, e.CreatedAt) {
			if err := d.drop(id, store.ReasonDeleted); err != nil {
				return err
			}
		}
	}
	return d.err
}
