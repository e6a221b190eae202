package blossom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"fleetmesh.org/fleetmesh/nostr"
)

// Own is Store's.
func (d *Disk) Own(_ context.Context, h Hash, k nostr.PubKey, now int64) (Meta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.find(h)
	if err != nil {
		return Meta{}, err
	}
	return d.addOwner(e, k, now)
}

// Disown is Store's.
func (d *Disk) Disown(_ context.Context, h Hash, k nostr.PubKey) (removed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.find(h)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return false, err
	}
	if _, ok := e.OwnedBy(k); !ok {
		return false, ErrNotFound
	}
	if len(e.Owners) == 1 {
		return true, d.unlink(e, record{Op: "gone", Hash: h.String()})
	}
	r := record{Op: "disown", Hash: h.String(), By: k.String()}
	if err := d.j.add(r); err != nil {
		return false, full(err)
	}
	d.x.apply(r)
	return false, nil
}

// Remove is Store's.
func (d *Disk) Remove(_ context.Context, h Hash, block bool) (Meta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.find(h)
	if errors.Is(err, ErrClosed) {
		return Meta{}, err
	}
	r := record{Op: "gone", Hash: h.String()}
	if block {
		r.Op = "block"
	}
	if e == nil {
		if block && !d.x.blocked[h] {
			if err := d.j.add(r); err != nil {
				return Meta{}, full(err)
			}
			d.x.apply(r)
		}
		return Meta{}, ErrNotFound
	}
	m := e.clone()
	return m, d.unlink(e, r)
}

// unlink removes a blob: first the record, so that no crash brings it back, then the bytes. If the bytes do not go, the
// blob is gone for readers all the same, the error says so, and the next opening removes them.
func (d *Disk) unlink(e *entry, r record) error {
	if err := d.j.add(r); err != nil {
		return full(err)
	}
	h, size := e.Hash, e.Size
	d.x.apply(r)
	_ = d.room.take(-size)
	err := d.fs.Remove(blobName(h))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = d.fs.SyncDir(blobDir(h))
	}
	if err != nil {
		return fmt.Errorf("remove the blob's bytes: %w", err)
	}
	return nil
}

// Unblock is Store's.
func (d *Disk) Unblock(_ context.Context, h Hash) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if !d.x.blocked[h] {
		return nil
	}
	r := record{Op: "unblock", Hash: h.String()}
	if err := d.j.add(r); err != nil {
		return full(err)
	}
	d.x.apply(r)
	return nil
}

// List is Store's.
func (d *Disk) List(_ context.Context, k nostr.PubKey) ([]Meta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	return d.x.list(k), nil
}

// All is Store's.
func (d *Disk) All(context.Context) ([]Meta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	return d.x.all(), nil
}

// Usage is Store's.
func (d *Disk) Usage(context.Context) (Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return Usage{}, ErrClosed
	}
	return d.x.usage(), nil
}

// Close is Store's.
func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.j.f.Close()
}

// Scrub hashes every blob of a store that has not been since the store was opened, and returns how many are damaged. It ends early
// with ctx.
func Scrub(ctx context.Context, s Store) (damaged int, err error) {
	all, err := s.All(ctx)
	if err != nil {
		return 0, err
	}
	for _, m := range all {
		switch err := s.Verify(ctx, m.Hash); {
		case errors.Is(err, ErrCorrupt):
			damaged++
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrBlocked):
		case err != nil:
			return damaged, err
		}
	}
	return damaged, nil
}
