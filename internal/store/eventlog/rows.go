package eventlog

import (
	"context"
	"errors"
	"iter"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// merged yields the hits of several streams in order. limit is how many are left, -1 for all.
type merged struct {
	from  []stream
	heads []hit
	limit int
	ready bool

	no []int // the filter of each stream; nil if that is of no interest
	by []int // the filters that the last hit came by
}

func (m *merged) fill() error {
	m.ready = true
	kept := 0
	for i, st := range m.from {
		h, ok, err := st.next()
		if err != nil {
			return err
		}
		if ok {
			m.from[kept] = st
			if m.no != nil {
				m.no[kept] = m.no[i]
			}
			kept++
			m.heads = append(m.heads, h)
		}
	}
	m.from = m.from[:kept]
	return nil
}

// next yields an event that several streams have once.
func (m *merged) next() (hit, bool, error) {
	if m.limit == 0 {
		return hit{}, false, nil
	}
	if !m.ready {
		if err := m.fill(); err != nil {
			return hit{}, false, err
		}
	}
	if len(m.from) == 0 {
		return hit{}, false, nil
	}
	best := 0
	for i := 1; i < len(m.heads); i++ {
		if m.heads[i].before(&m.heads[best]) {
			best = i
		}
	}
	h := m.heads[best]
	m.by = m.by[:0]
	for i := 0; i < len(m.from); {
		if m.heads[i].doc.at != h.doc.at || m.heads[i].id != h.id {
			i++
			continue
		}
		if m.no != nil {
			m.by = append(m.by, m.no[i])
		}
		nh, ok, err := m.from[i].next()
		if err != nil {
			return hit{}, false, err
		}
		if ok {
			m.heads[i] = nh
			i++
			continue
		}
		m.remove(i)
	}
	if m.limit > 0 {
		m.limit--
	}
	return h, true, nil
}

// remove takes out a stream that has ended.
func (m *merged) remove(i int) {
	last := len(m.from) - 1
	m.from[i], m.heads[i] = m.from[last], m.heads[last]
	m.from, m.heads = m.from[:last], m.heads[:last]
	if m.no != nil {
		m.no[i] = m.no[last]
		m.no = m.no[:last]
	}
}

// answer searches for each filter and merges what is found.
func (s *Store) answer(n snapshot, filters []nostr.Filter, view *store.View, limit int, now int64) (*merged, error) {
	all := &merged{limit: -1}
	if limit > 0 {
		all.limit = limit
	}
	for i := range filters {
		p := s.plan(&filters[i], view)
		st, err := s.search(n, p, now, p.limit)
		if err != nil {
			return nil, err
		}
		all.from = append(all.from, st)
		all.no = append(all.no, i)
	}
	return all, nil
}

// walk calls fn for every match in order until it returns false. by is what Row.By says, and good during the call.
func (s *Store) walk(ctx context.Context, filters []nostr.Filter, view *store.View, limit int, now int64,
	fn func(n snapshot, h *hit, by []int) (bool, error)) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	n := s.snapshot()
	defer n.release()
	defer func() {
		if mapped.blocks.Load() > maxBlocks {
			n.dropLogs()
		}
	}()
	all, err := s.answer(n, filters, view, limit, now)
	if err != nil {
		return err
	}
	for {
		h, ok, err := all.next()
		if err == nil {
			err = ctx.Err()
		}
		if !ok || err != nil {
			return err
		}
		more, err := fn(n, &h, all.by)
		if errors.Is(err, errDamaged) {
			continue
		}
		if !more || err != nil {
			return err
		}
	}
}

// Query implements store.Store.
func (s *Store) Query(ctx context.Context, filters []nostr.Filter, view store.View, limit int, now int64) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		err := s.walk(ctx, filters, &view, limit, now, func(n snapshot, h *hit, _ []int) (more bool, err error) {
			if h.e == nil {
				if h.e, err = n.read(&h.doc); err != nil {
					return false, err
				}
			}
			return yield(h.e, nil), nil
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// QueryRows implements store.RowQuerier. It reads the text of an event, checks it against its checksum and the index, and
// parses it only where a filter or the view asks for what the index does not know.
func (s *Store) QueryRows(ctx context.Context, filters []nostr.Filter, view store.View, limit int, now int64) iter.Seq2[*store.Row, error] {
	return func(yield func(*store.Row, error) bool) {
		var memory slab
		var row store.Row
		err := s.walk(ctx, filters, &view, limit, now, func(n snapshot, h *hit, by []int) (more bool, err error) {
			row.ID, row.CreatedAt, row.By = h.id, h.doc.at, nil
			if len(filters) > 1 {
				row.By = by
			}
			if h.e != nil {
				row.Text = h.e.JSON()
			} else if row.Text, err = n.text(&h.doc, memory.room); err != nil {
				return false, err
			}
			return yield(&row, nil), nil
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// slab gives the records of one answer their memory out of larger pieces: they are sent, and done with, one after the other.
type slab struct {
	free []byte
	size int
}

const (
	minSlab = 2 << 10
	maxSlab = 64 << 10
)

func (s *slab) room(n int) []byte {
	if n > len(s.free) {
		s.size = min(max(2*s.size, minSlab), maxSlab)
		s.free = make([]byte, max(n, s.size))
	}
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}
