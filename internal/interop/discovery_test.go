package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
)

// prepare makes a node directory whose descriptor costs little work, and whose windows are short.
func prepare(t *testing.T, args ...string) string {
	t.Helper()
	dir := newDir(t)
	mustRun(t, "", append([]string{"init", dir}, args...)...)
	edit(t, dir, "  federation:\n", "  federation:\n    windowSeconds: 60\n    descriptorPow: 8\n")
	return dir
}

type knownNode struct {
	DID         string
	LearnedFrom string `json:"learned_from"`
	Endpoints   []struct{ Address string }
	Live, Peer  bool
	Revoked     int64 `json:"revoked_at"`
	Successor   string
}

func (n *node) known(t *testing.T) (list []knownNode) {
	t.Helper()
	if err := jsonLines(mustRun(t, "", "--dir", n.dir, "--json", "known"), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// knows returns what a node knows of another, nil if nothing that lives.
func (n *node) knows(t *testing.T, did string) *knownNode {
	t.Helper()
	for _, k := range n.known(t) {
		if k.DID == did && k.Live {
			return &k
		}
	}
	return nil
}

func (n *node) peers(t *testing.T) (list []mesh.Peer) {
	t.Helper()
	if err := jsonLines(mustRun(t, "", "--dir", n.dir, "--json", "peer", "list"), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// stage is how far the peering with another node is, "" if there is none.
func (n *node) stage(t *testing.T, did string) string {
	t.Helper()
	for _, p := range n.peers(t) {
		if did == "did:nostr:"+p.Key.String() {
			return p.Stage
		}
	}
	return ""
}

func idOf(t *testing.T, dir string) string {
	t.Helper()
	var id struct{ DID string }
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", dir, "--json", "id")), &id); err != nil {
		t.Fatal(err)
	}
	return id.DID
}

// TestFindEachOtherThroughOneRelay has two nodes that share nothing but one ordinary relay.
func TestFindEachOtherThroughOneRelay(t *testing.T) {
	relay := up(t, newDir(t))
	findThrough(t, relay.url)
}

func findThrough(t *testing.T, url string) {
	a, b := up(t, prepare(t, "--relay", url)), up(t, prepare(t, "--relay", url))
	didA, didB := a.did(t), b.did(t)
	until(t, "the two know each other", time.Minute, func() bool { return a.knows(t, didB) != nil && b.knows(t, didA) != nil })
	if k := a.knows(t, didB); !strings.HasPrefix(k.LearnedFrom, "relay "+url) || len(k.Endpoints) != 1 || k.Endpoints[0].Address != b.url {
		t.Errorf("a knows b as %+v", k)
	}
	// What it verified, it resolves; and it peers without being told where the other is.
	doc := mustRun(t, "", "--dir", a.dir, "--json", "did", "resolve", didB)
	if !strings.Contains(doc, b.url) || !strings.Contains(doc, "#agree") {
		t.Errorf("a resolves b to %s", doc)
	}
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--mode", "none", didB)
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--mode", "none", didA)
	until(t, "the two peer", time.Minute, func() bool { return a.stage(t, didB) == "active" && b.stage(t, didA) == "active" })
}

// TestFiveNodesFromOneBootstrap starts five nodes with empty bootstrap lists; four are given one --bootstrap, the first.
func TestFiveNodesFromOneBootstrap(t *testing.T) {
	if testing.Short() {
		t.Skip("five nodes")
	}
	const all = 5
	var nodes []*node
	for i := range all {
		dir := prepare(t, "--enrolment", "open")
		edit(t, dir, "  federation:\n", "  federation:\n    seekPeers: 4\n")
		if text, err := os.ReadFile(filepath.Join(dir, "bootstrap.toml")); err != nil || strings.Contains("\n"+string(text), "\n[[node]]") {
			t.Fatalf("the bootstrap list of a new node: %q, %v", text, err)
		}
		if i == 0 {
			nodes = append(nodes, up(t, dir))
			continue
		}
		nodes = append(nodes, up(t, dir, "--bootstrap", nodes[0].url))
	}
	until(t, "every node knows the others and peers with them", 2*time.Minute, func() bool {
		for _, n := range nodes {
			live, active := 0, 0
			for _, k := range n.known(t) {
				if k.Live {
					live++
				}
				if k.Peer {
					active++
				}
			}
			if live != all-1 || active != all-1 {
				return false
			}
		}
		return true
	})
}

// TestPeersFollowAMove gives one node another relay and another address: its peers follow without an edit.
func TestPeersFollowAMove(t *testing.T) {
	relay, relay2 := up(t, newDir(t)), up(t, newDir(t))
	dirA := prepare(t, "--relay", relay.url)
	a, b := up(t, dirA), up(t, prepare(t, "--relay", relay.url))
	didA, didB := a.did(t), b.did(t)
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--mode", "none", "--relay", b.url, didB)
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--mode", "none", "--relay", a.url, didA)
	until(t, "the two peer", time.Minute, func() bool { return a.stage(t, didB) == "active" && b.stage(t, didA) == "active" })

	old := a.url
	a.stop(t)
	relay.stop(t)
	edit(t, dirA, relay.url, relay2.url)
	a = up(t, dirA) // at another port
	if a.url == old {
		t.Skip("the system gave the same port again")
	}
	until(t, "the peer knows the new address", time.Minute, func() bool {
		k := b.knows(t, didA)
		return k != nil && len(k.Endpoints) == 1 && k.Endpoints[0].Address == a.url
	})
	mustRun(t, "", "--dir", b.dir, "peer", "end", "--reason", "seen at the new address", didA)
	until(t, "a message reaches the new address", time.Minute, func() bool { return a.stage(t, didB) == "ended" })
}

// TestCopiedDomainIsRefused puts another node at the address of a first: it has even the first's descriptor, and not its key.
func TestCopiedDomainIsRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	dirA, dirThief := prepare(t), prepare(t)
	didA, didThief := idOf(t, dirA), idOf(t, dirThief)
	a := up(t, dirA, "--listen", address)
	until(t, "the first has its descriptor", time.Minute, func() bool {
		return strings.Contains(mustRun(t, "", "--dir", dirA, "--json", "id"), `"pow_bits"`)
	})
	descriptor := mustRun(t, "", "--dir", dirA, "export", `{"kinds":[11801]}`)
	a.stop(t)

	mustRun(t, descriptor, "--dir", dirThief, "import")
	thief := up(t, dirThief, "--listen", address)
	d := up(t, prepare(t))
	mustRun(t, "", "--dir", d.dir, "peer", "add", "--mode", "none", "--relay", thief.url, didA)
	until(t, "the copy got a message that it cannot open", time.Minute, func() bool { return strings.Contains(thief.log.String(), "a frame cannot be used") })
	if s := d.stage(t, didA); s != "asked" {
		t.Errorf("the peering with the first is %s, want asked", s)
	}
	if s := d.stage(t, didThief); s != "" {
		t.Errorf("there is a peering with the copy: %s", s)
	}
	// The thief's own descriptor does not pass for the first's either.
	if _, code := run(t, "", "--dir", d.dir, "peer", "add", "--mode", "none", "--relay", thief.url, "did:nostr:79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"); code == 0 {
		t.Error("a node without a descriptor was peered with")
	}
}

// TestStolenKeyRevokes publishes a revocation with a stolen key: peers stop, and nothing passes to the successor.
func TestStolenKeyRevokes(t *testing.T) {
	relay := up(t, newDir(t))
	dirA := prepare(t, "--relay", relay.url)
	a, b := up(t, dirA), up(t, prepare(t, "--relay", relay.url, "--enrolment", "open"))
	c := up(t, prepare(t, "--relay", relay.url))
	didA, didB, didC := a.did(t), b.did(t), c.did(t)
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--mode", "none", "--tier", "member", "--relay", a.url, didA)
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--mode", "none", "--relay", b.url, didB)
	until(t, "the two peer", time.Minute, func() bool { return a.stage(t, didB) == "active" && b.stage(t, didA) == "active" })

	backup, stolen := filepath.Join(t.TempDir(), "stolen"), newDir(t)
	mustRun(t, "", "--dir", dirA, "key", "backup", backup)
	mustRun(t, "", "--dir", stolen, "key", "restore", backup)
	var r struct{ Event string }
	out := mustRun(t, "", "--dir", stolen, "--json", "revoke", "--reason", "key-compromise", "--successor", didC, "--yes")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	until(t, "the peer ends it", 10*time.Second, func() bool { return b.stage(t, didA) == "ended" })
	showRevocationDelay(t, b, r.Event)
	for _, p := range b.peers(t) {
		if "did:nostr:"+p.Key.String() == didA && (p.Issued != nil || p.Held != nil || p.Worst != "S4") {
			t.Errorf("of the peering is left: %+v", p)
		}
	}
	if s := b.stage(t, didC); s != "" {
		t.Errorf("the successor has a peering: %s", s)
	}
	// The successor comes as a stranger does.
	mustRun(t, "", "--dir", c.dir, "peer", "add", "--mode", "none", "--relay", b.url, didB)
	until(t, "the successor peers", time.Minute, func() bool { return b.stage(t, didC) == "active" })
	for _, p := range b.peers(t) {
		if "did:nostr:"+p.Key.String() == didC && p.Tier != "probation" {
			t.Errorf("the successor has tier %s", p.Tier)
		}
	}
	if _, code := run(t, "", "--dir", b.dir, "peer", "add", "--mode", "none", "--relay", a.url, didA); code == 0 {
		t.Error("a revoked key was added again")
	}
	until(t, "the robbed node knows", time.Minute, func() bool {
		_, code := run(t, "", "--dir", a.dir, "peer", "add", "--mode", "none", "--relay", b.url, didB)
		return code != 0
	})
}

// showRevocationDelay tells how long after the revocation was signed the peer had ended everything.
func showRevocationDelay(t *testing.T, peer *node, revocation string) {
	t.Helper()
	var e struct {
		CreatedAt int64 `json:"created_at"`
	}
	if err := json.Unmarshal([]byte(revocation), &e); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(mustRun(t, "", "--dir", peer.dir, "--json", "peer", "log")) {
		var h struct {
			What string
			At   int64
		}
		if json.Unmarshal([]byte(line), &h) == nil && h.What == "revoked" {
			t.Logf("ended %d s after the second in which the revocation was signed", h.At-e.CreatedAt)
			return
		}
	}
	t.Error("the history does not tell of the revocation")
}

// TestInvitation lets one stranger in, once.
func TestInvitation(t *testing.T) {
	a, b, c := up(t, prepare(t, "--enrolment", "invitation")), up(t, prepare(t)), up(t, prepare(t))
	didA, didB := a.did(t), b.did(t)
	png := filepath.Join(t.TempDir(), "invitation.png")
	var i struct{ URL, ID string }
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", a.dir, "--json", "invite", "--png", png)), &i); err != nil {
		t.Fatal(err)
	}
	if head, err := os.ReadFile(png); err != nil || !strings.HasPrefix(string(head), "\x89PNG") {
		t.Errorf("the QR code: %v", err)
	}
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--mode", "none", "--invitation", i.URL)
	until(t, "the invited peers", time.Minute, func() bool { return a.stage(t, didB) == "active" && b.stage(t, didA) == "active" })
	mustRun(t, "", "--dir", c.dir, "peer", "add", "--mode", "none", "--invitation", i.URL)
	until(t, "the second is declined", time.Minute, func() bool { return c.stage(t, didA) == "refused" })
	if list := mustRun(t, "", "--dir", a.dir, "--json", "invite", "list"); !strings.Contains(list, fmt.Sprintf(`"used_by":%q`, didB)) {
		t.Errorf("the invitation: %s", list)
	}
}

// TestKeyRotationOverlaps rotates an agreement key under a running peering.
func TestKeyRotationOverlaps(t *testing.T) {
	a, b := up(t, prepare(t)), up(t, prepare(t))
	didA, didB := a.did(t), b.did(t)
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--mode", "none", "--relay", b.url, didB)
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--mode", "none", "--relay", a.url, didA)
	until(t, "the two peer", time.Minute, func() bool { return a.stage(t, didB) == "active" && b.stage(t, didA) == "active" })
	before := mustRun(t, "", "--dir", b.dir, "--json", "did", "resolve", didA)
	var r struct {
		Key    string
		Former []string
	}
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", a.dir, "--json", "key", "rotate", "agreement")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Former) != 1 || !strings.Contains(before, r.Former[0]) {
		t.Fatalf("rotated to %+v; before, the peer resolved %s", r, before)
	}
	until(t, "the peer learns of the new key, and of the old one", time.Minute, func() bool {
		now := mustRun(t, "", "--dir", b.dir, "--json", "did", "resolve", didA)
		return strings.Contains(now, r.Key) && strings.Contains(now, r.Former[0])
	})
	mustRun(t, "", "--dir", a.dir, "peer", "end", "--reason", "sealed with the new key", didB)
	until(t, "a message with the new key is opened", time.Minute, func() bool { return b.stage(t, didA) == "ended" })
}

