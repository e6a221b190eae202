package sqlite

import (
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/sqlstore"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
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
