package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// hit is a matching document and, where it was read already, its event.
type hit struct {
	doc
	at place
	e  *nostr.Event
}

// before is NIP-01's order of answers: newest first, in a tie the lower id.
func (h *hit) before(o *hit) bool {
	if h.doc.at != o.doc.at {
		return h.doc.at > o.doc.at
	}
	return bytes.Compare(h.id[:], o.id[:]) < 0
}

func compareHits(a, b hit) int {
	switch {
	case a.before(&b):
		return -1
	case a.id == b.id:
		return 0
	}
	return 1
}

// stream yields hits in NIP-01's order. ok is false at the end.
type stream interface {
	next() (h hit, ok bool, err error)
}

// budget bounds how many events a search reads.
type budget struct{ left int }

// scan is what the streams of one filter share.
type scan struct {
	n      snapshot
	p      *plan
	now    int64
	budget *budget
}

// needsEvent says whether the event decides about a document of that kind.
func (c *scan) needsEvent(k nostr.Kind) bool { return len(c.p.search) > 0 || c.p.hidden(k) }

// admit decides about a document with the event in hand.
func (c *scan) admit(e *nostr.Event) bool {
	return c.p.view.Allows(e) && c.p.search.Match(e)
}

// segStream walks one segment from its newest document to its oldest.
type segStream struct {
	*scan
	s     *segment
	from  []cursor // candidates: what is left of each list, a heap with the highest on top
	all   uint32   // if lists is not set, candidates are the documents below this
	lists bool
	low   uint32 // no document below this
	rest  []group
	shown *group // documents with a p tag of a key that the view reveals to

	group  []hit // of one second, last first
	ahead  hit
	hasOne bool
	done   bool
}

func (c *scan) segment(s *segment) *segStream {
	st := &segStream{scan: c, s: s, low: s.lowerAt(c.p.since)}
	high := uint32(s.n)
	if c.p.until < maxTime {
		high = s.lowerAt(c.p.until + 1)
	}
	first, rest, none := c.p.resolve(s.n, s.postings)
	if none || st.low >= high {
		st.done = true
		return st
	}
	st.rest, st.all = rest, high
	if len(c.p.groups) > 0 {
		st.lists = true
		st.from = make([]cursor, 0, len(first.lists))
		for _, l := range first.lists {
			end := l.len()
			if high < uint32(s.n) {
				end = l.lower(high)
			}
			if end > 0 {
				st.from = append(st.from, cursor{l.get(end - 1), end, l})
			}
		}
		for i := len(st.from)/2 - 1; i >= 0; i-- {
			st.sink(i)
		}
	}
	if len(c.p.hide) > 0 {
		st.shown = &group{}
		for _, t := range c.p.reveal {
			if l := s.postings(t); l.len() > 0 {
				st.shown.lists = append(st.shown.lists, l)
			}
		}
	}
	return st
}

// cursor walks a list downwards; doc is the highest number that is left, the one before end.
type cursor struct {
	doc  uint32
	end  int
	list list
}

// sink puts the cursor at i in its place in the heap.
func (st *segStream) sink(i int) {
	from := st.from
	for {
		k := 2*i + 1
		if k >= len(from) {
			return
		}
		if k+1 < len(from) && from[k+1].doc > from[k].doc {
			k++
		}
		if from[i].doc >= from[k].doc {
			return
		}
		from[i], from[k] = from[k], from[i]
		i = k
	}
}

// candidate returns the next document number, downwards, each once.
func (st *segStream) candidate() (uint32, bool) {
	if !st.lists {
		if st.all <= st.low {
			return 0, false
		}
		st.all--
		return st.all, true
	}
	if len(st.from) == 0 || st.from[0].doc < st.low {
		return 0, false
	}
	best := st.from[0].doc
	for len(st.from) > 0 && st.from[0].doc == best {
		c := &st.from[0]
		if c.end--; c.end > 0 {
			c.doc = c.list.get(c.end - 1)
		} else {
			last := len(st.from) - 1
			*c = st.from[last]
			st.from = st.from[:last]
		}
		st.sink(0)
	}
	return best, true
}

// advance returns the next matching document, in descending document order.
func (st *segStream) advance() (hit, bool, error) {
	for {
		d, ok := st.candidate()
		if !ok {
			return hit{}, false, nil
		}
		if ok, err := st.matches(d); err != nil {
			return hit{}, false, err
		} else if !ok {
			continue
		}
		h := hit{doc: st.s.doc(d), at: place{st.s, d}}
		if !st.needsEvent(h.kind) {
			return h, true, nil
		}
		if len(st.p.search) > 0 {
			if st.budget.left--; st.budget.left < 0 {
				return hit{}, false, nil
			}
		}
		e, err := st.n.read(&h.doc)
		if errors.Is(err, errDamaged) {
			continue
		}
		if err != nil {
			return hit{}, false, err
		}
		if h.e = e; st.admit(e) {
			return h, true, nil
		}
	}
}

