package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

const (
	setsMost  = 64     // sets that are known, kept or too large
	goneKept  = 50_000 // removals that are listed; a set that is further behind is read anew
	behindMin = 2000   // arrivals that a kept set takes up whatever its size; else a quarter of it
)

// mark is a moment in the life of the tables: how many events have come and gone.
type mark struct{ seq, gone int64 }

// keptSet is the set of some filters, as it was after a mark. Whoever holds busy may change it; vectors never change.
type keptSet struct {
	busy    chan struct{}
	vector  *negentropy.Vector // nil: to be read
	large   bool               // read, and not kept
	mark    mark
	now     int64
	endings []ending // soonest first
}

// sets are the sets that were asked for last, so that the next NIP-77 session on the same filter reads only what came and went
// meanwhile. They are bounded in number and in items.
type sets struct {
	most int // items

	mu    sync.Mutex
	known map[string]*keptSet
	order []string // least recently used first
}

// setKey names a set: equal keys mean equal filters and views.
func setKey(filters []nostr.Filter, view *store.View) string {
	var b []byte
	for i := range filters {
		b = append(filters[i].AppendJSON(b), ' ')
	}
	for _, k := range view.Hide {
		b = append(b, byte(k>>8), byte(k))
	}
	b = append(b, ' ')
	for _, k := range view.Reveal {
		b = append(b, k[:]...)
	}
	return string(b)
}

func (c *sets) tooLarge(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[key]
	return k != nil && k.large
}

