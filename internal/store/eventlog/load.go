package eventlog

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

func (v *version) clone() *version {
	return &version{
		head:  v.head,
		mem:   slices.Clone(v.mem),
		disk:  slices.Clone(v.disk),
		files: maps.Clone(v.files),
		moved: maps.Clone(v.moved),
	}
}

func emptyVersion() *version {
	return &version{head: newHead(), files: make(map[uint32]*logFile), moved: make(map[uint32]*moves)}
}

// load brings the store into memory as the files have it.
func (s *Store) load(rebuild bool) error {
	names, err := s.fs.List()
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	var logs []uint32
	indexed := false
	for _, name := range names {
		if _, ok := numberOf(name, "seg-"); ok {
			indexed = true
		}
		if no, ok := numberOf(name, "log-"); ok {
			logs = append(logs, no)
		}
	}
	slices.Sort(logs)
	b, err := readFile(s.fs, manifestName)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(logs) == 0 && !indexed:
		if err := s.create(); err != nil {
			return err
		}
		return s.finish(nil)
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("there is no manifest")
	case err != nil:
		return fmt.Errorf("read manifest: %w", err)
	default:
		err = s.man.decode(b)
	}
	if err == nil {
		if err := s.findLost(); err != nil {
			return err
		}
	}
	if err == nil && rebuild {
		err = errors.New("asked for")
	}
	if err == nil {
		err = s.loadCheckpoint(logs)
	}
	if errors.Is(err, ErrVersion) {
		return err
	}
	var vanished []vanish
	if err != nil {
		s.report.Rebuilt = err.Error()
		s.opts.Log.Warn("making all indexes anew from the log", "cause", err)
		vanished, err = s.rebuild(logs)
	} else {
		vanished, err = s.replay()
	}
	if err != nil {
		return err
	}
	s.mendHeaders()
	s.tidy(names)
	return s.finish(vanished)
}

// create makes an empty store.
func (s *Store) create() error {
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	s.man = manifest{Version: FormatVersion, Key: hex.EncodeToString(key[:]), NextSegment: 1, NextLog: 1}
	s.hash = newHasher(key)
	l, err := createLog(s.fs, 1, 0)
	if err != nil {
		return err
	}
	s.man.NextLog = 2
	s.man.CoveredFile, s.man.CoveredSize = 1, logHeader
	v := emptyVersion()
	v.files[1] = l
	s.active, s.base = l, logHeader
	s.install(v)
	return s.save(v)
}

// finish completes what a crash cut off, and publishes.
func (s *Store) finish(vanished []vanish) error {
	for _, v := range vanished {
		if err := s.vanish(v, s.clock); err != nil {
			return err
		}
	}
	if err := s.flushLog(); err != nil {
		return err
	}
	s.buf = s.buf[:0]
	s.publish()
	if s.report.Damaged = s.Damaged(); len(s.report.Damaged) > 0 {
		s.opts.Log.Error("events are lost to damage; a sync with a relay that holds them heals them", "events", len(s.report.Damaged))
	}
	return nil
}

// loadCheckpoint opens what the manifest names.
func (s *Store) loadCheckpoint(logs []uint32) error {
	key, err := s.man.key()
	if err != nil {
		return err
	}
	s.hash = newHasher(key)
	v := emptyVersion()
	fail := func(err error) error {
		v.hold().release()
		return err
	}
	for i := range s.man.Logs {
		ref := &s.man.Logs[i]
		if have, lost := s.lost[ref.No]; lost && have < logHeader {
			continue
		}
		l, err := openLog(s.fs, ref.No, ref)
		if err != nil {
			return fail(err)
		}
		l.dead.Store(ref.Dead)
		v.files[ref.No] = l
	}
	if v.files[s.man.CoveredFile] == nil && !s.coveredLost() {
		return fail(errors.New("the log file of the checkpoint is missing"))
	}
	if err := s.openTail(v, logs); err != nil {
		return fail(err)
	}
	for _, no := range s.man.Segments {
		seg, err := s.openSegment(no)
		if err != nil {
			return fail(err)
		}
		v.disk = append(v.disk, seg)
	}
	if s.man.State != 0 {
		if err := s.loadState(v); err != nil {
			return fail(err)
		}
	}
	s.setAsideLost(v)
	s.horizon = s.man.horizon(s.opts.MaxBytes)
	s.lsn, s.maxSeq, s.clock = s.man.LSN, s.man.LastSeq, s.man.Clock
	s.returned.Store(s.man.Returned)
	s.install(v)
	return nil
}

