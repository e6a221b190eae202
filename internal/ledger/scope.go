package ledger

import (
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Direction is the way a scope covers, seen from the subject of the grant.
type Direction string

// Push: the subject sends, and every event must match. Pull: the subject fetches.
const (
	Push Direction = "push"
	Pull Direction = "pull"
)

// Scope is one interest: a direction and a filter.
type Scope struct {
	Direction Direction
	Filter    nostr.Filter
}

// InScope reports whether an event lies in one of the scopes of a direction.
func InScope(scopes []Scope, d Direction, e *nostr.Event) bool {
	for i := range scopes {
		if scopes[i].Direction == d && scopes[i].Filter.Matches(e) {
			return true
		}
	}
	return false
}

// CheckScope says whether a grant lets an event cross in a direction at now: within a filter of the
// direction, of a kind that may cross at all, not expired, not protected. Only OutOfScope is the
// interest offence (S3); the others are refused on sight.
func CheckScope(scopes []Scope, d Direction, e *nostr.Event, now int64) error {
	switch {
	case spec.C().Boundary.Never(e.Kind), e.Kind.IsEphemeral():
		return fault(NeverCrosses, e.ID.String())
	case e.ExpiredAt(now):
		return fault(ExpiredEvent, e.ID.String())
	case e.Protected():
		return fault(ProtectedHere, e.ID.String())
	case !InScope(scopes, d, e):
		return fault(OutOfScope, e.ID.String())
	}
	return nil
}

// CoarseScope reports whether a filter keeps to kinds and tags. A filter by author or id tells whoever
// serves it whom a node reads, so operators are warned of one.
func CoarseScope(f *nostr.Filter) bool {
	if len(f.Authors) > 0 || len(f.IDs) > 0 {
		return false
	}
	for _, t := range f.Tags {
		if strings.IndexByte("peE", t.Letter) >= 0 {
			return false
		}
	}
	return true
}
