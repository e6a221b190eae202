package host

import (
	"encoding/binary"
	"testing"
	"testing/synctest"

	"fleetmesh.org/fleetmesh/nostr"
)

// TestStrangersTakeNoRoom revokes more keys of strangers, and is given more places to look for them, than anybody may make a node remember. What it
// knows of its peer stays.
func TestStrangersTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := peered(t)
		defer b.stop()
		defer a.stop()
		d := *a.host.peers[b.pub]
		for i := range uint32(3 * maxAtHand / 2) {
			var key nostr.PubKey
			binary.BigEndian.PutUint32(key[:], i)
			a.host.Hint(key, []string{"wss://relay.example.org"})
			a.host.mu.Lock()
			a.host.makeRoom()
			a.host.peers[key] = &d
			a.host.mu.Unlock()
			if i%2 == 0 {
				a.host.Revoke(key, "key-compromise")
			}
		}
		a.host.mu.Lock()
		defer a.host.mu.Unlock()
		if n := max(len(a.host.peers), len(a.host.hints), len(a.host.sought), len(a.host.revoked)); n > maxAtHand {
			t.Errorf("%d of a kind are remembered, at most %d may be", n, maxAtHand)
		}
		if a.host.peers[b.pub] == nil {
			t.Error("the peer's descriptor is not at hand")
		}
	})
}
