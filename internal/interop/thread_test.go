package interop

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
)

func (n *node) did(t *testing.T) string {
	t.Helper()
	var s struct{ DID string }
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", n.dir, "--json", "status")), &s); err != nil {
		t.Fatal(err)
	}
	return s.DID
}

func (n *node) peer(t *testing.T) (p mesh.Peer) {
	t.Helper()
	var list []mesh.Peer
	if err := jsonLines(mustRun(t, "", "--dir", n.dir, "--json", "peer", "list"), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 {
		t.Fatalf("%d peers, want 1", len(list))
	}
	return list[0]
}

// until asks again and again, a second apart, for at most so long.
func until(t *testing.T, what string, patience time.Duration, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(time.Second), time.After(patience)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// TestThreadOfTwoRealNodes is the thin thread: two binaries know each other's descriptors, grant each other a budget, sync a shard in
// delivery envelopes, send receipts, and close a window clean, through a crash of one of them.
func TestThreadOfTwoRealNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("a window takes a minute and its grace another")
	}
	tmp := t.TempDir()
	dirs := []string{newDir(t), newDir(t)}
	for i, dir := range dirs {
		file := filepath.Join(tmp, string(rune('a'+i)))
		writeEvents(t, file, 1000*i, 400)
		mustRun(t, "", "--dir", dir, "import", file)
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    windowSeconds: 60\n    descriptorPow: 8\n")
	}
	a, b := up(t, dirs[0]), up(t, dirs[1])
	add := func(n, other *node) {
		mustRun(t, "", "--dir", n.dir, "peer", "add", "--relay", other.url, "--tier", "member", "--shard", "notes", "--filter", `{"kinds":[1]}`, "--mode", "pull", other.did(t))
	}
	add(b, a)
	add(a, b)
	until(t, "the shard crosses both ways", time.Minute, func() bool {
		fa, fb := a.fingerprint(t), b.fingerprint(t)
		return fa == fb && fa.Count == 800
	})
	var w struct {
		Held   bool
		Origin *struct{ Path []struct{ Node string } }
	}
	line := firstID(t, filepath.Join(tmp, "a"))
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", b.dir, "--json", "why", line)), &w); err != nil || !w.Held || w.Origin == nil || len(w.Origin.Path) != 1 {
		t.Fatalf("why %s: %+v, %v", line, w, err)
	}

	a.kill() // its counters are on disk
	a = up(t, dirs[0])

	for _, n := range []*node{a, b} {
		until(t, "a window closes", 4*time.Minute, func() bool { return len(n.peer(t).Windows) > 0 })
		p := n.peer(t)
		v := p.Windows[0]
		if p.Stage != "active" || p.Worst != "S0" || v.Severity != "S0" || v.Receipts == 0 {
			t.Errorf("%s: %+v\n%s", n.dir, p, mustRun(t, "", "--dir", n.dir, "peer", "log"))
		}
		for c, measured := range v.Measured {
			if v.Claimed[c] != measured {
				t.Errorf("%s: %s measured %d, claimed %d", n.dir, c, measured, v.Claimed[c])
			}
		}
	}
	a.stop(t)
	b.stop(t)
}
