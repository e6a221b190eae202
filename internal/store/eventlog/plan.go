package eventlog

import (
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// plan is a filter made ready. A document matches if it has a term of every group, and its
// kind and time fit; no event is read for that, but for a search and for kinds that the
// view hides from some.
type plan struct {
	filter  *nostr.Filter
	since   int64
	until   int64 // inclusive
	limit   int   // -1: none
	ids     []nostr.ID
	groups  [][]term
	kinds   []nostr.Kind // to be checked in the document; nil: any
	hide    []nostr.Kind
	reveal  []term
	view    *store.View
	search  store.Terms
	nothing bool
}

// maxProduct bounds the terms that authors × kinds make; above it the authors are looked up
// and the kinds checked.
const maxProduct = 1024

func (s *Store) plan(f *nostr.Filter, view *store.View) *plan {
	p := &plan{filter: f, since: minTime, until: maxTime, limit: -1, view: view, hide: view.Hide}
	if p.nothing = f.MatchesNothing(); p.nothing {
		return p
	}
	if f.Since != nil {
		p.since = *f.Since
	}
	if f.Until != nil {
		p.until = *f.Until
	}
	if f.Limit != nil {
		p.limit = max(0, *f.Limit)
	}
	if f.IDs != nil {
		p.ids = slices.Clone(f.IDs)
		slices.SortFunc(p.ids, func(a, b nostr.ID) int { return slices.Compare(a[:], b[:]) })
		p.ids = slices.Compact(p.ids)
	}
	p.search = store.ParseSearch(f.Search)
	p.group(s.hash, f)
	for _, k := range view.Reveal {
		p.reveal = append(p.reveal, s.hash.tag('p', k.String()))
	}
	return p
}

// group makes the groups of terms.
func (p *plan) group(h hasher, f *nostr.Filter) {
	switch {
	case f.Authors != nil && f.Kinds != nil && len(f.Authors)*len(f.Kinds) <= maxProduct:
		var g []term
		for i := range f.Authors {
			for _, k := range f.Kinds {
				g = append(g, h.authorKind(&f.Authors[i], k))
			}
		}
		p.groups = append(p.groups, unique(g))
	case f.Authors != nil:
		var g []term
		for i := range f.Authors {
			g = append(g, h.author(&f.Authors[i]))
		}
		p.groups = append(p.groups, unique(g))
		p.kinds = f.Kinds
	case f.Kinds != nil:
		p.kinds = f.Kinds
		var g []term
		for _, k := range f.Kinds {
			g = append(g, h.kind(k))
		}
		p.groups = append(p.groups, unique(g))
	}
	for _, t := range f.Tags {
		var g []term
		for _, v := range t.Values {
			g = append(g, h.tag(t.Letter, v))
		}
		p.groups = append(p.groups, unique(g))
	}
}

func unique(g []term) []term {
	slices.SortFunc(g, term.compare)
	return slices.Compact(g)
}

const (
	minTime = -1 << 63
	maxTime = 1<<63 - 1
)

// group is a group of terms in one segment or head: the documents that have one of them.
type group struct {
	lists []list
	total int
	bits  []uint64 // a bit a document; instead of lists when there are many
}

func (g *group) contains(d uint32) bool {
	if g.bits != nil {
		return g.bits[d/64]>>(d%64)&1 == 1
	}
	for _, l := range g.lists {
		if l.contains(d) {
			return true
		}
	}
	return false
}

// resolve looks the groups up and chooses the smallest, from which candidates come. none is
// true if nothing can match.
func (p *plan) resolve(n int, find func(term) list) (first group, rest []group, none bool) {
	if len(p.groups) == 0 {
		return group{}, nil, false
	}
	all := make([]group, len(p.groups))
	small := 0
	for i, terms := range p.groups {
		for _, t := range terms {
			if l := find(t); l.len() > 0 {
				all[i].lists = append(all[i].lists, l)
				all[i].total += l.len()
			}
		}
		if all[i].total == 0 {
			return group{}, nil, true
		}
		if all[i].total < all[small].total {
			small = i
		}
	}
	for i := range all {
		if i == small {
			continue
		}
		g := all[i]
		// Many lists are asked often: mark their documents once instead.
		if len(g.lists) > 4 && all[small].total*len(g.lists)*8 > g.total+n/64 {
			g.bits = make([]uint64, (n+63)/64)
			for _, l := range g.lists {
				for k := range l.len() {
					d := l.get(k)
					g.bits[d/64] |= 1 << (d % 64)
				}
			}
		}
		rest = append(rest, g)
	}
	return all[small], rest, false
}

// hidden says what the view does with a document's kind: hide it, or ask about the event.
func (p *plan) hidden(k nostr.Kind) bool { return slices.Contains(p.hide, k) }

func (p *plan) wantsID(id *nostr.ID) bool {
	_, ok := slices.BinarySearchFunc(p.ids, id, func(a nostr.ID, b *nostr.ID) int { return slices.Compare(a[:], b[:]) })
	return ok
}

func (p *plan) wantsKind(k nostr.Kind) bool { return p.kinds == nil || slices.Contains(p.kinds, k) }
