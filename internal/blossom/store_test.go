package blossom

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func disk(t testing.TB, dir string, max int64) *Disk {
	t.Helper()
	return layouts[0].open(t, dir, max)
}

// stores runs a test on every store there is.
func stores(t *testing.T, max int64, test func(*testing.T, Store)) {
	t.Run("memory", func(t *testing.T) { test(t, NewMemory(max)) })
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) { test(t, l.open(t, t.TempDir(), max)) })
	}
}

func put(t testing.TB, s Store, text string, in Incoming) (Meta, bool) {
	t.Helper()
	if in.Size == 0 {
		in.Size = int64(len(text))
	}
	m, created, err := s.Put(t.Context(), strings.NewReader(text), in)
	if err != nil {
		t.Fatalf("put %q: %v", text, err)
	}
	return m, created
}

func read(t testing.TB, s Store, h Hash) string {
	t.Helper()
	f, _, err := s.Open(t.Context(), h)
	if err != nil {
		t.Fatalf("open %s: %v", h, err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStore(t *testing.T) {
	stores(t, 0, func(t *testing.T, s Store) {
		a, b := key(t).PubKey(), key(t).PubKey()
		m, created := put(t, s, "one", Incoming{Type: "text/plain", Owner: a, Now: 10})
		if !created || m.Hash != hashed("one") || m.Size != 3 || m.Type != "text/plain" || m.Uploaded != 10 {
			t.Fatalf("%+v %v", m, created)
		}
		if m, created = put(t, s, "one", Incoming{Type: "image/png", Owner: b, Now: 20}); created || len(m.Owners) != 2 || m.Type != "text/plain" || m.Uploaded != 10 {
			t.Fatalf("again: %+v %v", m, created)
		}
		put(t, s, "two", Incoming{Size: -1, Owner: a, Now: 30})
		put(t, s, "three", Incoming{Now: 40})
		if got := read(t, s, hashed("one")); got != "one" {
			t.Fatalf("read %q", got)
		}
		list, err := s.List(t.Context(), a)
		if err != nil || len(list) != 2 || list[0].Hash != hashed("two") || list[1].Hash != hashed("one") {
			t.Fatalf("list %+v, %v", list, err)
		}
		if removed, err := s.Disown(t.Context(), hashed("one"), a); removed || err != nil {
			t.Fatalf("one of two owners leaves: %v %v", removed, err)
		}
		if _, err := s.Disown(t.Context(), hashed("one"), a); !errors.Is(err, ErrNotFound) {
			t.Fatalf("leaves again: %v", err)
		}
		if removed, err := s.Disown(t.Context(), hashed("one"), b); !removed || err != nil {
			t.Fatalf("the last owner leaves: %v %v", removed, err)
		}
		if _, err := s.Stat(t.Context(), hashed("one")); !errors.Is(err, ErrNotFound) {
			t.Fatalf("still there: %v", err)
		}
		if m, err := s.Remove(t.Context(), hashed("two"), true); err != nil || m.Size != 3 {
			t.Fatalf("remove: %+v %v", m, err)
		}
		if _, _, err := s.Put(t.Context(), strings.NewReader("two"), Incoming{Size: 3, Owner: b}); !errors.Is(err, ErrBlocked) {
			t.Fatalf("an erased blob comes back: %v", err)
		}
		if _, err := s.Remove(t.Context(), hashed("never seen"), true); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), hashed("never seen")); !errors.Is(err, ErrBlocked) {
			t.Fatal(err)
		}
		if err := s.Unblock(t.Context(), hashed("two")); err != nil {
			t.Fatal(err)
		}
		put(t, s, "two", Incoming{Owner: b, Now: 50})
		if u, err := s.Usage(t.Context()); err != nil || u != (Usage{Blobs: 2, Verified: 2, Bytes: 8, Blocked: 1}) {
			t.Fatalf("usage %+v %v", u, err)
		}
		s.Close()
		if _, err := s.Stat(t.Context(), hashed("two")); !errors.Is(err, ErrClosed) {
			t.Fatalf("closed: %v", err)
		}
	})
}

func TestStoreRefusals(t *testing.T) {
	stores(t, 10, func(t *testing.T, s Store) {
		no := errors.New("no")
		for what, c := range map[string]struct {
			r    io.Reader
			in   Incoming
			want error
		}{
			"shorter than said":   {strings.NewReader("abc"), Incoming{Size: 4}, ErrTruncated},
			"longer than said":    {strings.NewReader("abcde"), Incoming{Size: 4}, ErrTooLarge},
			"over the limit":      {strings.NewReader("abcde"), Incoming{Size: -1, Limit: 4}, ErrTooLarge},
			"said over the limit": {iotest.ErrReader(no), Incoming{Size: 5, Limit: 4}, ErrTooLarge},
			"over the quota":      {strings.NewReader("abcdefghijk"), Incoming{Size: -1}, ErrFull},
			"said over the quota": {strings.NewReader("abcdefghijk"), Incoming{Size: 11}, ErrFull},
			"broken off":          {io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(no)), Incoming{Size: 4}, no},
			"cut":                 {iotest.ErrReader(io.ErrUnexpectedEOF), Incoming{Size: 4}, ErrTruncated},
			"refused at the end":  {strings.NewReader("abc"), Incoming{Size: 3, Check: func(Hash, int64) error { return no }}, no},
		} {
			if _, _, err := s.Put(t.Context(), c.r, c.in); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
		if u, _ := s.Usage(t.Context()); u != (Usage{}) {
			t.Errorf("something was kept: %+v", u)
		}
		put(t, s, "0123456789", Incoming{}) // nothing was left of the quota's claims
		if d, ok := s.(*Disk); ok {
			if left, err := d.fs.ReadDir("tmp"); err != nil || len(left) > 0 {
				t.Errorf("left in tmp: %v %v", left, err)
			}
		}
	})
}

func TestConcurrentUploadsOfOneBlob(t *testing.T) {
	stores(t, 0, func(t *testing.T, s Store) {
		text := strings.Repeat("the same bytes ", 20000)
		var wg sync.WaitGroup
		made := make(chan bool, 16)
		for range cap(made) {
			owner := key(t).PubKey()
			wg.Go(func() {
				_, created, err := s.Put(t.Context(), strings.NewReader(text), Incoming{Size: int64(len(text)), Owner: owner, Now: 1})
				if err != nil {
					t.Error(err)
				}
				made <- created
			})
		}
		wg.Wait()
		close(made)
		news := 0
		for c := range made {
			if c {
				news++
			}
		}
		m, err := s.Stat(t.Context(), hashed(text))
		if err != nil || news != 1 || len(m.Owners) != 16 {
			t.Fatalf("%d times new, %d owners, %v", news, len(m.Owners), err)
		}
		if read(t, s, m.Hash) != text {
			t.Fatal("the bytes differ")
		}
	})
}

// TestDiskAgainstMemory does the same random things to both stores, opens the disk anew now and then, and compares.
func TestDiskAgainstMemory(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) { againstMemory(t, l) })
	}
}

