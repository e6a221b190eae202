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
	path := filepath.Join(t.TempDir(), "kernel_amd64.s")
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	if out, err := exec.Command("go", "run", "./internal/gen", path).CombinedOutput(); err != nil {
		t.Fatalf("run the generator: %v: %s", err, out)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("kernel_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Error("kernel_amd64.s is not what internal/gen writes: run go generate")
	}
}
