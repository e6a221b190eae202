package transport

import (
	"cmp"
	"slices"
	"time"
)

// RungTimeout is how long the initiator gives each rung (protocol § Transports,
// Negotiation & Fallback Ladder).
const RungTimeout = 5 * time.Second

// Rung is one candidate of the ladder: an endpoint of the peer by a scheme that
// both ends speak.
type Rung struct {
	Endpoint Endpoint // the peer's
	Sum      int      // both sides' preferences added
}

// Ladder ranks the ways from the owner of ours to the owner of theirs: the
// intersection of schemes, by ascending sum of preferences (a low preference is
// the better liked, § Discovery), ties by scheme name ascending bytewise
// (constants: transport.ladder_rank, ladder_tie_break). Where one side lists a
// scheme more than once, its best preference counts for the sum, and each of the
// peer's endpoints of that scheme is a rung of its own, the peer's best liked
// first, then by address. Both ends compute the same order of schemes. Pure: its
// arguments are not changed.
func Ladder(ours, theirs []Endpoint) []Rung {
	mine, yours := best(ours), best(theirs)
	rungs := make([]Rung, 0, len(theirs))
	for _, e := range theirs {
		p, shared := mine[e.Scheme]
		if !shared {
			continue
		}
		r := Rung{Endpoint: e, Sum: p + yours[e.Scheme]}
		if !slices.Contains(rungs, r) {
			rungs = append(rungs, r)
		}
	}
	slices.SortFunc(rungs, func(a, b Rung) int {
		return cmp.Or(
			cmp.Compare(a.Sum, b.Sum),
			cmp.Compare(a.Endpoint.Scheme, b.Endpoint.Scheme),
			cmp.Compare(a.Endpoint.Preference, b.Endpoint.Preference),
			cmp.Compare(a.Endpoint.Address, b.Endpoint.Address),
		)
	})
	return rungs
}

// best returns each scheme's lowest preference.
func best(eps []Endpoint) map[string]int {
	m := make(map[string]int, len(eps))
	for _, e := range eps {
		if p, seen := m[e.Scheme]; !seen || e.Preference < p {
			m[e.Scheme] = e.Preference
		}
	}
	return m
}

// LastPreference puts a gift wrap below everything that anybody advertises: it is
// the slowest carrier, and shows relays that two keys exchanged something.
const LastPreference = 1 << 20

// LastResort adds to a node's endpoints what always works (protocol § Control
// plane, Transport binding): every URL where it may only be an ordinary relay
// that answers still takes a gift wrap for it.
func LastResort(endpoints []Endpoint) []Endpoint {
	out := slices.Clone(endpoints)
	for _, e := range endpoints {
		if e.Scheme == "wss" {
			out = append(out, Endpoint{Scheme: "giftwrap", Address: e.Address, Preference: LastPreference})
		}
	}
	return out
}

// Remembered moves the rung that carried the last session, if it is still on the
// ladder, to the top: nodes cache the negotiated transport for later sessions.
// The rest keep their order. An endpoint is the same when scheme and address are.
// The last resort stays last: it was taken because all else failed at that moment.
func Remembered(rungs []Rung, last Endpoint) []Rung {
	i := slices.IndexFunc(rungs, func(r Rung) bool {
		return r.Endpoint.Scheme == last.Scheme && r.Endpoint.Address == last.Address
	})
	if i <= 0 || last.Preference >= LastPreference {
		return rungs
	}
	out := make([]Rung, 0, len(rungs))
	out = append(out, rungs[i])
	out = append(out, rungs[:i]...)
	return append(out, rungs[i+1:]...)
}
