package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/gateway/gatewaytest"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// background runs a verb until the test ends, or stop is called. It returns when the first line was printed.
func background(t *testing.T, wrap []string, args ...string) (cmd *exec.Cmd, stop func()) {
	t.Helper()
	line := append(append([]string{}, wrap...), append([]string{binary}, args...)...)
	cmd = exec.Command(line[0], line[1:]...)
	log := new(logBuffer)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var once sync.Once
		for lines := bufio.NewScanner(out); lines.Scan(); {
			once.Do(func() { close(ready) })
		}
		_ = cmd.Wait() // it is killed
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
	}
	t.Cleanup(stop)
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("meshnode %s ended: %s", strings.Join(args, " "), log)
	case <-time.After(60 * time.Second):
		t.Fatalf("meshnode %s says nothing: %s", strings.Join(args, " "), log)
	}
	return cmd, stop
}

// place is one node of the test, with what it has to itself.
type place struct {
	*node
	name      string
	control   *nostr.Event // may cross
	live      *nostr.Event // may cross, and comes while all roads are open
	forbidden []*nostr.Event
	heard     sync.Map // ids that a subscriber saw
}

func sign(t *testing.T, e *nostr.Event) *nostr.Event {
	t.Helper()
	var k nostr.SecretKey
	k[31], k[30] = 5, 9
	if err := e.Sign(k); err != nil {
		t.Fatal(err)
	}
	return e
}

// newPlace makes a node that holds events which must not cross, some of which expire soon.
func newPlace(t *testing.T, name string, expires time.Time) *place {
	t.Helper()
	p := &place{name: name}
	now := time.Now().Unix()
	p.control = sign(t, &nostr.Event{Kind: 1, CreatedAt: now, Content: "from " + name})
	p.live = sign(t, &nostr.Event{Kind: 1, CreatedAt: now, Content: "live from " + name})
	p.forbidden = append(gatewaytest.Forbidden(t, name), &nostr.Event{Kind: 1, CreatedAt: now, Content: "expired " + name, Tags: []nostr.Tag{{"expiration", fmt.Sprint(expires.Unix())}}})
	var text strings.Builder
	for _, e := range append(p.forbidden, p.control) {
		if e.Sig == (nostr.Sig{}) {
			e.CreatedAt = now
			sign(t, e)
		}
		text.Write(e.JSON())
		text.WriteByte('\n')
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	mustRun(t, "", "--dir", dir, "import", file)
	unlimit(t, dir)
	edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 8\n")
	p.node = &node{dir: dir}
	return p
}

// listen notes what a subscriber of the node sees of what never crosses.
func (p *place) listen(t *testing.T) *gateway.Conn {
	t.Helper()
	c, err := gateway.Dial(t.Context(), p.url, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	sub, err := c.Subscribe(t.Context(), nostr.Filter{Kinds: append([]nostr.Kind{1, 6, 16, 10000, 30000}, spec.C().Boundary.NeverKinds...)})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			d, err := sub.Next(context.Background())
			if err != nil {
				return
			}
			if d.Event != nil {
				p.heard.Store(d.Event.ID, true)
			}
		}
	}()
	return c
}

// holds lists the ids that the node has.
func (p *place) holds(t *testing.T) map[nostr.ID]bool {
	t.Helper()
	out := map[nostr.ID]bool{}
	d := json.NewDecoder(strings.NewReader(mustRun(t, "", "--dir", p.dir, "export")))
	for d.More() {
		var e nostr.Event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		out[e.ID] = true
	}
	return out
}

// rewriter is a plugin that lets everything through, and tries to have something else sent in its place.
const rewriter = `#!/bin/sh
while IFS= read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":"\([0-9a-f]\{64\}\)".*/\1/')
	printf '{"id":"%s","action":"accept","event":{"kind":4,"content":"instead","tags":[]}}\n' "$id"
done
`

// roads are all ways by which an event of one network may come into another: what is not in this table must not be able to send. Their opening
// is in TestNeverCrosses. code names the places in the source that send or fetch events; TestEveryRoadIsListed finds those that are missing here.
var roads = []struct {
	name string
	code []string // files that use the primitives
}{
	{"mesh sync and live push, under a grant", []string{"internal/host/session.go", "internal/host/initiate.go", "internal/host/flow.go", "internal/host/tail.go"}},
	{"bridge, by reconciliation and live", []string{"internal/gateway/bridge/lane.go", "internal/gateway/bridge/once.go", "internal/daemon/bridge.go"}},
	{"gateway, through its bridges", []string{"internal/gateway/border/border.go"}},
	{"sync with a relay, down and up", []string{"internal/daemon/sync.go"}},
	{"import of a file", []string{"internal/daemon/transfer.go"}},
}

