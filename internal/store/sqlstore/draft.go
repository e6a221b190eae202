package sqlstore

import (
	"context"
	"database/sql"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

const noExpiry = store.NoExpiry

// slot is what a draft knows about an id.
type slot struct {
	held  bool         // it is in the set as the batch has made it
	saved bool         // it is in the database
	event *nostr.Event // nil where it was not needed yet
}

type ask struct {
	id nostr.ID
	by nostr.PubKey
}

// known is a look-up's answer; changed says that the batch made it.
type known[T any] struct {
	value   T
	found   bool
	changed bool
}

// draft is a transaction's view of the store while a batch is decided: what the database says, read in bulk beforehand where the
// batch shows what it will need, with the batch's own changes over it. It is the store.State of its decisions.
type draft struct {
	s   *Store
	ctx context.Context
	tx  *sql.Tx
	now int64
	err error // the first look-up that failed

	slots    map[nostr.ID]*slot
	current  map[[32]byte]known[store.Held]
	refused  map[nostr.ID]known[store.Refusal]
	asked    map[ask]known[struct{}]
	bounds   map[[32]byte]known[int64]
	floors   map[[32]byte]known[store.Version]
	vanished map[nostr.PubKey]known[int64]

	fresh    []nostr.ID // stored by this batch, in order
	advisory []nostr.ID // bounded refusals entered, in order
}

func (s *Store) draft(ctx context.Context, tx *sql.Tx, now int64) *draft {
	return &draft{
		s: s, ctx: ctx, tx: tx, now: now,
		slots:    make(map[nostr.ID]*slot),
		current:  make(map[[32]byte]known[store.Held]),
		refused:  make(map[nostr.ID]known[store.Refusal]),
		asked:    make(map[ask]known[struct{}]),
		bounds:   make(map[[32]byte]known[int64]),
		floors:   make(map[[32]byte]known[store.Version]),
		vanished: make(map[nostr.PubKey]known[int64]),
	}
}

var _ store.State = (*draft)(nil)

func (d *draft) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *draft) slot(id nostr.ID) *slot {
	if _, ok := d.slots[id]; !ok {
		d.fail(d.loadSlots([]nostr.ID{id}))
	}
	if sl := d.slots[id]; sl != nil {
		return sl
	}
	return &slot{}
}

// Has implements store.State.
func (d *draft) Has(id nostr.ID) bool { return d.slot(id).held }

// Held implements store.State.
func (d *draft) Held(id nostr.ID) (*nostr.Event, error) {
	sl := d.slot(id)
	if !sl.held {
		return nil, d.err
	}
	if sl.event == nil {
		e, err := d.s.one(d.ctx, d.tx, id)
		if err != nil {
			return nil, err
		}
		sl.event = e
	}
	return sl.event, nil
}

// Current implements store.State.
func (d *draft) Current(a nostr.Address) (store.Held, bool) {
	key := store.AddressKey(a)
	if _, ok := d.current[key]; !ok {
		d.fail(d.loadCurrent([][32]byte{key}))
	}
	k := d.current[key]
	return k.value, k.found
}

// RefusedAs implements store.State.
func (d *draft) RefusedAs(id nostr.ID) (string, bool) {
	k := d.refusal(id)
	return k.value.Reason, k.found
}

func (d *draft) refusal(id nostr.ID) known[store.Refusal] {
	if _, ok := d.refused[id]; !ok {
		d.fail(d.loadRefused([]nostr.ID{id}))
	}
	return d.refused[id]
}

// Asked implements store.State.
func (d *draft) Asked(id nostr.ID, by nostr.PubKey) bool {
	if _, ok := d.asked[ask{id, by}]; !ok {
		d.fail(d.loadAsked([]ask{{id, by}}))
	}
	return d.asked[ask{id, by}].found
}

// DeletedUpTo implements store.State.
func (d *draft) DeletedUpTo(a nostr.Address) (int64, bool) {
	key := store.AddressKey(a)
	if _, ok := d.bounds[key]; !ok {
		d.fail(d.loadBounds([][32]byte{key}))
	}
	return d.bounds[key].value, d.bounds[key].found
}

