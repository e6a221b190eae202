package strain

import (
	"fleetmesh.org/fleetmesh/spec"
)

// Counts are counts within one window by counter: a window's aggregate over every peer, or
// the total that the operator declares for it.
type Counts map[spec.Counter]int64

// Pressure is the share of the declared total that a window used, of the counter that
// used the most: a node that has run out of one thing has run out.
type Pressure struct {
	Counter spec.Counter // "" where no total is declared
	Used    int64
	Total   int64
}

// Measure compares a window's aggregate with the declared total. A counter that the operator declared
// no total for presses nothing, and without any total the node sheds nothing.
func Measure(aggregate, total Counts) Pressure {
	var p Pressure
	for _, n := range spec.C().Counters {
		t, ok := total[n]
		if !ok || t < 0 {
			continue
		}
		q := Pressure{Counter: n, Used: max(0, aggregate[n]), Total: t}
		if p.Counter == "" || q.cmp(p) > 0 {
			p = q
		}
	}
	return p
}

// Declared reports whether there is a total to press against.
func (p Pressure) Declared() bool { return p.Counter != "" }

// AtLeast reports whether the pressure is r or more. Anything used of a total of zero is more than any r.
func (p Pressure) AtLeast(r spec.Ratio) bool {
	return p.Declared() && r.CmpFraction(p.Used, p.Total) >= 0
}

func (p Pressure) cmp(q Pressure) int {
	if q.Total == 0 {
		switch {
		case q.Used == 0:
			return min(1, int(p.Used))
		case p.Total == 0 && p.Used > 0:
			return 0
		}
		return -1
	}
	return spec.Ratio{Num: q.Used, Den: q.Total}.CmpFraction(p.Used, p.Total)
}

// Percent is the pressure in whole percent, rounded down, for people; 0 without a total.
func (p Pressure) Percent() int64 {
	if p.Total <= 0 {
		return 0
	}
	return spec.Ratio{Num: p.Used, Den: p.Total}.Floor(100)
}

// Headroom is what may still be promised to a newcomer, counter by counter, before the first rung engages.
func Headroom(aggregate, total Counts) Counts {
	first := spec.C().Capacity.Rungs[0].At
	out := Counts{}
	for n, t := range total {
		out[n] = max(0, first.Floor(t)-aggregate[n])
	}
	return out
}
