package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/manifest"
)

// A file that is no configuration is refused by its size before anybody parses it: parsing megabytes of noise takes minutes.
func TestConfigurationsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noise.yaml")
	if err := os.WriteFile(path, bytes.Repeat([]byte("\x80noise\n"), manifest.MaxSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), "262144") {
		t.Errorf("node.yaml: %v", err)
	}
	if _, err := LoadGateway(path); err == nil || !strings.Contains(err.Error(), "262144") {
		t.Errorf("the gateway's: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadGateway(path); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty one: %v", err)
	}
}
