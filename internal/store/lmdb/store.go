//go:build lmdb && cgo

package lmdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	db "github.com/PowerDNS/lmdb-go/lmdb"

	"fleetmesh.org/fleetmesh/internal/store"
)

// format is the version of the tables. A newer one is refused, so that an older program never spoils it.
const format = 1

const (
	mapBytes = 256 << 20
	growMost = 1 << 30 // octets that the map grows at once
	maxViews = 256     // looks into the tables at the same time
)

// tables are the databases of the environment.
type tables struct {
	meta     db.DBI // name → number
	events   db.DBI // arrival number → text
	ids      db.DBI // id → arrival number, created_at
	index    db.DBI // see keys.go
	current  db.DBI // address → id of its version
	expires  db.DBI // end, id → nothing
	refused  db.DBI // id → at, place or 0, reason
	advisory db.DBI // place → id of a bounded refusal
	asked    db.DBI // id, key → nothing
	bounds   db.DBI // address → until
	floors   db.DBI // address → created_at, id
	vanished db.DBI // key → until
}

// Store is an event store in an LMDB environment.
type Store struct {
	opt   Options
	rules store.Rules
	env   *db.Env
	path  string
	tables

	write  sync.Mutex   // one writer at a time
	mapped sync.RWMutex // held to read whoever looks into the map, and alone by who makes it larger
	views  chan struct{}
	size   int64 // of the map
	swept  int64 // when expired events were last removed, unix seconds
	closed bool  // guarded by mapped
}

var _ store.Store = (*Store)(nil)

// Open opens or makes the store in a directory, which is made where there is none. What Insert reports as stored is on the disk. No two
// processes may have the same directory open.
func Open(ctx context.Context, dir string, opt Options) (store.Store, error) {
	if opt.Advisory == 0 {
		opt.Advisory = store.DefaultAdvisory
	}
	if opt.MapBytes == 0 {
		opt.MapBytes = mapBytes
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the LMDB store: %w", err)
	}
	env, err := db.NewEnv()
	if err != nil {
		return nil, fmt.Errorf("open the LMDB store: %w", err)
	}
	s := &Store{opt: opt, rules: store.Rules{OwnURLs: opt.OwnURLs}, env: env, path: dir, views: make(chan struct{}, maxViews)}
	if err := s.open(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open the LMDB store in %s: %w", dir, err), env.Close())
	}
	return s, ctx.Err()
}

func (s *Store) open(dir string) error {
	s.size = s.opt.MapBytes
	if info, err := os.Stat(filepath.Join(dir, "data.mdb")); err == nil {
		for s.size < info.Size() {
			s.size = s.larger(s.size)
		}
	}
	if s.opt.MaxBytes > 0 {
		s.size = min(s.size, max(s.opt.MaxBytes, 1<<20))
	}
	s.size = pages(s.size)
	if err := errors.Join(s.env.SetMapSize(s.size), s.env.SetMaxDBs(16), s.env.SetMaxReaders(2*maxViews)); err != nil {
		return err
	}
	if err := s.env.Open(dir, db.NoReadahead, 0o600); err != nil {
		return err
	}
	if _, err := s.env.ReaderCheck(); err != nil { // of a process that was killed
		return err
	}
	return s.update(s.prepare)
}

// pages rounds octets up to whole pages.
func pages(n int64) int64 {
	p := int64(os.Getpagesize())
	return (n + p - 1) / p * p
}

func (s *Store) larger(n int64) int64 { return n + min(n, growMost) }

// prepare opens the tables, or refuses those of a newer program.
func (s *Store) prepare(txn *db.Txn) error {
	for name, t := range map[string]*db.DBI{"meta": &s.meta, "events": &s.events, "ids": &s.ids, "index": &s.index, "current": &s.current,
		"expires": &s.expires, "refused": &s.refused, "advisory": &s.advisory, "asked": &s.asked, "bounds": &s.bounds, "floors": &s.floors, "vanished": &s.vanished} {
		var err error
		if *t, err = txn.OpenDBI(name, db.Create); err != nil {
			return fmt.Errorf("make the table %s: %w", name, err)
		}
	}
	have, err := s.number(txn, "format")
	if err != nil {
		return err
	}
	if have > format {
		return fmt.Errorf("the tables are of format %d, and this program knows up to %d: use a newer one", have, format)
	}
	return txn.Put(s.meta, []byte("format"), u64(format), 0)
}

