package ledger

import (
	"fmt"
	"strings"

	"fleetmesh.org/fleetmesh/spec"
)

// Explain writes out the arithmetic that priced one line of a window under these limits, a step a text, with the
// numbers put in: what anyone can redo by hand. Quotients are rounded down to three places; the comparisons themselves are exact.
func Explain(limits Limits, l Line) []string {
	if l.Limit == spec.LimitDupRatio {
		return []string{explainDuplicates(limits, l)}
	}
	return []string{explainOverrun(l), explainClaim(l)}
}

// ExplainRules says by which formulas Explain's numbers are made.
func ExplainRules() []string {
	var steps []string
	for _, s := range spec.C().Schedule {
		steps = append(steps, s.Severity.String()+" from "+asDecimal(s.Ratio))
	}
	d := spec.C().Divergence
	return []string{
		"measured / limit: " + strings.Join(steps, ", "),
		fmt.Sprintf("|measured - claimed| / max(measured, floor): above %s at least %s; the floor is %s of the limit, at least %d", asDecimal(d.Tolerance), d.Severity, asDecimal(d.Floor), d.FloorMinUnits),
		fmt.Sprintf("duplicates / events / %s: by the same steps", asDecimal(spec.C().DupRatio.Ceiling)),
	}
}

func explainOverrun(l Line) string {
	switch {
	case l.Allowed > 0:
		return fmt.Sprintf("%d / %d = %s%s", l.Measured, l.Allowed, quotient(l.Measured, l.Allowed), step(Classify(l.Allowed, l.Measured)))
	case l.Measured > 0:
		return fmt.Sprintf("%d under a limit of 0, an overrun without bound: %s", l.Measured, Classify(0, l.Measured))
	}
	return "0 under a limit of 0: " + spec.S0.String()
}

// step says between which steps of the schedule a severity lies.
func step(sev spec.Severity) string {
	at := ""
	for _, s := range spec.C().Schedule {
		if s.Severity > sev {
			if at == "" {
				at = ", below " + asDecimal(s.Ratio)
			}
			break
		}
		at = ", at least " + asDecimal(s.Ratio)
	}
	return at + ": " + sev.String()
}

func explainClaim(l Line) string {
	d, floor := l.Measured-l.Claimed, DivergenceFloor(l.Allowed)
	if d < 0 {
		d = -d
	}
	c := spec.C().Divergence
	head := fmt.Sprintf("|%d - %d| / max(%d, %d) = %s", l.Measured, l.Claimed, l.Measured, floor, quotient(d, max(l.Measured, floor)))
	if divergent(l.Allowed, l.Measured, l.Claimed) {
		return fmt.Sprintf("%s, above %s: at least %s", head, asDecimal(c.Tolerance), c.Severity)
	}
	return fmt.Sprintf("%s, at most %s: agrees", head, asDecimal(c.Tolerance))
}

func explainDuplicates(limits Limits, l Line) string {
	d := spec.C().DupRatio
	floor := DivergenceFloor(limits[d.EvaluatedFromFloorOf])
	if l.Allowed <= 0 || l.Allowed < floor {
		return fmt.Sprintf("%d events, fewer than the floor of %d: not evaluated", l.Allowed, max(floor, 1))
	}
	dups := min(l.Measured, l.Allowed)
	return fmt.Sprintf("%d / %d / %s = %s%s", dups, l.Allowed, asDecimal(d.Ceiling), quotient(dups*d.Ceiling.Den, l.Allowed*d.Ceiling.Num), step(l.Severity))
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
