package blossom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"path"
	"strings"
	"time"
)

// Objects is a bucket of an object store. Names are paths with slashes. Implementations are safe for concurrent use.
type Objects interface {
	// Put stores size octets that hash to sum under a name, in the place of what was there. What is returned without error is durable.
	Put(ctx context.Context, name string, r io.ReadSeeker, size int64, sum Hash) error
	// Stat describes an object, or fails with fs.ErrNotExist.
	Stat(ctx context.Context, name string) (Object, error)
	// Get reads an object from an offset to its end.
	Get(ctx context.Context, name string, offset int64) (io.ReadCloser, error)
	// Remove removes an object; that it is not there is no error.
	Remove(ctx context.Context, name string) error
	// List yields the objects whose names begin with a prefix, in no order.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Object is what a bucket knows of an object.
type Object struct {
	Name     string
	Size     int64
	Modified time.Time
}

// bucketPatience bounds one request to a bucket, so that a bucket that hangs is an error and not a standstill.
const bucketPatience = 10 * time.Minute

// OpenBucket opens a store that keeps the bytes in a bucket and all the rest (journal, uploads under way) in a directory. All that is said of
// Disk holds: a blob gets its name in the bucket once it is whole, checked and durable, and if the directory is lost, everything but owners
// and blocked names is found again from the bucket.
func OpenBucket(dir string, o Objects, max int64, log *slog.Logger) (*Disk, error) {
	r := root(dir)
	if err := r.MkdirAll("."); err != nil {
		return nil, fmt.Errorf("open the blob store: %w", err)
	}
	return openDisk(&bucket{files: r, objects: o}, max, log)
}

// bucket puts the names below blobs/ into a bucket and leaves the others in a directory.
type bucket struct {
	files
	objects Objects
	listed  map[string][]fs.DirEntry // by directory, from one listing of all, until it is read
}

func inBucket(name string) bool { return name == "blobs" || strings.HasPrefix(name, "blobs/") }

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), bucketPatience)
}

// Rename moves a file into the bucket. The file stays if that fails.
func (b *bucket) Rename(from, to string) error {
	if !inBucket(to) {
		return b.files.Rename(from, to)
	}
	h, err := ParseHash(path.Base(to))
	if err != nil {
		return err
	}
	f, err := b.files.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	ctx, cancel := bounded()
	defer cancel()
	if err := b.objects.Put(ctx, to, f, info.Size(), h); err != nil {
		return fmt.Errorf("put the blob into the bucket: %w", err)
	}
	return b.files.Remove(from)
}

func (b *bucket) Open(name string) (file, error) {
	if !inBucket(name) {
		return b.files.Open(name)
	}
	ctx, cancel := bounded()
	defer cancel()
	o, err := b.objects.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	return &object{objects: b.objects, info: objectInfo{o}}, nil
}

func (b *bucket) Remove(name string) error {
	if !inBucket(name) {
		return b.files.Remove(name)
	}
	ctx, cancel := bounded()
	defer cancel()
	return b.objects.Remove(ctx, name)
}

func (b *bucket) MkdirAll(name string) error {
	if inBucket(name) {
		return nil
	}
	return b.files.MkdirAll(name)
}

// SyncDir has nothing to do for a bucket: what it said is stored is durable.
func (b *bucket) SyncDir(name string) error {
	if inBucket(name) {
		return nil
	}
	return b.files.SyncDir(name)
}

// ReadDir of blobs lists the whole bucket once; its directories are then read from that listing.
func (b *bucket) ReadDir(name string) ([]fs.DirEntry, error) {
	if !inBucket(name) {
		return b.files.ReadDir(name)
	}
	if name != "blobs" {
		defer delete(b.listed, name)
		return b.listed[name], nil
	}
	ctx, cancel := bounded()
	defer cancel()
	b.listed = map[string][]fs.DirEntry{}
	var dirs []fs.DirEntry
	for o, err := range b.objects.List(ctx, "blobs/") {
		if err != nil {
			return nil, fmt.Errorf("list the bucket: %w", err)
		}
		dir := path.Dir(o.Name)
		if b.listed[dir] == nil {
			dirs = append(dirs, fs.FileInfoToDirEntry(objectInfo{Object{Name: dir}}))
		}
		b.listed[dir] = append(b.listed[dir], fs.FileInfoToDirEntry(objectInfo{o}))
	}
	return dirs, nil
}

// objectInfo is an object as a file system would describe it; one without a time is a directory.
type objectInfo struct{ o Object }

func (i objectInfo) Name() string       { return path.Base(i.o.Name) }
func (i objectInfo) Size() int64        { return i.o.Size }
func (i objectInfo) ModTime() time.Time { return i.o.Modified }
func (i objectInfo) IsDir() bool        { return i.o.Modified.IsZero() }
func (i objectInfo) Sys() any           { return nil }
func (i objectInfo) Mode() fs.FileMode {
	if i.IsDir() {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

// object reads an object from where it was sought to, with one request until the next Seek.
type object struct {
	objects Objects
	info    objectInfo
	at      int64
	body    io.ReadCloser
	cancel  context.CancelFunc
}

var errObject = errors.New("an object of a bucket is written whole or not at all")

func (o *object) Read(p []byte) (int, error) {
	if o.at >= o.info.Size() {
		return 0, io.EOF
	}
	if o.body == nil {
		ctx, cancel := bounded()
		body, err := o.objects.Get(ctx, o.info.o.Name, o.at)
		if err != nil {
			cancel()
			return 0, err
		}
		o.body, o.cancel = body, cancel
	}
	n, err := o.body.Read(p)
	o.at += int64(n)
	if errors.Is(err, io.EOF) && o.at < o.info.Size() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (o *object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.info.Size()
	}
	if offset < 0 {
		return o.at, fs.ErrInvalid
	}
	if offset == o.at {
		return offset, nil
	}
	o.at = offset
	return offset, o.Close()
}

func (o *object) Close() error {
	if o.body == nil {
		return nil
	}
	err := o.body.Close()
	o.cancel()
	o.body = nil
	return err
}

func (o *object) Stat() (fs.FileInfo, error) { return o.info, nil }
func (*object) Write([]byte) (int, error)    { return 0, errObject }
func (*object) Truncate(int64) error         { return errObject }
func (*object) Sync() error                  { return nil }
