package storetest_test

import (
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
)

func openMemory(testing.TB, string) store.Store { return store.NewMemory() }

func TestMemory(t *testing.T) { storetest.Run(t, openMemory, true) }
