package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Bytes returned to the file system come from rewriting log files of which much is dead and
// from merging segments. A file is rewritten when more than half of it is dead; when the quota presses,
// when more than an eighth is.

// deadShare returns the divisor of the dead share above which something is rewritten: one for
// good times, one for when the quota presses.
func (s *Store) deadShare(easy, pressed int64) int64 {
	if q := s.opts.MaxBytes; q > 0 {
		if b, _ := s.bytes(); b > q*7/10 {
			return pressed
		}
	}
	return easy
}

// bytes returns the size on disk and how much of it is dead.
func (s *Store) bytes() (total, dead int64) {
	n := s.snapshot()
	defer n.release()
	for _, f := range n.v.files {
		total += f.size.Load()
		dead += f.dead.Load()
	}
	for _, seg := range n.v.disk {
		if seg.n > 0 {
			dead += seg.size * seg.ndead.Load() / int64(seg.n)
		}
	}
	return total + s.other.Load(), dead
}

// reclaim does one piece of giving space back.
func (s *Store) reclaim(stop func() bool) (bool, error) {
	if more, err := s.sweepExpired(); more || err != nil {
		return more, err
	}
	if more, err := s.retain(); more || err != nil {
		return more, err
	}
	l := s.worst(s.deadShare(2, 8))
	if l == nil {
		return false, nil
	}
	return true, s.rewrite(l, stop)
}

// worst returns the log file with the largest dead share above 1/share, of those that the
// checkpoint covers.
func (s *Store) worst(share int64) (worst *logFile) {
	n := s.snapshot()
	defer n.release()
	s.wmu.Lock()
	covered := s.man.CoveredFile
	s.wmu.Unlock()
	best := 0.0
	for _, l := range n.v.files {
		size, dead := l.size.Load(), l.dead.Load()
		if !l.rewrite && l.no >= covered || dead*share <= size {
			continue
		}
		if f := float64(dead) / float64(size); f > best {
			best, worst = f, l
		}
	}
	return worst
}

// Compact merges what can be merged and rewrites every log file of which more than a tenth is dead.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	stop := func() bool { return s.stopped.Load() || ctx.Err() != nil }
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	if err := s.endLog(); err != nil {
		return err
	}
	if err := s.checkpoint(stop); err != nil {
		return err
	}
	n := s.snapshot()
	disk := slices.Clone(n.v.disk)
	dead := slices.ContainsFunc(disk, func(g *segment) bool { return g.ndead.Load() > 0 })
	n.release()
	if len(disk) > 1 || dead {
		if err := s.remake(disk, true, stop); err != nil {
			return err
		}
	}
	for l := s.worst(10); l != nil; l = s.worst(10) {
		if err := s.rewrite(l, stop); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// endLog begins a new log file, so that the checkpoint can cover the present one whole.
func (s *Store) endLog() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.writable(); err != nil || s.base == logHeader {
		return err
	}
	err := s.newLog()
	if err != nil && !isFull(err) {
		return s.fail(err)
	}
	return err
}

// rewrite copies what still matters of a log file into a new one, which takes its place.
func (s *Store) rewrite(l *logFile, stop func() bool) error {
	s.wmu.Lock()
	no := s.man.NextLog
	s.man.NextLog++
	taken := s.takenBack
	s.wmu.Unlock()
	n := s.snapshot()
	defer n.release()
	was := l.dead.Load()
	to, err := createLog(s.fs, no, l.no)
	if err != nil {
		return err
	}
	to.refs.Store(1)
	to.remove.Store(true)
	defer to.release() // removes it, unless it is installed
	m := &moves{}
	if err := s.copyLiving(n, l, to, m, stop); err != nil {
		return fmt.Errorf("rewrite log file %d: %w", l.no, err)
	}
	return s.exchange(l, to, m, was, taken)
}

// copyLiving copies the records that matter.
func (s *Store) copyLiving(n snapshot, l, to *logFile, m *moves, stop func() bool) error {
	w := &writer{f: to.f, off: logHeader}
	size := int64(logHeader)
	var buf []byte
	count := 0
	var seen, kept uint64 // lsns
	_, _, err := l.scan(logHeader, func(r *record, p pos) error {
		seen = max(seen, r.lsn)
		if count++; count%1024 == 0 && stop() {
			return store.ErrClosed
		}
		alive := false
		if r.json != nil {
			alive = n.hasRecord(r, p)
		}
		fx := r.effects
		if !fx.empty() {
			fx = s.stillMatters(n.v, &fx)
		}
		if !alive && fx.empty() {
			return nil
		}
		json := r.json
		if !alive {
			json = nil
		}
		kept = max(kept, r.lsn)
		buf = appendRecord(buf[:0], r.lsn, json, &fx)
		if alive {
			m.offs = append(m.offs, p.off)
			m.to = append(m.to, pos{to.no, uint32(size), uint32(len(buf))})
		}
		size += int64(len(buf))
		_, err := w.Write(buf)
		return err
	})
	if err == nil && kept < seen { // an empty record, so that no number is ever given twice
		buf = appendRecord(buf[:0], seen, nil, &effects{})
		size += int64(len(buf))
		_, err = w.Write(buf)
	}
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = to.f.Sync()
	}
	to.size.Store(size)
	return err
}

