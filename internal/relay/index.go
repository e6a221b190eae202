package relay

import (
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// parcel is one event on its way to the subscribers, and the text that all of them get.
type parcel struct {
	event *nostr.Event
	text  []byte
	batch uint64 // number of the commit that it came by
}

// listener is told of events that match its filters, by the fan-out goroutine alone. It must not
// block and must not change the index.
type listener interface {
	deliver(p *parcel)
}

// registration is one listener in the index.
type registration struct {
	to      listener
	entries []entry
	after   uint64 // commit up to which events are the stored query's business, not the live stream's
	mark    uint64 // number of the last event delivered; only the fan-out goroutine uses it
}

// watch is one filter of a registration, without the condition by which it is found.
type watch struct {
	reg   *registration
	f     nostr.Filter
	words store.Terms // of the filter's search
	any   bool        // nothing is left to check
}

func (w *watch) matches(e *nostr.Event) bool {
	return w.any || w.f.Matches(e) && w.words.Match(e)
}

type authorKind struct {
	author nostr.PubKey
	kind   nostr.Kind
}

type tagKey struct {
	letter byte
	value  string
}

// entry is one place where a watch stands; exactly one of the keys counts.
type entry struct {
	w    *watch
	by   anchor
	id   nostr.ID // or an author
	kind nostr.Kind
	tag  tagKey
}

// anchor is the condition of a filter by which it is found.
type anchor uint8

const (
	byNothing anchor = iota
	byID
	byAuthor
	byAuthorKind
	byKind
	byTag
)

// index finds the subscriptions that an event matches at the cost of those it may match:
// each filter stands under the values of its most telling condition.
type index struct {
	mu          sync.RWMutex
	ids         map[nostr.ID][]*watch
	authors     map[nostr.PubKey][]*watch
	authorKinds map[authorKind][]*watch
	kinds       map[nostr.Kind][]*watch
	tags        map[tagKey][]*watch
	rest        []*watch
}

func (x *index) init() {
	x.ids = make(map[nostr.ID][]*watch)
	x.authors = make(map[nostr.PubKey][]*watch)
	x.authorKinds = make(map[authorKind][]*watch)
	x.kinds = make(map[nostr.Kind][]*watch)
	x.tags = make(map[tagKey][]*watch)
}

// maxPairs is up to how many pairs of author and kind a filter stands under; above it, it stands under
// the authors alone.
const maxPairs = 2000

// register prepares a registration. Filters that match nothing take no place.
func register(to listener, filters []nostr.Filter) *registration {
	reg := &registration{to: to}
	for i := range filters {
		if !filters[i].MatchesNothing() {
			reg.entries = plan(reg, filters[i], reg.entries)
		}
	}
	return reg
}

// plan chooses the anchor of a filter: ids, else the shorter of the authors and the shortest tag
// list, else kinds.
func plan(reg *registration, f nostr.Filter, out []entry) []entry {
	w := &watch{reg: reg, f: f, words: store.ParseSearch(f.Search)}
	tag := -1
	for i := range f.Tags {
		if tag < 0 || len(f.Tags[i].Values) < len(f.Tags[tag].Values) {
			tag = i
		}
	}
	switch {
	case f.IDs != nil:
		w.f.IDs = nil
		for _, id := range f.IDs {
			out = append(out, entry{w: w, by: byID, id: id})
		}
	case f.Authors != nil && (tag < 0 || len(f.Authors) <= len(f.Tags[tag].Values)):
		w.f.Authors = nil
		if pairs := len(f.Authors) * len(f.Kinds); pairs > 0 && pairs <= maxPairs {
			w.f.Kinds = nil
			for _, a := range f.Authors {
				for _, k := range f.Kinds {
					out = append(out, entry{w: w, by: byAuthorKind, id: nostr.ID(a), kind: k})
				}
			}
			break
		}
		for _, a := range f.Authors {
			out = append(out, entry{w: w, by: byAuthor, id: nostr.ID(a)})
		}
	case tag >= 0:
		w.f.Tags = slices.Delete(slices.Clone(f.Tags), tag, tag+1)
		for _, v := range f.Tags[tag].Values {
			out = append(out, entry{w: w, by: byTag, tag: tagKey{f.Tags[tag].Letter, v}})
		}
	case f.Kinds != nil:
		w.f.Kinds = nil
		for _, k := range f.Kinds {
			out = append(out, entry{w: w, by: byKind, kind: k})
		}
	default:
		out = append(out, entry{w: w, by: byNothing})
	}
	w.any = w.f.Authors == nil && w.f.Kinds == nil && len(w.f.Tags) == 0 && w.f.Since == nil && w.f.Until == nil && len(w.words) == 0
	return out
}

// add puts a registration in. From its return on no matching event of a later commit than reg.after is missed.
func (x *index) add(reg *registration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range reg.entries {
		e := &reg.entries[i]
		switch e.by {
		case byID:
			x.ids[e.id] = append(x.ids[e.id], e.w)
		case byAuthor:
			x.authors[nostr.PubKey(e.id)] = append(x.authors[nostr.PubKey(e.id)], e.w)
		case byAuthorKind:
			k := authorKind{nostr.PubKey(e.id), e.kind}
			x.authorKinds[k] = append(x.authorKinds[k], e.w)
		case byKind:
			x.kinds[e.kind] = append(x.kinds[e.kind], e.w)
		case byTag:
			x.tags[e.tag] = append(x.tags[e.tag], e.w)
		default:
			x.rest = append(x.rest, e.w)
		}
	}
}

// remove takes a registration out. A second time does nothing.
func (x *index) remove(reg *registration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range reg.entries {
		e := &reg.entries[i]
		switch e.by {
		case byID:
			drop(x.ids, e.id, e.w)
		case byAuthor:
			drop(x.authors, nostr.PubKey(e.id), e.w)
		case byAuthorKind:
			drop(x.authorKinds, authorKind{nostr.PubKey(e.id), e.kind}, e.w)
		case byKind:
			drop(x.kinds, e.kind, e.w)
		case byTag:
			drop(x.tags, e.tag, e.w)
		default:
			x.rest = without(x.rest, e.w)
		}
	}
	reg.entries = nil
}

func drop[K comparable](m map[K][]*watch, k K, w *watch) {
	if list := without(m[k], w); len(list) > 0 {
		m[k] = list
	} else {
		delete(m, k)
	}
}

// without removes one w; order does not matter. Lists that have shrunk much are copied, so that a wave
// of subscriptions leaves no memory behind.
func without(list []*watch, w *watch) []*watch {
	i := slices.Index(list, w)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i], list[last] = list[last], nil
	list = list[:last]
	if cap(list) > 64 && len(list) < cap(list)/4 {
		list = slices.Clone(list)
	}
	return list
}