// number reads a counter, 0 where there is none.
func (s *Store) number(txn *db.Txn, name string) (uint64, error) {
	v, err := get(txn, s.meta, []byte(name))
	if err != nil || v == nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, damaged("meta")
	}
	return binary.BigEndian.Uint64(v), nil
}

// get reads a value, nil where there is none. It is good until the transaction ends, or writes.
func get(txn *db.Txn, t db.DBI, key []byte) ([]byte, error) {
	v, err := txn.Get(t, key)
	if db.IsNotFound(err) {
		return nil, nil
	}
	return v, err
}

func damaged(table string) error {
	return fmt.Errorf("the table %s holds what this program did not write: it was changed by something else", table)
}

// view runs f over a frozen state of the tables. It must be short: the map cannot grow meanwhile.
func (s *Store) view(ctx context.Context, f func(txn *db.Txn) error) error {
	select {
	case s.views <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.views }()
	s.mapped.RLock()
	defer s.mapped.RUnlock()
	if s.closed {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.env.View(func(txn *db.Txn) error {
		txn.RawRead = true // what is read points into the map until f returns
		return f(txn)
	})
}

// update runs f as the one writer, again and with a larger map where it was too small, and makes its changes durable.
func (s *Store) update(f func(txn *db.Txn) error) error {
	s.write.Lock()
	defer s.write.Unlock()
	for {
		s.mapped.RLock()
		if s.closed {
			s.mapped.RUnlock()
			return store.ErrClosed
		}
		err := s.env.Update(f)
		s.mapped.RUnlock()
		if errno(err) != db.MapFull {
			return s.failure(err)
		}
		if err := s.grow(); err != nil {
			return err
		}
	}
}

// grow makes the map larger. The caller is the writer.
func (s *Store) grow() error {
	next := s.larger(s.size)
	if m := s.opt.MaxBytes; m > 0 {
		next = min(next, max(m, 1<<20))
	}
	if next = pages(next); next <= s.size {
		return fmt.Errorf("%w: the LMDB file has grown to spec.storage.maxBytes, %d; LMDB never shrinks it, so raise the limit or remove events, whose pages are used again", store.ErrFull, s.opt.MaxBytes)
	}
	s.mapped.Lock()
	defer s.mapped.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if err := s.env.SetMapSize(next); err != nil {
		return fmt.Errorf("grow the LMDB map from %d to %d octets: %w", s.size, next, err)
	}
	s.size = next
	return nil
}

// errno is LMDB's or the system's number of what failed, nil if it has none.
func errno(err error) error {
	var op *db.OpError
	if errors.As(err, &op) {
		return op.Errno
	}
	return nil
}

// failure names a full disk as such.
func (s *Store) failure(err error) error {
	switch errno(err) {
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		return fmt.Errorf("%w: the disk that holds %s takes no more: %w", store.ErrFull, s.path, err)
	case db.Panic:
		return fmt.Errorf("%w: an earlier write failed half-way, and LMDB takes no more until a restart: %w", store.ErrReadOnly, err)
	}
	return err
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context) (st store.Stats, err error) {
	err = s.view(ctx, func(txn *db.Txn) error {
		for _, t := range []struct {
			table db.DBI
			into  *int64
		}{{s.ids, &st.Events}, {s.refused, &st.Refusals}, {s.asked, &st.Tombstones}, {s.bounds, &st.Tombstones}, {s.floors, &st.Tombstones}, {s.vanished, &st.Tombstones}} {
			got, err := txn.Stat(t.table)
			if err != nil {
				return fmt.Errorf("count: %w", err)
			}
			*t.into += int64(got.Entries)
		}
		st.LastSeq, err = s.number(txn, "seq")
		return err
	})
	if err != nil {
		return store.Stats{}, err
	}
	info, err := os.Stat(filepath.Join(s.path, "data.mdb"))
	if err != nil {
		return store.Stats{}, fmt.Errorf("measure the LMDB file: %w", err)
	}
	st.Bytes = info.Size()
	return st, nil
}

// LastSeq implements store.Store.
func (s *Store) LastSeq(ctx context.Context) (seq uint64, err error) {
	err = s.view(ctx, func(txn *db.Txn) error {
		seq, err = s.number(txn, "seq")
		return err
	})
	return seq, err
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.write.Lock() // whoever writes is let to finish
	defer s.write.Unlock()
	s.mapped.Lock()
	defer s.mapped.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.env.Close()
}