// Floor implements store.State.
func (d *draft) Floor(a nostr.Address) (store.Version, bool) {
	k := d.floor(store.AddressKey(a))
	return k.value, k.found
}

func (d *draft) floor(key [32]byte) known[store.Version] {
	if _, ok := d.floors[key]; !ok {
		d.fail(d.loadFloors([][32]byte{key}))
	}
	return d.floors[key]
}

// VanishedUpTo implements store.State.
func (d *draft) VanishedUpTo(k nostr.PubKey) (int64, bool) {
	if _, ok := d.vanished[k]; !ok {
		d.fail(d.loadVanished([]nostr.PubKey{k}))
	}
	return d.vanished[k].value, d.vanished[k].found
}

// apply writes a decision into the draft.
func (d *draft) apply(c *store.Change) error {
	e := c.Event
	for _, gone := range c.Drops {
		if err := d.drop(gone.ID, gone.Reason); err != nil {
			return err
		}
	}
	for _, id := range c.Asked {
		if !d.Asked(id, e.PubKey) {
			d.asked[ask{id, e.PubKey}] = known[struct{}]{found: true, changed: true}
		}
	}
	for _, a := range c.Bounds {
		if t, ok := d.DeletedUpTo(a); !ok || t < e.CreatedAt {
			d.bounds[store.AddressKey(a)] = known[int64]{e.CreatedAt, true, true}
		}
	}
	for _, f := range c.Floors {
		d.raise(f)
	}
	if c.Refuse != "" {
		d.refuse(store.Refusal{ID: e.ID, Reason: c.Refuse, At: d.now})
	}
	if c.Outcome == store.Stored {
		d.slots[e.ID] = &slot{held: true, saved: d.slot(e.ID).saved, event: e}
		d.fresh = append(d.fresh, e.ID)
		d.unrefuse(e.ID)
		if a, ok := e.Address(); ok {
			d.current[store.AddressKey(a)] = known[store.Held]{value: store.HeldOf(e), found: true}
		}
	}
	if c.Vanish {
		return d.vanish(e)
	}
	return d.err
}

// vanish removes what a vanish request covers.
func (d *draft) vanish(e *nostr.Event) error {
	if t, ok := d.VanishedUpTo(e.PubKey); !ok || t < e.CreatedAt {
		d.vanished[e.PubKey] = known[int64]{e.CreatedAt, true, true}
	}
	candidates, err := d.covered(e.PubKey, e.CreatedAt)
	if err != nil {
		return err
	}
	for _, id := range append(candidates, d.fresh...) {
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

func (d *draft) raise(f store.Floor) {
	key := store.AddressKey(f.Address)
	if k := d.floor(key); !k.found || f.Version.Beats(k.value) {
		d.floors[key] = known[store.Version]{f.Version, true, true}
	}
}

func (d *draft) drop(id nostr.ID, reason string) error {
	e, err := d.Held(id)
	if err != nil || e == nil {
		return err
	}
	d.slot(id).held = false
	if a, ok := e.Address(); ok {
		key := store.AddressKey(a)
		if cur, ok := d.Current(a); ok && cur.ID == id {
			d.current[key] = known[store.Held]{}
		}
	}
	d.refuse(store.Refusal{ID: id, Reason: reason, At: d.now})
	return d.err
}

// refuse enters r. A binding entry is never replaced by an advisory one.
func (d *draft) refuse(r store.Refusal) {
	old := d.refusal(r.ID)
	if old.found && (old.value.Reason == r.Reason || store.Binding(old.value.Reason)) {
		return
	}
	d.refused[r.ID] = known[store.Refusal]{r, true, true}
	if store.Bounded(r.Reason) {
		d.advisory = append(d.advisory, r.ID)
	}
}

func (d *draft) unrefuse(id nostr.ID) {
	if d.refusal(id).found {
		d.refused[id] = known[store.Refusal]{changed: true}
	}
}
