// Package vectors finds the folder of official test vectors, which is kept
// beside the project and never inside it. For tests only.
package vectors

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a vector file. The folder is the one that
// FLEETMESH_VECTORS names, else ../shared/vectors beside the module. Where it is
// absent the test is skipped, but fails where CI=true, so that CI cannot pass without it.
func Path(t testing.TB, name ...string) string {
	t.Helper()
	dir := os.Getenv("FLEETMESH_VECTORS")
	if dir == "" {
		dir = filepath.Join(moduleRoot(t), "..", "shared", "vectors")
	}
	p := filepath.Join(append([]string{dir}, name...)...)
	if _, err := os.Stat(p); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("vector file is missing: %v (set FLEETMESH_VECTORS)", err)
		}
		t.Skipf("official vectors are not here: %v (set FLEETMESH_VECTORS)", err)
	}
	return p
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("find the module: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("find the module: no go.mod above the test")
		}
		dir = up
	}
}
