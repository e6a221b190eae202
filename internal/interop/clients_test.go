package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// need skips a test that wants a program which is not here, but fails in CI.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: %v", program, err)
		}
		t.Skipf("%s is not installed: ./test.sh installs what the tests need", program)
	}
}

var npmInstall = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("js")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	return dir, cmd.Run()
})

// script runs one JavaScript client against a fresh node.
func script(t *testing.T, name string) {
	need(t, "npm")
	need(t, "node")
	dir, err := npmInstall()
	if err != nil {
		t.Fatalf("npm install: %v", err)
	}
	n := up(t, newDir(t))
	cmd := exec.Command("node", filepath.Join(dir, name), n.url)
	cmd.Dir = dir
	report(t, n, cmd)
}

func report(t *testing.T, n *node, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "ok ") {
		t.Fatalf("%v\nthe node said:\n%s", err, n.log)
	}
}

func TestNostrTools(t *testing.T) { script(t, "nostr-tools.mjs") }

func TestNDK(t *testing.T) { script(t, "ndk.mjs") }

func TestGoNostr(t *testing.T) {
	client := filepath.Join(t.TempDir(), "gonostr")
	build := exec.Command("go", "build", "-o", client, ".")
	build.Dir = "gonostr"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the go-nostr client: %v\n%s", err, out)
	}
	n := up(t, newDir(t))
	report(t, n, exec.Command(client, n.url))
}