// matches decides about a document as far as the index can.
func (st *segStream) matches(d uint32) (bool, error) {
	s := st.s
	k := s.kind(d)
	if !st.p.wantsKind(k) || !s.live(d, st.n.vis) || s.expires(d) <= st.now {
		return false, nil
	}
	for i := range st.rest {
		if !st.rest[i].contains(d) {
			return false, nil
		}
	}
	if st.p.hidden(k) && !st.shown.contains(d) {
		return false, nil
	}
	return true, nil
}

// next puts the documents of one second in order: a segment walked downwards has the highest id
// first, NIP-01 wants the lowest.
func (st *segStream) next() (hit, bool, error) {
	if n := len(st.group); n > 0 {
		h := st.group[n-1]
		st.group = st.group[:n-1]
		return h, true, nil
	}
	if st.done {
		return hit{}, false, nil
	}
	if !st.hasOne {
		h, ok, err := st.advance()
		if !ok || err != nil {
			st.done = true
			return hit{}, false, err
		}
		st.ahead = h
	}
	st.group = append(st.group[:0], st.ahead)
	for {
		h, ok, err := st.advance()
		if err != nil {
			return hit{}, false, err
		}
		if !ok {
			st.done, st.hasOne = true, false
			break
		}
		if h.doc.at != st.group[0].doc.at {
			st.ahead, st.hasOne = h, true
			break
		}
		st.group = append(st.group, h)
	}
	return st.next()
}

// sliceStream yields hits that are at hand.
type sliceStream struct{ hits []hit }

func (st *sliceStream) next() (hit, bool, error) {
	if len(st.hits) == 0 {
		return hit{}, false, nil
	}
	h := st.hits[0]
	st.hits = st.hits[1:]
	return h, true, nil
}

// head returns the first matching documents of the head, in order; limit -1 for all.
func (c *scan) head(limit int) []hit {
	h := c.n.v.head
	h.mu.RLock()
	defer h.mu.RUnlock()
	var found []uint32
	consider := func(d uint32) {
		x := &h.docs[d]
		if x.at < c.p.since || x.at > c.p.until || !c.p.wantsKind(x.kind) || x.expires <= c.now || !h.seen(d, c.n.vis) {
			return
		}
		if c.p.ids != nil && !c.p.wantsID(&x.id) || c.needsEvent(x.kind) && !c.admit(h.events[d]) {
			return
		}
		found = append(found, d)
	}
	if len(c.p.groups) == 0 {
		for d := range h.docs {
			consider(uint32(d))
		}
	} else {
		first, rest, none := c.p.resolve(len(h.docs), func(t term) list { return list{u: h.terms[t]} })
		if none {
			return nil
		}
		for _, l := range first.lists {
		next:
			for _, d := range l.u {
				for i := range rest {
					if !rest[i].contains(d) {
						continue next
					}
				}
				consider(d)
			}
		}
	}
	slices.SortFunc(found, func(a, b uint32) int {
		x, y := &h.docs[a], &h.docs[b]
		if c := cmp.Compare(y.at, x.at); c != 0 {
			return c
		}
		return bytes.Compare(x.id[:], y.id[:])
	})
	found = slices.Compact(found)
	if limit >= 0 {
		found = found[:min(limit, len(found))]
	}
	out := make([]hit, len(found))
	for i, d := range found {
		out[i] = hit{h.docs[d], place{nil, d}, h.events[d]}
	}
	return out
}

// byID returns the matching documents of a filter with ids.
func (c *scan) byID() ([]hit, error) {
	var out []hit
	for i := range c.p.ids {
		d, e, at, ok := c.n.find(&c.p.ids[i])
		if !ok || d.at < c.p.since || d.at > c.p.until || !c.p.wantsKind(d.kind) || d.expires <= c.now {
			continue
		}
		h := hit{d, at, e}
		if len(c.p.groups) > 0 || c.needsEvent(d.kind) {
			if h.e == nil {
				var err error
				if h.e, err = c.n.read(&d); errors.Is(err, errDamaged) {
					continue
				} else if err != nil {
					return nil, err
				}
			}
			if !c.p.filter.Matches(h.e) || !c.admit(h.e) {
				continue
			}
		}
		out = append(out, h)
	}
	slices.SortFunc(out, compareHits)
	return out, nil
}

// search returns the hits of one filter.
func (s *Store) search(n snapshot, p *plan, now int64, limit int) (stream, error) {
	if p.nothing || limit == 0 {
		return &sliceStream{}, nil
	}
	c := &scan{n: n, p: p, now: now, budget: &budget{s.opts.SearchScan}}
	m := &merged{limit: limit}
	if p.ids != nil {
		hits, err := c.byID()
		if err != nil {
			return nil, err
		}
		m.from = append(m.from, &sliceStream{hits})
		return m, nil
	}
	for _, seg := range n.v.segments() {
		if seg.maxAt < p.since || seg.minAt > p.until {
			continue
		}
		m.from = append(m.from, c.segment(seg))
	}
	m.from = append(m.from, &sliceStream{c.head(limit)})
	return m, nil
}

// Count implements store.Store.
func (s *Store) Count(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (int, error) {
	set, release, err := s.Set(ctx, filters, view, now)
	if err != nil {
		return 0, err
	}
	defer release()
	return set.Len(), nil
}
