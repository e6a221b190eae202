package sim

import (
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// Mutant is a ladder with one bug planted in it. The checkers are worth something only if they catch every one.
type Mutant struct {
	Name   string
	Ladder mesh.Ladder
}

// Mutants lists the planted bugs: each changes one thing that the arithmetic says.
func Mutants() []Mutant { return slices.Concat(evaluations(), readings(), standings()) }

// evaluations lists the bugs in how a window is priced.
func evaluations() []Mutant {
	return []Mutant{
		{"overrun begins at a half", evaluation(func(v *ledger.Evaluation) {
			each(v, func(l *ledger.Line) {
				if l.Limit != spec.LimitDupRatio && l.Severity == spec.S1 && l.Measured*2 < l.Allowed*3 {
					l.Severity = spec.S0
				}
			})
		})},
		{"overrun ends at S1", evaluation(func(v *ledger.Evaluation) {
			each(v, func(l *ledger.Line) {
				if l.Severity > spec.S1 && !l.Diverges && l.Limit != spec.LimitDupRatio {
					l.Severity = spec.S1
				}
			})
		})},
		{"a full window is an overrun", evaluation(func(v *ledger.Evaluation) {
			each(v, func(l *ledger.Line) {
				if l.Limit == spec.LimitEventsIn && l.Allowed > 0 && l.Measured >= l.Allowed {
					l.Severity = l.Severity.Worse(spec.S1)
				}
			})
		})},
		{"a misreport is a ceiling", evaluation(func(v *ledger.Evaluation) {
			each(v, func(l *ledger.Line) {
				if l.Diverges {
					l.Severity = spec.S2
				}
			})
			for _, l := range v.Lines {
				if l.Diverges {
					v.Severity = spec.S2
				}
			}
		})},
		{"divergence is not looked at", evaluation(func(v *ledger.Evaluation) {
			each(v, func(l *ledger.Line) {
				if l.Limit != spec.LimitDupRatio {
					l.Severity, l.Diverges = ledger.Classify(l.Allowed, l.Measured), false
				}
			})
		})},
		{"claims above the measurement are free", evaluation(func(v *ledger.Evaluation) {
			each(v, func(l *ledger.Line) {
				if l.Claimed > l.Measured {
					l.Severity, l.Diverges = ledger.Classify(l.Allowed, l.Measured), false
				}
			})
		})},
	}
}

// readings lists the bugs in which windows are priced, and which line of one decides.
func readings() []Mutant {
	return []Mutant{
		{"silence is honest", mesh.Ladder{Evaluate: func(limits ledger.Limits, measured, claimed ledger.Counters) ledger.Evaluation {
			if claimed == nil {
				claimed = measured
			}
			return ledger.Evaluate(limits, measured, claimed)
		}}},
		{"an idle window is silence", mesh.Ladder{Evaluate: func(limits ledger.Limits, measured, claimed ledger.Counters) ledger.Evaluation {
			v := ledger.Evaluate(limits, measured, claimed)
			if !v.Evaluated {
				v.Evaluated, v.Severity = true, spec.S2
			}
			return v
		}}},
		{"duplicates are not priced", evaluation(func(v *ledger.Evaluation) {
			each(v, func(l *ledger.Line) {
				if l.Limit == spec.LimitDupRatio {
					l.Severity = spec.S0
				}
			})
		})},
		{"the first limit decides and not the worst", evaluation(func(v *ledger.Evaluation) {
			if len(v.Lines) > 0 {
				v.Severity = v.Lines[0].Severity
			}
		})},
	}
}

// standings lists the bugs in what a window does to a standing.
func standings() []Mutant {
	return []Mutant{
		{"a misreport keeps its tier", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if m.Severity == spec.S2 {
				after.Tier = before.Tier
			}
		})},
		{"an overrun costs nothing", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if m.Severity == spec.S1 {
				after.Limits = before.Limits.Clone()
			}
		})},
		{"abuse without a suspension", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if m.Severity == spec.S3 {
				after.ZeroUntil, after.Limits = 0, ledger.Opening(after.Tier)
			}
		})},
		{"malice is forgiven", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if m.Severity == spec.S4 {
				*after, m.Delete = *before, false
			}
		})},
		{"a remedy lifts to its floor", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if m.Severity == spec.S1 || m.Severity == spec.S2 {
				after.Limits = ledger.Ceilings(spec.TierTrusted).Clamp(after.Tier)
				after.Tier = before.Tier
			}
		})},
		{"no clamp", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if m.Severity == spec.S0 && after.Limits[spec.LimitEventsIn] > before.Limits[spec.LimitEventsIn] {
				after.Limits[spec.LimitEventsIn] = before.Limits[spec.LimitEventsIn] * 2
			}
		})},
		{"clean windows raise the tier", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if after.CleanWindows >= 4 && after.Tier == spec.TierProbation {
				after.Tier = spec.TierMember
			}
		})},
		{"growth is not scaled by use", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			grown(before, after, m, spec.R(1, 10))
		})},
		{"growth is too slow", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			grown(before, after, m, spec.R(1, 20))
		})},
		{"nothing unused is given back", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if m.Cause == spec.CauseDisuse {
				after.Limits = before.Limits.Clone()
			}
		})},
		{"disuse goes below where a stranger starts", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if n := spec.LimitEventsIn; m.Severity == spec.S0 && after.IdleWindows == 0 && after.Limits[n] == spec.C().Open(n, after.Tier) && before.Limits[n] == after.Limits[n] && after.CleanWindows > 16 {
				after.Limits[n] = spec.R(9, 10).Floor(before.Limits[n])
			}
		})},
		{"every idle window decays", closing(func(before, after *ledger.Standing, m *ledger.Move) {
			if n := spec.LimitEventsIn; after.IdleWindows > before.IdleWindows && after.IdleWindows%24 != 0 {
				after.Limits = before.Limits.Clone()
				after.Limits[n] = max(spec.C().Open(n, after.Tier), spec.R(9, 10).Floor(before.Limits[n]))
			}
		})},
	}
}

