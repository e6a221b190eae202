package interop

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// TestPresence watches an ordinary relay while a node comes up, and checks everything that it says of itself against its descriptor.
func TestPresence(t *testing.T) {
	relay := up(t, newDir(t))
	dir := prepare(t, "--relay", relay.url, "--endpoint", "wss=wss://mesh.example.org:443", "--name", "bristol")
	edit(t, dir, "  relay:\n", "  shards:\n  - name: notes\n    filter: {kinds: [1]}\n    completeness: asserted\n  relay:\n")
	file := filepath.Join(t.TempDir(), "events")
	writeEvents(t, file, 0, 50)
	mustRun(t, "", "--dir", dir, "import", file)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := gateway.Dial(ctx, relay.url, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sub, err := conn.Subscribe(ctx, nostr.Filter{Kinds: []nostr.Kind{spec.KindDescriptor, nostr.KindRelayList, spec.KindRelayStatus, spec.KindHeartbeat, spec.KindCoverage}})
	if err != nil {
		t.Fatal(err)
	}
	n := up(t, dir)
	did := n.did(t)
	got := map[nostr.Kind]*nostr.Event{}
	pinned := func() bool { // the newest descriptor pins the claim
		d, c := got[spec.KindDescriptor], got[spec.KindCoverage]
		if d == nil || c == nil {
			return false
		}
		desc, err := identity.CheckDescriptor(d, identity.Rules{Now: time.Now().Unix(), PoWBits: 8})
		return err == nil && desc.Coverage == identity.CoverageDigest([]nostr.ID{c.ID})
	}
	for len(got) < 5 || !pinned() {
		d, err := sub.Next(ctx)
		if err != nil {
			t.Fatalf("%v; seen: %d kinds\n%s", err, len(got), n.log)
		}
		if d.Event != nil {
			got[d.Event.Kind] = d.Event
		}
	}
	desc, err := identity.CheckDescriptor(got[spec.KindDescriptor], identity.Rules{Now: time.Now().Unix()})
	if err != nil || identity.FormatDID(desc.Subject) != did {
		t.Fatalf("the descriptor: %v", err)
	}
	beat, err := identity.ParseHeartbeat(got[spec.KindHeartbeat])
	if err == nil {
		err = beat.Against(desc)
	}
	if err != nil || beat.Endpoints == "" {
		t.Errorf("the heartbeat: %v", err)
	}
	claim, err := identity.ParseCoverage(got[spec.KindCoverage])
	if err != nil || claim.Shard != "notes" || claim.Completeness != identity.Asserted || claim.Count != 50 || claim.Fingerprint != n.fingerprint(t).Fingerprint {
		t.Errorf("the claim: %+v, %v", claim, err)
	}
	list := string(got[nostr.KindRelayList].JSON())
	if !strings.Contains(list, "wss://mesh.example.org") || !strings.Contains(list, strings.TrimSuffix(relay.url, "/")) {
		t.Errorf("the relay list: %s", list)
	}
	status := got[spec.KindRelayStatus]
	var info struct{ Name string }
	if err := json.Unmarshal([]byte(status.Content), &info); err != nil || info.Name != "bristol" || !strings.HasPrefix(status.D(), "wss://mesh.example.org") {
		t.Errorf("the status: %s", status.JSON())
	}
	if at, ok := status.Expiration(); !ok || at > desc.Expiration {
		t.Errorf("the status outlives the descriptor: %d, %d", at, desc.Expiration)
	}
}

// TestPeersTellOfPeersAndHearsayIsNotAsserted has a node in the middle: who asks it hears of its other peer, and what came through it alone is not
// asserted.
func TestPeersTellOfPeersAndHearsayIsNotAsserted(t *testing.T) {
	dirA, dirB := prepare(t), prepare(t)
	file := filepath.Join(t.TempDir(), "events")
	writeEvents(t, file, 0, 30)
	mustRun(t, "", "--dir", dirB, "import", file)
	for _, dir := range []string{dirA, dirB} {
		edit(t, dir, "  relay:\n", "  shards:\n  - name: notes\n    filter: {kinds: [1]}\n    completeness: asserted\n  relay:\n")
	}
	a, b, c := up(t, dirA), up(t, dirB), up(t, prepare(t))
	didA, didB, didC := a.did(t), b.did(t), c.did(t)
	for _, p := range []struct {
		n, other *node
		did      string
	}{{b, a, didA}, {a, b, didB}, {b, c, didC}, {c, b, didB}} {
		mustRun(t, "", "--dir", p.n.dir, "peer", "add", "--mode", map[bool]string{true: "pull", false: "none"}[p.n == a], "--filter", `{"kinds":[1]}`, "--relay", p.other.url, p.did)
	}
	until(t, "the middle peers with both", time.Minute, func() bool {
		return b.stage(t, didA) == "active" && b.stage(t, didC) == "active" && a.stage(t, didB) == "active"
	})
	mustRun(t, "", "--dir", a.dir, "peers", "ask")
	until(t, "the first hears of the third", time.Minute, func() bool { return a.knows(t, didC) != nil })
	if k := a.knows(t, didC); k.LearnedFrom != "peer "+didB || k.Peer {
		t.Errorf("the first knows the third as %+v", k)
	}
	until(t, "the shard crosses", time.Minute, func() bool { return a.fingerprint(t).Count == 30 })
	for _, n := range []*node{a, b} {
		var claim struct {
			Completeness, Why string
			MeshOnly          int `json:"mesh_only"`
			Count             int
		}
		if out := mustRun(t, "", "--dir", n.dir, "--json", "coverage"); json.Unmarshal([]byte(out), &claim) != nil {
			t.Fatalf("not one claim: %s", out)
		}
		want := identity.Asserted
		if n == a {
			want = identity.BestEffort
		}
		if claim.Completeness != want || claim.Count != 30 || (claim.MeshOnly == 30) != (n == a) {
			t.Errorf("claim %+v, want %s", claim, want)
		}
	}
}
