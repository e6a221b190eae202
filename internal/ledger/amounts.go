package ledger

import (
	"maps"

	"fleetmesh.org/fleetmesh/spec"
)

// Limits are the lines of a grant by name, in units a window. A name that is absent is zero.
type Limits map[spec.Limit]int64

// Clone returns a copy that can be changed.
func (l Limits) Clone() Limits { return maps.Clone(l) }

// Equal reports whether every limit of the table is the same in both.
func (l Limits) Equal(m Limits) bool {
	for i := range spec.C().Limits {
		if n := spec.C().Limits[i].Name; l[n] != m[n] {
			return false
		}
	}
	return true
}

// Ceilings returns the most a grant of the tier may state.
func Ceilings(t spec.Tier) Limits {
	return table(func(n spec.Limit) int64 { return spec.C().Ceiling(n, t) })
}

// Opening returns where a grant of the tier stands at first: volume at a quarter, structure
// at the ceiling, blobs at zero until an operator raises them.
func Opening(t spec.Tier) Limits {
	return table(func(n spec.Limit) int64 { return spec.C().Open(n, t) })
}

// Seeded returns where a grant opens for a node that an operator knows and vouches for: at the
// ceiling, but for limits that open at zero.
func Seeded(t spec.Tier) Limits {
	return table(func(n spec.Limit) int64 {
		if row, _ := spec.C().Limit(n); row.Opens == spec.OpensAtZero {
			return 0
		}
		return spec.C().Ceiling(n, t)
	})
}

func table(f func(n spec.Limit) int64) Limits {
	out := make(Limits, len(spec.C().Limits))
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		out[n] = f(n)
	}
	return out
}

// Clamp lowers every limit to the ceiling of the tier. It is the last step of every
// change, whatever the branch (§ Window arithmetic).
func (l Limits) Clamp(t spec.Tier) Limits {
	return table(func(n spec.Limit) int64 { return max(0, min(l[n], spec.C().Ceiling(n, t))) })
}

// Counters are cumulative counts within one window, by name.
type Counters map[spec.Counter]int64

// Clone returns a copy that can be changed and names every counter.
func (c Counters) Clone() Counters {
	out := make(Counters, len(spec.C().Counters))
	for _, n := range spec.C().Counters {
		out[n] = c[n]
	}
	return out
}

// Add adds other to c, counter by counter, saturating far beyond any limit.
func (c Counters) Add(other Counters) {
	for n, v := range other {
		if v > 0 {
			c[n] = min(c[n], maxCount-min(v, maxCount)) + min(v, maxCount)
		}
	}
}

// Zero reports whether nothing was counted.
func (c Counters) Zero() bool {
	for _, v := range c {
		if v != 0 {
			return false
		}
	}
	return true
}

// Covers reports whether no counter of c is below that of other.
func (c Counters) Covers(other Counters) bool {
	for _, n := range spec.C().Counters {
		if c[n] < other[n] {
			return false
		}
	}
	return true
}

// Of returns the count that a limit is priced against.
func (c Counters) Of(l spec.Limit) int64 { return c[spec.C().CounterOf(l)] }

// maxCount is the largest integer of the canonical form.
const maxCount = 1<<53 - 1

// RoundFigures rounds a count to the number of significant figures that may be published, half up.
func RoundFigures(n int64) int64 {
	p := figureStep(n)
	return (n + p/2) / p * p
}

// figureStep is the distance between two published values around n.
func figureStep(n int64) int64 {
	most := int64(1)
	for range spec.C().Privacy.PublishedSignificantFigures {
		most *= 10
	}
	p := int64(1)
	for n/p >= most {
		p *= 10
	}
	return p
}

// figureRange returns the least and greatest counts that are published as n.
func figureRange(n int64) (lo, hi int64) {
	p := figureStep(n)
	lo, hi = n-p/2, n+p-p/2-1
	if p > 1 && figureStep(lo) < p { // just above a power of ten the step below is finer
		lo = n - figureStep(n-1)/2
	}
	return max(lo, 0), hi
}
