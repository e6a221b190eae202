package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// passes counts the keeper's work, for tests.
type passes struct{ merges, checkpoints, rewrites int }

const (
	fanout    = 4  // segments of a size that become one
	memFanout = 4  // the same in memory
	maxMemory = 16 // times FlushDocs in memory: then writers wait for the keeper
)

// slimEvery is how long mapped pages that were touched once count as our memory. Those in
// use come back at once, sixteen at a time.
const slimEvery = time.Minute

// nudge wakes the keeper.
func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep is the keeper: it merges segments, makes checkpoints and gives space back.
func (s *Store) keep() {
	defer s.keeper.Done()
	stop := func() bool { return s.stopped.Load() }
	slim := time.NewTicker(slimEvery)
	defer slim.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-slim.C:
			s.slim()
			continue
		case <-s.wake:
		}
		for !stop() && s.failed.Load() == nil {
			more, err := s.pass(stop)
			if err != nil && !stop() {
				s.opts.Log.Error("store upkeep failed, will be tried again", "cause", err)
			}
			if err != nil || !more {
				break
			}
		}
	}
}

// pass does one piece of upkeep, the most urgent, and says whether there may be more.
func (s *Store) pass(stop func() bool) (bool, error) {
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	if more, err := s.mergeMemory(stop); more || err != nil {
		return more, err
	}
	if s.inMemory() >= s.opts.FlushDocs {
		return true, s.checkpoint(stop)
	}
	if more, err := s.mergeDisk(stop); more || err != nil {
		return more, err
	}
	return s.reclaim(stop)
}

// inMemory counts the documents in memory segments.
func (s *Store) inMemory() int {
	n := s.snapshot()
	defer n.release()
	total := 0
	for _, seg := range n.v.mem {
		total += seg.n
	}
	return total
}

// tier is the size class of a segment: each is fanout times the one below.
func tier(n, unit int) int {
	t := 0
	for n > unit*2 {
		n /= fanout
		t++
	}
	return t
}

// pick returns segments of one size class of which there are enough to merge, the smallest first.
func pick(segs []*segment, unit, enough int) []*segment {
	classes := make(map[int][]*segment)
	most := 0
	for _, seg := range segs {
		t := tier(seg.n, unit)
		classes[t] = append(classes[t], seg)
		most = max(most, t)
	}
	for t := 0; t <= most; t++ {
		if len(classes[t]) >= enough {
			return classes[t]
		}
	}
	return nil
}

// mergeMemory merges small segments in memory.
func (s *Store) mergeMemory(stop func() bool) (bool, error) {
	n := s.snapshot()
	defer n.release()
	ins := pick(n.v.mem, s.opts.headDocs, memFanout)
	if ins == nil {
		return false, nil
	}
	return true, s.remake(ins, false, stop)
}

// mergeDisk merges segment files of like size, and those of which much is dead.
func (s *Store) mergeDisk(stop func() bool) (bool, error) {
	n := s.snapshot()
	defer n.release()
	ins := pick(n.v.disk, s.opts.FlushDocs, fanout)
	if ins == nil {
		for _, seg := range n.v.disk {
			if seg.ndead.Load()*s.deadShare(3, 8) > int64(seg.n) {
				ins = []*segment{seg}
				break
			}
		}
	}
	if ins == nil {
		return false, nil
	}
	return true, s.remake(ins, true, stop)
}

// shrinkMemory is the keeper's work while the log is read at Open. In a rebuild, which may
// read everything there is, segments go to disk, but the manifest names the state before
// until the end.
func (s *Store) shrinkMemory() error {
	never := func() bool { return false }
	for {
		if more, err := s.mergeMemory(never); err != nil {
			return err
		} else if more {
			continue
		}
		if !s.rebuilding {
			return nil
		}
		if mem := s.cur.mem; s.inMemory() >= s.opts.FlushDocs {
			if err := s.remake(slices.Clone(mem), true, never); err != nil {
				return err
			}
			continue
		}
		if more, err := s.mergeDisk(never); err != nil || !more {
			return err
		}
	}
}

// checkpoint seals the head and writes everything that is in memory as one segment file, with the
// state and the manifest: from then on Open need not read the log up to here.
func (s *Store) checkpoint(stop func() bool) error {
	s.wmu.Lock()
	err := s.seal()
	mem := slices.Clone(s.cur.mem)
	file, size, lsn, seq := s.active.no, s.base, s.lsn, s.maxSeq
	s.wmu.Unlock()
	if err != nil {
		return err
	}
	covered := func(m *manifest) {
		m.CoveredFile, m.CoveredSize, m.LSN, m.LastSeq = file, size, lsn, seq
	}
	if len(mem) == 0 {
		s.wmu.Lock()
		defer s.wmu.Unlock()
		old := s.man
		covered(&s.man)
		if err := s.save(s.cur); err != nil {
			s.man = old
			return err
		}
		return nil
	}
	s.passes.checkpoints++
	return s.remakeWith(mem, true, stop, covered)
}

