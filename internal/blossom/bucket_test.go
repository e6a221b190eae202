package blossom

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// layout is where a Disk keeps what: all of it in one directory, or the bytes in a bucket.
type layout struct {
	name  string
	files func(dir string) files
}

var layouts = []layout{
	{"disk", func(dir string) files { return unsynced{root(dir)} }},
	{"bucket", func(dir string) files {
		return &bucket{files: unsynced{root(dir)}, objects: shelf(filepath.Join(dir, "far"))}
	}},
}

func (l layout) open(t testing.TB, dir string, max int64) *Disk {
	t.Helper()
	d, err := openDisk(l.files(dir), max, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// shelf is a bucket in a directory. Like a good object store it refuses what does not hash to the sum it was told.
type shelf string

func (s shelf) path(name string) string { return filepath.Join(string(s), filepath.FromSlash(name)) }

func (s shelf) Put(_ context.Context, name string, r io.ReadSeeker, size int64, sum Hash) error {
	b, err := io.ReadAll(r)
	if err == nil && (int64(len(b)) != size || sha256.Sum256(b) != sum) {
		err = errors.New("the bytes are not what was announced")
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.path(name)), 0o700)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(name), b, 0o600)
}

func (s shelf) Stat(_ context.Context, name string) (Object, error) {
	info, err := os.Stat(s.path(name))
	if err != nil {
		return Object{}, err
	}
	return Object{name, info.Size(), info.ModTime()}, nil
}

func (s shelf) Get(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
	f, err := os.Open(s.path(name))
	if err != nil {
		return nil, err
	}
	_, err = f.Seek(offset, io.SeekStart)
	return f, err
}

func (s shelf) Remove(_ context.Context, name string) error {
	if err := os.Remove(s.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s shelf) List(_ context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var stopped bool
		err := filepath.WalkDir(string(s), func(path string, d fs.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(strings.TrimPrefix(path, string(s))), "/")
			if err != nil || d.IsDir() || !strings.HasPrefix(name, prefix) {
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if !yield(Object{name, info.Size(), info.ModTime()}, nil) {
				stopped = true
				return fs.SkipAll
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Object{}, err)
		}
	}
}

// TestLostDirectory has a store in a bucket lose its directory: all blobs are found again.
func TestLostDirectory(t *testing.T) {
	far := shelf(t.TempDir())
	at := func(dir string) *Disk {
		d, err := OpenBucket(dir, far, 0, quiet())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := at(filepath.Join(t.TempDir(), "new"))
	put(t, d, "<svg></svg> one", Incoming{Now: 1})
	put(t, d, strings.Repeat("two", 100_000), Incoming{Now: 2})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = at(t.TempDir())
	defer d.Close()
	if u, err := d.Usage(t.Context()); err != nil || u.Blobs != 2 || u.Bytes != 300_015 || u.Verified != 0 {
		t.Fatalf("%+v, %v", u, err)
	}
	if damaged, err := Scrub(t.Context(), d); damaged != 0 || err != nil {
		t.Fatal(damaged, err)
	}
	f, _, err := d.Open(t.Context(), hashed(strings.Repeat("two", 100_000)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{299_999, 1, 150_000} {
		b := make([]byte, 1)
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(f, b); err != nil || b[0] != "two"[at%3] {
			t.Fatalf("octet %d is %q, %v", at, b, err)
		}
	}
}
