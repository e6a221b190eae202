package eventlog

import (
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
)

// small makes everything happen early: heads, segments, merges and log files are tiny.
func small(t testing.TB, dir string) store.Store {
	s, err := Open(dir, Options{headDocs: 16, FlushDocs: 100, LogFileBytes: 8 << 10, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSuite(t *testing.T) { storetest.Run(t, small, false) }

func TestSuiteDefaults(t *testing.T) {
	storetest.Run(t, func(t testing.TB, dir string) store.Store {
		s, err := Open(dir, Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, false)
}

func TestDifferential(t *testing.T) { storetest.Differential(t, small) }
