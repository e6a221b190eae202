package attach

import (
	"testing"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// TestFateOf reads the answers of relays as they are in use.
func TestFateOf(t *testing.T) {
	note, live := &nostr.Event{Kind: 1}, &nostr.Event{Kind: 20001}
	for _, c := range []struct {
		e      *nostr.Event
		ok     bool
		reason string
		want   store.Outcome
		index  string
	}{
		{note, true, "", store.Stored, ""},
		{live, true, "", store.Ephemeral, ""},
		{note, true, "duplicate: have this event", store.Duplicate, ""}, // strfry
		{note, false, "duplicate: already have this event", store.Duplicate, ""},
		{note, false, "replaced: have newer event", store.Superseded, store.ReasonSuperseded}, // strfry
		{note, false, "deleted: user requested deletion", store.Deleted, store.ReasonDeleted}, // strfry
		{note, false, "blocked: this event was deleted before", store.Deleted, store.ReasonDeleted},
		{note, false, "invalid: event expired", store.Expired, store.ReasonExpired},
		{note, false, "blocked: not on the list", store.Refused, "policy"},
		{note, false, "pow: 20 bits wanted", store.Refused, "policy"},
		{note, false, "error: a list of the deleted could not be read", 0, ""},
		{note, false, "rate-limited: slow down", 0, ""},
		{note, false, "auth-required: who are you?", 0, ""},
		{note, false, "", 0, ""},
	} {
		if o, reason := fateOf(c.e, gateway.Answer{OK: c.ok, Reason: c.reason}); o != c.want || reason != c.index {
			t.Errorf("%v %q: %v %q, want %v %q", c.ok, c.reason, o, reason, c.want, c.index)
		}
	}
}
