package interop

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"
)

// TestAttachedToAForeignRelay federates for a khatru relay that holds events already: a peer gets them, what the peer has reaches the relay, what
// the relay's own clients publish later reaches the peer, and the node's own disk holds none of it. The node is killed in between.
func TestAttachedToAForeignRelay(t *testing.T) {
	if testing.Short() {
		t.Skip("the foreign relay has to be built")
	}
	relay := khatru(t)
	tmp := t.TempDir()
	theirs, ours, later := filepath.Join(tmp, "relay"), filepath.Join(tmp, "peer"), filepath.Join(tmp, "later")
	writeEvents(t, theirs, 0, 300)
	writeEvents(t, ours, 1000, 200)
	writeEvents(t, later, 2000, 20)
	feed := newDir(t)
	mustRun(t, "", "--dir", feed, "import", theirs)
	mustRun(t, "", "--dir", feed, "sync", "--direction", "push", relay)

	dirA, dirB := newDir(t), newDir(t)
	mustRun(t, "", "--dir", dirB, "import", ours)
	for _, dir := range []string{dirA, dirB} {
		if dir == dirA {
			mustRun(t, "", "init", dir)
		}
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    windowSeconds: 60\n    descriptorPow: 8\n")
	}
	a, b := up(t, dirA, "--attach", relay), up(t, dirB)
	add := func(n, other *node) {
		mustRun(t, "", "--dir", n.dir, "peer", "add", "--relay", other.url, "--tier", "trusted", "--shard", "notes", "--filter", `{"kinds":[1]}`, "--mode", "pull", other.did(t))
	}
	add(b, a)
	add(a, b)
	same := func(what string, count int) {
		until(t, what, 2*time.Minute, func() bool {
			fa, fb := a.fingerprint(t), b.fingerprint(t)
			if fa == fb && fa.Count == count {
				return true
			}
			add(a, b) // a sync that ended rests; the wish said again begins another
			add(b, a)
			return false
		})
	}
	same("both hold both", 500)
	a.kill()
	mustRun(t, "", "--dir", feed, "import", later)
	mustRun(t, "", "--dir", feed, "sync", "--direction", "push", relay) // as the relay's own clients do, while the node is down
	a = up(t, dirA, "--attach", relay)
	same("what was published while the node was down", 520)
	mustRun(t, "", "event", "--kind", "1", "--content", "live", "--relay", relay)
	until(t, "what a client of the relay publishes reaches the peer", time.Minute, func() bool { return b.fingerprint(t).Count == 521 })
	if got := mustRun(t, "", "--dir", feed, "--json", "sync", "--direction", "pull", relay); !json.Valid(lastLine(got)) {
		t.Error(got)
	}
	var f fingerprint
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", feed, "--json", "store", "fingerprint", `{"kinds":[1]}`)), &f); err != nil || f != b.fingerprint(t) {
		t.Errorf("the relay itself holds %+v, the peer %+v, %v", f, b.fingerprint(t), err)
	}
	for _, n := range []*node{a, b} {
		if p := n.peer(t); p.Worst != "S0" {
			t.Errorf("%+v", p)
		}
	}
	a.stop(t)
	b.stop(t)
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", dirA, "--json", "store", "fingerprint", `{"kinds":[1]}`)), &f); err != nil || f.Count != 0 {
		t.Errorf("%d events were moved into the node's own store, %v", f.Count, err)
	}
}
