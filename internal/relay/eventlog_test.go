package relay_test

import (
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/eventlog"
)

// TestCasesOnTheEventLog runs the cases against the default engine.
func TestCasesOnTheEventLog(t *testing.T) {
	relaytest.Run(t, func(t *testing.T) store.Store {
		s, err := eventlog.Open(t.TempDir(), eventlog.Options{OwnURLs: []string{relaytest.URL}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
