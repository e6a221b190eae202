package eventlog

import (
	"context"
	"fmt"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// request is a piece of work for the writer. run changes memory and adds records; the change
// is durable and visible when done is closed without an error.
type request struct {
	run  func() error
	size int // events, about
	err  error
	done chan struct{}
}

const (
	groupEvents = 4096 // at most about so many events become one write
	chunkEvents = 2048 // a larger batch is cut into such pieces, each durable by itself
)

// do has the writer do something and waits until it is durable.
func (s *Store) do(ctx context.Context, size int, run func() error) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	r := &request{run: run, size: size, done: make(chan struct{})}
	select {
	case s.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return store.ErrClosed
	}
	// From here on the change may happen whatever the caller does: wait for the truth.
	select {
	case <-r.done:
		return r.err
	case <-s.ended:
	}
	select {
	case <-r.done:
		return r.err
	default: // it came after the writer had gone
		return store.ErrClosed
	}
}

// writable returns the error that made the store read-only.
func (s *Store) writable() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail makes the store read-only for good: after a failed write or sync nobody knows what
// is on the disk, so nothing may be acknowledged any more until the log is read again. (A write to
// a full disk is another matter, see undo.)
func (s *Store) fail(err error) error {
	if isFull(err) {
		err = full(err)
	}
	err = fmt.Errorf("%w until it is opened again: %w", store.ErrReadOnly, err)
	if s.failed.CompareAndSwap(nil, &err) {
		s.opts.Log.Error("store is read-only", "cause", err)
	}
	return *s.failed.Load()
}

// write is the writer: it takes what has come, does it, makes it durable, shows it and
// answers, over and over.
func (s *Store) write() {
	defer close(s.ended)
	for {
		var group []*request
		select {
		case r := <-s.requests:
			group = append(group, r)
		case <-s.stop:
			s.refuseRest()
			return
		}
		size := group[0].size
	more:
		for size < groupEvents && len(group) < groupEvents {
			select {
			case r := <-s.requests:
				group = append(group, r)
				size += r.size
			default:
				break more
			}
		}
		s.commit(group)
	}
}

// refuseRest answers those who came too late.
func (s *Store) refuseRest() {
	for {
		select {
		case r := <-s.requests:
			r.err = store.ErrClosed
			close(r.done)
		default:
			return
		}
	}
}

// commit does a group of requests as one write.
func (s *Store) commit(group []*request) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	err := s.writable()
	if err == nil {
		err = s.within()
	}
	if err == nil {
		s.begin()
		for _, r := range group {
			r.err = r.run()
		}
		if err = s.flushLog(); err != nil && s.failed.Load() == nil {
			s.rollback()
		} else {
			s.end()
		}
		if s.failed.Load() == nil && (err != nil || len(s.buf) > 0) {
			s.tellFull(err)
		}
	}
	if err == nil {
		s.publish()
		s.roll()
	}
	for _, r := range group {
		if err != nil {
			r.err = err
		}
		close(r.done)
	}
}

// within keeps the active file within the offsets that can be told, if a full disk has kept
// new files from being begun for so long.
func (s *Store) within() error {
	if s.base < maxLogFile {
		return nil
	}
	err := s.newLog()
	if err != nil && !isFull(err) {
		return s.fail(err)
	}
	return err
}

// maxLogFile is the size from which on nothing more goes into a log file.
const maxLogFile = 1 << 31

// flushLog writes the group's records and syncs them. If the disk is full, nothing of them is left in
// the log; after any other failure the store is read-only.
func (s *Store) flushLog() error {
	if len(s.buf) == 0 {
		return nil
	}
	if s.torn {
		if err := s.cutBack(); err != nil {
			return err
		}
	}
	if _, err := s.active.f.WriteAt(s.buf, s.base); isFull(err) {
		s.torn = true
		if err := s.cutBack(); err != nil {
			return err
		}
		return full(fmt.Errorf("write log: %w", err))
	} else if err != nil {
		return s.fail(fmt.Errorf("write log: %w", err))
	}
	if err := s.active.f.Sync(); err != nil {
		return s.fail(fmt.Errorf("sync log: %w", err))
	}
	s.base += int64(len(s.buf))
	s.active.size.Store(s.base)
	return nil
}

