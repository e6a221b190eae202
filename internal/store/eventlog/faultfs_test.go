package eventlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
)

// faultFS is a directory in memory that knows what would survive a power cut and fails on demand.
type faultFS struct {
	mu      sync.Mutex
	names   map[string]*node // as programs see it
	durable map[string]*node // as of the last SyncDir
	locked  bool
	ops     int // writes, syncs, renames, creations, removals so far
	rng     *rand.Rand

	fail func(op int, what, name string) fault
	cut  bool // the power is off: everything fails
}

// fault says how an operation fails.
type fault struct {
	err     error
	applied bool // it happens all the same
	short   bool // half of it happens (writes)
	power   bool // and the power goes off
}

var errPower = errors.New("power cut")

// node is a file: what is written, and what of it is on stable storage.
type node struct {
	data, synced []byte
}

func newFaultFS(seed uint64) *faultFS {
	return &faultFS{names: map[string]*node{}, durable: map[string]*node{}, rng: rand.New(rand.NewPCG(seed, 1))}
}

// step counts an operation and returns how it fails; the caller holds the lock.
func (d *faultFS) step(what, name string) fault {
	if d.cut {
		return fault{err: errPower}
	}
	d.ops++
	if d.fail == nil {
		return fault{}
	}
	f := d.fail(d.ops, what, name)
	if f.power {
		d.cut = true
	}
	return f
}

// afterPower returns the directory as it may be found after a power cut: what was synced, and of
// the rest, as mode says, nothing, everything, or any mixture of sectors.
func (d *faultFS) afterPower(mode string) *faultFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := newFaultFS(d.rng.Uint64())
	names := maps.Clone(d.durable)
	if mode == "keep" || mode == "mix" && d.rng.IntN(2) == 0 {
		names = maps.Clone(d.names)
	}
	for name, n := range names {
		var data []byte
		switch mode {
		case "drop":
			data = slices.Clone(n.synced)
		case "keep":
			data = slices.Clone(n.data)
		default:
			data = d.mixed(n)
		}
		x := &node{data, slices.Clone(data)}
		out.names[name], out.durable[name] = x, x
	}
	return out
}

// mixed takes each sector from the old or the new content, and any length in between.
func (d *faultFS) mixed(n *node) []byte {
	const sector = 512
	lo, hi := len(n.synced), len(n.data)
	size := hi
	if hi > lo {
		size = lo + d.rng.IntN(hi-lo+1)
	}
	out := make([]byte, size)
	for at := 0; at < size; at += sector {
		from := n.data
		if d.rng.IntN(4) == 0 {
			from = n.synced
		}
		if end := min(at+sector, size); at < len(from) {
			copy(out[at:end], from[at:])
		}
	}
	return out
}

func (d *faultFS) Open(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &faultFile{d, n, name}, nil
}

func (d *faultFS) Create(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.step("create", name)
	if f.err != nil && !f.applied {
		return nil, f.err
	}
	n := &node{}
	d.names[name] = n
	if f.err != nil {
		return nil, f.err
	}
	return &faultFile{d, n, name}, nil
}

func (d *faultFS) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.step("rename", to)
	if f.err == nil || f.applied {
		n := d.names[from]
		if n == nil {
			return fs.ErrNotExist
		}
		delete(d.names, from)
		d.names[to] = n
	}
	return f.err
}

func (d *faultFS) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.step("remove", name)
	if f.err == nil || f.applied {
		delete(d.names, name)
	}
	return f.err
}

func (d *faultFS) List() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names)), nil
}

func (d *faultFS) SyncDir() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.step("syncdir", "")
	if f.err == nil || f.applied {
		d.durable = maps.Clone(d.names)
	}
	return f.err
}

type unlocker struct{ d *faultFS }

func (u unlocker) Close() error {
	u.d.mu.Lock()
	defer u.d.mu.Unlock()
	u.d.locked = false
	return nil
}

func (d *faultFS) Lock(string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		return nil, ErrLocked
	}
	d.locked = true
	return unlocker{d}, nil
}

type faultFile struct {
	d    *faultFS
	n    *node
	name string
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	k := copy(p, f.n.data[off:])
	if k < len(p) {
		return k, io.EOF
	}
	return k, nil
}

func (f *faultFile) Map(off int64, size int) (Mapping, error) {
	b := make([]byte, size)
	_, err := f.ReadAt(b, off)
	return Mapping{Data: b}, err
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	x := f.d.step("write", f.name)
	n := len(p)
	switch {
	case x.short || x.power && x.err != nil:
		n = len(p) / 2
	case x.err != nil && !x.applied:
		n = 0
	}
	if end := int(off) + n; end > len(f.n.data) {
		f.n.data = append(f.n.data, make([]byte, end-len(f.n.data))...)
	}
	copy(f.n.data[off:], p[:n])
	return n, x.err
}

func (f *faultFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	x := f.d.step("sync", f.name)
	if x.err == nil || x.applied {
		f.n.synced = slices.Clone(f.n.data)
	}
	return x.err
}

func (f *faultFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	x := f.d.step("truncate", f.name)
	if x.err == nil || x.applied {
		f.n.data = f.n.data[:size]
	}
	return x.err
}

func (f *faultFile) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *faultFile) Close() error { return nil }

// failures are the ways in which an operation can go wrong.
func failures() map[string]fault {
	return map[string]fault{
		"not applied": {err: syscall.EIO},
		"applied":     {err: syscall.EIO, applied: true},
		"short":       {err: io.ErrShortWrite, short: true},
		"full":        {err: fmt.Errorf("write: %w", syscall.ENOSPC), short: true},
	}
}
