// Package interop drives the real meshnode binary over real sockets: with foreign clients that know nothing of
// fleetmesh, with a second node, and with kill -9.
package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var binary string // the meshnode under test

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "meshnode")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "meshnode")
	build := exec.Command("go", "build", "-o", dir+string(os.PathSeparator), "fleetmesh.org/fleetmesh/cmd/meshnode", "fleetmesh.org/fleetmesh/cmd/meshctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is released, whatever the tests are built with
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	code := 1
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build meshnode:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// node is a running meshnode.
type node struct {
	dir string
	url string
	cmd *exec.Cmd
	log *logBuffer
	end chan error
}

// logBuffer can be read while the node writes to it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newDir makes a directory whose control socket has a short path.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "n")
}

// up starts a node on a port of its own and waits until it says that it serves.
func up(t *testing.T, dir string, args ...string) *node {
	t.Helper()
	n, err := launch(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	return n
}

func launch(dir string, args ...string) (*node, error) {
	n := &node{dir: dir, log: new(logBuffer), end: make(chan error, 1)}
	n.cmd = exec.Command(binary, append([]string{"up", "--json", "--dir", dir, "--listen", "127.0.0.1:0"}, args...)...)
	n.cmd.Stderr = n.log
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var line struct{ Event, Relay string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "ready" {
				ready <- line.Relay
			}
		}
		n.end <- n.cmd.Wait()
	}()
	select {
	case n.url = <-ready:
		return n, nil
	case err := <-n.end:
		n.end <- err
		return nil, fmt.Errorf("meshnode up ended: %w\n%s", err, n.log)
	case <-time.After(60 * time.Second):
		n.kill()
		return nil, fmt.Errorf("meshnode up did not serve in 60 s\n%s", n.log)
	}
}

// kill ends the node as kill -9 does. A node that has ended already is left alone.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // it may have ended by itself
	n.end <- <-n.end
}

// halt ends the node as systemd does, and wants status 0.
func (n *node) halt() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := <-n.end
	n.end <- err
	if err != nil {
		return fmt.Errorf("meshnode up after SIGTERM: %w\n%s", err, n.log)
	}
	return nil
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.halt(); err != nil {
		t.Fatal(err)
	}
}

// run runs a verb to its end and returns what it printed and its status.
func run(t *testing.T, stdin string, args ...string) (stdout string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("meshnode %s: %v", strings.Join(args, " "), err)
	}
	if errs.Len() > 0 {
		t.Logf("meshnode %s: %s", args[0], errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// jsonLines reads an object a line into a slice.
func jsonLines[T any](text string, into *[]T) error {
	d := json.NewDecoder(strings.NewReader(text))
	for d.More() {
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		*into = append(*into, v)
	}
	return nil
}

// mustRun runs a verb that has to succeed.
func mustRun(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, code := run(t, stdin, args...)
	if code != 0 {
		t.Fatalf("meshnode %s: status %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}
