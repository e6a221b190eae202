//go:build unix

package eventlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
)

// isFull says whether an error is that of a full disk.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (d osFS) SyncDir() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (d osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

// canMap says whether log files are mapped: not where addresses are scarce.
const canMap = math.MaxUint > 1<<32

func (f osFile) Map(off int64, size int) (Mapping, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return Mapping{}, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	var b []byte
	var merr error
	err = raw.Control(func(fd uintptr) {
		b, merr = syscall.Mmap(int(fd), off, size, syscall.PROT_READ, syscall.MAP_SHARED)
	})
	if err = errors.Join(err, merr); err != nil {
		return Mapping{}, fmt.Errorf("map %d bytes of %s: %w", size, f.Name(), err)
	}
	return Mapping{b, func() error { return dropPages(b) }, func() error { return syscall.Munmap(b) }}, nil
}
