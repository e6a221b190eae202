package interop

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// findings lists what a node found about its peers so far.
func (n *node) findings(t *testing.T) (out []string) {
	t.Helper()
	var list []struct{ What, Severity, Detail string }
	if err := jsonLines(mustRun(t, "", "--dir", n.dir, "--json", "peer", "log"), &list); err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		if h.What == "finding" {
			out = append(out, h.Severity+" "+h.Detail)
		}
	}
	return out
}

// TestALieAboutAShardIsFound lets a real node assert a shard of which it lost a third: the second sample of its peer makes it a finding. Then its key says in a
// heartbeat what its descriptor denies.
func TestALieAboutAShardIsFound(t *testing.T) {
	dirs := []string{prepare(t), prepare(t)}
	all, some := filepath.Join(t.TempDir(), "all"), filepath.Join(t.TempDir(), "some")
	writeEvents(t, all, 0, 90)
	writeEvents(t, some, 0, 60)
	edit(t, dirs[0], "  relay:\n", "  shards:\n  - name: notes\n    filter: {kinds: [1]}\n    completeness: asserted\n  relay:\n")
	mustRun(t, "", "--dir", dirs[0], "import", all)
	a, b := up(t, dirs[0]), up(t, dirs[1])
	da, db := a.did(t), b.did(t)
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--relay", a.url, "--filter", `{"kinds":[1]}`, "--mode", "pull", da)
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--relay", b.url, "--mode", "none", db)
	until(t, "the shard is there", time.Minute, func() bool { return b.fingerprint(t).Count == 90 })
	type sampled struct {
		Shard   string
		Asked   int
		Missing []string
		Found   bool
		Problem string
	}
	sample := func() (s []sampled) {
		t.Helper()
		if err := jsonLines(mustRun(t, "", "--dir", b.dir, "--json", "coverage", "sample", da), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	var s []sampled
	until(t, "the claim is there", time.Minute, func() bool { s = sample(); return len(s) == 1 && s[0].Problem == "" })
	if s[0].Shard != "notes" || s[0].Asked != spec.C().Coverage.SampleSize || len(s[0].Missing) != 0 {
		t.Errorf("an honest shard: %+v", s)
	}

	a.stop(t)
	if err := os.RemoveAll(filepath.Join(dirs[0], "store")); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "", "--dir", dirs[0], "import", some)
	a = up(t, dirs[0])
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--relay", a.url, "--filter", `{"kinds":[1]}`, "--mode", "pull", da) // it is at another port now
	defer func() {
		if t.Failed() {
			t.Logf("%+v", s)
		}
	}()
	until(t, "it peers again and claims its shard", time.Minute, func() bool {
		s = sample()
		return len(s) == 1 && s[0].Problem == "" && s[0].Asked > 0
	})
	samples := 1
	for ; samples < 5 && !s[0].Found; samples++ {
		s = sample()
	}
	if len(s) != 1 || !s[0].Found || samples > 3 { // a third is missing: a sample of 64 misses it about once in 10^11 times; one more confirms the hole, and a claim may be renewed in between
		t.Fatalf("after %d samples: %+v", samples, s)
	}
	if got := b.findings(t); len(got) != 1 || !strings.Contains(got[0], "S2") || !strings.Contains(got[0], "hole in asserted shard notes") {
		t.Errorf("found %q", got)
	}

	beat(t, b, strings.TrimSpace(mustRun(t, "", "--dir", dirs[0], "key", "export", "--yes")), da)
	until(t, "the heartbeat is held against the descriptor", time.Minute, func() bool {
		return strings.Contains(strings.Join(b.findings(t), "\n"), "a heartbeat contradicts the descriptor")
	})
	a.stop(t)
	b.stop(t)
}

// beat publishes a heartbeat that names another class than the descriptor does.
func beat(t *testing.T, to *node, secret, did string) {
	t.Helper()
	key, err := nostr.ParseSecretKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := identity.NewKeyAgent(key)
	if err != nil || identity.FormatDID(agent.PubKey()) != did {
		t.Fatalf("the key of %s: %v", did, err)
	}
	h := identity.Heartbeat{Subject: agent.PubKey(), At: time.Now().Unix(), Class: spec.ClassAnchor}
	e := h.Event()
	if err := identity.SignEvent(agent, e); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := gateway.Dial(ctx, to.url, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if r, err := conn.Publish(ctx, e); err != nil || !r.OK {
		t.Fatalf("publish a heartbeat: %+v, %v", r, err)
	}
}