func againstMemory(t *testing.T, l layout) {
	rnd := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	d, m := l.open(t, dir, 0), NewMemory(0)
	owners := []Incoming{{Owner: key(t).PubKey()}, {Owner: key(t).PubKey()}, {}}
	for step := range 400 {
		text := fmt.Sprint("blob ", rnd.IntN(12))
		h, in := hashed(text), owners[rnd.IntN(3)]
		in.Size, in.Now, in.Type = int64(len(text)), int64(step), "text/plain"
		both := func(do func(Store) (any, error)) {
			a, aerr := do(d)
			b, berr := do(m)
			if fmt.Sprint(a) != fmt.Sprint(b) || (aerr == nil) != (berr == nil) {
				t.Fatalf("step %d: the disk says %v %v, memory %v %v", step, a, aerr, b, berr)
			}
		}
		switch rnd.IntN(8) {
		case 0, 1, 2:
			both(func(s Store) (any, error) {
				m, c, err := s.Put(t.Context(), strings.NewReader(text), in)
				return fmt.Sprint(m, c), err
			})
		case 3:
			both(func(s Store) (any, error) { return s.Disown(t.Context(), h, in.Owner) })
		case 4:
			both(func(s Store) (any, error) { return s.Remove(t.Context(), h, step%5 == 0) })
		case 5:
			both(func(s Store) (any, error) { return nil, s.Unblock(t.Context(), h) })
		case 6:
			both(func(s Store) (any, error) { return s.Own(t.Context(), h, in.Owner, in.Now) })
		case 7:
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = l.open(t, dir, 0)
		}
		both(func(s Store) (any, error) { return s.Stat(t.Context(), h) })
		both(func(s Store) (any, error) { return s.List(t.Context(), owners[0].Owner) })
		both(func(s Store) (any, error) {
			u, err := s.Usage(t.Context())
			u.Verified = 0
			return u, err
		})
	}
}