// TestNeverCrosses opens every road there is between five nodes, in both directions, with filters that ask for everything and plugins that let everything
// through, and wants nothing across that never crosses, while what may cross does.
func TestNeverCrosses(t *testing.T) {
	if testing.Short() {
		t.Skip("five nodes and a gateway")
	}
	need(t, "sh")
	expires := time.Now().Add(20 * time.Second)
	a, b, c, d, f := newPlace(t, "a", expires), newPlace(t, "b", expires), newPlace(t, "c", expires), newPlace(t, "d", expires), newPlace(t, "f", expires)
	all := []*place{a, b, c, d, f}
	plugin := filepath.Join(t.TempDir(), "rewriter")
	if err := os.WriteFile(plugin, []byte(rewriter), 0o700); err != nil {
		t.Fatal(err)
	}
	edit(t, a.dir, "  relay:\n", "  pluginIn: {command: "+plugin+", batch: 16}\n  pluginOut: {command: "+plugin+", batch: 16}\n  relay:\n")
	for _, p := range all {
		p.node = up(t, p.dir)
	}
	until(t, "some of it has expired", time.Minute, func() bool { return time.Now().After(expires.Add(time.Second)) })
	sockets := map[*place]*gateway.Conn{}
	for _, p := range all {
		sockets[p] = p.listen(t)
	}

	// Every road, wide open.
	peer := func(n, other *place) {
		mustRun(t, "", "--dir", n.dir, "peer", "add", "--relay", other.url, "--tier", "anchor", "--shard", "all", "--filter", `{}`, "--mode", "both", other.did(t))
	}
	peer(b, a)
	peer(a, b)
	tmp := t.TempDir()
	router, border := filepath.Join(tmp, "router.config"), filepath.Join(tmp, "gateway.yaml")
	for path, text := range map[string]string{
		router: `streams { all { dir = "both" urls = [ "` + c.url + `" ] pluginUp = "` + plugin + `" pluginDown = "` + plugin + `" } }`,
		border: "dir: " + filepath.Join(filepath.Dir(newDir(t)), "g") + "\nestate: {relays: [\"" + f.url + "\"]}\nmesh: {relays: [\"" + a.url + "\"]}\ningress: {filters: [{}], pluginIn: {command: " + plugin + "}}\negress: {filters: [{}], pluginOut: {command: " + plugin + "}}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	background(t, nil, "--dir", a.dir, "--json", "bridge", "run", "--config", router, "--relay", c.url)
	background(t, nil, "--json", "gateway", "--config", border)
	sync := func() { mustRun(t, "", "--dir", a.dir, "sync", "--direction", "both", d.url) }
	sync()
	for p, conn := range sockets {
		for _, e := range append(p.forbidden[:len(p.forbidden):len(p.forbidden)], p.live) {
			if _, err := conn.Publish(t.Context(), e); err != nil && e == p.live {
				t.Errorf("%s: publish: %v", p.name, err)
			}
		}
	}
	until(t, "what may cross has crossed", 3*time.Minute, func() bool {
		sync()
		for _, p := range all {
			held := p.holds(t)
			for _, q := range all {
				if !held[q.control.ID] || !held[q.live.ID] {
					return false
				}
			}
		}
		return true
	})
	sync()
	for _, p := range all {
		held := p.holds(t)
		for _, q := range all {
			for _, e := range q.forbidden {
				_, heard := p.heard.Load(e.ID)
				if p != q && (held[e.ID] || heard) {
					t.Errorf("kind %d %.20q of %s is at %s", e.Kind, e.Content, q.name, p.name)
				}
			}
		}
	}
	left := mustRun(t, "", "--dir", a.dir, "left", a.control.ID.String())
	for _, want := range []string{"went to " + b.did(t), "by mesh, charged to grant", "went to " + strings.TrimSuffix(c.url, "/"), "by bridge", "by sync"} {
		if !strings.Contains(left, want) {
			t.Errorf("meshnode left lacks %q:\n%s", want, left)
		}
	}
}

// TestEveryRoadIsListed looks for code that moves events between networks and does not stand in the table of roads.
func TestEveryRoadIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, r := range roads {
		for _, f := range r.code {
			listed[f] = true
		}
	}
	// Code that uses the primitives, and by which nothing crosses.
	none := map[string]string{
		"internal/gateway/":            "the client that the roads are made of",
		"internal/selftest/":           "publishes events of its own making",
		"cmd/meshnode/event.go":        "a client's verb: publishes what its user makes",
		"internal/ledger/envelope.go":  "the envelope itself",
		"internal/sim/":                "has no network",
		"internal/attach/":             "another relay as this node's own store: what it holds leaves by the other roads",
		"internal/daemon/attach.go":    "the live stream of that store",
		"internal/daemon/discovery.go": "nodes' descriptors",
		"internal/daemon/conduct.go":   "reports of a peer, and nothing else: the client drops what the filter does not ask for",
		"internal/daemon/sample.go":    "coverage claims of a peer, and nothing else",
	}
	words := []string{"gateway.Sync(", "gateway.Follow(", "PublishMany(", "Envelope{Event:", "policy.FromImport)", "policy.FromSync)", "policy.FromStream)", "bridge.New("}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if err != nil || d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.Contains(rel, "test/") {
			return err
		}
		if strings.Contains(rel, "/interop/") || strings.HasPrefix(rel, "bench") || listed[rel] {
			return nil
		}
		for prefix := range none {
			if strings.HasPrefix(rel, prefix) && !strings.HasPrefix(rel, "internal/gateway/b") {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, w := range words {
			if strings.Contains(string(text), w) {
				t.Errorf("%s uses %s and is not listed among the roads of TestNeverCrosses: open it there, or say in this test why nothing crosses by it", rel, w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
