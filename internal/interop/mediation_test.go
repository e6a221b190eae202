package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// pinged runs `meshnode ping` and returns what it found and its status.
func (n *node) pinged(t *testing.T, did string, relays ...string) (p struct {
	OK      bool
	Carrier string
	Error   string
}, code int) {
	t.Helper()
	args := []string{"--dir", n.dir, "--json", "ping", did}
	for _, r := range relays {
		args = append(args, "--relay", r)
	}
	out, code := run(t, "", args...)
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("ping: %v in %q", err, out)
	}
	return p, code
}

// freeAddr is an address on which a node can be made to listen: an anchor says in advance where it is.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestALeafBehindTwoMediators runs a leaf that nobody can dial behind two anchors. It is pinged through them, also when one of them is killed,
// pings out through them, and what they keep and log names no sender.
func TestALeafBehindTwoMediators(t *testing.T) {
	var anchors [2]*node
	for i := range anchors {
		dir := newDir(t)
		addr := freeAddr(t)
		mustRun(t, "", "--dir", dir, "init", "--listen", addr)
		edit(t, dir, "class: edge\n", "class: anchor\n  capabilities: [mediator]\n")
		edit(t, dir, "  relay:\n", fmt.Sprintf("  relay:\n    publicUrls: [%q]\n", "ws://"+addr))
		edit(t, dir, "    enrolment: closed\n", "    enrolment: open\n    descriptorPow: 1\n")
		anchors[i] = up(t, dir, "--listen", addr)
	}
	relays := fmt.Sprintf("  relays: [%q, %q]\n", anchors[0].url, anchors[1].url)
	leafDir, senderDir := newDir(t), newDir(t)
	for _, dir := range []string{leafDir, senderDir} {
		mustRun(t, "", "--dir", dir, "init", "--listen", "127.0.0.1:0")
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 1\n")
	}
	edit(t, leafDir, "class: edge\n", fmt.Sprintf("class: leaf\n%s  mediators: [%q, %q]\n", relays, anchors[0].did(t), anchors[1].did(t)))
	edit(t, senderDir, "class: edge\n", "class: edge\n"+relays)
	leaf, sender := up(t, leafDir), up(t, senderDir)
	did := leaf.did(t)
	until(t, "the leaf is reached through its mediators", time.Minute, func() bool {
		p, _ := sender.pinged(t, did, anchors[0].url, anchors[1].url)
		return p.OK && p.Carrier == "mediator"
	})
	if out, code := run(t, "", "--dir", senderDir, "ping", strings.TrimPrefix(did, "did:")); code != 2 || out != "" {
		t.Errorf("a ping to what is no DID: status %d, %q", code, out)
	}
	if p, _ := leaf.pinged(t, sender.did(t), anchors[0].url); !p.OK || p.Carrier != "mediator" {
		t.Errorf("the leaf pings: %+v", p)
	}
	if out, code := run(t, "", "--dir", leafDir, "net", "doctor"); code != 0 || !strings.Contains(out, "all is well") || strings.Count(out, "serves us") != 2 {
		t.Errorf("the leaf's doctor: status %d\n%s", code, out)
	}

	anchors[0].kill()
	until(t, "the leaf is reached through the mediator that is left", time.Minute, func() bool {
		p, _ := sender.pinged(t, did)
		return p.OK && p.Carrier == "mediator"
	})
	leaf.stop(t)
	if p, code := sender.pinged(t, did); p.OK || code != 8 {
		t.Errorf("a leaf that is gone: %+v, status %d", p, code)
	}
	anchors[1].stop(t)

	name := []byte(strings.TrimPrefix(sender.did(t), "did:nostr:")[:12])
	for _, a := range anchors {
		text, err := os.ReadFile(filepath.Join(a.dir, "mesh", "mediation"))
		if err != nil || len(text) == 0 {
			t.Fatalf("what the mediator kept: %d octets, %v", len(text), err)
		}
		if bytes.Contains(text, name) || strings.Contains(a.log.String(), string(name)) {
			t.Errorf("%s names the sender", a.dir)
		}
	}
}

// TestALeafFindsItsMediators starts a leaf that is told nothing but an ordinary relay. Of four anchors there two have one operator and one wants no
// strangers: it ends with two that serve it, of distinct operators, and others reach it through them. It keeps them when it starts again.
func TestALeafFindsItsMediators(t *testing.T) {
	if testing.Short() {
		t.Skip("six nodes")
	}
	relay := up(t, newDir(t))
	operators := map[string]string{} // by DID of the anchor
	anchor := func(operator byte, enrolment string) {
		dir, addr := newDir(t), freeAddr(t)
		key := nostr.SecretKey{31: operator}.PubKey().String()
		mustRun(t, "", "--dir", dir, "init", "--listen", addr)
		edit(t, dir, "class: edge\n", fmt.Sprintf("class: anchor\n  capabilities: [mediator]\n  operator: {pubkey: %q}\n  relays: [%q]\n", key, relay.url))
		edit(t, dir, "  relay:\n", fmt.Sprintf("  relay:\n    publicUrls: [%q]\n", "ws://"+addr))
		edit(t, dir, "    enrolment: closed\n", "    enrolment: "+enrolment+"\n    descriptorPow: 1\n")
		operators[up(t, dir, "--listen", addr).did(t)] = key
	}
	anchor(101, "open")
	anchor(101, "open")
	anchor(102, "open")
	anchor(103, "closed")
	until(t, "the relay knows the anchors", time.Minute, func() bool {
		out, _ := run(t, "", "req", "--relay", relay.url, `{"kinds":[11801],"#c":["mediator"]}`)
		return strings.Count(out, `"kind":11801`) == 4
	})
	leafDir, senderDir := newDir(t), newDir(t)
	for dir, class := range map[string]string{leafDir: "leaf", senderDir: "edge"} {
		mustRun(t, "", "--dir", dir, "init", "--listen", "127.0.0.1:0")
		edit(t, dir, "class: edge\n", fmt.Sprintf("class: %s\n  relays: [%q]\n", class, relay.url))
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 1\n")
	}
	leaf, sender := up(t, leafDir), up(t, senderDir)
	mediators := func() (dids []string) {
		var d struct {
			Mediators []struct {
				DID    string
				Served bool
			}
		}
		out, _ := run(t, "", "--dir", leafDir, "--json", "net", "doctor")
		if json.Unmarshal([]byte(out), &d) != nil {
			return nil
		}
		for _, m := range d.Mediators {
			if m.Served {
				dids = append(dids, m.DID)
			}
		}
		slices.Sort(dids)
		return dids
	}
	var chosen []string
	until(t, "two of distinct operators serve the leaf", time.Minute, func() bool {
		chosen = mediators()
		return len(chosen) == 2 && operators[chosen[0]] != operators[chosen[1]]
	})
	until(t, "the leaf is reached through them", time.Minute, func() bool {
		p, _ := sender.pinged(t, leaf.did(t))
		return p.OK && p.Carrier == "mediator"
	})
	leaf.stop(t)
	leaf = up(t, leafDir)
	until(t, "the same serve it again", time.Minute, func() bool { return slices.Equal(mediators(), chosen) })
	leaf.stop(t)
}