func TestJournalDamage(t *testing.T) {
	a := key(t).PubKey()
	build := func(t *testing.T) (dir string, journal []byte) {
		dir = t.TempDir()
		d := disk(t, dir, 0)
		put(t, d, "one", Incoming{Type: "text/markdown", Owner: a, Now: 1})
		put(t, d, "two", Incoming{Type: "text/markdown", Owner: a, Now: 2})
		put(t, d, "three", Incoming{Type: "text/markdown", Owner: a, Now: 3})
		d.Close()
		return dir, readFile(t, dir, journalName)
	}
	t.Run("lost", func(t *testing.T) {
		dir, _ := build(t)
		removeFile(t, dir, journalName)
		d := disk(t, dir, 0)
		m, err := d.Stat(t.Context(), hashed("one"))
		if err != nil || m.Type != "text/plain; charset=utf-8" || m.Size != 3 || len(m.Owners) != 0 {
			t.Fatalf("%+v %v", m, err)
		}
		if u, _ := d.Usage(t.Context()); u.Blobs != 3 || u.Verified != 0 {
			t.Fatalf("%+v", u)
		}
		if n, err := Scrub(t.Context(), d); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if u, _ := d.Usage(t.Context()); u.Verified != 3 {
			t.Fatalf("after a scrub %+v", u)
		}
	})
	t.Run("cut anywhere", func(t *testing.T) {
		dir, journal := build(t)
		for n := 0; n < len(journal); n += 3 {
			writeFile(t, dir, journalName, journal[:n])
			d := disk(t, dir, 0)
			if u, _ := d.Usage(t.Context()); u.Blobs != 3 {
				t.Fatalf("cut at %d: %+v", n, u)
			}
			d.Close()
		}
	})
	t.Run("any byte changed", func(t *testing.T) {
		dir, journal := build(t)
		for i := 0; i < len(journal); i += 3 {
			spoilt := bytes.Clone(journal)
			spoilt[i] ^= 0x20
			writeFile(t, dir, journalName, spoilt)
			d := disk(t, dir, 0)
			u, _ := d.Usage(t.Context())
			list, _ := d.List(t.Context(), a)
			if u.Blobs != 3 || len(list) < 1 {
				t.Fatalf("byte %d: %+v, %d owned", i, u, len(list))
			}
			d.Close()
		}
	})
}

func FuzzJournal(f *testing.F) {
	one := appendLine(nil, record{Op: "put", Hash: hashed("one").String(), Size: 3, Type: "text/plain", At: 1})
	f.Add(one)
	f.Add(slices.Concat(one, appendLine(nil, record{Op: "block", Hash: hashed("one").String()})))
	f.Add([]byte("00000000 {}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		x := newIndex()
		end, _, _, err := replay(bytes.NewReader(text), x)
		if err != nil || end > int64(len(text)) {
			t.Fatal(end, err)
		}
		y := newIndex()
		for _, r := range x.records() {
			if !y.apply(r) {
				t.Fatalf("%+v cannot be read back", r)
			}
		}
		if x.usage() != y.usage() {
			t.Fatalf("%+v, again %+v", x.usage(), y.usage())
		}
	})
}
