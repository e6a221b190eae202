package eventlog

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// bulk is a store with enough of a log for windows, and its events' number.
func bulk(t *testing.T, dir string) (*Store, int) {
	t.Helper()
	s, err := Open(dir, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := newSample(5)
	var all []*nostr.Event
	for range 3 * windowSize / 470 {
		e := w.event()
		if e.Kind == 1 {
			all = append(all, e)
		}
	}
	for len(all) > 0 {
		k := min(1000, len(all))
		if _, err := s.Insert(context.Background(), all[:k], 1_700_000_000); err != nil {
			t.Fatal(err)
		}
		all = all[k:]
	}
	st, err := s.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s, int(st.Events)
}

func rows(t *testing.T, s *Store) (n int) {
	t.Helper()
	for row, err := range s.QueryRows(context.Background(), []nostr.Filter{{}}, store.View{}, 0, 1_700_000_000) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := nostr.ParseEvent(row.Text)
		if err != nil || e.ID != row.ID || e.CreatedAt != row.CreatedAt {
			t.Fatalf("row of %s: %v", row.ID, err)
		}
		n++
	}
	return n
}

// knownPages counts the pages that would be read from memory.
func knownPages(s *Store) (n int) {
	snap := s.snapshot()
	defer snap.release()
	for _, f := range snap.v.files {
		f.windows.each(func(w *logWindow) {
			for p := range windowSize / windowPage {
				if w.knows(p*windowPage, 1) {
					n++
				}
			}
		})
	}
	return n
}

func TestWindows(t *testing.T) {
	if !canMap {
		t.Skip("files are not mapped here")
	}
	s, n := bulk(t, t.TempDir())
	if knownPages(s) != 0 {
		t.Fatal("pages are known before anything was read")
	}
	for range 2 { // from the file, then from memory
		if got := rows(t, s); got != n {
			t.Fatalf("%d rows, want %d", got, n)
		}
		if knownPages(s) == 0 {
			t.Fatal("no page is known")
		}
	}
	s.slim()
	if knownPages(s) != 0 {
		t.Fatal("pages are known after a drop")
	}
	if got := rows(t, s); got != n {
		t.Fatalf("%d rows after a drop, want %d", got, n)
	}
}

// A log file that somebody cuts short loses events, and the process lives on.
func TestWindowOfATruncatedFile(t *testing.T) {
	if !canMap {
		t.Skip("files are not mapped here")
	}
	dir := t.TempDir()
	s, n := bulk(t, dir)
	rows(t, s)
	if err := os.Truncate(filepath.Join(dir, logName(1)), windowSize/2); err != nil {
		t.Fatal(err)
	}
	got := rows(t, s)
	if got == 0 || got >= n || got+len(s.Damaged()) != n {
		t.Fatalf("%d rows and %d damaged of %d", got, len(s.Damaged()), n)
	}
	if again := rows(t, s); again != got {
		t.Fatalf("%d rows the second time, %d the first", again, got)
	}
}
