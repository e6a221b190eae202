package eventlog

import (
	"context"
	"errors"
	"iter"
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// state answers the membership rules' look-ups for the writer.
type state struct{ s *Store }

func (t state) Has(id nostr.ID) bool {
	_, _, _, ok := t.s.latest().find(&id)
	return ok
}

func (t state) Held(id nostr.ID) (*nostr.Event, error) {
	n := t.s.latest()
	d, e, _, ok := n.find(&id)
	if !ok || e != nil {
		return e, nil
	}
	e, err := n.read(&d)
	if errors.Is(err, errDamaged) {
		return nil, nil // set aside: no longer held
	}
	return e, err
}

func (t state) Current(a nostr.Address) (store.Held, bool) {
	d, ok := t.s.latest().current(t.s.hash.address(&a))
	return store.Held{Version: store.Version{CreatedAt: d.at, ID: d.id}, Expires: d.expires}, ok
}

// current returns the living document of an address.
func (n snapshot) current(t term) (doc, bool) {
	for d := range n.having(t) {
		return d, true
	}
	return doc{}, false
}

// having yields the living documents that have a term, in no particular order.
func (n snapshot) having(t term) iter.Seq2[doc, place] {
	return func(yield func(doc, place) bool) {
		h := n.v.head
		h.mu.RLock()
		docs := h.docs
		var live []uint32
		for _, i := range h.terms[t] {
			if h.seen(i, n.vis) {
				live = append(live, i)
			}
		}
		h.mu.RUnlock()
		for _, i := range live {
			if !yield(docs[i], place{nil, i}) {
				return
			}
		}
		for _, list := range [2][]*segment{n.v.mem, n.v.disk} {
			for _, s := range list {
				l := s.postings(t)
				for i := range l.len() {
					if d := l.get(i); s.live(d, n.vis) && !yield(s.doc(d), place{s, d}) {
						return
					}
				}
			}
		}
	}
}

func (t state) RefusedAs(id nostr.ID) (string, bool) {
	r, ok := t.s.tables.refusal(id)
	return r.Reason, ok
}

func (t state) Asked(id nostr.ID, by nostr.PubKey) bool {
	t.s.tables.mu.RLock()
	defer t.s.tables.mu.RUnlock()
	_, ok := t.s.tables.asked[asked{id, by}]
	return ok
}

func (t state) DeletedUpTo(a nostr.Address) (int64, bool) {
	t.s.tables.mu.RLock()
	defer t.s.tables.mu.RUnlock()
	v, ok := t.s.tables.bounds[a]
	return v, ok
}

func (t state) Floor(a nostr.Address) (store.Version, bool) {
	t.s.tables.mu.RLock()
	defer t.s.tables.mu.RUnlock()
	v, ok := t.s.tables.floors[a]
	return v, ok
}

func (t state) VanishedUpTo(k nostr.PubKey) (int64, bool) {
	t.s.tables.mu.RLock()
	defer t.s.tables.mu.RUnlock()
	v, ok := t.s.tables.vanished[k]
	return v, ok
}

// Insert implements store.Store. What is offered at the same time shares a sync; a batch above
// 2048 events is cut into pieces that are durable one after another.
func (s *Store) Insert(ctx context.Context, events []*nostr.Event, now int64) ([]store.Outcome, error) {
	if len(events) == 0 {
		return nil, s.check(ctx)
	}
	out := make([]store.Outcome, 0, len(events))
	for part := range chunks(events) {
		if err := s.room(ctx, part); err != nil {
			return nil, err
		}
		got := make([]store.Outcome, len(part))
		err := s.do(ctx, len(part), func() error {
			s.clock = max(s.clock, now)
			for i, e := range part {
				o, err := s.insert(e, now)
				if err != nil {
					return err
				}
				got[i] = o
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}

// chunks cuts a batch into pieces of at most chunkEvents events and about 4 MiB.
func chunks(events []*nostr.Event) iter.Seq[[]*nostr.Event] {
	return func(yield func([]*nostr.Event) bool) {
		for len(events) > 0 {
			n, cost := 0, 0
			for n < len(events) && (n == 0 || cost < chunkEvents) {
				cost += 1 + len(events[n].JSON())/2048
				n++
			}
			if !yield(events[:n:n]) {
				return
			}
			events = events[n:]
		}
	}
}

func (s *Store) insert(e *nostr.Event, now int64) (store.Outcome, error) {
	c, err := s.rules.Decide(state{s}, e, now)
	if err != nil {
		return 0, err
	}
	if c.Outcome == store.Stored && s.beyond(e) {
		s.healed(e.ID)
		return store.Refused, nil
	}
	fx := effects{at: now, floors: c.Floors}
	n := s.latest()
	for _, d := range c.Drops {
		if old, _, at, ok := n.find(&d.ID); ok {
			fx.drops = append(fx.drops, s.kill(&old, at, d.Reason))
		}
	}
	if c.Refuse != "" && s.tables.needs(e.ID, c.Refuse) {
		fx.refused = append(fx.refused, store.Refusal{ID: e.ID, Reason: c.Refuse, At: now})
	}
	for _, id := range c.Asked {
		if !(state{s}).Asked(id, e.PubKey) {
			fx.asked = append(fx.asked, asked{id, e.PubKey})
		}
	}
	for _, a := range c.Bounds {
		if old, ok := (state{s}).DeletedUpTo(a); !ok || old < e.CreatedAt {
			fx.bounds = append(fx.bounds, bound{a, e.CreatedAt})
		}
	}
	if c.Vanish {
		fx.vanished = append(fx.vanished, vanish{e.PubKey, e.CreatedAt})
	}
	if c.Outcome == store.Stored {
		s.add(e, &fx)
	} else {
		s.add(nil, &fx)
		s.healed(e.ID) // it would not be kept
	}
	if c.Vanish {
		return c.Outcome, s.vanish(vanish{e.PubKey, e.CreatedAt}, now)
	}
	return c.Outcome, nil
}

// vanish removes what a vanish request covers. The removals are records of their own after
// the request's; Open does again what a crash cut off.
func (s *Store) vanish(v vanish, now int64) error {
	n := s.latest()
	fx := effects{at: now}
	flush := func() {
		s.add(nil, &fx)
		fx = effects{at: now}
	}
	for _, t := range []term{s.hash.author(&v.key), s.hash.tag('p', v.key.String())} {
		for d, at := range n.having(t) {
			gone, err := s.vanishes(n, &d, v, t)
			if err != nil {
				flush()
				return err
			}
			if gone {
				fx.drops = append(fx.drops, s.kill(&d, at, store.ReasonDeleted))
			}
			if len(fx.drops) == 1000 {
				flush()
			}
		}
	}
	flush()
	return nil
}

// vanishes says whether a vanish covers the document, which was found by term t.
func (s *Store) vanishes(n snapshot, d *doc, v vanish, t term) (bool, error) {
	if d.at > v.until {
		return false, nil
	}
	switch {
	case d.kind == 62: // only the event itself says whether it named us
		_, e, _, ok := n.find(&d.id)
		if ok && e == nil {
			var err error
			if e, err = n.read(d); errors.Is(err, errDamaged) {
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
		return ok && s.rules.Vanishing(e, v.key, v.until), nil
	case t == s.hash.author(&v.key):
		return true, nil
	}
	return d.kind == 1059, nil
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, ids []nostr.ID, reason string, now int64) (int, error) {
	held := 0
	for part := range slices.Chunk(ids, chunkEvents) {
		err := s.do(ctx, len(part), func() error {
			s.clock = max(s.clock, now)
			n, err := s.purge(part, reason, now)
			held += n
			return err
		})
		if err != nil {
			return held, err
		}
	}
	return held, s.check(ctx)
}

// purge removes ids and refuses them from now on. Their addresses keep the purged version
// as the floor, so that older versions do not come in their place; what goes for lack of room or for its
// age needs none, as older versions are refused or go for the same reason.
func (s *Store) purge(ids []nostr.ID, reason string, now int64) (held int, err error) {
	fx := effects{at: now}
	for _, id := range ids {
		d, _, at, ok := s.latest().find(&id)
		if !ok {
			if s.tables.needs(id, reason) {
				fx.refused = append(fx.refused, store.Refusal{ID: id, Reason: reason, At: now})
			}
			continue
		}
		fx.drops = append(fx.drops, s.kill(&d, at, reason))
		if d.expires <= now {
			continue
		}
		held++
		if reason != store.ReasonRetention && (d.kind.IsReplaceable() || d.kind.IsAddressable()) {
			var e *nostr.Event
			if e, err = s.latest().eventOf(&d, at); err != nil && !isDamaged(err) {
				break
			}
			if err = nil; e != nil {
				a, _ := e.Address()
				fx.floors = append(fx.floors, store.Floor{Address: a, Version: store.VersionOf(e)})
			}
		}
	}
	s.add(nil, &fx)
	return held, err
}

// Refuse implements store.Store. Ids that are held are left alone.
func (s *Store) Refuse(ctx context.Context, refusals []store.Refusal) error {
	for part := range slices.Chunk(refusals, chunkEvents) {
		err := s.do(ctx, len(part), func() error {
			var fx effects
			for _, r := range part {
				if !(state{s}).Has(r.ID) && s.tables.needs(r.ID, r.Reason) {
					fx.refused = append(fx.refused, r)
				}
			}
			s.add(nil, &fx)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.check(ctx)
}

// Refusal implements store.Store.
func (s *Store) Refusal(ctx context.Context, id nostr.ID) (store.Refusal, bool, error) {
	r, ok := s.tables.refusal(id)
	return r, ok, s.check(ctx)
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context) iter.Seq2[store.Refusal, error] {
	return func(yield func(store.Refusal, error) bool) {
		if err := s.check(ctx); err != nil {
			yield(store.Refusal{}, err)
			return
		}
		s.tables.mu.RLock()
		rs := make([]store.Refusal, 0, len(s.tables.refused))
		for id, r := range s.tables.refused {
			rs = append(rs, store.Refusal{ID: id, Reason: r.reason, At: r.at})
		}
		s.tables.mu.RUnlock()
		for _, r := range rs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Arrivals implements store.Store. The numbers are those of the log's records: strictly increasing,
// not gapless, and kept through restarts, merges and rewrites.
func (s *Store) Arrivals(ctx context.Context, after uint64, now int64) iter.Seq2[store.Arrival, error] {
	return func(yield func(store.Arrival, error) bool) {
		if err := s.check(ctx); err != nil {
			yield(store.Arrival{}, err)
			return
		}
		n := s.snapshot()
		defer n.release()
		for d, at := range n.arrivals(after) {
			if err := ctx.Err(); err != nil {
				yield(store.Arrival{}, err)
				return
			}
			if d.expires <= now {
				continue
			}
			e, err := n.eventOf(&d, at)
			if errors.Is(err, errDamaged) {
				continue
			}
			if !yield(store.Arrival{Seq: d.lsn, Event: e}, err) || err != nil {
				return
			}
		}
	}
}

// eventOf returns the event of a document at a place.
func (n snapshot) eventOf(d *doc, at place) (*nostr.Event, error) {
	if at.seg != nil {
		return n.read(d)
	}
	n.v.head.mu.RLock()
	defer n.v.head.mu.RUnlock()
	return n.v.head.events[at.n], nil
}

// arrivals yields the living documents with an lsn above that, in the order of arrival.
func (n snapshot) arrivals(after uint64) iter.Seq2[doc, place] {
	return func(yield func(doc, place) bool) {
		segs := n.v.segments()
		at := make([]int, len(segs))
		for i, s := range segs {
			at[i] = s.arrivedAfter(after)
		}
		for {
			best, lsn := -1, uint64(0)
			for i, s := range segs {
				for at[i] < s.n && !s.live(s.arrived(at[i]), n.vis) {
					at[i]++
				}
				if at[i] < s.n {
					if l := s.lsn(s.arrived(at[i])); best < 0 || l < lsn {
						best, lsn = i, l
					}
				}
			}
			if best < 0 {
				break
			}
			d := segs[best].arrived(at[best])
			at[best]++
			if !yield(segs[best].doc(d), place{segs[best], d}) {
				return
			}
		}
		n.headArrivals(after, yield)
	}
}

// headArrivals yields those of the head, which are younger than all segments.
func (n snapshot) headArrivals(after uint64, yield func(doc, place) bool) {
	h := n.v.head
	h.mu.RLock()
	var live []doc
	var at []uint32
	for i := range h.docs {
		if h.docs[i].lsn > after && h.seen(uint32(i), n.vis) {
			live, at = append(live, h.docs[i]), append(at, uint32(i))
		}
	}
	h.mu.RUnlock()
	for i := range live {
		if !yield(live[i], place{nil, at[i]}) {
			return
		}
	}
}
