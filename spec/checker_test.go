package spec

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The vectors were written by this implementation. A program in another language
// that shares no code with it must come to the same answers, or they prove nothing.
func TestIndependentChecker(t *testing.T) {
	out := runChecker(t, "vectors")
	for _, layer := range own {
		if strings.Contains(out, layer+": not checked here") {
			t.Errorf("layer %s is not checked independently", layer)
		}
	}
}

// A checker that agrees with everything would prove nothing either.
func TestIndependentCheckerDisagrees(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vectors")
	for name, text := range map[string]string{
		"ratio/wrong.json":     `{"about":"wrong","layer":"ratio","function":"floor","input":{"n":7,"ratio":{"num":1,"den":2}},"output":4}`,
		"canonical/wrong.json": `{"about":"wrong","layer":"canonical","function":"canonical","input":{"text":"1"},"refuse":"not-canonical"}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := checker(t, dir)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "0 agree, 2 differ") {
		t.Errorf("wrong vectors pass: %v\n%s", err, out)
	}
}

func checker(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is not installed: the vectors cannot be checked independently")
		}
		t.Skip("python3 is not installed: the independent checker is not run")
	}
	return exec.Command(python, "vectors/checker/check.py", dir)
}

func runChecker(t *testing.T, dir string) string {
	t.Helper()
	out, err := checker(t, dir).CombinedOutput()
	if err != nil {
		t.Errorf("the independent checker: %v\n%s", err, out)
	}
	return string(out)
}
