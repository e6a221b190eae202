package ledger

import (
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Project makes the unsigned kind 30385 that a report projects for clients: a score of the subject's endpoint (NIP-85,
// NIP-73), citing the report. endpoint is the address in canonical form.
func Project(r *Report, endpoint string) *nostr.Event {
	return &nostr.Event{PubKey: r.Reporter, CreatedAt: r.At, Kind: spec.KindRelayScore, Tags: []nostr.Tag{
		{"d", endpoint},
		{"k", "web"},
		{"p", r.Subject.String()},
		{"a", nostr.Address{Kind: spec.KindReport, PubKey: r.Reporter, D: r.Subject.String()}.String()},
		{"rank", strconv.FormatInt(Rank(r.Outcome), 10)},
		{"expiration", strconv.FormatInt(r.Expiration, 10)},
	}}
}
