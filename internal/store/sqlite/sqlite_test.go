package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/sqlstore"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
)

func open(t testing.TB, dir string) store.Store {
	s, err := Open(t.Context(), filepath.Join(dir, "a b?c.db"), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSuite(t *testing.T) { storetest.Run(t, open, false) }

func TestDifferential(t *testing.T) { storetest.Differential(t, open) }

// TestOlderTables opens tables of the format that had no index of words, and searches them.
func TestOlderTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	s, err := Open(t.Context(), path, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := storetest.NewWorld(3, 20, 4000)
	now := storetest.Start + w.Spread
	oracle := store.NewMemory()
	events := w.Batch(1200)
	for _, into := range []store.Store{s, oracle} {
		if _, err := into.Insert(t.Context(), events, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`DROP TABLE words`, `DROP TABLE gone`, `DELETE FROM meta WHERE name = 'gone'`, `UPDATE meta SET value = 1 WHERE name = 'format'`} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), path, sqlstore.Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := 0
	for range 3000 {
		f := w.Filter()
		if f.Search == "" {
			continue
		}
		storetest.Compare(t, s, oracle, []nostr.Filter{f}, store.View{}, 0, now)
		n, err := s.Count(t.Context(), []nostr.Filter{f}, store.View{}, now)
		if err != nil {
			t.Fatal(err)
		}
		found += n
	}
	if found == 0 {
		t.Fatal("no search found anything")
	}
}

// TestFewSets has room for hardly any set: answers stay the same.
func TestFewSets(t *testing.T) {
	storetest.Run(t, func(t testing.TB, dir string) store.Store {
		s, err := Open(t.Context(), filepath.Join(dir, "events.db"), sqlstore.Options{SetItems: 60})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, false)
}
