package eventlog

import (
	"context"
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// set is a negentropy set over the slices of a snapshot. It copies nothing: ranks, items and
// sums are found in the slices by search. Whoever reconciles asks in rising order, so each search starts
// from what the last one found.
type set struct {
	slices []*slice
	n      int
	memo   map[int]negentropy.Sum // sums before ranks that were asked for

	at     int    // rank at which pos stands
	pos    []spot // where that is in each slice
	heads  []negentropy.Item
	headed bool   // heads are the items at pos
	high   int    // rank that the last Search found
	top    []spot // where that is in each slice
	marks  []mark // the last sum in each slice

	win []window // room for locate
	cut []window
}

// spot is a place in a slice and its rank.
type spot struct{ place, rank int }

// mark is a sum that is known.
type mark struct {
	place int
	sum   negentropy.Sum // of the unmasked places below place
}

// Set implements store.Store. It costs a look at each segment: what a filter has in
// a segment is kept, with its sums, in a cache of Options.SetCacheBytes.
func (s *Store) Set(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (negentropy.Set, func(), error) {
	if err := s.check(ctx); err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(filters, func(f nostr.Filter) bool { return f.Search != "" }) {
		v, err := s.vector(ctx, filters, view, now)
		return v, func() {}, err
	}
	n := s.snapshot()
	out := &set{memo: make(map[int]negentropy.Sum)}
	g := s.gatherer(n, filters, &view, now)
	for _, seg := range n.v.segments() {
		if seg.n == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			n.release()
			return nil, nil, err
		}
		p, o, err := g.part(seg)
		if err != nil {
			n.release()
			return nil, nil, err
		}
		out.add(g.cut(p, o))
	}
	p := g.head()
	out.add(g.cut(p, &overlay{}))
	out.begin()
	return out, n.release, nil
}

// gatherer makes the parts of one set.
type gatherer struct {
	n      snapshot
	scans  []*scan
	key    string
	since  int64
	until  int64
	now    int64
	simple bool // all of a segment: no condition but time, and nothing is hidden
}

func (s *Store) gatherer(n snapshot, filters []nostr.Filter, view *store.View, now int64) *gatherer {
	g := &gatherer{n: n, now: now, since: minTime, until: maxTime}
	fs := slices.Clone(filters)
	if len(fs) == 1 && !fs[0].MatchesNothing() {
		// The time bounds of a single filter are cut from the part, which so serves all bounds.
		if fs[0].Since != nil {
			g.since = *fs[0].Since
		}
		if fs[0].Until != nil {
			g.until = *fs[0].Until
		}
		fs[0].Since, fs[0].Until = nil, nil
	}
	var key []byte
	for i := range fs {
		fs[i].Limit = nil
		p := s.plan(&fs[i], view)
		g.scans = append(g.scans, &scan{n: n, p: p, now: now, budget: &budget{}})
		key = append(fs[i].AppendJSON(key), '\n')
		if !p.nothing && p.ids == nil && len(p.groups) == 0 && p.since == minTime && p.until == maxTime && len(view.Hide) == 0 {
			g.simple = true
		}
	}
	for _, k := range view.Hide {
		key = append(key, 'h', byte(k), byte(k>>8))
	}
	for _, k := range view.Reveal {
		key = append(append(key, 'r'), k[:]...)
	}
	g.key = string(key)
	return g
}

// part returns what the filters have in a segment.
func (g *gatherer) part(seg *segment) (*part, *overlay, error) {
	k := partKey{seg.uid, g.key}
	cache := g.n.s.cache
	p, o := cache.get(k)
	if p != nil && o != nil && o.fits(seg, g.n.vis, g.now) {
		return p, o, nil
	}
	if p == nil {
		p = &part{seg: seg, n: seg.n}
		if !g.simple {
			for i, c := range g.scans {
				docs, err := c.documents(seg)
				if err != nil {
					return nil, nil, err
				}
				if i == 0 {
					p.docs = docs
				} else {
					p.docs = mergeNumbers(make([]uint32, 0, len(p.docs)+len(docs)), p.docs, docs)
				}
			}
			if p.docs == nil {
				p.docs = []uint32{}
			}
			p.n = len(p.docs)
			p.sumUp()
		}
	}
	o, keep := p.mask(g.n.vis, g.now)
	if keep {
		cache.put(k, p, o)
	}
	return p, o, nil
}

// head returns what the filters have in the head. It is kept until the next change.
func (g *gatherer) head() *part {
	h := g.n.v.head
	k := partKey{h.uid, g.key}
	if p, o := g.n.s.cache.get(k); p != nil && o.vis == g.n.vis && o.from <= g.now && g.now < o.until {
		return p
	}
	o := &overlay{vis: g.n.vis}
	o.from, o.until = h.holds(g.now)
	items := []negentropy.Item{}
	for _, c := range g.scans {
		if c.p.nothing {
			continue
		}
		for _, h := range c.head(-1) {
			items = append(items, negentropy.Item{Time: uint64(h.doc.at), ID: h.id})
		}
	}
	slices.SortFunc(items, negentropy.Item.Compare)
	items = slices.Compact(items)
	p := &part{items: items, n: len(items)}
	p.sumUp()
	g.n.s.cache.put(k, p, o)
	return p
}

// cut applies the time bounds.
func (g *gatherer) cut(p *part, o *overlay) *slice {
	lo, hi := 0, p.n
	if g.since > 0 {
		lo = p.lower(&negentropy.Item{Time: uint64(g.since)})
	}
	switch {
	case g.until < 0:
		hi = lo
	case g.until < maxTime:
		hi = p.lower(&negentropy.Item{Time: uint64(g.until) + 1})
	}
	return newSlice(p, o, lo, hi)
}

// vector answers searches: their matches are not kept.
func (s *Store) vector(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (negentropy.Set, error) {
	n := s.snapshot()
	defer n.release()
	all := &merged{limit: -1}
	for i := range filters {
		st, err := s.search(n, s.plan(&filters[i], &view), now, -1)
		if err != nil {
			return nil, err
		}
		all.from = append(all.from, st)
	}
	var items []negentropy.Item
	for {
		h, ok, err := all.next()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if !ok {
			return negentropy.NewVector(items), nil
		}
		items = append(items, negentropy.Item{Time: uint64(h.doc.at), ID: h.id})
	}
}

func (t *set) add(s *slice) {
	if s.n > 0 {
		t.slices = append(t.slices, s)
		t.n += s.n
	}
}

// Len implements negentropy.Set.
func (t *set) Len() int { return t.n }

// begin stands the set at its beginning.
func (t *set) begin() {
	t.pos, t.top = make([]spot, len(t.slices)), make([]spot, len(t.slices))
	t.heads, t.marks = make([]negentropy.Item, len(t.slices)), make([]mark, len(t.slices))
	for i, s := range t.slices {
		t.pos[i] = spot{s.lo, 0}
		t.top[i] = t.pos[i]
		t.marks[i] = mark{s.lo, s.before}
	}
}

// Search implements negentropy.Set.
func (t *set) Search(b negentropy.Item) int {
	rank := 0
	var sum negentropy.Sum
	for i, s := range t.slices {
		place := s.gallop(&b, t.top[i].place, s.lo, s.hi)
		t.top[i] = spot{place, s.countTo(place) - s.first}
		rank += t.top[i].rank
		sum = sum.Plus(t.sumTo(i, place))
	}
	t.high = rank
	t.remember(rank, sum)
	return rank
}

// sumTo returns the sum of a slice's items below a place.
func (t *set) sumTo(i, place int) negentropy.Sum {
	s, m := t.slices[i], &t.marks[i]
	if from := place - m.place; from >= 0 && from <= blockDocs/2 {
		s.addUp(&m.sum, m.place, place)
	} else {
		m.sum = s.sumTo(place)
	}
	m.place = place
	return m.sum.Minus(s.before)
}

// maxMemo bounds the sums that a set remembers.
const maxMemo = 1 << 12

func (t *set) remember(rank int, sum negentropy.Sum) {
	if len(t.memo) >= maxMemo {
		clear(t.memo)
	}
	t.memo[rank] = sum
}

// Item implements negentropy.Set.
func (t *set) Item(i int) negentropy.Item {
	if i == t.at+1 {
		t.step()
	} else if i != t.at {
		t.locate(i)
	}
	return t.heads[t.smallest()]
}

// step goes on to the next item.
func (t *set) step() {
	b := t.smallest()
	s := t.slices[b]
	p := &t.pos[b]
	p.place = s.place(p.rank) + 1
	p.rank++
	if p.rank < s.n {
		t.heads[b] = s.item(s.place(p.rank))
	}
	t.at++
}

// smallest returns the slice whose item at pos comes first.
func (t *set) smallest() int {
	if !t.headed {
		for i, s := range t.slices {
			if p := t.pos[i].rank; p < s.n {
				t.heads[i] = s.item(s.place(p))
			}
		}
		t.headed = true
	}
	best := -1
	for i, s := range t.slices {
		if t.pos[i].rank < s.n && (best < 0 || t.heads[i].Compare(t.heads[best]) < 0) {
			best = i
		}
	}
	return best
}

// window is where in a slice the search of locate still looks: places, and their ranks.
type window struct{ lo, hi, loRank, hiRank int }

// windows returns where rank k can be: between the ranks whose spots are known.
func (t *set) windows(k int) []window {
	var low, high []spot
	switch lower, upper := min(t.at, t.high), max(t.at, t.high); {
	case upper <= k:
		low = t.spots(upper)
	case lower >= k:
		high = t.spots(lower)
	default:
		low, high = t.spots(lower), t.spots(upper)
	}
	win := t.win[:0]
	for i, s := range t.slices {
		w := window{s.lo, s.hi, 0, s.n}
		if low != nil {
			w.lo, w.loRank = low[i].place, low[i].rank
		}
		if high != nil {
			w.hi, w.hiRank = high[i].place, high[i].rank
		}
		win = append(win, w)
	}
	return win
}

// spots returns those of a rank that is known.
func (t *set) spots(k int) []spot {
	if k == t.at {
		return t.pos
	}
	return t.top
}

// locate sets pos so that k items are before it: it narrows a window in every slice around
// the middle item of the widest.
func (t *set) locate(k int) {
	win := t.windows(k)
	before := k
	for i := range win {
		before -= win[i].loRank
	}
	cut := t.cut[:0]
	for before > 0 {
		wide := 0
		for i := range win {
			if win[i].hiRank-win[i].loRank > win[wide].hiRank-win[wide].loRank {
				wide = i
			}
		}
		w := t.slices[wide]
		pivotPlace := w.place((win[wide].loRank + win[wide].hiRank) / 2)
		pivot := w.item(pivotPlace)
		below := 0
		cut = cut[:0]
		for i, s := range t.slices {
			at, rank := pivotPlace, 0
			if i != wide {
				at = s.lowerIn(&pivot, win[i].lo, win[i].hi)
			}
			rank = s.countTo(at) - s.first
			below += rank - win[i].loRank
			cut = append(cut, window{lo: at, loRank: rank})
		}
		if before <= below {
			for i := range win {
				win[i].hi, win[i].hiRank = cut[i].lo, cut[i].loRank
			}
			if before == below {
				copy(win, cut)
				break
			}
			continue
		}
		before -= below + 1 // and the pivot itself
		for i := range win {
			win[i].lo, win[i].loRank = cut[i].lo, cut[i].loRank
		}
		win[wide].lo, win[wide].loRank = pivotPlace+1, win[wide].loRank+1
	}
	for i := range win {
		t.pos[i] = spot{win[i].lo, win[i].loRank}
	}
	t.at, t.headed = k, false
	t.win, t.cut = win, cut
}

// prefix returns the sum of the first k items.
func (t *set) prefix(k int) (sum negentropy.Sum) {
	if k == 0 {
		return sum
	}
	if s, ok := t.memo[k]; ok {
		return s
	}
	if k == t.n {
		for _, s := range t.slices {
			sum = sum.Plus(s.sumTo(s.hi).Minus(s.before))
		}
	} else {
		if t.at != k {
			t.locate(k)
		}
		for i := range t.slices {
			sum = sum.Plus(t.sumTo(i, t.pos[i].place))
		}
	}
	t.remember(k, sum)
	return sum
}

// Sum implements negentropy.Set.
func (t *set) Sum(lo, hi int) negentropy.Sum {
	if lo >= hi {
		return negentropy.Sum{}
	}
	return t.prefix(hi).Minus(t.prefix(lo))
}

// FingerprintRange implements store.Store.
func (s *Store) FingerprintRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([16]byte, error) {
	set, release, err := s.Set(ctx, []nostr.Filter{store.Within(f, since, until)}, store.View{}, now)
	if err != nil {
		return [16]byte{}, err
	}
	defer release()
	return negentropy.RangeFingerprint(set, 0, set.Len()), nil
}

// EnumerateRange implements store.Store.
func (s *Store) EnumerateRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([]nostr.ID, error) {
	set, release, err := s.Set(ctx, []nostr.Filter{store.Within(f, since, until)}, store.View{}, now)
	if err != nil {
		return nil, err
	}
	defer release()
	ids := make([]nostr.ID, set.Len())
	for i := range ids {
		ids[i] = set.Item(i).ID
	}
	return ids, nil
}
