package gatewaytest

import (
	"fmt"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Forbidden makes one event of each sort that never crosses between two networks, without signatures. mark stands in all of them.
func Forbidden(t *testing.T, mark string) (out []*nostr.Event) {
	t.Helper()
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind nostr.Kind, content string, tags ...nostr.Tag) {
		out = append(out, Note(kind, 946684800, content, append(tags, nostr.Tag{"alt", fmt.Sprintf("%s %d", mark, len(out))})...))
	}
	to := nostr.Tag{"p", nostr.PubKey{1, 2, 3}.String()}
	for _, k := range spec.C().Boundary.NeverKinds {
		if k != 22242 { // no relay takes it: it is for AUTH
			add(k, "of a kind that never crosses", to)
		}
	}
	add(1059, "a gift wrap to nobody's relay", to)
	add(21059, "a live gift wrap", to)
	add(10000, "Ag"+strings.Repeat("A", 146))
	add(30000, strings.Repeat("A", 22)+"==?iv="+strings.Repeat("A", 22)+"==", nostr.Tag{"d", mark})
	add(1, "mine is "+nostr.EncodeNsec(key))
	add(16, `{"kind":4,"tags":[],"content":"x"}`)
	add(6, `{"kind":1,"tags":[["expiration","1"]],"content":"x"}`)
	// What a relay does not take from anyone but its author comes by import.
	add(1, "protected", nostr.Tag{"-"})
	return out
}