// hasRecord says whether a living document stands for the record.
func (n snapshot) hasRecord(r *record, p pos) bool {
	e, err := nostr.ParseEvent(r.json)
	if err != nil {
		return false
	}
	d, _, _, ok := n.find(&e.ID)
	return ok && d.lsn == r.lsn && n.v.place(d.pos) == p
}

// stillMatters returns the part of effects that the log must keep. A removal matters while the
// file of the removed record exists (else a rebuild would bring the event back) or the refusal is
// remembered; a tombstone while no later one has taken its place.
func (s *Store) stillMatters(v *version, fx *effects) effects {
	out := effects{at: fx.at, asked: fx.asked}
	exists := func(no uint32) bool {
		if v.files[no] != nil {
			return true
		}
		for _, l := range v.files {
			if l.origin == no {
				return true
			}
		}
		return false
	}
	t := s.tables
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, d := range fx.drops {
		if exists(d.file) || d.reason != "" && t.refused[d.id].reason == d.reason {
			out.drops = append(out.drops, d)
		}
	}
	for _, r := range fx.refused {
		if t.refused[r.ID].reason == r.Reason {
			out.refused = append(out.refused, r)
		}
	}
	for _, b := range fx.bounds {
		if t.bounds[b.addr] == b.until {
			out.bounds = append(out.bounds, b)
		}
	}
	for _, f := range fx.floors {
		if t.floors[f.Address] == f.Version {
			out.floors = append(out.floors, f)
		}
	}
	for _, k := range fx.vanished {
		if t.vanished[k.key] == k.until {
			out.vanished = append(out.vanished, k)
		}
	}
	return out
}

// exchange installs a rewritten log file in the place of the old one.
func (s *Store) exchange(l, to *logFile, m *moves, was int64, taken int) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if s.takenBack != taken { // what was taken for a tombstone's successor may not have come
		return errors.New("a change was taken back meanwhile")
	}
	to.dead.Store(max(0, l.dead.Load()-was)) // what died during the copying
	v := s.cur.clone()
	delete(v.files, l.no)
	v.files[to.no] = to
	for no, old := range v.moved { // those that had moved to l move on
		v.moved[no] = old.moveOn(l.no, m)
	}
	if len(m.offs) > 0 {
		v.moved[l.no] = m
	}
	s.forgetMoves(v)
	gain := l.size.Load() - to.size.Load()
	s.returned.Add(gain)
	if err := s.save(v); err != nil {
		s.returned.Add(-gain)
		return err
	}
	s.passes.rewrites++
	to.remove.Store(false)
	l.remove.Store(true)
	s.install(v)
	return nil
}

// moveOn returns the moves with those to a file replaced by where its records went.
func (m *moves) moveOn(file uint32, next *moves) *moves {
	out := &moves{offs: make([]uint32, 0, len(m.offs)), to: make([]pos, 0, len(m.to))}
	for i, p := range m.to {
		if p.file == file {
			q, ok := next.find(p.off)
			if !ok {
				continue // dead
			}
			p = q
		}
		out.offs = append(out.offs, m.offs[i])
		out.to = append(out.to, p)
	}
	return out
}

// forgetMoves drops the moves of files to which no segment refers any more.
func (s *Store) forgetMoves(v *version) {
	if len(v.moved) == 0 {
		return
	}
	used := make(map[uint32]bool)
	for _, seg := range v.segments() {
		for d := range seg.n {
			used[seg.pos(uint32(d)).file] = true
		}
	}
	maps.DeleteFunc(v.moved, func(no uint32, _ *moves) bool { return !used[no] })
}

// sweepGrace is how long expired events stay on disk, unseen: clocks differ.
const (
	sweepGrace = 60 // seconds
	sweepBatch = 512
)

// sweepExpired removes events that have expired.
func (s *Store) sweepExpired() (bool, error) {
	n := s.snapshot()
	defer n.release()
	s.wmu.Lock()
	now := s.clock
	s.wmu.Unlock()
	var ids []nostr.ID
	for _, seg := range n.v.segments() {
		for d := range seg.expiredBy(now - sweepGrace) {
			if seg.live(d, n.vis) {
				ids = append(ids, *seg.id(d))
			}
			if len(ids) == sweepBatch {
				break
			}
		}
	}
	if len(ids) == 0 {
		return false, nil
	}
	return true, s.remove(ids, store.ReasonExpired, now)
}

// remove drops events for good, in one bounded piece of the writer's time.
func (s *Store) remove(ids []nostr.ID, reason string, now int64) error {
	err := s.do(context.Background(), len(ids), func() error {
		_, err := s.purge(ids, reason, now)
		return err
	})
	if errors.Is(err, store.ErrClosed) {
		return nil
	}
	return err
}