func (s *Store) remake(ins []*segment, disk bool, stop func() bool) error {
	return s.remakeWith(ins, disk, stop, func(*manifest) {})
}

// remakeWith writes segments as one, without their dead, and puts it in their place. Deaths that
// happen meanwhile are carried over.
func (s *Store) remakeWith(segs []*segment, disk bool, stop func() bool, covered func(*manifest)) error {
	s.passes.merges++
	s.wmu.Lock()
	if err := s.writable(); err != nil { // what failed left deaths behind that are not true
		s.wmu.Unlock()
		return err
	}
	n := s.snapshot() // keeps the inputs
	ins := make([]*input, len(segs))
	for i, seg := range segs {
		ins[i] = &input{s: seg, dead: seg.deaths()}
	}
	no := s.man.NextSegment
	if disk {
		s.man.NextSegment++
	}
	s.wmu.Unlock()
	defer n.release()
	var seg *segment
	var err error
	if disk {
		seg, err = s.writeSegment(no, ins, n.v.place, stop)
	} else {
		seg, err = mergeInMemory(ins, n.v.place, stop)
	}
	if err != nil {
		return err
	}
	return s.replace(segs, ins, seg, disk, covered)
}

func mergeInMemory(ins []*input, place func(pos) pos, stop func() bool) (*segment, error) {
	var out bytes.Buffer
	if err := merge(newBuilder(&out, &memScratch{}), ins, place, stop); err != nil {
		return nil, err
	}
	return parseSegment(out.Bytes(), 0)
}

// replace installs a segment in the place of others.
func (s *Store) replace(segs []*segment, ins []*input, seg *segment, disk bool, covered func(*manifest)) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.writable(); err != nil {
		s.discard(seg)
		return err
	}
	for _, in := range ins {
		for d := range in.to {
			if to := in.to[d]; to != ^uint32(0) && in.s.isDead(uint32(d)) {
				seg.kill(to, 0)
			}
		}
	}
	v := s.cur.clone()
	old := func(x *segment) bool { return slices.Contains(segs, x) }
	v.mem = slices.DeleteFunc(v.mem, old)
	v.disk = slices.DeleteFunc(v.disk, old)
	if seg.n > 0 && disk {
		v.disk = append(v.disk, seg)
	} else if seg.n > 0 {
		v.mem = append(v.mem, seg)
	}
	if disk && !s.rebuilding {
		s.forgetMoves(v)
		before := s.man
		covered(&s.man)
		if err := s.save(v); err != nil {
			s.man = before
			s.man.NextSegment = max(s.man.NextSegment, seg.no+1)
			s.discard(seg)
			return err
		}
	}
	if seg.n == 0 {
		s.discard(seg)
	}
	gain := -seg.size
	for _, x := range segs {
		if gain += x.size; x.no != 0 {
			x.gone = s.remover(x.no)
		}
	}
	if s.install(v); disk && segs[0].no != 0 {
		s.returned.Add(max(0, gain))
	}
	return nil
}

// discard gives up a segment that is not installed.
func (s *Store) discard(seg *segment) {
	seg.refs.Store(1)
	if seg.no != 0 {
		seg.gone = s.remover(seg.no)
	}
	seg.release()
}

// remover removes a segment file. If it fails, Open removes it.
func (s *Store) remover(no uint32) func() { return func() { s.fs.Remove(segName(no)) } }

// fileScratch is a scratch in a file.
type fileScratch struct{ writer }

func (f *fileScratch) copyTo(w io.Writer) error {
	if err := f.flush(); err != nil {
		return err
	}
	buf := make([]byte, writerChunk)
	for off := int64(0); off < f.off; {
		n := min(int64(len(buf)), f.off-off)
		if _, err := f.f.ReadAt(buf[:n], off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// writeSegment merges into a segment file and opens it.
func (s *Store) writeSegment(no uint32, ins []*input, place func(pos) pos, stop func() bool) (seg *segment, err error) {
	f, err := s.fs.Create(segName(no))
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	tmpName := segName(no) + ".tmp"
	tmp, err := s.fs.Create(tmpName)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create segment: %w", err), f.Close(), s.fs.Remove(segName(no)))
	}
	w := &writer{f: f}
	b := newBuilder(w, &fileScratch{writer{f: tmp}})
	err = merge(b, ins, place, stop)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close(), tmp.Close())
	s.fs.Remove(tmpName)
	if err == nil {
		err = s.fs.SyncDir()
	}
	if err == nil {
		seg, err = s.openSegment(no)
	}
	if err != nil {
		s.fs.Remove(segName(no))
		return nil, fmt.Errorf("write segment %d: %w", no, err)
	}
	return seg, nil
}
