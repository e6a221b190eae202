package ledger

import (
	"fleetmesh.org/fleetmesh/spec"
)

// Classify prices one limit by its overrun alone: measured against limit, by the schedule. A limit of zero
// with anything measured is an overrun without bound.
func Classify(limit, measured int64) spec.Severity {
	sev := spec.S0
	for _, step := range spec.C().Schedule {
		// measured/limit - 1 >= ratio - 1, and the ones cancel: the comparison is exact.
		if step.Ratio.CmpFraction(max(measured, 0), max(limit, 0)) >= 0 {
			sev = step.Severity
		}
	}
	return sev
}

// DivergenceFloor is the least that a measurement is divided by: five in a hundred of the limit, rounded
// down, and never below one unit. Below it a difference is noise.
func DivergenceFloor(limit int64) int64 {
	return max(spec.C().Divergence.FloorMinUnits, spec.C().Divergence.Floor.Floor(limit))
}

// divergent reports whether |measured - claimed| / max(measured, floor) is above the tolerance.
func divergent(limit, measured, claimed int64) bool {
	d := measured - claimed
	if d < 0 {
		d = -d
	}
	return spec.C().Divergence.Tolerance.CmpFraction(d, max(measured, DivergenceFloor(limit))) > 0
}

// ClassifyClaim prices one limit with the claim beside the measurement. A misreport is a floor and never
// a ceiling: lying is never the cheaper option.
func ClassifyClaim(limit, measured, claimed int64) spec.Severity {
	sev := Classify(limit, measured)
	if divergent(limit, measured, claimed) {
		sev = sev.Worse(spec.C().Divergence.Severity)
	}
	return sev
}

// ClassifyDuplicates prices the duplicates among delivered events. Only the receiver knows what it already held,
// so no claim is compared; below the divergence floor of the events limit a ratio is noise and is not evaluated.
func ClassifyDuplicates(eventsLimit, events, duplicates int64) spec.Severity {
	if events <= 0 || events < DivergenceFloor(eventsLimit) {
		return spec.S0
	}
	// (duplicates/events) / (num/den) = duplicates·den / events·num
	c := spec.C().DupRatio.Ceiling
	return Classify(events*c.Num, min(duplicates, events)*c.Den)
}

// Line is what a window shows for one limit.
type Line struct {
	Limit    spec.Limit    `json:"limit"`
	Allowed  int64         `json:"allowed"`  // the grant's; for dup_ratio the delivered events
	Measured int64         `json:"measured"` // for dup_ratio the duplicates
	Claimed  int64         `json:"claimed"`
	Severity spec.Severity `json:"severity"`
	Diverges bool          `json:"diverges"`
}

// Evaluation is the outcome of a window.
type Evaluation struct {
	Severity  spec.Severity `json:"severity"`
	Lines     []Line        `json:"lines"`     // every limit in the order of the table, then dup_ratio
	Evaluated bool          `json:"evaluated"` // false: nothing measured and nothing claimed, or no meter; not a finding either way
	Silent    bool          `json:"silent"`    // traffic and no receipt at all
	Unmetered bool          `json:"unmetered"` // the issuer has no measurement of this window
}

// Worst returns the line that decided, the first of the most severe; ok is false at S0.
func (v *Evaluation) Worst() (line Line, ok bool) {
	for _, l := range v.Lines {
		if l.Severity == v.Severity && l.Severity > spec.S0 {
			return l, true
		}
	}
	return Line{}, false
}

// Binding returns the limit that bound: of those used up, the one used most in proportion. ok is false where
// none was used up.
func (v *Evaluation) Binding() (limit spec.Limit, ok bool) {
	best := Line{}
	for _, l := range v.Lines {
		if l.Limit == spec.LimitDupRatio || l.Measured == 0 || l.Measured < l.Allowed {
			continue
		}
		if !ok || l.Allowed > 0 && best.Allowed > 0 &&
			(spec.Ratio{Num: best.Measured, Den: best.Allowed}).CmpFraction(l.Measured, l.Allowed) > 0 ||
			l.Allowed == 0 && best.Allowed > 0 {
			best, ok = l, true
		}
	}
	return best.Limit, ok
}

// Evaluate prices a closed window: the limits that were in force, what the issuer measured, and the counters of the
// most recent receipt. measured is nil where the issuer has no meter reading (it was down itself); claimed is
// nil where no receipt came. An absent claim is the empty claim: traffic without a receipt diverges
// like any false claim, and silence where nothing happened is not evaluated at all.
func Evaluate(limits Limits, measured, claimed Counters) Evaluation {
	if measured == nil {
		return Evaluation{Unmetered: true}
	}
	if measured.Zero() && claimed.Zero() {
		return Evaluation{}
	}
	v := Evaluation{Evaluated: true, Silent: claimed == nil}
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		l := Line{Limit: n, Allowed: limits[n], Measured: measured.Of(n), Claimed: claimed.Of(n)}
		l.Severity = ClassifyClaim(l.Allowed, l.Measured, l.Claimed)
		l.Diverges = divergent(l.Allowed, l.Measured, l.Claimed)
		v.Lines = append(v.Lines, l)
		v.Severity = v.Severity.Worse(l.Severity)
	}
	d := spec.C().DupRatio
	dup := Line{Limit: spec.LimitDupRatio, Allowed: measured[d.Denominator], Measured: measured[d.Numerator]}
	dup.Severity = ClassifyDuplicates(limits[d.EvaluatedFromFloorOf], dup.Allowed, dup.Measured)
	v.Lines = append(v.Lines, dup)
	v.Severity = v.Severity.Worse(dup.Severity)
	return v
}

// Structural is what is found by looking and not by counting.
type Structural string

// The structural findings (§ Severity ladder).
const (
	OutsideScope    Structural = "outside-scope"    // S3: traffic outside the granted scopes
	MalformedFlood  Structural = "malformed-flood"  // S3
	HopLimitAbuse   Structural = "hop-limit"        // S3: paths beyond the limit, again and again
	ExpiredBackfill Structural = "expired-backfill" // S1: expired events in bulk
	WrapFlood       Structural = "wrap-flood"       // S1: gift wraps as a bulk transport
	SelfMisreport   Structural = "self-misreport"   // S2: version, class, policy, coverage or independence is not as declared
	ForgedSignature Structural = "forged-signature" // S4
	CorruptChain    Structural = "corrupt-chain"    // S4: a receipt fork, or a signed counter that went down
	Impersonation   Structural = "impersonation"    // S4: a transport key that is another's
	ShardPoisoning  Structural = "shard-poisoning"  // S4
	GrantEvasion    Structural = "grant-evasion"    // S4
)

// Price returns what a structural finding is worth.
func (s Structural) Price() spec.Severity {
	switch s {
	case ExpiredBackfill, WrapFlood:
		return spec.S1
	case SelfMisreport:
		return spec.S2
	case OutsideScope, MalformedFlood, HopLimitAbuse:
		return spec.S3
	case ForgedSignature, CorruptChain, Impersonation, ShardPoisoning, GrantEvasion:
		return spec.S4
	}
	return spec.S0
}

// StructuralOf names the structural finding that a fault of a chain or an envelope amounts to when the
// peer's own signature stands behind it; ok is false for faults that are no finding.
func StructuralOf(c Code) (s Structural, ok bool) {
	switch c {
	case ReceiptFork, ReceiptRegress:
		return CorruptChain, true
	case OutOfScope, NeverCrosses:
		return OutsideScope, true
	case HopLimit:
		return HopLimitAbuse, true
	}
	return "", false
}
