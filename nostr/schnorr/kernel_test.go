package schnorr

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestKernelIsGenerated holds the assembly to its generator.
func TestKernelIsGenerated(t *testing.T) {
	dir := t.TempDir()
	names := []string{"kernel_amd64.s", "lanes_amd64.s"}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	if out, err := exec.Command("go", "run", "./internal/gen", filepath.Join(dir, names[0]), filepath.Join(dir, names[1])).CombinedOutput(); err != nil {
		t.Fatalf("run the generator: %v: %s", err, out)
	}
	for _, name := range names {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("%s is not what internal/gen writes: run go generate", name)
		}
	}
}
