package strain

import (
	"fleetmesh.org/fleetmesh/spec"
)

// Rung is one step of the shedding ladder by name.
type Rung string

// The rungs, in the order in which they engage.
const (
	RefusePeerings Rung = "refuse_peerings" // a proposal is declined CAPACITY_EXCEEDED; peerings held are untouched
	NarrowScope    Rung = "narrow_scope"    // shards held only through the mesh stop being claimed
	AmendDown      Rung = "amend_down"      // every live grant is reduced, cause capacity
	LeafBehaviour  Rung = "leaf_behaviour"  // no pull is opened; receipts still flow
)

// Ladder is how many rungs are engaged, from the first on.
type Ladder struct {
	engaged int
}

// Announcement is one shed, to be made known: a node that shed quietly would read as partitioned.
// None of them is adverse, and none moves a tier or ends a peering.
type Announcement struct {
	Rung    Rung
	Engaged bool       // false: released
	Decline spec.Code  // what a proposal is declined with, "" if the rung declines none
	Cause   spec.Cause // of an amend, "" if the rung amends none
}

// Step applies a window's pressure. Rungs engage each at its own threshold and are released together, below the
// release: a node on a boundary would otherwise amend every one of its peers twice a window.
func (l Ladder) Step(p Pressure) (Ladder, []Announcement) {
	c := spec.C().Capacity
	var out []Announcement
	if l.engaged > 0 && !p.AtLeast(c.ReleaseBelow) {
		for i := range l.engaged {
			out = append(out, announce(c.Rungs[i].Name, false))
		}
		return Ladder{}, out
	}
	for l.engaged < len(c.Rungs) && p.AtLeast(c.Rungs[l.engaged].At) {
		out = append(out, announce(c.Rungs[l.engaged].Name, true))
		l.engaged++
	}
	return l, out
}

func announce(name string, engaged bool) Announcement {
	a := Announcement{Rung: Rung(name), Engaged: engaged}
	switch a.Rung {
	case RefusePeerings:
		a.Decline = spec.CodeCapacityExceeded
	case AmendDown:
		a.Cause = spec.CauseCapacity
	}
	return a
}

// Engaged reports whether a rung is engaged.
func (l Ladder) Engaged(r Rung) bool {
	for i := range l.engaged {
		if Rung(spec.C().Capacity.Rungs[i].Name) == r {
			return true
		}
	}
	return false
}

// Rungs lists the engaged rungs, lowest first.
func (l Ladder) Rungs() []Rung {
	var out []Rung
	for i := range l.engaged {
		out = append(out, Rung(spec.C().Capacity.Rungs[i].Name))
	}
	return out
}

// Resume is the ladder after a restart, from the number of rungs that were engaged.
func Resume(engaged int) Ladder {
	return Ladder{engaged: max(0, min(engaged, len(spec.C().Capacity.Rungs)))}
}

// Shed is what amend_down leaves of a limit that stands at base: as much as would bring the pressure
// down to the release, rounded down, never below a tenth of the probation ceiling and never above base. It is
// computed from the limit that the peer's standing gives, not from one that was shed before, so that
// shedding twice under one pressure is shedding once and release gives back exactly base.
func Shed(limit spec.Limit, base int64, p Pressure) int64 {
	c := spec.C().Capacity
	if !p.AtLeast(c.ReleaseBelow) {
		return base
	}
	floor := c.Floor.Floor(spec.C().Ceiling(limit, c.FloorOfTier))
	left := int64(0)
	if p.Used > 0 {
		// base × release ÷ (used/total), rounded down once.
		num, den := c.ReleaseBelow.Num*min(p.Total, maxExact/c.ReleaseBelow.Num), c.ReleaseBelow.Den*min(p.Used, maxExact/c.ReleaseBelow.Den)
		left = spec.Ratio{Num: num, Den: den}.Floor(base)
	}
	return min(base, max(floor, left))
}

// maxExact bounds the products above; totals beyond it are no totals.
const maxExact = 1 << 60
