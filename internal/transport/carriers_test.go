package transport_test

import (
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/internal/transport/transporttest"
)

func TestMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		m := transport.NewMemory("memory")
		at := func(name string) transport.Endpoint { return transport.Endpoint{Scheme: "memory", Address: name} }
		return transporttest.Pair{A: m, B: m, AtA: at("a"), AtB: at("b"), Nowhere: at("nowhere")}
	})
}

func TestUnix(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		dir := t.TempDir()
		at := func(name string) transport.Endpoint {
			return transport.Endpoint{Scheme: "unix", Address: filepath.Join(dir, name)}
		}
		return transporttest.Pair{A: transport.Unix{}, B: transport.Unix{}, AtA: at("a"), AtB: at("b"), Nowhere: at("nowhere")}
	})
}
