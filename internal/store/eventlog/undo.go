package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// A full disk is the one failure of a write after which the writer knows what the log holds: it cuts
// off what was written in part, takes the group's changes in memory back, and goes on. The numbers
// that the group used are not given again.

// undo is how to take back what the present group has changed.
type undo struct {
	on     bool
	docs   int // in the head before the group
	maxSeq uint64
	clock  int64
	steps  []func()
}

// begin starts a group. The caller holds wmu.
func (s *Store) begin() {
	s.buf = s.buf[:0]
	s.undo = undo{on: true, docs: len(s.cur.head.docs), maxSeq: s.maxSeq, clock: s.clock, steps: s.undo.steps[:0]}
	s.tables.begin()
}

// end keeps the group's changes.
func (s *Store) end() {
	clear(s.undo.steps)
	s.undo.on = false
	s.tables.end()
}

// otherwise notes how to take a change back.
func (s *Store) otherwise(step func()) {
	if s.undo.on {
		s.undo.steps = append(s.undo.steps, step)
	}
}

// rollback takes the group's changes back.
func (s *Store) rollback() {
	for _, step := range slices.Backward(s.undo.steps) {
		step()
	}
	s.cur.head.cut(s.undo.docs, s.hash)
	if s.tables.rollback() {
		s.takenBack++
	}
	s.maxSeq, s.clock = s.undo.maxSeq, s.undo.clock
	s.end()
}

// revive takes a death back that nobody has seen.
func (s *Store) revive(d *doc, at place, lsn uint64) {
	s.dmu.Lock()
	_, damaged := s.damaged[d.id]
	s.dmu.Unlock()
	if at.seg == nil {
		s.cur.head.revive(at.n, lsn)
	} else {
		at.seg.revive(at.n, lsn, damaged)
	}
	p := s.cur.place(d.pos)
	if f := s.cur.files[p.file]; f != nil {
		f.dead.Add(-int64(p.size))
	}
}

func (h *head) revive(d uint32, lsn uint64) {
	h.mu.Lock()
	if h.died[d] == lsn {
		h.died[d] = 0
	}
	h.mu.Unlock()
}

// revive takes a death at lsn back; of a document that was found damaged meanwhile, it makes
// it a death for everyone.
func (s *segment) revive(d uint32, lsn uint64, damaged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.died[d] != lsn {
		return
	}
	if damaged {
		s.died[d] = 0
		return
	}
	atomic.AndUint64(&s.dead[d/64], ^(uint64(1) << (d % 64))) // first: a bit without an lsn means dead
	delete(s.died, d)
	s.ndead.Add(-1)
}

// cut takes the documents from n on out of the head. No reader has seen them.
func (h *head) cut(n int, hash hasher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n == len(h.docs) {
		return
	}
	var terms []term
	for i := len(h.docs) - 1; i >= n; i-- {
		terms = hash.terms(terms[:0], h.events[i])
		for _, t := range terms {
			if l := h.terms[t]; len(l) > 1 {
				h.terms[t] = slices.Clip(l[:len(l)-1])
			} else {
				delete(h.terms, t)
			}
		}
		delete(h.ids, h.docs[i].id)
	}
	h.docs = slices.Clip(h.docs[:n])
	h.events = slices.Clip(h.events[:n])
	h.died = slices.Clip(h.died[:n])
	for i := range h.docs { // an id that had been there, died, and come again
		if j, ok := h.ids[h.docs[i].id]; !ok || j < uint32(i) {
			h.ids[h.docs[i].id] = uint32(i)
		}
	}
}

// begin has the tables note what is to be taken back.
func (t *tables) begin() {
	t.mu.Lock()
	t.noting, t.steps, t.before = true, t.steps[:0], t.advisory
	t.mu.Unlock()
}

func (t *tables) end() {
	t.mu.Lock()
	clear(t.steps)
	t.noting, t.steps, t.before = false, t.steps[:0], nil
	t.mu.Unlock()
}

// rollback takes back what has changed, and says whether anything had.
func (t *tables) rollback() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, step := range slices.Backward(t.steps) {
		step()
	}
	t.advisory = t.before
	return len(t.steps) > 0
}

// put changes an entry of one of the tables.
func put[K comparable, V any](t *tables, m map[K]V, k K, v V) {
	note(t, m, k)
	m[k] = v
}

// drop removes one.
func drop[K comparable, V any](t *tables, m map[K]V, k K) {
	note(t, m, k)
	delete(m, k)
}

func note[K comparable, V any](t *tables, m map[K]V, k K) {
	if !t.noting {
		return
	}
	old, had := m[k]
	t.steps = append(t.steps, func() {
		if had {
			m[k] = old
		} else {
			delete(m, k)
		}
	})
}

// cutBack takes off the log what a write to a full disk has left behind.
func (s *Store) cutBack() error {
	if err := s.active.f.Truncate(s.base); isFull(err) {
		return full(fmt.Errorf("truncate log: %w", err)) // torn stays, and the next write tries again
	} else if err != nil {
		return s.fail(fmt.Errorf("truncate log: %w", err))
	}
	if err := s.active.f.Sync(); err != nil {
		return s.fail(fmt.Errorf("sync log: %w", err))
	}
	s.torn = false
	return nil
}

// full is the error for a full disk.
func full(err error) error {
	if errors.Is(err, store.ErrFull) {
		return err
	}
	return fmt.Errorf("%w: the disk is full: %w", store.ErrFull, err)
}

// tellFull logs that the disk is full, or no longer, once.
func (s *Store) tellFull(err error) {
	switch {
	case err != nil && !s.fullTold:
		s.opts.Log.Error("the disk is full: writes are refused until there is room", "cause", err)
	case err == nil && s.fullTold:
		s.opts.Log.Warn("there is room on the disk again")
	}
	s.fullTold = err != nil
}

// healed takes an id off the list of what is lost: it is there again, or would not be kept any more.
func (s *Store) healed(id nostr.ID) {
	s.dmu.Lock()
	defer s.dmu.Unlock()
	if _, ok := s.damaged[id]; !ok {
		return
	}
	delete(s.damaged, id)
	s.otherwise(func() {
		s.dmu.Lock()
		s.damaged[id] = struct{}{}
		s.dmu.Unlock()
	})
}
