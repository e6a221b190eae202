package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/manifest"
)

// TestKillInTheMiddleOfApply kills a node while an apply is half done: node.yaml is written, rules and doors are in force, one peering has begun, and the
// next waits for a relay that does not answer. The node that comes up after it is what it was before.
func TestKillInTheMiddleOfApply(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	dir, other := newDir(t), newDir(t)
	for _, d := range []string{dir, other} {
		mustRun(t, "", "init", "--listen", "127.0.0.1:0", d)
		edit(t, d, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 4\n")
	}
	b := up(t, other)
	o := &operated{node: up(t, dir), t: t, file: filepath.Join(t.TempDir(), "wish.yaml")}
	door := filepath.Join(filepath.Dir(dir), "door")
	head := "apiVersion: fleetmesh.org/v1alpha1\n"
	node := func(more string) string {
		return head + "kind: MeshNode\nmetadata: {name: meshnode}\nspec:\n  class: edge\n" + more + "  relay:\n    listen: 127.0.0.1:0\n    name: meshnode\n    description: A fleetmesh node.\n    denyKinds: [9]\n  federation: {descriptorPow: 4}\n"
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(o.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get := func() (run manifest.Running) {
		t.Helper()
		if err := json.Unmarshal([]byte(o.ctl("get", "--json")), &run); err != nil {
			t.Fatal(err)
		}
		return run
	}
	write(node(""))
	o.ctl("apply", "-f", o.file)
	before, err := os.ReadFile(filepath.Join(dir, "node.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	hash := get().Hash

	peering := func(name, did, relay string) string {
		return fmt.Sprintf("---\n%skind: Peering\nmetadata: {name: %s}\nspec: {peer: '%s', relays: ['%s'], ingress: {filter: {kinds: [1]}}, budget: {events_in: 10}}\n", head, name, did, relay)
	}
	next := node(fmt.Sprintf("  endpoints: [{transport: unix, address: %q, priority: 10}]\n", door))
	next = next[:len(next)-len("  federation: {descriptorPow: 4}\n")] + "    readOnly: true\n  federation: {descriptorPow: 4}\n"
	whole := next + peering("a-begins", b.did(t), b.url) + peering("b-waits", "did:nostr:79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798", "ws://"+deaf.Addr().String())
	write(whole)
	apply := exec.Command(filepath.Join(filepath.Dir(binary), "meshctl"), "apply", "-f", o.file, "--socket", filepath.Join(dir, "control.sock"))
	if err := apply.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the first peering has begun", time.Minute, func() bool { return len(o.peers(t)) == 1 })
	if c, err := net.Dial("unix", door); err != nil {
		t.Errorf("the door was not open yet: %v", err)
	} else {
		c.Close()
	}
	if _, err := os.Stat(filepath.Join(dir, "manifests.applying")); err != nil {
		t.Errorf("no intention is written down: %v", err)
	}
	o.kill()
	if err := apply.Wait(); err == nil {
		t.Error("meshctl says that it was applied")
	}

	o.node = up(t, dir)
	after, err := os.ReadFile(filepath.Join(dir, "node.yaml"))
	if err != nil || string(after) != string(before) {
		t.Errorf("node.yaml is another: %v\n%s", err, after)
	}
	until(t, "what was begun is undone", time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(dir, "manifests.applying"))
		return os.IsNotExist(err)
	})
	run := get()
	if run.Hash != hash || len(run.Pending)+len(run.Drift)+len(run.Peers) > 0 {
		t.Errorf("afterwards: hash %s (was %s), pending %+v, drift %+v, peers %+v", run.Hash, hash, run.Pending, run.Drift, run.Peers)
	}
	if _, err := net.Dial("unix", door); err == nil {
		t.Error("the door is open")
	}
	mustRun(t, "", "event", "--kind", "1", "--content", "taken", "--relay", o.url)
	if stage := o.stage(t, b.did(t)); stage != "ended" && stage != "" {
		t.Errorf("the peering is %s", stage)
	}

	// What could not be finished then can be now.
	write(next + peering("a-begins", b.did(t), b.url))
	o.ctl("apply", "-f", o.file)
	if run := get(); len(run.Peers) != 1 || len(run.Pending)+len(run.Drift) > 0 || run.Hash == hash {
		t.Errorf("applied again: %+v", run)
	}
}
