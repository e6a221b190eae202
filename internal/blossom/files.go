package blossom

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// files is the little of a file system that the disk store uses, under one root. Tests put a failing one in its place.
type files interface {
	Create(name string) (file, error) // fails if it is there
	Append(name string) (file, error)
	Open(name string) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(name string) error
	ReadDir(name string) ([]fs.DirEntry, error)
	SyncDir(name string) error
}

type file interface {
	io.ReadWriteSeeker
	io.Closer
	Sync() error
	Truncate(int64) error
	Stat() (fs.FileInfo, error)
}

// root is the files of a directory of this machine.
type root string

func (r root) path(name string) string { return filepath.Join(string(r), filepath.FromSlash(name)) }

func (r root) Create(name string) (file, error) {
	return opened(os.OpenFile(r.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600))
}

func (r root) Append(name string) (file, error) {
	return opened(os.OpenFile(r.path(name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600))
}

func (r root) Open(name string) (file, error) { return opened(os.Open(r.path(name))) }

// opened keeps a nil *os.File from becoming a file that is not nil.
func opened(f *os.File, err error) (file, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (r root) Rename(from, to string) error { return os.Rename(r.path(from), r.path(to)) }

func (r root) Remove(name string) error { return os.Remove(r.path(name)) }

func (r root) MkdirAll(name string) error { return os.MkdirAll(r.path(name), 0o700) }

func (r root) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(r.path(name)) }

// SyncDir makes the names in a directory durable. Windows has no such call and does it by itself.
func (r root) SyncDir(name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(r.path(name))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
