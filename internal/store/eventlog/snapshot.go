package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"fleetmesh.org/fleetmesh/nostr"
)

// version is what the store is made of between two changes of its parts. It is never changed;
// it holds a reference to each part, so no part goes away under a reader.
type version struct {
	head  *head
	mem   []*segment // in memory; with the head, all that came after the checkpoint
	disk  []*segment
	files map[uint32]*logFile
	moved map[uint32]*moves
	refs  atomic.Int32
}

// moves tells where the records of a rewritten log file are now.
type moves struct {
	offs []uint32 // ascending
	to   []pos
}

func (m *moves) find(off uint32) (pos, bool) {
	i, ok := slices.BinarySearch(m.offs, off)
	if !ok {
		return pos{}, false
	}
	return m.to[i], true
}

// segments returns all segments.
func (v *version) segments() []*segment { return slices.Concat(v.mem, v.disk) }

// hold takes a reference to every part.
func (v *version) hold() *version {
	v.refs.Store(1)
	for _, s := range v.mem {
		s.refs.Add(1)
	}
	for _, s := range v.disk {
		s.refs.Add(1)
	}
	for _, f := range v.files {
		f.refs.Add(1)
	}
	return v
}

func (v *version) release() {
	if v.refs.Add(-1) > 0 {
		return
	}
	for _, s := range v.mem {
		s.release()
	}
	for _, s := range v.disk {
		s.release()
	}
	for _, f := range v.files {
		f.release()
	}
}

// place returns where a record is now.
func (v *version) place(p pos) pos {
	if m := v.moved[p.file]; m != nil {
		if to, ok := m.find(p.off); ok {
			return to
		}
	}
	return p
}

// snapshot is the store as a reader sees it: a version, and the last change that counts.
type snapshot struct {
	s   *Store
	v   *version
	vis uint64
}

// snapshot takes the present state; release must be called.
func (s *Store) snapshot() snapshot {
	s.vmu.RLock()
	defer s.vmu.RUnlock()
	s.cur.refs.Add(1)
	return snapshot{s, s.cur, s.vis}
}

func (n snapshot) release() { n.v.release() }

// latest is the state with everything that is not yet published; the writer's view.
func (s *Store) latest() snapshot { return snapshot{s, s.cur, ^uint64(0)} }

// place in a version: a document of a segment, or of the head if seg is nil.
type place struct {
	seg *segment
	n   uint32
}

// find returns the document of an id.
func (n snapshot) find(id *nostr.ID) (d doc, e *nostr.Event, at place, ok bool) {
	if d, e, i, ok := n.v.head.find(id, n.vis); ok {
		return d, e, place{nil, i}, true
	}
	for _, list := range [2][]*segment{n.v.mem, n.v.disk} {
		for _, s := range list {
			if i, ok := s.find(id); ok && s.live(i, n.vis) {
				return s.doc(i), nil, place{s, i}, true
			}
		}
	}
	return doc{}, nil, place{}, false
}

// errDamaged says that a record is there but cannot be read.
var errDamaged = errors.New("damaged event record")

// read returns the event of a document. If its record is damaged, the event is set aside (it
// is no longer in the store, and Damaged lists it) and errDamaged is returned.
func (n snapshot) read(d *doc) (*nostr.Event, error) {
	json, err := n.text(d, ownRoom)
	if err != nil {
		return nil, err
	}
	e, err := nostr.ParseKept(json) // the buffer is this record's own, and its checksum held
	if err != nil {
		return nil, n.s.setAside(d, err)
	}
	if e.ID != d.id {
		return nil, n.s.setAside(d, errors.New("another event's record"))
	}
	return e, nil
}

// ownRoom gives a record memory of its own.
func ownRoom(n int) []byte { return make([]byte, n) }

// text is read without a look into the event's JSON, which lies in what room gives for the record.
func (n snapshot) text(d *doc, room func(n int) []byte) ([]byte, error) {
	p := n.v.place(d.pos)
	f := n.v.files[p.file]
	if f == nil {
		return nil, n.s.setAside(d, fmt.Errorf("log file %d is missing", p.file))
	}
	r, err := f.read(p.off, room(int(p.size)))
	switch {
	case errors.Is(err, errRecord), errors.Is(err, errEffects):
		return nil, n.s.setAside(d, err)
	case err != nil:
		return nil, fmt.Errorf("read log file %d: %w", p.file, err)
	case r.json == nil:
		return nil, n.s.setAside(d, errors.New("record without an event"))
	case r.lsn != d.lsn:
		return nil, n.s.setAside(d, errors.New("another change's record"))
	}
	return r.json, nil
}
