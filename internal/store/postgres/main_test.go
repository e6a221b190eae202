package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store/pgtest"
)

// One real PostgreSQL serves all tests; each name has a database of its own.
var (
	serverOnce sync.Once
	server     *pgtest.Server
	serverErr  error
	databases  = map[string]string{}
)

func TestMain(m *testing.M) {
	code := m.Run()
	if server != nil {
		server.Stop()
	}
	os.Exit(code)
}

// database returns the address of a database that is empty at first; the same name gives the same database.
func database(t testing.TB, name string) string {
	t.Helper()
	serverOnce.Do(func() { server, serverErr = pgtest.Start(context.Background()) })
	if errors.Is(serverErr, pgtest.ErrAbsent) {
		t.Skip(serverErr)
	}
	if serverErr != nil {
		t.Fatal(serverErr)
	}
	if databases[name] == "" {
		address, err := server.Database(context.Background(), fmt.Sprintf("mesh%d", len(databases)))
		if err != nil {
			t.Fatal(err)
		}
		databases[name] = address
	}
	return databases[name]
}