// openTail opens the log files that were begun after the checkpoint.
func (s *Store) openTail(v *version, logs []uint32) error {
	for _, no := range logs {
		s.man.NextLog = max(s.man.NextLog, no+1)
		if _, lost := s.lost[no]; lost || no <= s.man.CoveredFile || v.files[no] != nil {
			continue
		}
		l, err := openLog(s.fs, no, nil)
		if errors.Is(err, io.ErrUnexpectedEOF) { // its header was never synced, so it has no records
			if err := s.fs.Remove(logName(no)); err != nil {
				return fmt.Errorf("remove unfinished log file: %w", err)
			}
			continue
		}
		if err != nil {
			return err
		}
		if l.rewrite { // of a rewrite that was not finished
			l.remove.Store(true)
			l.refs.Store(1)
			l.release()
			continue
		}
		v.files[no] = l
	}
	return nil
}

func (s *Store) openSegment(no uint32) (*segment, error) {
	m, err := mapFile(s.fs, segName(no))
	if err != nil {
		return nil, fmt.Errorf("open segment %d: %w", no, err)
	}
	seg, err := parseSegment(m.Data, no)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("segment %d: %w", no, err), m.Close())
	}
	m.Drop() // the checksums have touched every page
	seg.m = m
	return seg, nil
}

func (s *Store) loadState(v *version) error {
	b, err := readFile(s.fs, stateName(s.man.State))
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	st, err := decodeState(b)
	if err != nil {
		return err
	}
	size := int64(len(b))
	for _, seg := range v.disk {
		dead := st.dead[seg.no]
		if len(dead) != len(seg.dead) {
			return fmt.Errorf("%w: death bits of segment %d", errState, seg.no)
		}
		copy(seg.dead, dead)
		n := 0
		for d := range seg.n {
			if seg.isDead(uint32(d)) {
				n++
			}
		}
		seg.ndead.Store(int64(n))
		size += seg.size
	}
	s.other.Store(size)
	v.moved = st.moved
	for _, id := range st.damaged {
		s.damaged[id] = struct{}{}
	}
	for i := range st.tables {
		s.tables.apply(&st.tables[i])
	}
	return nil
}

// replay reads the log after the checkpoint.
func (s *Store) replay() ([]vanish, error) {
	var vanished []vanish
	var tail []*logFile
	for _, no := range slices.Sorted(maps.Keys(s.cur.files)) {
		if l := s.cur.files[no]; no >= s.man.CoveredFile && !l.rewrite && !(no == s.man.CoveredFile && s.coveredLost()) {
			tail = append(tail, l)
		}
	}
	if s.coveredLost() { // what comes after the checkpoint is in later files, if there is any
		if len(tail) == 0 {
			if err := s.newLog(); err != nil {
				return nil, err
			}
			tail = append(tail, s.active)
		}
		delete(s.lost, s.man.CoveredFile)
		s.man.CoveredFile, s.man.CoveredSize = tail[0].no, logHeader
	}
	for i, l := range tail {
		from := int64(logHeader)
		if l.no == s.man.CoveredFile {
			from = s.man.CoveredSize
		}
		end, holes, err := l.scan(from, func(r *record, p pos) error {
			vanished = append(vanished, r.effects.vanished...)
			return s.again(r, p)
		})
		if err != nil {
			return nil, err
		}
		if err := s.mend(l, end, holes, i == len(tail)-1); err != nil {
			return nil, err
		}
	}
	s.active = tail[len(tail)-1]
	s.base = s.active.size.Load()
	return vanished, nil
}

