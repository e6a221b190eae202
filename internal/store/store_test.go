package store

import (
	"encoding/json"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// TestJSONKeys holds the keys that status output and refusal lists are read by.
func TestJSONKeys(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{Stats{1, 2, 3, 4, 5, 6, 7, 8}, `{"events":1,"tombstones":2,"refusals":3,"bytes":4,"dead_bytes":5,"returned":6,"last_seq":7,"damaged":8}`},
		{Refusal{nostr.ID{0xab}, "policy", 9}, `{"id":"ab00000000000000000000000000000000000000000000000000000000000000","reason":"policy","at":9}`},
	} {
		got, err := json.Marshal(c.v)
		if err != nil || string(got) != c.want {
			t.Errorf("%s, want %s (%v)", got, c.want, err)
		}
	}
}
