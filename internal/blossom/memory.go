package blossom

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Memory is a Store in memory, for tests and for nodes that keep nothing.
type Memory struct {
	mu     sync.Mutex
	x      *index
	data   map[Hash][]byte
	max    int64
	used   int64
	closed bool
}

// NewMemory makes a store that holds up to max octets; 0: no quota.
func NewMemory(max int64) *Memory {
	return &Memory{x: newIndex(), data: map[Hash][]byte{}, max: max}
}

func (m *Memory) find(h Hash) (*entry, error) {
	if m.closed {
		return nil, ErrClosed
	}
	return m.x.find(h)
}

// Stat is Store's.
func (m *Memory) Stat(_ context.Context, h Hash) (Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.find(h)
	if err != nil {
		return Meta{}, err
	}
	return e.clone(), nil
}

type memoryFile struct{ *bytes.Reader }

func (memoryFile) Close() error { return nil }

// Open is Store's.
func (m *Memory) Open(_ context.Context, h Hash) (io.ReadSeekCloser, Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.find(h)
	if err != nil {
		return nil, Meta{}, err
	}
	return memoryFile{bytes.NewReader(m.data[h])}, e.clone(), nil
}

// Verify is Store's.
func (m *Memory) Verify(ctx context.Context, h Hash) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.find(h)
	if err != nil {
		return err
	}
	got, _, err := hashOf(ctx, bytes.NewReader(m.data[h]))
	if err != nil {
		return err
	}
	if got != h {
		e.corrupt = true
		return ErrCorrupt
	}
	return nil
}

// Suspect is Store's.
func (m *Memory) Suspect(ctx context.Context, h Hash) error { return m.Verify(ctx, h) }

// Put is Store's.
func (m *Memory) Put(ctx context.Context, r io.Reader, in Incoming) (Meta, bool, error) {
	if in.Limit > 0 && in.Size > in.Limit {
		return Meta{}, false, ErrTooLarge
	}
	var buf bytes.Buffer
	grow := func(n int64) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.max > 0 && m.used+int64(buf.Len())+n > m.max {
			return ErrFull
		}
		return nil
	}
	h, n, err := pour(ctx, &buf, r, &in, grow)
	if err != nil {
		return Meta{}, false, err
	}
	if in.Check != nil {
		if err := in.Check(h, n); err != nil {
			return Meta{}, false, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.find(h)
	switch {
	case err == nil:
		m.x.own(e, in.Owner, in.Now)
		return e.clone(), false, nil
	case err != ErrNotFound && err != ErrCorrupt:
		return Meta{}, false, err
	case m.max > 0 && m.used+n > m.max:
		return Meta{}, false, ErrFull
	}
	m.used += n - int64(len(m.data[h]))
	m.data[h] = buf.Bytes()
	m.x.apply(putRecord(h, n, &in))
	e = m.x.blobs[h]
	e.verified = mark{true, time.Time{}}
	return e.clone(), true, nil
}

// putRecord is the record of a blob that came in.
func putRecord(h Hash, size int64, in *Incoming) record {
	r := record{Op: "put", Hash: h.String(), Size: size, Type: in.Type, At: in.Now}
	if in.Owner != (nostr.PubKey{}) {
		r.By = in.Owner.String()
	}
	return r
}

// Own is Store's.
func (m *Memory) Own(_ context.Context, h Hash, k nostr.PubKey, now int64) (Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.find(h)
	if err != nil {
		return Meta{}, err
	}
	m.x.own(e, k, now)
	return e.clone(), nil
}

// Disown is Store's.
func (m *Memory) Disown(_ context.Context, h Hash, k nostr.PubKey) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.find(h)
	if err != nil && err != ErrCorrupt {
		return false, err
	}
	if _, ok := e.OwnedBy(k); !ok {
		return false, ErrNotFound
	}
	m.x.disown(h, k)
	if len(e.Owners) > 0 {
		return false, nil
	}
	m.forget(h)
	return true, nil
}

func (m *Memory) forget(h Hash) {
	m.used -= int64(len(m.data[h]))
	delete(m.data, h)
	m.x.drop(h)
}

// Remove is Store's.
func (m *Memory) Remove(_ context.Context, h Hash, block bool) (Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.find(h)
	if err == ErrClosed {
		return Meta{}, err
	}
	if block {
		m.x.blocked[h] = true
	}
	if e == nil {
		return Meta{}, ErrNotFound
	}
	meta := e.clone()
	m.forget(h)
	return meta, nil
}

// Unblock is Store's.
func (m *Memory) Unblock(_ context.Context, h Hash) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.x.blocked, h)
	return nil
}

// List is Store's.
func (m *Memory) List(_ context.Context, k nostr.PubKey) ([]Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.x.list(k), nil
}

// All is Store's.
func (m *Memory) All(context.Context) ([]Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.x.all(), nil
}

// Usage is Store's.
func (m *Memory) Usage(context.Context) (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.x.usage(), nil
}

// Close is Store's.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
