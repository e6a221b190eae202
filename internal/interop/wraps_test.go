package interop

import (
	"encoding/json"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// TestForeignWrapsAreNamed leaves a private message of another protocol for the node's key at its relay. Its status says what it seems to be.
func TestForeignWrapsAreNamed(t *testing.T) {
	dir := newDir(t)
	mustRun(t, "", "--dir", dir, "init", "--listen", "127.0.0.1:0")
	edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 1\n")
	n := up(t, dir)
	to, err := identity.ParseDID(n.did(t))
	if err != nil {
		t.Fatal(err)
	}
	from, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	rumor := &nostr.Event{Kind: 14, CreatedAt: now, Tags: []nostr.Tag{{"p", to.String()}}, Content: "hello"}
	wrap, err := nostr.Wrap(rumor, from, to, nostr.KindGiftWrap, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := gateway.Dial(t.Context(), n.url, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if a, err := conn.Publish(t.Context(), wrap); err != nil || !a.OK {
		t.Fatalf("publish: %+v, %v", a, err)
	}
	until(t, "the wrap is named", time.Minute, func() bool {
		var s struct {
			Foreign map[string]int64 `json:"foreign_wraps"`
		}
		if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", dir, "--json", "status")), &s); err != nil {
			t.Fatal(err)
		}
		return s.Foreign["a private message (NIP-17)"] == 1
	})
	n.stop(t)
}