// grown sets what a clean window adds to a share of the ceiling.
func grown(before, after *ledger.Standing, m *ledger.Move, step spec.Ratio) {
	n := spec.LimitEventsIn
	if m.Severity == spec.S0 && after.Limits[n] > before.Limits[n] {
		after.Limits = after.Limits.Clone()
		after.Limits[n] = before.Limits[n] + step.Floor(spec.C().Ceiling(n, after.Tier))
		after.Limits = after.Limits.Clamp(after.Tier)
	}
}

// evaluation plants a bug in what a window is found at.
func evaluation(bug func(v *ledger.Evaluation)) mesh.Ladder {
	return mesh.Ladder{Evaluate: func(limits ledger.Limits, measured, claimed ledger.Counters) ledger.Evaluation {
		v := ledger.Evaluate(limits, measured, claimed)
		v.Lines = slices.Clone(v.Lines)
		bug(&v)
		return v
	}}
}

// each changes lines and finds the worst again.
func each(v *ledger.Evaluation, bug func(l *ledger.Line)) {
	v.Severity = spec.S0
	for i := range v.Lines {
		bug(&v.Lines[i])
		v.Severity = v.Severity.Worse(v.Lines[i].Severity)
	}
}

// closing plants a bug in what a finding does.
func closing(bug func(before, after *ledger.Standing, m *ledger.Move)) mesh.Ladder {
	return mesh.Ladder{Close: func(s ledger.Standing, v ledger.Evaluation, now int64, found ...ledger.Structural) (ledger.Standing, ledger.Move) {
		next, move := s.Close(v, now, found...)
		next.Limits = next.Limits.Clone()
		before := s
		bug(&before, &next, &move)
		move.Amended = next.Tier != s.Tier || !next.Limits.Equal(s.Limits)
		return next, move
	}}
}