// match delivers an event to each listener that it matches, once. number differs from event to
// event. Only one goroutine at a time may call it.
func (x *index) match(p *parcel, number uint64) {
	e := p.event
	x.mu.RLock()
	defer x.mu.RUnlock()
	visit := func(list []*watch) {
		for _, w := range list {
			if w.reg.mark != number && p.batch > w.reg.after && w.matches(e) {
				w.reg.mark = number
				w.reg.to.deliver(p)
			}
		}
	}
	visit(x.ids[e.ID])
	visit(x.authors[e.PubKey])
	visit(x.authorKinds[authorKind{e.PubKey, e.Kind}])
	visit(x.kinds[e.Kind])
	visit(x.rest)
	if len(x.tags) == 0 {
		return
	}
	for _, t := range e.Tags {
		if len(t) > 1 && len(t[0]) == 1 {
			visit(x.tags[tagKey{t[0][0], t[1]}])
		}
	}
}

// flight knows the events that are on their way from the store to the subscribers: a query may already
// see them while the live stream has yet to carry them.
type flight struct {
	mu  sync.RWMutex
	ids map[nostr.ID]struct{}
}

func (f *flight) add(offers []*offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range offers {
		f.ids[o.event.ID] = struct{}{}
	}
}

func (f *flight) remove(offers []*offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range offers {
		delete(f.ids, o.event.ID)
	}
}

// mark sets flying on the rows that are under way. It is called before a look at what is held: whatever
// has left flight by then was dealt out.
func (f *flight) mark(rows []burstRow) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.ids) == 0 {
		return
	}
	for i := range rows {
		_, rows[i].flying = f.ids[rows[i].id]
	}
}
