package ledger

import (
	"fleetmesh.org/fleetmesh/spec"
)

// Standing is where a peering stands at its issuer: what a grant says and what the windows so far amount
// to. Change makes the next one and never alters the one it has.
type Standing struct {
	Tier         spec.Tier `json:"tier"`
	Limits       Limits    `json:"limits"`
	CleanWindows int64     `json:"clean_windows"` // in a row, evaluated and at S0; the streak behind the age factor
	IdleWindows  int64     `json:"idle_windows"`  // in a row, with nothing measured
	Overruns     int64     `json:"overruns"`      // S1 so far; the first is never published
	ZeroUntil    int64     `json:"zero_until"`    // after S3: unix second until which every limit is zero, 0 if none
}

// NewStanding is a peering as it begins.
func NewStanding(tier spec.Tier) Standing { return Standing{Tier: tier, Limits: Opening(tier)} }

// Move says what a window did to a standing, and why, as peering/1.0/amend wants to know.
type Move struct {
	Severity spec.Severity `json:"severity"`
	Cause    spec.Cause    `json:"cause"`   // remedy after a fault, disuse after decay, "" for growth or none
	Amended  bool          `json:"amended"` // the limits or the tier are other than before
	Delete   bool          `json:"delete"`  // S4: the grant is deleted
}

// Close applies a window's outcome at the time of its evaluation. structural findings are worth their price
// and count with the arithmetic. A structural finding counts in a window that was not evaluated too.
func (s Standing) Close(v Evaluation, now int64, structural ...Structural) (Standing, Move) {
	sev := v.Severity
	for _, f := range structural {
		sev = sev.Worse(f.Price())
	}
	if s.Tier == spec.TierRevoked {
		return s, Move{Severity: sev}
	}
	s = s.Resume(now)
	before := s
	var m Move
	switch {
	case sev > spec.S0:
		s = s.remedy(sev, now)
	case v.Evaluated || v.Unmetered:
		s = s.clean(v)
	default:
		s = s.idle()
	}
	s.Limits = s.Limits.Clamp(s.Tier) // always, whatever the branch
	switch {
	case sev > spec.S0:
		m.Cause = spec.CauseRemedy
	case s.decayedFrom(before):
		m.Cause = spec.CauseDisuse
	}
	m.Severity, m.Delete = sev, s.Tier == spec.TierRevoked
	m.Amended = s.Tier != before.Tier || !s.Limits.Equal(before.Limits)
	return s, m
}

// decayedFrom reports whether some limit went down and none went up: a window that did both grew.
func (s Standing) decayedFrom(before Standing) bool {
	down := false
	for n, v := range s.Limits {
		if v > before.Limits[n] {
			return false
		}
		down = down || v < before.Limits[n]
	}
	return down
}

// Resume ends an S3 suspension whose time has come: the peer begins again as a stranger does, at
// the opening limits of its tier, which S3 made probation.
func (s Standing) Resume(now int64) Standing {
	if s.ZeroUntil == 0 || now < s.ZeroUntil {
		return s
	}
	s.ZeroUntil = 0
	s.Limits = Opening(s.Tier)
	return s
}

// remedy applies what the ladder says a severity costs. It never raises a limit: where a limit stands
// below the remedy's floor already, the floor does not lift it.
func (s Standing) remedy(sev spec.Severity, now int64) Standing {
	r, _ := spec.C().Remedy(sev)
	limits := Limits{}
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		v := r.Factor.Floor(s.Limits[n])
		if r.FloorTier != "" {
			v = max(v, spec.C().Ceiling(n, r.FloorTier))
		}
		limits[n] = min(v, s.Limits[n])
	}
	s.Limits = limits
	if r.Tier != "" {
		s.Tier = r.Tier
	}
	if r.ZeroSeconds > 0 {
		s.ZeroUntil = max(s.ZeroUntil, now+r.ZeroSeconds)
	}
	if sev == spec.S1 {
		s.Overruns++
	}
	s.CleanWindows, s.IdleWindows = 0, 0
	return s
}

