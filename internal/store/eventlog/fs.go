package eventlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// FS is the directory that a store lives in, as far as a store needs it. Names are plain
// file names. It exists so that tests can fail every write, sync and rename.
type FS interface {
	Open(name string) (File, error)   // an existing file, to read and write
	Create(name string) (File, error) // a new or emptied file
	Rename(from, to string) error
	Remove(name string) error
	List() ([]string, error)
	SyncDir() error
	// Lock keeps other processes out until the result is closed.
	Lock(name string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error // the data, and what is needed to find it, are on stable storage
	Truncate(size int64) error
	Size() (int64, error)
	// Map returns size bytes of the file from off on, a multiple of windowSize, as memory: mapped where
	// that is possible. These bytes are never written again. It is good beyond the file's Close.
	Map(off int64, size int) (Mapping, error)
}

// Mapping is a stretch of a file as memory.
type Mapping struct {
	Data  []byte
	drop  func() error // nil: there is nothing to give back
	unmap func() error // nil: there is nothing to undo
}

// Drop gives the memory back until Data is read again.
func (m *Mapping) Drop() {
	if m.drop != nil {
		_ = m.drop() // no harm but memory
	}
}

// Close ends the mapping; nobody may read Data any more.
func (m *Mapping) Close() error {
	if m.unmap == nil {
		return nil
	}
	return m.unmap()
}

// ErrLocked is returned by Open while another process has the store open.
var ErrLocked = errors.New("store is in use by another process")

// osFS is a directory of the operating system.
type osFS struct{ dir string }

// Dir returns the directory as an FS, making it if need be.
func Dir(dir string) (FS, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make store directory: %w", err)
	}
	return osFS{dir}, nil
}

func (d osFS) path(name string) string { return filepath.Join(d.dir, name) }

func (d osFS) Open(name string) (File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osFS) Create(name string) (File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osFS) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d osFS) Remove(name string) error     { return os.Remove(d.path(name)) }

func (d osFS) List() ([]string, error) {
	es, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(es))
	for _, e := range es {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// noSync leaves out the syncs.
type noSync struct{ FS }

func (n noSync) SyncDir() error { return nil }

func (n noSync) Open(name string) (File, error) {
	f, err := n.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return noSyncFile{f}, nil
}

func (n noSync) Create(name string) (File, error) {
	f, err := n.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return noSyncFile{f}, nil
}

type noSyncFile struct{ File }

func (noSyncFile) Sync() error { return nil }

// writer writes a file from its beginning, in large pieces.
type writer struct {
	f   File
	buf []byte
	off int64
}

const writerChunk = 256 << 10

func (w *writer) Write(p []byte) (int, error) {
	n := len(p)
	w.buf = append(w.buf, p...)
	if len(w.buf) >= writerChunk {
		return n, w.flush()
	}
	return n, nil
}

func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, err := w.f.WriteAt(w.buf, w.off); err != nil {
		return err
	}
	w.off += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// readFile returns a whole file.
func readFile(fs FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f)
}

func readAll(f File) ([]byte, error) {
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if n == 0 {
		return b, nil
	}
	if k, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && k == len(b)) {
		return nil, err
	}
	return b, nil
}

// mapFile maps a whole file.
func mapFile(fs FS, name string) (Mapping, error) {
	f, err := fs.Open(name)
	if err != nil {
		return Mapping{}, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return Mapping{}, err
	}
	if n == 0 || int64(int(n)) != n {
		return Mapping{}, fmt.Errorf("map %s: size %d", name, n)
	}
	return f.Map(0, int(n))
}

// replaceFile writes a file so that after a crash the old or the new content is there, whole.
func replaceFile(fs FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fs.Create(tmp)
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		fs.Remove(tmp) // a full disk needs the room; if it fails, Open removes it
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := fs.Rename(tmp, name); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	if err := fs.SyncDir(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