// mend cuts a torn write off the end of the log and notes what could not be read.
func (s *Store) mend(l *logFile, end int64, holes []Hole, last bool) error {
	size := l.size.Load()
	_, lost := s.lost[l.no]
	if size > end && last && !l.broken && !lost { // of another kind of damage nothing is cut off
		if err := l.f.Truncate(end); err != nil {
			return fmt.Errorf("truncate log file %d: %w", l.no, err)
		}
		if err := l.f.Sync(); err != nil {
			return fmt.Errorf("sync log file %d: %w", l.no, err)
		}
		s.report.TornBytes += size - end
		s.opts.Log.Warn("cut a torn write off the log", "file", l.no, "bytes", size-end)
	} else if size > end {
		holes = append(holes, Hole{l.no, end, size})
		end = size
	}
	l.size.Store(end)
	for _, h := range holes {
		l.dead.Add(h.To - h.From)
		s.opts.Log.Error("a stretch of the log cannot be read", "file", h.File, "from", h.From, "to", h.To)
	}
	s.report.Holes = append(s.report.Holes, holes...)
	return nil
}

// again does a logged change once more, in memory only.
func (s *Store) again(r *record, p pos) error {
	s.lsn = max(s.lsn, r.lsn)
	s.clock = max(s.clock, r.effects.at)
	for _, d := range r.effects.drops {
		if old, _, at, ok := s.latest().find(&d.id); ok && old.lsn == d.lsn {
			if at.seg == nil {
				s.cur.head.kill(at.n, r.lsn)
			} else {
				at.seg.kill(at.n, r.lsn)
			}
			s.bury(old.pos)
		}
	}
	s.tables.apply(&r.effects)
	s.settle(&r.effects)
	if r.json == nil {
		return nil
	}
	return s.readd(r, p)
}

// readd indexes a logged event.
func (s *Store) readd(r *record, p pos) error {
	s.lsn = max(s.lsn, r.lsn)
	e, err := nostr.ParseEvent(r.json)
	if err != nil {
		s.opts.Log.Error("a logged event cannot be read", "file", p.file, "offset", p.off, "cause", err)
		s.report.Holes = append(s.report.Holes, Hole{p.file, int64(p.off), int64(p.off) + int64(p.size)})
		s.bury(p)
		return nil
	}
	if old, _, at, ok := s.latest().find(&e.ID); ok {
		if old.lsn >= r.lsn {
			s.bury(p) // a second copy, as a rewrite leaves it that was not finished
			return nil
		}
		// The older record was damaged, and this one healed it.
		if at.seg == nil {
			s.cur.head.kill(at.n, r.lsn)
		} else {
			at.seg.kill(at.n, r.lsn)
		}
		s.bury(old.pos)
	}
	s.report.Replayed++
	s.index(e, r.lsn, p)
	if len(s.cur.head.docs) < s.opts.headDocs {
		return nil
	}
	s.lastSeq.Store(s.maxSeq)
	if err := s.seal(); err != nil {
		return err
	}
	return s.shrinkMemory()
}

// tidy removes files that nothing refers to: leftovers of what a crash interrupted.
func (s *Store) tidy(names []string) {
	for _, name := range names {
		keep := true
		if no, ok := numberOf(name, "seg-"); ok {
			keep = slices.Contains(s.man.Segments, no) || slices.ContainsFunc(s.cur.disk, func(g *segment) bool { return g.no == no })
		} else if no, ok := numberOf(name, "sta-"); ok {
			keep = no == s.man.State
		} else if no, ok := numberOf(name, "log-"); ok {
			keep = s.cur.files[no] != nil || len(s.damaged) > 0 // a rebuild may find something in it
		} else {
			keep = !strings.HasSuffix(name, ".tmp")
		}
		if !keep {
			s.fs.Remove(name) // if it fails, the next Open tries again
		}
	}
}

