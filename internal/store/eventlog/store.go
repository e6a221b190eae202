// Package eventlog is the default event store: an append-only log of events as their JSON
// came, immutable segments that index it, and a small head in memory for what is new. The
// log is the truth; everything else can be rebuilt from it. docs/store-format.md describes the files.
//
// One goroutine writes: whatever is offered at the same time becomes one write and one
// sync, and nothing is acknowledged or shown to readers before the sync has succeeded. Readers work on
// snapshots: a version of the parts, which they hold by a reference, and the number
// of the last change that counts (every event knows the change that brought it and the
// one that removed it). A second goroutine seals, merges and gives space back.
package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Options set up a store. The zero value is good.
type Options struct {
	// OwnURLs are the relay URLs by which a vanish request (NIP-62) can name us.
	OwnURLs []string
	// MaxBytes is the size on disk that the store keeps under by its Retention rules; 0 is
	// no bound. Under 16 MiB it counts as 16 MiB.
	MaxBytes int64
	// Retention says what goes first when the store is over MaxBytes, and what is too old or too
	// many in any case.
	Retention Retention
	// LogFileBytes is the size at which a new log file is begun (default 64 MiB).
	LogFileBytes int64
	// FlushDocs is the number of events at which those in memory become a segment file (default 65536).
	FlushDocs int
	// AdvisoryRefusals bounds the remembered refusals for "superseded" and "expired"
	// (default store.DefaultAdvisory). All others are kept for good.
	AdvisoryRefusals int
	// SetCacheBytes bounds the memory for cached parts of negentropy sets (default 64 MiB).
	SetCacheBytes int64
	// SearchScan bounds how many events one search reads (default 200,000); the
	// answer has the newest matches among them.
	SearchScan int
	// Log gets what an operator should know; nil discards it.
	Log *slog.Logger
	// FS replaces the directory, for tests.
	FS FS
	// ReadOnly refuses every change with store.ErrReadOnly. Opening still mends what a crash has left.
	ReadOnly bool
	// NoSync leaves out all syncs: a crash of the machine loses events that were acknowledged, or more.
	NoSync bool

	headDocs int // events in the head
}

