package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
)

// node is one meshnode: a process of its own, in a directory of its own.
type node struct {
	n      int
	dir    string
	binary string
	ports  ports

	mu   sync.Mutex
	cmd  *exec.Cmd // nil while it is down
	end  chan struct{}
	did  string
	url  string
	skew time.Duration // of its clock
	held bool          // down by the operator's wish or a fault, and not to be asked anything
}

// ports are where a node listens, and where its wire does.
type ports struct {
	Relay int `json:"relay"`
	Wire  int `json:"wire"`
}

func (p ports) face() string { return local(p.Relay) }
func (p ports) wire() string { return local(p.Wire) }

func local(port int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(port)) }

// Patience with a node on a busy machine.
const (
	startPatience = 2 * time.Minute
	stopPatience  = 20 * time.Second
	callPatience  = 2 * time.Minute
)

func (n *node) control() string { return filepath.Join(n.dir, "control.sock") }

// provision makes the node's directory, if there is none, as an operator would: from a manifest.
func (n *node) provision(ctx context.Context, window int64) error {
	if _, err := os.Stat(filepath.Join(n.dir, "node.yaml")); err == nil {
		return nil
	}
	path := n.dir + ".yaml"
	if err := os.WriteFile(path, manifest(n.n, n.ports, window), 0o644); err != nil {
		return fmt.Errorf("write the manifest of node %d: %w", n.n, err)
	}
	cmd := exec.CommandContext(ctx, n.binary, "--dir", n.dir, "init", "--manifest", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make node %d: %w: %s", n.n, err, bytes.TrimSpace(out))
	}
	return nil
}

// manifest is what is wanted of a node of a cluster: short windows, little work in its descriptor, no rates for clients on a face that only
// this machine reaches, and everything that it dials through its wire.
func manifest(n int, p ports, window int64) []byte {
	return fmt.Appendf(nil, `apiVersion: fleetmesh.org/v1alpha1
kind: MeshNode
metadata:
  name: cluster-%d
spec:
  class: edge
  proxy: socks5://%s
  relay:
    listen: %s
    name: cluster node %d
    limits: {eventsPerSecond: -1, requestsPerSecond: -1, bytesPerSecond: -1}
  storage: {engine: eventlog, path: store}
  federation:
    enrolment: closed
    windowSeconds: %d
    descriptorPow: 8
`, n, p.wire(), p.face(), n, window)
}

// start runs the node until it says that it serves.
func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return nil
	}
	log, err := os.OpenFile(n.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of node %d: %w", n.n, err)
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(n.binary, "--dir", n.dir, "--json", "up", "--clock-offset", n.skew.String())
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start node %d: %w", n.n, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node %d: %w", n.n, err)
	}
	end, ready := make(chan struct{}), make(chan struct{})
	go func() { // ends with the process
		defer close(end)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var line struct{ Event, Relay, DID string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "ready" {
				n.url, n.did = line.Relay, line.DID // n.mu is held by who waits for this
				close(ready)
				break
			}
		}
		for lines.Scan() { // nothing more is said
		}
		_ = cmd.Wait() // how it ended stands in its log
	}()
	failed := func(why string) error {
		_ = cmd.Process.Kill() // it may be gone
		<-end
		return fmt.Errorf("node %d %s: see %s.log", n.n, why, n.dir)
	}
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-ready:
	case <-end:
		return failed("ended before it served")
	case <-patience.C:
		return failed(fmt.Sprintf("did not serve within %s", startPatience))
	case <-ctx.Done():
		return errors.Join(ctx.Err(), failed("was not waited for"))
	}
	n.cmd, n.end, n.held = cmd, end, false
	return nil
}

// kill ends the node as kill -9 does.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = true
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // it may be gone
	<-n.end
	n.cmd = nil
}

// stop lets the node say goodbye.
func (n *node) stop() {
	n.mu.Lock()
	cmd, end := n.cmd, n.end
	n.held = true
	n.mu.Unlock()
	if cmd == nil {
		return
	}
	if cmd.Process.Signal(syscall.SIGTERM) == nil {
		patience := time.NewTimer(stopPatience)
		defer patience.Stop()
		select {
		case <-end:
		case <-patience.C:
		}
	}
	n.kill()
}

// up says whether the node runs and is meant to.
func (n *node) up() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil || n.held {
		return false
	}
	select {
	case <-n.end:
		return false
	default:
		return true
	}
}

// died says that the node ended although nobody wanted it to.
func (n *node) died() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil || n.held {
		return false
	}
	select {
	case <-n.end:
		return true
	default:
		return false
	}
}

// call runs one method of the node's control socket.
func (n *node) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	c, err := control.Dial(ctx, n.control())
	if err != nil {
		return fmt.Errorf("node %d: %w", n.n, err)
	}
	defer c.Close()
	if err := c.Call(ctx, method, params, result, nil); err != nil {
		return fmt.Errorf("node %d: %s: %w", n.n, method, err)
	}
	return nil
}

// freePorts finds ports that nobody listens on now. Somebody may be faster; then starting says so.
func freePorts(n int) (out []int, err error) {
	var open []net.Listener
	defer func() {
		for _, ln := range open {
			ln.Close()
		}
	}()
	for range n {
		ln, err := net.Listen("tcp", local(0))
		if err != nil {
			return nil, fmt.Errorf("look for a free port: %w", err)
		}
		open = append(open, ln)
		out = append(out, ln.Addr().(*net.TCPAddr).Port)
	}
	return out, nil
}

// off sets how far ahead the node's clock is from its next start on.
func (n *node) off(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.skew = d
}

func (n *node) offset() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.skew
}
