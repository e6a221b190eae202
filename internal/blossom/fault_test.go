package blossom

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func readFile(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func removeFile(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// unsynced is the files of a directory without waiting for the disk: no test here cuts the power.
type unsynced struct{ root }

type unsyncedFile struct{ file }

func (unsyncedFile) Sync() error { return nil }

func (u unsynced) Create(name string) (file, error) { return lazy(u.root.Create(name)) }

func (u unsynced) Append(name string) (file, error) { return lazy(u.root.Append(name)) }

func (u unsynced) SyncDir(name string) error {
	_, err := u.ReadDir(name)
	return err
}

func lazy(f file, err error) (file, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

var errFault = errors.New("fault")

// faulty is a file system whose nth writing operation from now on fails: not done, or done and reported as failed. With dead, everything
// after it fails as well, as if the machine had stopped there.
type faulty struct {
	files
	mu   sync.Mutex
	n    int // counts down; 0: no fault
	done bool
	dead bool
	err  error
	hit  string
}

func (f *faulty) do(what string, op func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hit != "" && f.dead {
		return f.err
	}
	if f.n > 0 {
		if f.n--; f.n == 0 {
			f.hit = what
			if f.done {
				_ = op()
			}
			return f.err
		}
	}
	return op()
}

func (f *faulty) Create(name string) (got file, err error) {
	err = f.do("create "+name, func() error { got, err = f.files.Create(name); return err })
	return f.wrap(got, name, err)
}

func (f *faulty) Append(name string) (got file, err error) {
	got, err = f.files.Append(name)
	return f.wrap(got, name, err)
}

func (f *faulty) wrap(got file, name string, err error) (file, error) {
	if err != nil {
		if got != nil {
			got.Close()
		}
		return nil, err
	}
	return &faultyFile{got, f, name}, nil
}

func (f *faulty) Rename(from, to string) error {
	return f.do("rename", func() error { return f.files.Rename(from, to) })
}

func (f *faulty) MkdirAll(name string) error {
	return f.do("mkdir "+name, func() error { return f.files.MkdirAll(name) })
}

func (f *faulty) Remove(name string) error {
	return f.do("remove "+name, func() error { return f.files.Remove(name) })
}

func (f *faulty) SyncDir(name string) error {
	return f.do("sync directory "+name, func() error { return f.files.SyncDir(name) })
}

type faultyFile struct {
	file
	f    *faulty
	name string
}

func (f *faultyFile) Write(p []byte) (n int, err error) {
	n = len(p) / 2 // a write that fails has often done half of it
	err = f.f.do("write "+f.name, func() error { n, err = f.file.Write(p); return err })
	if err != nil && n == len(p)/2 {
		_, _ = f.file.Write(p[:n])
	}
	return n, err
}

func (f *faultyFile) Sync() error { return f.f.do("sync "+f.name, f.file.Sync) }

func (f *faultyFile) Truncate(n int64) error {
	return f.f.do("truncate "+f.name, func() error { return f.file.Truncate(n) })
}

// TestEveryWriteFails fails each write of an upload, a change of owner and a removal, in each way. What was acknowledged
// must be there afterwards, what was not must be there whole or not at all, and the store must open again.
func TestEveryWriteFails(t *testing.T) {
	a, b := key(t).PubKey(), key(t).PubKey()
	steps := map[string]func(*Disk) error{
		"upload": func(d *Disk) error {
			_, _, err := d.Put(t.Context(), strings.NewReader("new"), Incoming{Size: 3, Owner: a, Now: 2})
			return err
		},
		"own":    func(d *Disk) error { _, err := d.Own(t.Context(), hashed("old"), b, 3); return err },
		"remove": func(d *Disk) error { _, err := d.Disown(t.Context(), hashed("old"), a); return err },
		"erase":  func(d *Disk) error { _, err := d.Remove(t.Context(), hashed("old"), true); return err },
	}
	for _, l := range layouts {
		for what, step := range steps {
			t.Run(l.name+" "+what, func(t *testing.T) { everyWriteFails(t, l, what, step) })
		}
	}
}

func everyWriteFails(t *testing.T, l layout, what string, step func(*Disk) error) {
	for _, mode := range []struct{ done, dead bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for n := 1; ; n++ {
			if hit := failAt(t, l, t.TempDir(), n, mode.done, mode.dead, what, step); hit == "" {
				if n < 3 {
					t.Fatalf("%s: only %d writes were seen", what, n-1)
				}
				break
			}
		}
	}
}

func failAt(t *testing.T, l layout, dir string, n int, done, dead bool, what string, step func(*Disk) error) string {
	t.Helper()
	f := &faulty{files: l.files(dir), done: done, dead: dead, err: errFault}
	d, err := openDisk(f, 0, quiet())
	if err != nil {
		t.Fatal(err)
	}
	a := [32]byte(hashed("owner"))
	put(t, d, "kept", Incoming{Owner: a, Now: 1})
	steady := "old"
	if what == "remove" || what == "erase" || what == "own" {
		put(t, d, "old", Incoming{Now: 1})
	} else {
		steady = "kept"
	}
	f.mu.Lock()
	f.n = n
	f.mu.Unlock()
	if what == "remove" { // the last owner must be one to leave
		_, _ = d.Own(t.Context(), hashed("old"), a, 1)
	}
	err = step(d)
	label := fmt.Sprintf("%s, write %d (%s), done %v, dead %v", what, n, f.hit, done, dead)
	if read(t, d, hashed("kept")) != "kept" {
		t.Fatalf("%s: another blob is lost", label)
	}
	acknowledged := err == nil
	_ = d.Close()
	again := l.open(t, dir, 0)
	defer again.Close()
	if got := read(t, again, hashed("kept")); got != "kept" {
		t.Fatalf("%s: after opening again another blob is %q", label, got)
	}
	if m, _ := again.Stat(t.Context(), hashed("kept")); len(m.Owners) != 1 {
		t.Fatalf("%s: an owner is lost", label)
	}
	_, newErr := again.Stat(t.Context(), hashed("new"))
	_, oldErr := again.Stat(t.Context(), hashed(steady))
	switch {
	case what == "upload" && acknowledged && newErr != nil:
		t.Fatalf("%s: acknowledged and lost: %v", label, newErr)
	case what == "upload" && newErr == nil && read(t, again, hashed("new")) != "new":
		t.Fatalf("%s: a blob that is not whole", label)
	case what == "own" && oldErr != nil:
		t.Fatalf("%s: a blob is lost: %v", label, oldErr)
	case (what == "erase") && acknowledged && oldErr == nil:
		t.Fatalf("%s: erased, and back", label)
	}
	for _, dirName := range []string{"tmp"} {
		if left, _ := os.ReadDir(filepath.Join(dir, dirName)); len(left) > 0 {
			t.Fatalf("%s: left in tmp: %v", label, left)
		}
	}
	put(t, again, "new", Incoming{Now: 9}) // and it goes on
	return f.hit
}

func TestDiskFull(t *testing.T) {
	f := &faulty{files: unsynced{root(t.TempDir())}, err: &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
	d, err := openDisk(f, 0, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for n := 1; ; n++ {
		f.n, f.hit = n, ""
		text := fmt.Sprint("blob ", n)
		_, _, err := d.Put(t.Context(), strings.NewReader(text), Incoming{Size: int64(len(text))})
		if f.hit == "" {
			break
		}
		if err != nil && !errors.Is(err, ErrFull) {
			t.Errorf("full at %s: %v", f.hit, err)
		}
	}
	f.n = 0
	face := serve(t, func(c *Config) { c.Store = d })
	k := key(t)
	f.n, f.hit = 2, "" // the first write of the body
	r := face.ask("PUT", "/upload", []byte("abc"), "Authorization", token(t, k, VerbUpload, hashed("abc")))
	if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" {
		t.Errorf("upload to a full disk: %d %s", r.StatusCode, r.body)
	}
	face.put(k, "abc")
}

// TestDamageOnDisk changes bytes under the store: no reader ever gets a whole blob that is not what it asked for.
func TestDamageOnDisk(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 40000) // several pieces
	for what, spoil := range map[string]func([]byte) []byte{
		"a bit near the end": func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
		"a bit at the start": func(b []byte) []byte { b[0] ^= 1; return b },
		"shorter":            func(b []byte) []byte { return b[:len(b)-1] },
		"longer":             func(b []byte) []byte { return append(b, 0) },
		"empty":              func([]byte) []byte { return nil },
	} {
		for _, text := range []string{big, "small"} {
			for _, part := range []bool{false, true} {
				dir := t.TempDir()
				d := disk(t, dir, 0)
				k := key(t)
				f := serve(t, func(c *Config) { c.Store = d })
				h := f.put(k, text)
				writeFile(t, dir, blobName(h), spoil(bytes.Clone([]byte(text))))
				req := []string{}
				if part {
					req = []string{"Range", "bytes=0-1"}
				}
				if got, ok := tryGet(f, h, req...); ok {
					t.Fatalf("%s of %d (part %v): %d octets were given out as whole", what, len(text), part, len(got))
				}
				if r := f.ask("HEAD", "/"+h.String(), nil); r.StatusCode != 404 {
					t.Errorf("%s of %d (part %v): the damaged blob still counts: %d", what, len(text), part, r.StatusCode)
				}
				f.put(k, text)
				if got, ok := tryGet(f, h); !ok || got != text {
					t.Errorf("%s of %d: not healed by another upload", what, len(text))
				}
				if u, _ := d.Usage(t.Context()); u.Corrupt != 0 || u.Verified != 1 || d.room.used != int64(len(text)) {
					t.Errorf("%s: %+v, %d octets claimed", what, u, d.room.used)
				}
			}
		}
	}
}

// tryGet reports whether the answer was a success that came to its end.
func tryGet(f *face, h Hash, headers ...string) (string, bool) {
	f.t.Helper()
	req, _ := newRequest(f.URL+"/"+h.String(), headers...)
	resp, err := f.Client().Do(req)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	var buf bytes.Buffer
	_, err = buf.ReadFrom(resp.Body)
	return buf.String(), err == nil && resp.StatusCode < 300
}

func TestCrashLeavings(t *testing.T) {
	dir := t.TempDir()
	d := disk(t, dir, 0)
	put(t, d, "one", Incoming{Now: 1})
	d.Close()
	writeFile(t, dir, "tmp/17", []byte("half of a blob")) // before the rename
	two := hashed("two")                                  // the record without the blob
	writeFile(t, dir, journalName, append(readFile(t, dir, journalName), appendLine(nil, record{Op: "put", Hash: two.String(), Size: 3, At: 2})...))
	three := hashed("three")
	for _, h := range []Hash{three, hashed("four")} {
		if err := root(dir).MkdirAll(blobDir(h)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, dir, blobName(three), []byte("three")) // put there by hand
	writeFile(t, dir, filepath.Dir(blobName(three))+"/README", []byte("not ours"))
	four := hashed("four") // removed, but for the bytes
	writeFile(t, dir, journalName, append(readFile(t, dir, journalName), appendLine(appendLine(nil, record{Op: "put", Hash: four.String(), Size: 4}), record{Op: "gone", Hash: four.String()})...))
	writeFile(t, dir, blobName(four), []byte("four"))
	d = disk(t, dir, 0)
	for h, want := range map[Hash]error{hashed("one"): nil, two: ErrNotFound, three: nil, four: ErrNotFound} {
		if _, err := d.Stat(t.Context(), h); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", h, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, blobName(four))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the bytes of a removed blob are still there: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) > 0 {
		t.Errorf("left in tmp: %v", left)
	}
	readFile(t, dir, filepath.Dir(blobName(three))+"/README")
}
