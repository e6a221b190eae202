//go:build lmdb && cgo

package lmdb

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"iter"
	"slices"

	db "github.com/PowerDNS/lmdb-go/lmdb"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

const (
	pageRows = 500    // events read at a time: an answer of any length holds no more, and no transaction while its reader is slow
	pageLook = 20_000 // index entries looked at in one transaction
)

// plan is the way to the events of a filter: the index keys under which they stand, or their ids.
type plan struct {
	f     *nostr.Filter
	terms store.Terms
	keys  [][]byte
	ids   []nostr.ID
	exact bool // whatever stands under the keys, in the filter's time, matches
}

// plan picks the filter's narrowest condition: ids, else the longest word of a search, else the values of a tag, else author and kind, else authors,
// else kinds, else time alone.
func planOf(f *nostr.Filter) plan {
	p := plan{f: f, terms: store.ParseSearch(f.Search)}
	switch {
	case f.MatchesNothing():
		p.exact = true
	case f.IDs != nil:
		p.ids = f.IDs
	case len(p.terms) > 0:
		longest := slices.MaxFunc(p.terms, func(a, b string) int { return len(a) - len(b) })
		for _, w := range store.WordKeys(slices.Values([]string{longest})) {
			p.keys = append(p.keys, wordKey(w))
		}
	case len(f.Tags) > 0:
		for _, v := range f.Tags[0].Values {
			p.keys = append(p.keys, tagKey(f.Tags[0].Letter, v))
		}
		p.exact = len(f.Tags) == 1 && f.Authors == nil
	case f.Authors != nil && f.Kinds != nil:
		for i := range f.Authors {
			for _, k := range f.Kinds {
				p.keys = append(p.keys, authorKindKey(&f.Authors[i], k))
			}
		}
		p.exact = true
	case f.Authors != nil:
		for i := range f.Authors {
			p.keys = append(p.keys, authorKey(&f.Authors[i]))
		}
		p.exact = true
	case f.Kinds != nil:
		for _, k := range f.Kinds {
			p.keys = append(p.keys, kindKey(k))
		}
		p.exact = true
	default:
		p.keys, p.exact = [][]byte{{byTime}}, true
	}
	slices.SortFunc(p.keys, bytes.Compare)
	p.keys = slices.CompactFunc(p.keys, bytes.Equal)
	return p
}

// from is the first place of the filter's time.
func (p *plan) from() place {
	if p.f.Until != nil {
		return placeOf(*p.f.Until, new(nostr.ID))
	}
	return place{}
}

// before says whether a place is past the end of the filter's time.
func (p *plan) over(at *place) bool { return p.f.Since != nil && at.at() < *p.f.Since }

// walk calls f with the places under a key from one on, in order, until it returns false.
func walk(txn *db.Txn, index db.DBI, key []byte, from place, f func(p place, v []byte) (bool, error)) error {
	l, err := newLane(txn, index, key, from)
	if err != nil {
		return err
	}
	defer l.c.Close()
	for !l.done {
		more, err := f(l.at, l.v)
		if err != nil || !more {
			return err
		}
		if err := l.step(); err != nil {
			return err
		}
	}
	return nil
}

// lane is a cursor over the places under one key.
type lane struct {
	c    *db.Cursor
	key  []byte
	at   place
	v    []byte
	done bool
}

func newLane(txn *db.Txn, index db.DBI, key []byte, from place) (*lane, error) {
	c, err := txn.OpenCursor(index)
	if err != nil {
		return nil, err
	}
	l := &lane{c: c, key: key}
	if err := l.take(c.Get(append(bytes.Clone(key), from[:]...), nil, db.SetRange)); err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

func (l *lane) step() error { return l.take(l.c.Get(nil, nil, db.Next)) }

func (l *lane) take(key, v []byte, err error) error {
	if db.IsNotFound(err) || err == nil && (len(key) != len(l.key)+placeLen || !bytes.HasPrefix(key, l.key)) {
		l.done = true
		return nil
	}
	if err != nil {
		return err
	}
	if len(v) != entryLen {
		return damaged("index")
	}
	l.at, l.v = place(key[len(l.key):]), v
	return nil
}

// lanes is a heap of lanes by their places.
type lanes []*lane

func (h lanes) Len() int           { return len(h) }
func (h lanes) Less(i, j int) bool { return bytes.Compare(h[i].at[:], h[j].at[:]) < 0 }
func (h lanes) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lanes) Push(x any)        { *h = append(*h, x.(*lane)) }
func (h *lanes) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// scan calls f with each place of a plan from one on, once and in order, until it returns false.
func (s *Store) scan(txn *db.Txn, p *plan, from place, f func(at place, v []byte) (bool, error)) error {
	if p.ids != nil {
		return s.scanIDs(txn, p, from, f)
	}
	var h lanes
	defer func() {
		for _, l := range h {
			l.c.Close()
		}
	}()
	for _, key := range p.keys {
		l, err := newLane(txn, s.index, key, from)
		if err != nil {
			return err
		}
		if l.done || p.over(&l.at) {
			l.c.Close()
			continue
		}
		h = append(h, l)
	}
	heap.Init(&h)
	var last place
	for first := true; len(h) > 0; first = false {
		l := h[0]
		if first || l.at != last {
			last = l.at
			if more, err := f(l.at, l.v); err != nil || !more {
				return err
			}
		}
		if err := l.step(); err != nil {
			return err
		}
		if l.done || p.over(&l.at) {
			l.c.Close()
			heap.Pop(&h)
			continue
		}
		heap.Fix(&h, 0)
	}
	return nil
}

