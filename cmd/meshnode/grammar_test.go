package main

import (
	"errors"
	"os"
	"testing"

	"fleetmesh.org/fleetmesh/internal/command"
)

// Every verb teaches with an example, and every example is a command line that this build understands.
func TestExamplesAreUnderstood(t *testing.T) {
	t.Chdir(t.TempDir()) // some name what has to be there
	if err := errors.Join(os.Mkdir("docs", 0o700), os.WriteFile("node-backup.tar", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var c cli
	model := grammar(&c).Model
	for _, path := range command.Lacking(model) {
		t.Errorf("meshnode %s has no example: write one in its Help, or in examples.go", path)
	}
	for _, line := range command.AllExamples(model) {
		calls, err := command.Calls("meshnode", line)
		if err != nil {
			t.Errorf("example %q: %v", line, err)
		}
		for _, args := range calls {
			var fresh cli
			if _, err := grammar(&fresh).Parse(args); err != nil {
				t.Errorf("example %q: %v", line, err)
			}
		}
	}
}
