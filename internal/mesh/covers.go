package mesh

import (
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
)

// covers reports whether whatever f can match lies within one scope of the direction. It may say no of a filter that two
// scopes cover only together: a session is about one interest.
func covers(scopes []ledger.Scope, d ledger.Direction, f *nostr.Filter) bool {
	return slices.ContainsFunc(scopes, func(s ledger.Scope) bool { return s.Direction == d && within(f, &s.Filter) })
}

// within reports whether every condition of s is at least as narrow in f.
func within(f, s *nostr.Filter) bool {
	if f.MatchesNothing() {
		return true
	}
	if !subset(f.IDs, s.IDs) || !subset(f.Authors, s.Authors) || !subset(f.Kinds, s.Kinds) || s.Search != "" {
		return false
	}
	for _, t := range s.Tags {
		i := slices.IndexFunc(f.Tags, func(g nostr.TagFilter) bool { return g.Letter == t.Letter })
		if i < 0 || !subset(f.Tags[i].Values, t.Values) {
			return false
		}
	}
	if s.Since != nil && (f.Since == nil || *f.Since < *s.Since) {
		return false
	}
	return s.Until == nil || f.Until != nil && *f.Until <= *s.Until
}

// subset reports whether a list of f says at least what the list of s says; a nil list of s says nothing.
func subset[T comparable](f, s []T) bool {
	if s == nil {
		return true
	}
	return f != nil && !slices.ContainsFunc(f, func(v T) bool { return !slices.Contains(s, v) })
}
