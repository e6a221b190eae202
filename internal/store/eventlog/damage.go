package eventlog

import (
	"errors"
	"fmt"
	"io/fs"

	"fleetmesh.org/fleetmesh/nostr"
)

// What the log has lost is never forgotten in silence: the manifest says how large each log file
// was, the segments and the state say which events there were.

// LostFile is a log file of which the manifest says more than is there.
type LostFile struct {
	File uint32
	Want int64 // bytes by the manifest; 0 if it does not say
	Have int64 // bytes on disk; -1 if there is no such file
}

func (l LostFile) String() string {
	if l.Have < 0 {
		return fmt.Sprintf("log file %d is missing", l.File)
	}
	return fmt.Sprintf("log file %d is cut off: %d of %d bytes", l.File, l.Have, l.Want)
}

// findLost compares the log files with what the manifest says of them.
func (s *Store) findLost() error {
	s.lost = make(map[uint32]int64)
	for _, ref := range s.man.Logs {
		want := max(ref.Size, logHeader)
		if ref.No == s.man.CoveredFile {
			want = max(want, s.man.CoveredSize)
		}
		have, err := sizeOf(s.fs, logName(ref.No))
		if err != nil {
			return fmt.Errorf("log file %d: %w", ref.No, err)
		}
		if have >= want {
			continue
		}
		s.lost[ref.No] = have
		l := LostFile{ref.No, want, have}
		s.report.Lost = append(s.report.Lost, l)
		s.opts.Log.Error("events are lost: "+l.String(), "file", l.File, "want", l.Want, "have", l.Have)
	}
	return nil
}

// sizeOf returns the size of a file, -1 if there is none.
func sizeOf(dir FS, name string) (int64, error) {
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := f.Size()
	return n, errors.Join(err, f.Close())
}

// setAsideLost takes the events whose records went with the lost files out of a version that
// is being loaded.
func (s *Store) setAsideLost(v *version) {
	if len(s.lost) == 0 {
		return
	}
	for _, seg := range v.disk {
		for d := range uint32(seg.n) {
			p := v.place(seg.pos(d))
			have, lost := s.lost[p.file]
			if lost && int64(p.off)+int64(p.size) > have && !seg.isDead(d) {
				seg.kill(d, 0)
				s.damaged[*seg.id(d)] = struct{}{}
			}
		}
	}
}

// coveredLost says whether the log file of the checkpoint lacks something that the checkpoint covers.
func (s *Store) coveredLost() bool {
	have, lost := s.lost[s.man.CoveredFile]
	return lost && have < s.man.CoveredSize
}

// mendHeaders writes damaged headers of log files anew. A header says nothing that the file's name
// and the manifest do not say too. If it fails, the next Open tries again.
func (s *Store) mendHeaders() {
	for _, l := range s.cur.files {
		if !l.broken {
			continue
		}
		s.report.Headers = append(s.report.Headers, l.no)
		_, err := l.f.WriteAt(appendLogHeader(nil, l.no, l.origin), 0)
		if err == nil {
			err = l.f.Sync()
		}
		if err != nil {
			s.opts.Log.Error("a log file's header is damaged and cannot be written anew", "file", l.no, "cause", err)
			continue
		}
		l.broken = false
		s.opts.Log.Warn("a log file's header was damaged and has been written anew", "file", l.no)
	}
}

// remains is what a store knew of its events before everything is made anew.
type remains struct {
	segs    []*segment
	whole   bool            // the segments' deaths are known
	files   map[uint32]bool // log files that the manifest names
	damaged map[nostr.ID]bool
	lsn     uint64 // of the last change that the checkpoint covers
	tables  []effects
	refused map[nostr.ID]bool // then
}

// removed says whether an event's record is known to have been removed, though the removal's own record
// may be damaged.
func (r *remains) removed(id nostr.ID, lsn uint64) bool { return lsn <= r.lsn && r.refused[id] }

// harvest opens the segments and the state that are there, as far as they can be read. The manifest
// may be lost.
func (s *Store) harvest() (remains, error) {
	r := remains{files: make(map[uint32]bool), damaged: make(map[nostr.ID]bool), lsn: s.man.LSN, refused: make(map[nostr.ID]bool)}
	for _, ref := range s.man.Logs {
		r.files[ref.No] = true
	}
	no := s.man.State
	if no == 0 {
		names, err := s.fs.List()
		if err != nil {
			return r, fmt.Errorf("list files: %w", err)
		}
		for _, name := range names {
			if n, ok := numberOf(name, "sta-"); ok {
				no = max(no, n)
			}
		}
	}
	segs := s.man.Segments
	var dead map[uint32][]uint64
	if b, err := readFile(s.fs, stateName(no)); err == nil {
		if st, err := decodeState(b); err == nil {
			r.whole, r.tables, dead = true, st.tables, st.dead
			for _, id := range st.damaged {
				r.damaged[id] = true
			}
			for i := range r.tables {
				for _, f := range r.tables[i].refused {
					r.refused[f.ID] = true
				}
			}
			segs = segs[:0:0]
			for no := range dead {
				segs = append(segs, no)
			}
		}
	}
	for _, no := range segs {
		seg, err := s.openSegment(no)
		if err != nil {
			continue // that is why it is made anew; the log has what it had
		}
		seg.refs.Store(1)
		copy(seg.dead, dead[no])
		r.segs = append(r.segs, seg)
	}
	return r, nil
}

func (r *remains) release() {
	for _, seg := range r.segs {
		seg.release()
	}
}

// recall adds what the old state knows to what the log says, where the log is damaged: tombstones and
// refusals, and, to gone, the lsns of events that were removed.
func (s *Store) recall(r *remains, gone map[uint64]struct{}) {
	for i := range r.tables {
		s.tables.apply(&r.tables[i])
	}
	for _, seg := range r.segs {
		for d := range uint32(seg.n) {
			if seg.isDead(d) && !r.damaged[*seg.id(d)] {
				gone[seg.lsn(d)] = struct{}{}
			}
		}
	}
}

// mourn notes the events that were there before and are not any more, though nothing removed them.
// gone are the lsns of those that were removed.
func (s *Store) mourn(r *remains, gone map[uint64]struct{}) {
	missing := func(id nostr.ID) bool {
		if _, _, _, ok := s.latest().find(&id); ok {
			return false
		}
		_, refused := s.tables.refusal(id)
		return !refused
	}
	for id := range r.damaged {
		if missing(id) {
			s.damaged[id] = struct{}{}
		}
	}
	for _, seg := range r.segs {
		for d := range uint32(seg.n) {
			if _, ok := gone[seg.lsn(d)]; ok || seg.isDead(d) || !r.whole && !r.files[seg.pos(d).file] {
				continue
			}
			if id := *seg.id(d); missing(id) {
				s.damaged[id] = struct{}{}
			}
		}
	}
}

// settle takes off the list of what is lost what a change removes or refuses.
func (s *Store) settle(fx *effects) {
	for i := range fx.drops {
		s.healed(fx.drops[i].id)
	}
	for i := range fx.refused {
		s.healed(fx.refused[i].ID)
	}
}
