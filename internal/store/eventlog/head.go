package eventlog

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// head is where new events go: a few thousand at most, in order of arrival, indexed by maps.
// When it is full it becomes a segment in memory.
type head struct {
	uid    uint64 // unique in this process, for caches; of the segments' numbers
	mu     sync.RWMutex
	docs   []doc
	events []*nostr.Event
	died   []uint64 // lsn of the death, 0 for the living
	ids    map[nostr.ID]uint32
	terms  map[term][]uint32
}

func newHead() *head {
	return &head{uid: segmentUID.Add(1), ids: make(map[nostr.ID]uint32), terms: make(map[term][]uint32)}
}

// add appends a document. It is seen by readers from its lsn on.
func (h *head) add(d doc, e *nostr.Event, terms []term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := uint32(len(h.docs))
	h.docs = append(h.docs, d)
	h.events = append(h.events, e)
	h.died = append(h.died, 0)
	h.ids[d.id] = n
	for _, t := range terms {
		h.terms[t] = append(h.terms[t], n)
	}
}

// kill marks a document dead from lsn on.
func (h *head) kill(d uint32, lsn uint64) {
	h.mu.Lock()
	if h.died[d] == 0 {
		h.died[d] = lsn
	}
	h.mu.Unlock()
}

// seen says whether a reader at vis sees the document; the caller holds the lock.
func (h *head) seen(d uint32, vis uint64) bool {
	return h.docs[d].lsn <= vis && (h.died[d] == 0 || h.died[d] > vis)
}

// find returns the document of an id that a reader at vis sees.
func (h *head) find(id *nostr.ID, vis uint64) (d doc, e *nostr.Event, n uint32, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n, ok = h.ids[*id]
	if !ok || !h.seen(n, vis) {
		return doc{}, nil, 0, false
	}
	return h.docs[n], h.events[n], n, true
}

// holds returns the times from <= now < until between which no document expires.
func (h *head) holds(now int64) (from, until int64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	from, until = minTime, maxTime
	for i := range h.docs {
		if at := h.docs[i].expires; at <= now {
			from = max(from, at)
		} else {
			until = min(until, at)
		}
	}
	return from, until
}

// segment makes a segment of the living. It is called when nothing is unpublished.
func (h *head) segment() (*segment, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var order []uint32
	for i := range h.docs {
		if h.died[i] == 0 {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int { return h.docs[a].compare(&h.docs[b]) })
	to := make([]uint32, len(h.docs))
	for i := range to {
		to[i] = ^uint32(0)
	}
	var out bytes.Buffer
	b := newBuilder(&out, &memScratch{})
	for n, i := range order {
		to[i] = uint32(n)
		b.addDoc(&h.docs[i])
	}
	b.endDocs()
	arrival := slices.Clone(order)
	slices.SortFunc(arrival, func(a, b uint32) int { return cmp.Compare(h.docs[a].lsn, h.docs[b].lsn) })
	for _, i := range arrival {
		b.addOrder(to[i])
	}
	keys := make([]term, 0, len(h.terms))
	for t := range h.terms {
		keys = append(keys, t)
	}
	slices.SortFunc(keys, term.compare)
	var docs []uint32
	for _, t := range keys {
		docs = docs[:0]
		for _, d := range h.terms[t] {
			if to[d] != ^uint32(0) {
				docs = append(docs, to[d])
			}
		}
		slices.Sort(docs)
		b.addTerm(t, docs)
	}
	if err := b.finish(); err != nil {
		return nil, err
	}
	return parseSegment(out.Bytes(), 0)
}
