// Package sqlstore keeps events in tables of a SQL database. It holds all that the databases
// have in common; sqlite and postgres, beside it, are each a Dialect and an Open. Membership is decided by
// store.Rules, as for every engine; this package only looks up and writes down.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
)

// Dialect is what sets one database apart from another.
type Dialect struct {
	Name string // "sqlite", "postgres"
	// Bytes and Integer are the names of the column types; Suffix ends a CREATE TABLE of rows that are found by their key alone.
	Bytes, Integer, Suffix string
	// Numbered says that parameters are written $1, $2, … and not ?.
	Numbered bool
	// Words is how the words of events are indexed for a search (NIP-50).
	Words Words
	// Lock makes the transaction the only one that writes, across processes, until it ends; nil if it is so from the start.
	Lock func(ctx context.Context, tx *sql.Tx) error
	// Committing runs last in a transaction that gave out the arrival numbers first to last; nil for nothing.
	Committing func(ctx context.Context, tx *sql.Tx, first, last uint64) error
	// Size is the number of octets that the database holds on disk.
	Size func(ctx context.Context, db *sql.DB) (int64, error)
	// Full says whether a failed write means that there is no room.
	Full func(error) bool
}

// Options set up a Store. The zero value is usable.
type Options struct {
	OwnURLs  []string // by which a vanish request (NIP-62) can name this relay
	MaxBytes int64    // octets that the database may hold; 0: no limit
	Advisory int      // remembered refusals of the bounded reasons; 0: store.DefaultAdvisory
	Face     int64    // which of several processes on one database this is; 0 if there is only one
	SetItems int      // items of the sets that are kept for the next NIP-77 session, 40 octets each; 0: 1,048,576
}

// Store is an event store in a SQL database.
type Store struct {
	dialect Dialect
	opt     Options
	rules   store.Rules
	write   *sql.DB
	read    *sql.DB

	mu      sync.Mutex // one writer at a time in this process
	hints   int        // bounded refusals entered since the last forgetting
	swept   int64      // when expired events were last removed, unix seconds
	size    atomic.Int64
	sized   time.Time // when size was measured
	closed  atomic.Bool
	closers []func() error
	sets    sets
}

var _ store.Store = (*Store)(nil)

// Open makes a store of a database, creating its tables where there are none. write and read may be the same; both are closed with
// the store.
func Open(ctx context.Context, write, read *sql.DB, d Dialect, opt Options) (*Store, error) {
	if opt.Advisory == 0 {
		opt.Advisory = store.DefaultAdvisory
	}
	if opt.SetItems == 0 {
		opt.SetItems = 1 << 20
	}
	s := &Store{dialect: d, opt: opt, rules: store.Rules{OwnURLs: opt.OwnURLs}, write: write, read: read}
	s.sets.most = opt.SetItems
	if err := s.prepare(ctx); err != nil {
		return nil, fmt.Errorf("open the %s store: %w", d.Name, err)
	}
	return s, nil
}

// OnClose adds what must end before the database is closed.
func (s *Store) OnClose(f func() error) { s.closers = append(s.closers, f) }

// check says whether the store may be used.
func (s *Store) check(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// inTx runs f in a transaction that is the only writer, here and in other processes.
func (s *Store) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(ctx); err != nil {
		return err
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.failure("begin", err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if s.dialect.Lock != nil {
		if err := s.dialect.Lock(ctx, tx); err != nil {
			return s.failure("lock", err)
		}
	}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return s.failure("commit", err)
	}
	return nil
}

// failure says what was being done, and names a full database as such.
func (s *Store) failure(doing string, err error) error {
	if s.dialect.Full != nil && s.dialect.Full(err) {
		return fmt.Errorf("%s: %w: %w", doing, store.ErrFull, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	if err := s.check(ctx); err != nil {
		return store.Stats{}, err
	}
	var st store.Stats
	var tombs [4]int64
	row := s.read.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM refused), (SELECT count(*) FROM asked),
 (SELECT count(*) FROM bounds), (SELECT count(*) FROM floors), (SELECT count(*) FROM vanished), (SELECT value FROM meta WHERE name = 'seq')`)
	if err := row.Scan(&st.Events, &st.Refusals, &tombs[0], &tombs[1], &tombs[2], &tombs[3], &st.LastSeq); err != nil {
		return store.Stats{}, fmt.Errorf("count: %w", err)
	}
	st.Tombstones = tombs[0] + tombs[1] + tombs[2] + tombs[3]
	size, err := s.dialect.Size(ctx, s.read)
	if err != nil {
		return store.Stats{}, fmt.Errorf("measure the database: %w", err)
	}
	st.Bytes = size
	return st, nil
}

// LastSeq implements store.Store.
func (s *Store) LastSeq(ctx context.Context) (uint64, error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	var seq uint64
	if err := s.read.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'seq'`).Scan(&seq); err != nil {
		return 0, fmt.Errorf("read the last arrival number: %w", err)
	}
	return seq, nil
}

// sizeAge is how long a measured size is believed: measuring is not free.
const sizeAge = 10 * time.Second

// room fails with store.ErrFull where the database has reached its limit. The caller holds mu.
func (s *Store) room(ctx context.Context) error {
	if s.opt.MaxBytes <= 0 {
		return nil
	}
	if time.Since(s.sized) > sizeAge {
		n, err := s.dialect.Size(ctx, s.read)
		if err != nil {
			return fmt.Errorf("measure the database: %w", err)
		}
		s.size.Store(n)
		s.sized = time.Now()
	}
	if n := s.size.Load(); n >= s.opt.MaxBytes {
		return fmt.Errorf("%w: the database holds %d octets, spec.storage.maxBytes is %d", store.ErrFull, n, s.opt.MaxBytes)
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, f := range s.closers {
		errs = append(errs, f())
	}
	s.mu.Lock() // whoever writes is let to finish
	defer s.mu.Unlock()
	errs = append(errs, s.write.Close())
	if s.read != s.write {
		errs = append(errs, s.read.Close())
	}
	return errors.Join(errs...)
}

// Face says which of several processes on one database this is.
func (s *Store) Face() int64 { return s.opt.Face }
