package identity

import (
	"slices"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Independence is what is known about two nodes being of different hands, in three layers.
// Only the first is computed here; a false claim on any layer is a misreport (S2).
type Independence struct {
	Operators bool // layer 1: both declare an operator, and they differ
	// Layer 2: distinct autonomous systems, nil where the reader could not measure.
	ASNs *bool
	// Layer 3: an operator's signed note that production was separate for 90 days; "" if none.
	Note string
}

// DistinctOperators is layer 1: each declares an operator key, the keys differ, and neither is
// the other node's key. Saying nothing counts as not independent.
func DistinctOperators(a, b *Descriptor) bool {
	var none nostr.PubKey
	return a.Operator != none && b.Operator != none && a.Operator != b.Operator &&
		a.Operator != b.Subject && b.Operator != a.Subject && a.Subject != b.Subject
}

// Compare reports the layers for two nodes. asn is the reader's own measurement by node, 0 or absent
// where it has none; note is layer 3 as recorded.
func Compare(a, b *Descriptor, asn map[nostr.PubKey]uint32, note string) Independence {
	out := Independence{Operators: DistinctOperators(a, b), Note: note}
	if x, y := asn[a.Subject], asn[b.Subject]; x != 0 && y != 0 {
		differ := x != y
		out.ASNs = &differ
	}
	return out
}

// ChooseMediators picks up to n anchors that offer mediation over wss, each of another operator.
// It keeps the order it is given, so the caller ranks. A leaf wants two.
func ChooseMediators(candidates []*Descriptor, n int) []*Descriptor {
	var out []*Descriptor
	for _, d := range candidates {
		if len(out) == n {
			break
		}
		wss := slices.ContainsFunc(d.Endpoints, func(p Endpoint) bool { return p.Scheme == "wss" })
		if d.Class != spec.ClassAnchor || !d.Can("mediator") || !wss || d.Operator == (nostr.PubKey{}) {
			continue
		}
		if slices.ContainsFunc(out, func(o *Descriptor) bool { return !DistinctOperators(o, d) }) {
			continue
		}
		out = append(out, d)
	}
	return out
}

// CountOperators is the number of distinct operators that a set of nodes declares; nodes that
// declare none add nothing. Bootstrap lists are disclosed by it.
func CountOperators(ds []*Descriptor) int {
	seen := map[nostr.PubKey]bool{}
	for _, d := range ds {
		if d.Operator != (nostr.PubKey{}) {
			seen[d.Operator] = true
		}
	}
	return len(seen)
}