// rebuild makes everything anew from the log. Records are taken in any order of files, so
// the removals are gathered first.
func (s *Store) rebuild(logs []uint32) ([]vanish, error) {
	if s.cur != nil {
		s.cur.release()
		s.cur = nil
	}
	old, err := s.harvest()
	defer old.release()
	if err != nil {
		return nil, err
	}
	refs := s.man.Logs
	if err := s.restart(); err != nil {
		return nil, err
	}
	v := emptyVersion()
	for _, no := range logs {
		s.man.NextLog = max(s.man.NextLog, no+1)
		var ref *logRef
		if i := slices.IndexFunc(refs, func(r logRef) bool { return r.No == no }); i >= 0 {
			ref = &refs[i]
		}
		l, err := openLog(s.fs, no, ref)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			s.fs.Remove(logName(no))
			continue
		}
		if err != nil {
			v.hold().release()
			return nil, err
		}
		v.files[no] = l
	}
	s.install(v)
	gone, vanished, err := s.gather()
	if err != nil {
		return nil, err
	}
	s.recall(&old, gone)
	return vanished, s.reindex(gone, &old)
}

// restart forgets the checkpoint. Its segments stay until the new ones are in place.
func (s *Store) restart() error {
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	next := s.man
	names, err := s.fs.List()
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	for _, name := range names {
		if no, ok := numberOf(name, "seg-"); ok {
			next.NextSegment = max(next.NextSegment, no+1)
		}
		if no, ok := numberOf(name, "sta-"); ok {
			next.State = max(next.State, no)
		}
	}
	s.man = manifest{Version: FormatVersion, Key: hex.EncodeToString(key[:]), NextSegment: max(1, next.NextSegment), NextLog: 1, State: next.State, Returned: next.Returned}
	s.hash = newHasher(key)
	s.tables = newTables(s.opts.AdvisoryRefusals)
	clear(s.damaged)
	s.lsn, s.maxSeq = next.LSN, 0
	s.returned.Store(next.Returned)
	return nil
}

// gather collects the effects of all records and applies them in their order. It returns the
// lsns of the events that were removed.
func (s *Store) gather() (map[uint64]struct{}, []vanish, error) {
	type change struct {
		lsn uint64
		fx  effects
	}
	var all []change
	gone := make(map[uint64]struct{})
	var vanished []vanish
	files := slices.Sorted(maps.Keys(s.cur.files))
	for _, no := range files {
		l := s.cur.files[no]
		end, holes, err := l.scan(logHeader, func(r *record, p pos) error {
			s.lsn = max(s.lsn, r.lsn)
			if !r.effects.empty() {
				all = append(all, change{r.lsn, r.effects})
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		if err := s.mend(l, end, holes, no == s.lastWritten()); err != nil {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.lsn, b.lsn) })
	for i := range all {
		fx := &all[i].fx
		for _, d := range fx.drops {
			gone[d.lsn] = struct{}{}
		}
		vanished = append(vanished, fx.vanished...)
		s.clock = max(s.clock, fx.at)
		s.tables.apply(fx)
	}
	return gone, vanished, nil
}

// lastWritten is the number of the log file that was being appended to.
func (s *Store) lastWritten() uint32 {
	last := uint32(0)
	for no, l := range s.cur.files {
		if !l.rewrite {
			last = max(last, no)
		}
	}
	return last
}

// reindex puts every event that is left into new segments and makes a checkpoint.
func (s *Store) reindex(gone map[uint64]struct{}, old *remains) error {
	s.rebuilding = true
	defer func() { s.rebuilding = false }()
	for _, no := range slices.Sorted(maps.Keys(s.cur.files)) {
		_, _, err := s.cur.files[no].scan(logHeader, func(r *record, p pos) error {
			if r.json == nil {
				return nil
			}
			_, removed := gone[r.lsn]
			if id, err := nostr.ParseID(nostr.PeekID(r.json)); err == nil && old.removed(id, r.lsn) {
				removed = true
			}
			if removed {
				s.bury(p)
				return nil
			}
			return s.readd(r, p)
		})
		if err != nil {
			return err
		}
	}
	if last := s.lastWritten(); last != 0 {
		s.active = s.cur.files[last]
		s.base = s.active.size.Load()
	} else if err := s.newLog(); err != nil {
		return err
	}
	s.mourn(old, gone)
	s.rebuilding = false
	return s.checkpoint(func() bool { return false })
}