// take returns the set of a key for the caller alone, until it gives it back.
func (c *sets) take(ctx context.Context, key string) (*keptSet, error) {
	c.mu.Lock()
	k := c.known[key]
	if k == nil {
		if c.known == nil {
			c.known = make(map[string]*keptSet)
		}
		k = &keptSet{busy: make(chan struct{}, 1)}
		c.known[key] = k
		c.order = append(c.order, key)
	}
	c.mu.Unlock()
	select {
	case k.busy <- struct{}{}:
		return k, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// give returns a set after use and forgets others, the longest unused first, until all fit.
func (c *sets) give(key string, k *keptSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { <-k.busy }()
	if k.vector != nil {
		if k.large = k.vector.Len() > c.most; k.large {
			k.vector, k.endings = nil, nil
		}
	}
	if c.known[key] == k {
		i := slices.Index(c.order, key)
		c.order = append(slices.Delete(c.order, i, i+1), key)
	}
	items := 0
	for i := len(c.order) - 1; i >= 0; i-- {
		key, other := c.order[i], c.known[c.order[i]]
		idle := other == k
		if !idle {
			select {
			case other.busy <- struct{}{}:
				idle = true
				defer func() { <-other.busy }()
			default: // in use; it will look for itself
			}
		}
		if !idle {
			continue
		}
		n := 0
		if other.vector != nil {
			n = other.vector.Len()
		}
		if items += n; items > c.most || len(c.order)-i > setsMost {
			items -= n
			delete(c.known, key)
			c.order = slices.Delete(c.order, i, i+1)
		}
	}
}

// set returns the items of any of the filters, limits ignored, in order.
func (s *Store) set(ctx context.Context, filters []nostr.Filter, view *store.View, now int64) (*negentropy.Vector, error) {
	key := setKey(filters, view)
	k, err := s.sets.take(ctx, key)
	if err != nil {
		return nil, err
	}
	defer s.sets.give(key, k)
	// What comes or goes between the mark and the reading is read, and met once more the next time: taking it up twice changes nothing.
	m, err := s.marked(ctx)
	if err != nil {
		return nil, err
	}
	if k.vector != nil && now >= k.now {
		if ok, err := s.follow(ctx, k, m, filters, view, now); ok || err != nil {
			return k.vector, err
		}
	}
	k.vector = nil
	l, err := s.items(ctx, filters, view, now)
	if err != nil {
		return nil, err
	}
	k.vector, k.mark, k.now = negentropy.NewVector(l.items), m, now
	k.endings = l.endings
	slices.SortFunc(k.endings, func(a, b ending) int { return cmp.Compare(a.at, b.at) })
	return k.vector, nil
}

func (s *Store) marked(ctx context.Context) (m mark, err error) {
	row := s.read.QueryRowContext(ctx, `SELECT (SELECT value FROM meta WHERE name = 'seq'), (SELECT value FROM meta WHERE name = 'gone')`)
	if err := row.Scan(&m.seq, &m.gone); err != nil {
		return m, s.failure("read the counters", err)
	}
	return m, nil
}

// follow takes a kept set from its mark to m; false if too much has happened.
func (s *Store) follow(ctx context.Context, k *keptSet, m mark, filters []nostr.Filter, view *store.View, now int64) (bool, error) {
	if m.gone-k.mark.gone > goneKept || m.seq-k.mark.seq > int64(max(behindMin, k.vector.Len()/4)) {
		return false, nil
	}
	var gone []negentropy.Item
	if m.gone > k.mark.gone {
		var err error
		if gone, err = s.goneAfter(ctx, k.mark.gone); err != nil || gone == nil {
			return false, err
		}
	}
	over := 0
	for ; over < len(k.endings) && k.endings[over].at <= now; over++ {
		gone = append(gone, k.endings[over].Item)
	}
	var come listing
	if m.seq > k.mark.seq {
		for a, err := range s.Arrivals(ctx, uint64(k.mark.seq), now) {
			if err != nil {
				return false, err
			}
			if view.Allows(a.Event) && matchesAny(filters, a.Event) {
				come.addEvent(a.Event)
			}
		}
	}
	k.mark, k.now = m, now
	k.endings = k.endings[over:]
	if len(come.endings) > 0 {
		k.endings = append(slices.Clone(k.endings), come.endings...)
		slices.SortFunc(k.endings, func(a, b ending) int { return cmp.Compare(a.at, b.at) })
	}
	if len(gone)+len(come.items) > 0 {
		k.vector = negentropy.NewVector(changed(k.vector.Items(), gone, come.items))
	}
	return true, nil
}

func matchesAny(filters []nostr.Filter, e *nostr.Event) bool {
	return slices.ContainsFunc(filters, func(f nostr.Filter) bool {
		return !f.MatchesNothing() && f.Matches(e) && store.ParseSearch(f.Search).Match(e)
	})
}

// goneAfter lists the removals after one; nil if the list does not reach so far back.
func (s *Store) goneAfter(ctx context.Context, after int64) ([]negentropy.Item, error) {
	var out []negentropy.Item
	last := after
	err := s.each(ctx, s.read, `SELECT n, created_at, id FROM gone WHERE n > ? ORDER BY n`, []any{after}, func(rows *sql.Rows) error {
		var at int64
		var id sql.RawBytes
		if err := rows.Scan(&last, &at, &id); err != nil {
			return err
		}
		it := negentropy.Item{Time: uint64(at)}
		out = append(out, it)
		return fill(&out[len(out)-1].ID, id)
	})
	if err != nil || last-after != int64(len(out)) {
		return nil, err
	}
	return out, nil
}

// changed returns sorted items without those that went and with those that came; who did both is there.
func changed(items, gone, come []negentropy.Item) []negentropy.Item {
	slices.SortFunc(gone, negentropy.Item.Compare)
	slices.SortFunc(come, negentropy.Item.Compare)
	out := make([]negentropy.Item, 0, len(items)+len(come))
	for _, it := range items {
		for len(come) > 0 && come[0].Compare(it) < 0 {
			out, come = append(out, come[0]), come[1:]
		}
		for len(gone) > 0 && gone[0].Compare(it) < 0 {
			gone = gone[1:]
		}
		if len(gone) == 0 || gone[0] != it {
			out = append(out, it)
		}
	}
	return append(out, come...) // one that was there already is twice in it: a Vector keeps it once
}