// clean grows each limit by what the window put on it and takes back where a measured window used nothing.
func (s Standing) clean(v Evaluation) Standing {
	if s.ZeroUntil > 0 {
		return s // nothing grows out of a suspension
	}
	c := spec.C()
	limits := Limits{}
	used, allowed := map[spec.Limit]int64{}, map[spec.Limit]int64{}
	for _, l := range v.Lines {
		used[l.Limit], allowed[l.Limit] = l.Measured, l.Allowed
	}
	for i := range c.Limits {
		n := c.Limits[i].Name
		limits[n] = grow(s.Limits[n], allowed[n], used[n], c.Ceiling(n, s.Tier), c.Open(n, s.Tier), c.Limits[i].Opens, v.Unmetered)
	}
	s.Limits = limits
	if !v.Unmetered { // standing comes from observed conformance alone
		s.CleanWindows++
		s.IdleWindows = 0
	}
	return s
}

// grow is one limit's clean step, by the strain on what the window allowed: a limit that was amended since is not what
// the window was lived under. A limit that opens at zero leaves zero only by an operator's hand.
func grow(limit, allowed, used, ceiling, open int64, opens spec.Opening, unmetered bool) int64 {
	g := spec.C().Growth
	least := g.StepMin.Floor(ceiling)
	switch {
	case limit == 0 && (opens == spec.OpensAtZero || used > 0):
		return 0
	case unmetered:
		return limit + least
	case used == 0 && limit > open:
		return max(open, g.Decay.Floor(limit))
	case used == 0:
		return limit
	}
	// ceiling × step × strain, strain = min(1, used/allowed), one rounding at the end. A clean window that used anything allowed something.
	allowed = max(allowed, 1)
	strained := spec.Ratio{Num: g.Step.Num * min(used, allowed), Den: g.Step.Den * allowed}
	return limit + max(least, strained.Floor(ceiling))
}

// idle counts a window in which nothing happened, and decays the whole grant after each full run of them,
// never below where a stranger starts.
func (s Standing) idle() Standing {
	if s.ZeroUntil > 0 {
		return s
	}
	s.IdleWindows++
	if s.IdleWindows%int64(spec.C().Growth.DecayIdleWindows) != 0 {
		return s
	}
	limits := Limits{}
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		open := spec.C().Open(n, s.Tier)
		limits[n] = s.Limits[n]
		if limits[n] > open {
			limits[n] = max(open, spec.C().Growth.Decay.Floor(limits[n]))
		}
	}
	s.Limits = limits
	return s
}

// Publication says whether and when a finding may be published.
type Publication struct {
	Never bool  // the first overrun stays between the two
	At    int64 // not before this moment
}

// PublishAfter applies notice-then-publish: S3 and S4 at once; S1 and S2 a whole window after the notice was
// delivered, against a peer that can be reached; the first S1 not at all. noticed is when the notice was
// delivered, 0 if it was not yet; overruns counts this one too.
func PublishAfter(sev spec.Severity, overruns, noticed, window, now int64, reachable bool) (p Publication, notice bool) {
	r, ok := spec.C().Remedy(sev)
	switch {
	case !ok:
		return Publication{Never: true}, false
	case sev == spec.S1 && overruns < int64(r.PublishFromOccurrence):
		return Publication{Never: true}, noticed == 0
	case r.NoticeWindows == 0:
		return Publication{At: now}, false
	case noticed == 0 && reachable:
		return Publication{At: now + int64(r.NoticeWindows)*window}, true
	case noticed == 0: // nobody to deliver it to: one window is waited all the same
		return Publication{At: now + int64(r.NoticeWindows)*window}, false
	}
	return Publication{At: noticed + int64(r.NoticeWindows)*window}, false
}