// scanIDs is scan over the ids that a filter names.
func (s *Store) scanIDs(txn *db.Txn, p *plan, from place, f func(at place, v []byte) (bool, error)) error {
	type found struct {
		at place
		v  []byte
	}
	var all []found
	for _, id := range p.ids {
		v, err := get(txn, s.ids, id[:])
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if len(v) != 16 {
			return damaged("ids")
		}
		if at := placeOf(unS64(v[8:]), &id); bytes.Compare(at[:], from[:]) >= 0 && !p.over(&at) {
			all = append(all, found{at, append(bytes.Clone(v[:8]), 0, 0)})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return bytes.Compare(a.at[:], b.at[:]) })
	all = slices.CompactFunc(all, func(a, b found) bool { return a.at == b.at })
	for _, x := range all {
		if more, err := f(x.at, x.v); err != nil || !more {
			return err
		}
	}
	return nil
}

// cursor yields the events of one filter in the order of answers, a page at a time.
type cursor struct {
	s    *Store
	ctx  context.Context
	view *store.View
	now  int64
	plan
	left  int // of the filter's limit; negative: no limit
	at    place
	after bool // at was given already
	page  []*nostr.Event
	done  bool
}

func (s *Store) cursor(ctx context.Context, f *nostr.Filter, view *store.View, now int64) *cursor {
	c := &cursor{s: s, ctx: ctx, view: view, now: now, plan: planOf(f), left: -1}
	c.at = c.from()
	c.done = f.MatchesNothing()
	if f.Limit != nil {
		c.left = max(0, *f.Limit)
	}
	return c
}

// next returns the next event, nil at the end.
func (c *cursor) next() (*nostr.Event, error) {
	if c.left == 0 {
		return nil, nil
	}
	for len(c.page) == 0 {
		if c.done {
			return nil, nil
		}
		if err := c.s.view(c.ctx, c.load); err != nil {
			return nil, err
		}
	}
	e := c.page[0]
	c.page = c.page[1:]
	if c.left > 0 {
		c.left--
	}
	return e, nil
}

func (c *cursor) load(txn *db.Txn) error {
	size, looked := pageRows, 0
	if c.left > 0 {
		size = min(size, c.left)
	}
	c.page = nil
	stopped := false
	last := c.at
	err := c.s.scan(txn, &c.plan, c.at, func(at place, v []byte) (bool, error) {
		if c.after && at == last {
			return true, nil
		}
		if len(c.page) == size || looked == pageLook {
			stopped = true
			return false, nil
		}
		looked++
		c.at = at
		kind := nostr.Kind(binary.BigEndian.Uint16(v[8:]))
		if c.ids == nil && (c.f.Kinds != nil && !slices.Contains(c.f.Kinds, kind) || len(c.view.Reveal) == 0 && slices.Contains(c.view.Hide, kind)) {
			return true, nil
		}
		e, err := c.s.text(txn, v[:8], at.id())
		if err != nil {
			return false, err
		}
		if !e.ExpiredAt(c.now) && c.f.Matches(e) && c.view.Allows(e) && c.terms.Match(e) {
			c.page = append(c.page, e)
		}
		return true, nil
	})
	c.after, c.done = true, !stopped
	return err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id nostr.ID, now int64) (e *nostr.Event, err error) {
	err = s.view(ctx, func(txn *db.Txn) error {
		e, err = s.event(txn, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	if e == nil || e.ExpiredAt(now) {
		return nil, store.ErrNotFound
	}
	return e, nil
}

// Has implements store.Store.
func (s *Store) Has(ctx context.Context, id nostr.ID, now int64) (bool, error) {
	_, err := s.Get(ctx, id, now)
	if err == store.ErrNotFound {
		return false, nil
	}
	return err == nil, err
}

// Query implements store.Store.
func (s *Store) Query(ctx context.Context, filters []nostr.Filter, view store.View, limit int, now int64) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		var cursors []*cursor
		var heads []*nostr.Event
		for i := range filters {
			c := s.cursor(ctx, &filters[i], &view, now)
			e, err := c.next()
			if err != nil {
				yield(nil, err)
				return
			}
			if e != nil {
				cursors, heads = append(cursors, c), append(heads, e)
			}
		}
		if len(filters) == 0 {
			if err := s.view(ctx, func(*db.Txn) error { return nil }); err != nil {
				yield(nil, err)
			}
			return
		}
		for n := 0; len(heads) > 0; {
			first := slices.MinFunc(heads, order)
			if !yield(first, nil) {
				return
			}
			if n++; n == limit {
				return
			}
			for i := len(heads) - 1; i >= 0; i-- {
				if heads[i].ID != first.ID {
					continue
				}
				e, err := cursors[i].next()
				if err != nil {
					yield(nil, err)
					return
				}
				if heads[i] = e; e == nil {
					heads, cursors = slices.Delete(heads, i, i+1), slices.Delete(cursors, i, i+1)
				}
			}
		}
	}
}

// order is that of answers.
func order(a, b *nostr.Event) int {
	p, q := placeOf(a.CreatedAt, &a.ID), placeOf(b.CreatedAt, &b.ID)
	return bytes.Compare(p[:], q[:])
}
