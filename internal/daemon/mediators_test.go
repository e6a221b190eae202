package daemon

import (
	"slices"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/nostr"
)

// A mediator that is away for a quarter of an hour is given up, and one that declines at once; one that serves stays, for however long it has.
func TestMediatorsAreGivenUp(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	for _, c := range []struct {
		name  string
		state host.Served
		given bool
	}{
		{"serves for long", host.Served{Now: true, Since: now.Add(-24 * time.Hour)}, false},
		{"away since now", host.Served{Since: now}, false},
		{"away for a quarter of an hour", host.Served{Since: now.Add(-15 * time.Minute)}, false},
		{"away for longer", host.Served{Since: now.Add(-15*time.Minute - time.Second)}, true},
		{"declines", host.Served{Denied: true, Since: now}, true},
	} {
		key := nostr.PubKey{1}
		kept, given := tended(map[nostr.PubKey]host.Served{key: c.state}, now)
		if slices.Contains(given, key) != c.given || slices.Contains(kept, key) == c.given {
			t.Errorf("%s: kept %d, given up %d", c.name, len(kept), len(given))
		}
	}
}