// publish shows the group's changes to readers.
func (s *Store) publish() {
	s.vmu.Lock()
	s.vis = s.lsn
	s.vmu.Unlock()
	s.lastSeq.Store(s.maxSeq)
}

// install makes a version the current one.
func (s *Store) install(v *version) {
	v.hold()
	s.vmu.Lock()
	old := s.cur
	s.cur = v
	s.vmu.Unlock()
	if old != nil {
		old.release()
	}
}

// roll begins a new log file and a new head when the old ones are full. What has just been written
// is durable whatever happens here, so a failure concerns those who come next.
func (s *Store) roll() {
	if s.base >= s.opts.LogFileBytes {
		if err := s.newLog(); isFull(err) {
			s.tellFull(err) // the old one goes on, and the next group tries again
		} else if err != nil {
			s.fail(err)
			return
		}
	}
	if len(s.cur.head.docs) >= s.opts.headDocs {
		if err := s.seal(); err != nil {
			s.fail(err)
		}
	}
}

func (s *Store) newLog() error {
	if s.torn {
		if err := s.cutBack(); err != nil {
			return err
		}
	}
	l, err := createLog(s.fs, s.man.NextLog, 0)
	if isFull(err) {
		return full(err)
	}
	if err != nil {
		return err
	}
	s.man.NextLog++
	v := s.cur.clone()
	v.files[l.no] = l
	s.active, s.base = l, logHeader
	s.install(v)
	s.nudge()
	return nil
}

// seal makes the head a segment in memory and begins a new one. All of a segment is
// visible, so it must not be called with changes that are not published.
func (s *Store) seal() error {
	if err := s.writable(); err != nil {
		return err
	}
	if len(s.cur.head.docs) == 0 {
		return nil
	}
	seg, err := s.cur.head.segment()
	if err != nil {
		return err
	}
	v := s.cur.clone()
	v.head = newHead()
	if seg.n > 0 {
		v.mem = append(v.mem, seg)
	}
	s.install(v)
	s.nudge()
	return nil
}

// add appends a change to the group: it is in memory at once, where only the writer sees it.
func (s *Store) add(e *nostr.Event, fx *effects) {
	if e == nil && fx.empty() {
		return
	}
	s.lsn++
	var json []byte
	if e != nil {
		json = e.JSON()
	}
	at := len(s.buf)
	s.buf = appendRecord(s.buf, s.lsn, json, fx)
	p := pos{s.active.no, uint32(s.base + int64(at)), uint32(len(s.buf) - at)}
	if e != nil {
		s.index(e, s.lsn, p)
	}
	s.tables.apply(fx)
	s.settle(fx)
}

// index puts an event into the head.
func (s *Store) index(e *nostr.Event, lsn uint64, p pos) {
	d := doc{id: e.ID, at: e.CreatedAt, lsn: lsn, pos: p, kind: e.Kind, expires: store.HeldOf(e).Expires}
	s.terms = s.hash.terms(s.terms, e)
	s.cur.head.add(d, e, s.terms)
	s.tables.stored(e.ID)
	s.maxSeq = max(s.maxSeq, lsn)
	s.healed(e.ID)
}

// kill marks a document dead as of the change that is being made, and returns what to log.
func (s *Store) kill(d *doc, at place, reason string) dropped {
	lsn, was := s.lsn+1, *d
	if at.seg == nil {
		s.cur.head.kill(at.n, lsn)
	} else {
		at.seg.kill(at.n, lsn)
	}
	s.otherwise(func() { s.revive(&was, at, lsn) })
	return dropped{d.lsn, s.bury(d.pos), d.id, reason}
}

// bury counts a record's bytes as dead, and returns the file they are in.
func (s *Store) bury(p pos) uint32 {
	p = s.cur.place(p)
	if f := s.cur.files[p.file]; f != nil {
		f.dead.Add(int64(p.size))
	}
	return p.file
}
