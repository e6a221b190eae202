package ledger

import (
	"fmt"
	"strings"

	"fleetmesh.org/fleetmesh/spec"
)

// Explain writes out the arithmetic that priced one line of a window under these limits, a sentence a step, with the
// numbers put in: what anyone can redo by hand. Quotients are rounded down to three places; the comparisons themselves are exact.
func Explain(limits Limits, l Line) []string {
	if l.Limit == spec.LimitDupRatio {
		return []string{explainDuplicates(limits, l)}
	}
	return []string{explainOverrun(l), explainClaim(l)}
}

func explainOverrun(l Line) string {
	switch {
	case l.Allowed > 0:
		return fmt.Sprintf("measured / limit = %d / %d = %s; %s: %s", l.Measured, l.Allowed, quotient(l.Measured, l.Allowed), steps(), Classify(l.Allowed, l.Measured))
	case l.Measured > 0:
		return fmt.Sprintf("measured %d under a limit of 0: an overrun without bound: %s", l.Measured, Classify(0, l.Measured))
	}
	return "measured 0 under a limit of 0: " + spec.S0.String()
}

func explainClaim(l Line) string {
	d, by := l.Measured-l.Claimed, max(l.Measured, DivergenceFloor(l.Allowed))
	if d < 0 {
		d = -d
	}
	c := spec.C().Divergence
	head := fmt.Sprintf("|measured - claimed| / max(measured, floor) = |%d - %d| / max(%d, %d) = %s",
		l.Measured, l.Claimed, l.Measured, DivergenceFloor(l.Allowed), quotient(d, by))
	if divergent(l.Allowed, l.Measured, l.Claimed) {
		return fmt.Sprintf("%s; more than %s: at least %s", head, asDecimal(c.Tolerance), c.Severity)
	}
	return fmt.Sprintf("%s; at most %s: the receipt agrees", head, asDecimal(c.Tolerance))
}

func explainDuplicates(limits Limits, l Line) string {
	d := spec.C().DupRatio
	floor := DivergenceFloor(limits[d.EvaluatedFromFloorOf])
	if l.Allowed <= 0 || l.Allowed < floor {
		return fmt.Sprintf("%d events delivered, fewer than the floor of %d: duplicates are not evaluated", l.Allowed, max(floor, 1))
	}
	dups := min(l.Measured, l.Allowed)
	return fmt.Sprintf("duplicates / events / ceiling = %d / %d / %s = %s; %s: %s", dups, l.Allowed, asDecimal(d.Ceiling),
		quotient(dups*d.Ceiling.Den, l.Allowed*d.Ceiling.Num), steps(), l.Severity)
}

// steps writes the schedule: from which ratio each severity applies.
func steps() string {
	var out []string
	for _, s := range spec.C().Schedule {
		out = append(out, s.Severity.String()+" from "+asDecimal(s.Ratio))
	}
	return strings.Join(out, ", ")
}

func asDecimal(r spec.Ratio) string { return quotient(r.Num, r.Den) }

// quotient is a/b with at most three places, rounded down, for a and b within the canonical form's integers.
func quotient(a, b int64) string {
	thousandths := spec.Ratio{Num: a, Den: b}.Floor(1000)
	if thousandths == 0 && a > 0 {
		return "less than 0.001"
	}
	text := fmt.Sprintf("%d.%03d", thousandths/1000, thousandths%1000)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}
