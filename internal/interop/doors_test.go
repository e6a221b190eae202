package interop

import (
	"encoding/json"
	"fmt"
	"path/filepath"
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
