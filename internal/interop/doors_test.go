package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDoors lets two nodes whose only common carrier is a Unix socket, HTTPS, or gift wraps through somebody else's relay, ping each other and
// peer. Over HTTPS, which goes one way, each answer is a request of its own to the other's door.
func TestDoors(t *testing.T) {
	for _, carrier := range []string{"unix", "https", "giftwrap"} {
		t.Run(carrier, func(t *testing.T) {
			var nodes [2]*node
			relay := ""
			if carrier == "giftwrap" {
				relay = up(t, newDir(t)).url
			}
			for i := range nodes {
				dir, addr := newDir(t), freeAddr(t)
				mustRun(t, "", "--dir", dir, "init", "--listen", addr)
				door := map[string]string{"unix": filepath.Join(dir, "peers.sock"), "https": "http://" + addr + "/didcomm", "giftwrap": relay}[carrier]
				edit(t, dir, "class: edge\n", fmt.Sprintf("class: edge\n  endpoints: [{transport: %s, address: %q, priority: 10}]\n", carrier, door))
				edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 1\n")
				nodes[i] = up(t, dir, "--listen", addr)
			}
			a, b := nodes[0], nodes[1]
			for _, p := range []struct{ from, to *node }{{a, b}, {b, a}} {
				if got, _ := p.from.pinged(t, p.to.did(t), p.to.url); !got.OK || got.Carrier != carrier {
					t.Fatalf("ping: %+v", got)
				}
				var d struct {
					Healthy bool
					Doors   []struct{ Scheme string }
				}
				out := mustRun(t, "", "--dir", p.from.dir, "--json", "net", "doctor", p.to.did(t))
				if err := json.Unmarshal([]byte(out), &d); err != nil || !d.Healthy || len(d.Doors) != 1 || d.Doors[0].Scheme != carrier {
					t.Errorf("doctor: %v\n%s", err, out)
				}
			}
			for _, p := range []struct{ from, to *node }{{b, a}, {a, b}} {
				mustRun(t, "", "--dir", p.from.dir, "peer", "add", "--relay", p.to.url, "--tier", "member", "--mode", "none", p.to.did(t))
			}
			for _, n := range nodes {
				until(t, "they peer", time.Minute, func() bool { return n.peer(t).Stage == "active" })
			}
			a.stop(t)
			b.stop(t)
		})
	}
}

// TestPingThroughAForeignRelay has two nodes of four carriers each, three of which are cut: nobody listens at the address of the WebSocket, the
// Unix socket is gone, and at that of HTTPS there is a server that knows of no such door. What is left is gift wraps through a relay that is none of
// ours, which is also the only place where they find each other.
func TestPingThroughAForeignRelay(t *testing.T) {
	if testing.Short() {
		t.Skip("the foreign relay has to be built")
	}
	relay := khatru(t)
	var nodes [2]*node
	for i := range nodes {
		dir := newDir(t)
		mustRun(t, "", "--dir", dir, "init", "--listen", "127.0.0.1:0")
		socket, dead := filepath.Join(dir, "peers.sock"), freeAddr(t)
		edit(t, dir, "class: edge\n", fmt.Sprintf(`class: edge
  relays: [%q]
  endpoints:
  - {transport: unix, address: %q, priority: 10}
  - {transport: wss, address: "ws://%s/", priority: 20}
  - {transport: https, address: "http%s/didcomm", priority: 30}
  - {transport: giftwrap, address: %q, priority: 90}
`, relay, socket, dead, strings.TrimPrefix(relay, "ws"), relay))
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 1\n")
		nodes[i] = up(t, dir)
	}
	a, b := nodes[0], nodes[1]
	until(t, "the two know each other", time.Minute, func() bool { return a.knows(t, b.did(t)) != nil && b.knows(t, a.did(t)) != nil })
	for _, n := range nodes {
		if err := os.Remove(filepath.Join(n.dir, "peers.sock")); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []struct{ from, to *node }{{a, b}, {b, a}} {
		if got, _ := p.from.pinged(t, p.to.did(t)); !got.OK || got.Carrier != "giftwrap" {
			t.Fatalf("ping: %+v", got)
		}
	}
	var d struct {
		Healthy bool
		Peers   []struct {
			Reachable bool
			Rungs     []struct {
				Scheme, Address, Error, Help string
				OK                           bool
			}
		}
	}
	out, _ := run(t, "", "--dir", a.dir, "--json", "net", "doctor", b.did(t))
	if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Peers) != 1 || !d.Peers[0].Reachable || len(d.Peers[0].Rungs) != 5 {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	for _, r := range d.Peers[0].Rungs {
		if r.OK != (r.Scheme == "giftwrap" && r.Address == relay) || !r.OK && (r.Error == "" || r.Help == "") {
			t.Errorf("doctor: %+v", r)
		}
	}
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--tier", "member", "--mode", "none", b.did(t))
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--tier", "member", "--mode", "none", a.did(t))
	for _, n := range nodes {
		until(t, "they peer", time.Minute, func() bool { return n.peer(t).Stage == "active" })
	}
	a.stop(t)
	b.stop(t)
}