// TestFindEachOtherThroughAForeignRelay is TestFindEachOtherThroughOneRelay with a relay that is none of ours and knows nothing of the mesh.
func TestFindEachOtherThroughAForeignRelay(t *testing.T) {
	if testing.Short() {
		t.Skip("the foreign relay has to be built")
	}
	findThrough(t, khatru(t))
}

// khatru runs the relay of bench/khatru.
func khatru(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "khatru")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "bench", "khatru")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build khatru: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "-store", "slice", "-dir", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
	})
	var ready struct{ Relay string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil || ready.Relay == "" {
		t.Fatalf("khatru does not say where it serves: %v", err)
	}
	return ready.Relay
}

// TestAgentKeepsTheKey peers with a node whose directory holds no node key: a process of its own signs.
func TestAgentKeepsTheKey(t *testing.T) {
	dir := prepare(t)
	did := idOf(t, dir)
	key, socket := filepath.Join(t.TempDir(), "node.key"), filepath.Join(filepath.Dir(dir), "a")
	if err := os.Rename(filepath.Join(dir, "keys", "node.key"), key); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(binary, "key", "agent", "--json", "--key", key, "--socket", socket)
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Kill() // it may have ended by itself
		_ = agent.Wait()
	})
	if err := json.NewDecoder(out).Decode(&struct{}{}); err != nil {
		t.Fatalf("the agent does not say that it is ready: %v", err)
	}
	until(t, "the agent is attached", 10*time.Second, func() bool {
		_, code := run(t, "", "--dir", dir, "key", "attach", socket)
		return code == 0
	})
	a, b := up(t, dir), up(t, prepare(t))
	if a.did(t) != did {
		t.Errorf("with an agent the node is %s, before it was %s", a.did(t), did)
	}
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--mode", "none", "--relay", b.url, b.did(t))
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--mode", "none", "--relay", a.url, did)
	until(t, "the two peer", time.Minute, func() bool { return a.stage(t, b.did(t)) == "active" && b.stage(t, did) == "active" })
}
