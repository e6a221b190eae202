package strain

import (
	"cmp"
	"math/big"
	"slices"

	"fleetmesh.org/fleetmesh/spec"
)

// Side is what kind of thing a direction is.
type Side string

// A direction is one peer, one shard, one transport, or the node itself.
const (
	Peer      Side = "peer"
	Shard     Side = "shard"
	Transport Side = "transport"
	Own       Side = "own" // a restart, a clock that drifted: nothing that could be depended on
)

// Direction is one independent source of stress.
type Direction struct {
	Side Side
	Name string
}

// Stress is one event that the node survived.
type Stress struct {
	At   int64 // unix seconds
	From Direction
	Tier spec.Tier // of this node's grant to the peer behind it; not looked at for Own
}

// Record is the stress survived, by direction. It never leaves the node.
type Record struct {
	seen map[Direction]tally
}

type tally struct {
	events int64
	weight spec.Ratio // the greatest of the peers behind it
	last   int64
}

// With returns the record with one more event; the record itself is not changed.
func (r Record) With(s Stress) Record {
	next := Record{seen: make(map[Direction]tally, len(r.seen)+1)}
	for d, t := range r.seen {
		next.seen[d] = t
	}
	t := next.seen[s.From]
	w := spec.C().Weight(s.Tier)
	if s.From.Side == Own {
		w = spec.R(1, 1)
	}
	if t.events == 0 || w.Cmp(t.weight) > 0 {
		t.weight = w
	}
	t.events++
	t.last = max(t.last, s.At)
	next.seen[s.From] = t
	return next
}

// Since returns the record without directions that were quiet since before a moment.
func (r Record) Since(at int64) Record {
	next := Record{seen: map[Direction]tally{}}
	for d, t := range r.seen {
		if t.last >= at {
			next.seen[d] = t
		}
	}
	return next
}

// Breadth is the number of independent directions, each weighing what the tier of the peer behind it weighs and
// never more, however much came from it. Strangers weigh nothing.
func (r Record) Breadth() *big.Rat {
	sum := new(big.Rat)
	for _, t := range r.seen {
		sum.Add(sum, big.NewRat(t.weight.Num, t.weight.Den))
	}
	return sum
}

// Reserve grows a base, in seconds or any unit, by one base for each whole direction's worth of breadth, in
// proportion between, rounded down, and to most at the most. It sets how long the books of a vanished
// peer are kept and how long a shut door is tried.
func (r Record) Reserve(base, most int64) int64 {
	grown := new(big.Rat).Add(big.NewRat(1, 1), r.Breadth())
	grown.Mul(grown, new(big.Rat).SetInt64(base))
	whole := new(big.Int).Quo(grown.Num(), grown.Denom())
	if !whole.IsInt64() {
		return most
	}
	return min(most, whole.Int64())
}

// A dependence needs this many events behind it, and this share of all from one side.
const minSample = 12

var nearlyAll = spec.R(9, 10)

// Dependence names the direction that nearly all of the stress came from: the node will snap when it leaves. It is
// a warning to the operator and no finding; ok is false where there is none, where the sample is too
// small, or where the direction is the node's own or a shard, on which nobody depends.
func (r Record) Dependence() (on Direction, ok bool) {
	var all int64
	var worst Direction
	var most int64
	for _, d := range r.Directions() {
		n := r.seen[d].events
		all += n
		if n > most {
			worst, most = d, n
		}
	}
	if all < minSample || worst.Side != Peer && worst.Side != Transport {
		return Direction{}, false
	}
	return worst, nearlyAll.CmpFraction(most, all) >= 0
}

// Directions lists the directions in order of side and name.
func (r Record) Directions() []Direction {
	out := make([]Direction, 0, len(r.seen))
	for d := range r.seen {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Direction) int { return cmp.Or(cmp.Compare(a.Side, b.Side), cmp.Compare(a.Name, b.Name)) })
	return out
}

// Tally is what is remembered of one direction, as it is kept on disk.
type Tally struct {
	Side   Side       `json:"side"`
	Name   string     `json:"name"`
	Events int64      `json:"events"`
	Weight spec.Ratio `json:"weight"` // of the best tier behind it
	Last   int64      `json:"last"`   // unix seconds
}

// Tallies lists the record in the order of Directions.
func (r Record) Tallies() []Tally {
	out := make([]Tally, 0, len(r.seen))
	for _, d := range r.Directions() {
		t := r.seen[d]
		out = append(out, Tally{d.Side, d.Name, t.events, t.weight, t.last})
	}
	return out
}

// RecordOf is the record that Tallies listed.
func RecordOf(list []Tally) Record {
	r := Record{seen: make(map[Direction]tally, len(list))}
	for _, t := range list {
		r.seen[Direction{t.Side, t.Name}] = tally{t.Events, t.Weight, t.Last}
	}
	return r
}