func (o Options) withDefaults() Options {
	set := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	if o.LogFileBytes <= 0 {
		o.LogFileBytes = 64 << 20
	}
	if o.SetCacheBytes <= 0 {
		o.SetCacheBytes = 64 << 20
	}
	if o.MaxBytes > 0 {
		o.MaxBytes = max(o.MaxBytes, minQuota)
		// Space comes back a log file at a time, so files are small against the quota.
		o.LogFileBytes = min(o.LogFileBytes, max(o.MaxBytes/32, 256<<10))
		if o.FlushDocs <= 0 {
			o.FlushDocs = min(1<<16, int(o.MaxBytes>>12))
		}
		if o.AdvisoryRefusals <= 0 {
			o.AdvisoryRefusals = min(store.DefaultAdvisory, int(o.MaxBytes>>10))
		}
	}
	set(&o.FlushDocs, 1<<16)
	set(&o.headDocs, 1<<11)
	set(&o.AdvisoryRefusals, store.DefaultAdvisory)
	set(&o.SearchScan, 200_000)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is the event log. It implements store.Store.
type Store struct {
	opts   Options
	fs     FS
	rules  store.Rules
	hash   hasher
	lock   io.Closer
	tables *tables
	cache  *partCache

	vmu sync.RWMutex // the two that readers start from
	cur *version
	vis uint64

	wmu       sync.Mutex // held while changing anything; what follows is the writer's
	lsn       uint64
	maxSeq    uint64
	lastSeq   atomic.Uint64
	active    *logFile
	base      int64 // where the next record goes in the active file
	buf       []byte
	clock     int64 // the latest now that was heard of
	man       manifest
	terms     []term
	undo      undo
	torn      bool  // the active file may have more than base: part of a write to a full disk
	fullTold  bool  // so it was told
	takenBack int   // how often tombstones or refusals were taken back
	horizon   int64 // created_at up to which the quota has removed what is not protected

	rebuilding bool // at Open: segments are written without touching the manifest

	upkeep sync.Mutex // one piece of upkeep at a time

	failed   atomic.Pointer[error]
	returned atomic.Int64
	other    atomic.Int64 // bytes of segments, state and manifest

	dmu     sync.Mutex
	damaged map[nostr.ID]struct{}
	lost    map[uint32]int64 // at Open: log files of which something is missing, and what they have
	report  Report

	requests chan *request
	wake     chan struct{}
	stop     chan struct{}
	stopped  atomic.Bool
	closing  sync.Once
	closeErr error
	ended    chan struct{} // closed when the writer has gone
	keeper   sync.WaitGroup
	passes   passes
}

// Report says what Open found and put right.
type Report struct {
	TornBytes int64  // cut off the end of the log: a write that was never acknowledged
	Holes     []Hole // stretches of the log that could not be read
	Rebuilt   string // why the indexes were made anew, "" if they were not
	Replayed  int    // events read from the log after the last checkpoint

	Lost    []LostFile // log files that are missing or shorter than the manifest says
	Headers []uint32   // log files whose header was damaged; it has been written anew
	Damaged []nostr.ID // events known to be lost, now or before, and not yet healed
}

var _ store.Store = (*Store)(nil)

// Open opens the store in a directory, making it if need be. It returns ErrLocked
// while another process has it, and wraps ErrVersion for a store of a newer program.
func Open(dir string, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	fs := opts.FS
	if fs == nil {
		var err error
		if fs, err = Dir(dir); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	s, err := open(fs, opts, false)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// Rebuild makes every index of the store in a directory anew from its log.
func Rebuild(dir string, opts Options) (Report, error) {
	opts = opts.withDefaults()
	fs := opts.FS
	if fs == nil {
		var err error
		if fs, err = Dir(dir); err != nil {
			return Report{}, fmt.Errorf("rebuild store: %w", err)
		}
	}
	s, err := open(fs, opts, true)
	if err != nil {
		return Report{}, fmt.Errorf("rebuild store: %w", err)
	}
	if err := s.Close(); err != nil {
		return s.report, fmt.Errorf("rebuild store: %w", err)
	}
	return s.report, nil
}

func open(fs FS, opts Options, rebuild bool) (*Store, error) {
	if opts.NoSync {
		fs = noSync{fs}
	}
	lock, err := fs.Lock("LOCK")
	if err != nil {
		return nil, err
	}
	s := &Store{
		opts:     opts,
		fs:       fs,
		rules:    store.Rules{OwnURLs: opts.OwnURLs},
		lock:     lock,
		tables:   newTables(opts.AdvisoryRefusals),
		cache:    newPartCache(opts.SetCacheBytes),
		damaged:  make(map[nostr.ID]struct{}),
		requests: make(chan *request, 256),
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
		ended:    make(chan struct{}),
	}
	if err := s.load(rebuild); err != nil {
		if s.cur != nil {
			s.cur.release()
		}
		return nil, errors.Join(err, lock.Close())
	}
	if opts.ReadOnly {
		err := fmt.Errorf("%w: opened so", store.ErrReadOnly)
		s.failed.Store(&err)
	}
	go s.write()
	s.keeper.Add(1)
	go s.keep()
	return s, nil
}

// Report returns what Open found.
func (s *Store) Report() Report { return s.report }

// setAside takes an event whose record is damaged out of the store, so that it can
// be had again from a peer.
func (s *Store) setAside(d *doc, cause error) error {
	s.dmu.Lock()
	_, known := s.damaged[d.id]
	s.damaged[d.id] = struct{}{}
	s.dmu.Unlock()
	s.vmu.RLock()
	v := s.cur
	v.refs.Add(1)
	s.vmu.RUnlock()
	defer v.release()
	for _, seg := range v.segments() {
		if n, ok := seg.find(&d.id); ok && seg.lsn(n) == d.lsn {
			seg.kill(n, 0)
		}
	}
	if !known {
		s.opts.Log.Error("event record is damaged and set aside", "id", d.id.String(), "cause", cause)
	}
	return fmt.Errorf("%w: %v", errDamaged, cause)
}

// Damaged lists the ids of events whose records are damaged. They are not in the store any
// more; inserting them again heals them.
func (s *Store) Damaged() []nostr.ID {
	s.dmu.Lock()
	defer s.dmu.Unlock()
	ids := make([]nostr.ID, 0, len(s.damaged))
	for id := range s.damaged {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b nostr.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// check says whether the store may be read.
func (s *Store) check(ctx context.Context) error {
	if s.stopped.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id nostr.ID, now int64) (*nostr.Event, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	n := s.snapshot()
	defer n.release()
	d, e, _, ok := n.find(&id)
	if !ok || d.expires <= now {
		return nil, store.ErrNotFound
	}
	if e != nil {
		return e, nil
	}
	e, err := n.read(&d)
	if errors.Is(err, errDamaged) {
		return nil, store.ErrNotFound
	}
	return e, err
}

// Has implements store.Store.
func (s *Store) Has(ctx context.Context, id nostr.ID, now int64) (bool, error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	n := s.snapshot()
	defer n.release()
	d, _, _, ok := n.find(&id)
	return ok && d.expires > now, nil
}

// LastSeq implements store.Store.
func (s *Store) LastSeq(ctx context.Context) (uint64, error) {
	return s.lastSeq.Load(), s.check(ctx)
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	if err := s.check(ctx); err != nil {
		return store.Stats{}, err
	}
	n := s.snapshot()
	defer n.release()
	st := store.Stats{LastSeq: s.lastSeq.Load(), Returned: s.returned.Load()}
	st.Tombstones, st.Refusals = s.tables.counts()
	st.Events = n.size()
	for _, f := range n.v.files {
		st.Bytes += f.size.Load()
		st.DeadBytes += f.dead.Load()
	}
	st.Bytes += s.other.Load()
	s.dmu.Lock()
	st.Damaged = int64(len(s.damaged))
	s.dmu.Unlock()
	return st, nil
}

// size counts the living, expired or not.
func (n snapshot) size() int64 {
	total := int64(0)
	for _, seg := range n.v.segments() {
		total += int64(seg.n) - seg.ndead.Load()
	}
	h := n.v.head
	h.mu.RLock()
	defer h.mu.RUnlock()
	for i := range h.docs {
		if h.seen(uint32(i), n.vis) {
			total++
		}
	}
	return total
}

// Close implements store.Store. It makes a checkpoint, so that the next Open is quick; the events
// themselves have been durable all along.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.stopped.Store(true)
		close(s.stop)
		s.keeper.Wait()
		<-s.ended
		s.upkeep.Lock()
		defer s.upkeep.Unlock()
		if s.failed.Load() == nil {
			s.closeErr = s.checkpoint(func() bool { return false })
		}
		s.vmu.Lock()
		v := s.cur
		s.vmu.Unlock()
		v.release()
		s.closeErr = errors.Join(s.closeErr, s.lock.Close())
	})
	return s.closeErr
}
