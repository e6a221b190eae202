//go:build !unix

package eventlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// isFull says whether an error is that of a full disk.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }

// SyncDir does nothing where directories cannot be synced.
func (d osFS) SyncDir() error { return nil }

// lockFile is a lock by existence: the system has no advisory locks that the standard library
// knows. A crash leaves it behind, to be removed by hand.
type lockFile struct {
	f    *os.File
	path string
}

func (l lockFile) Close() error { return errors.Join(l.f.Close(), os.Remove(l.path)) }

func (d osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return lockFile{f, d.path(name)}, nil
}

// canMap says whether log files are mapped.
const canMap = false

func (f osFile) Map(off int64, size int) (Mapping, error) {
	b := make([]byte, size)
	if _, err := f.ReadAt(b, off); err != nil {
		return Mapping{}, fmt.Errorf("read %d bytes of %s: %w", size, f.Name(), err)
	}
	return Mapping{Data: b}, nil
}
