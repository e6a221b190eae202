package ledger

import (
	"math/big"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Record is a reader's account of one reporter: how its reports fared when they were judged.
type Record struct {
	Evaluated int64 // supported, unsupported and refuted
	False     int64 // unsupported and refuted
}

// With counts one more judgement.
func (r Record) With(j Judgement) Record {
	switch j.Support {
	case Supported:
		r.Evaluated++
	case Unsupported, Refuted:
		r.Evaluated++
		r.False++
	}
	return r
}

// Voice is one reporter's finding on a subject, and what this node grants the reporter.
type Voice struct {
	Reporter     nostr.PubKey
	Tier         spec.Tier // of this node's own grant to the reporter
	CleanWindows int64     // of the reporter with this node
	Record       Record
	Topic        spec.Topic
	Severity     spec.Severity
}

// Weight is w(r) = tier weight × age factor × (1 - false report rate), exact.
func (v Voice) Weight() *big.Rat {
	tier := spec.C().Weight(v.Tier)
	age := spec.C().Trust.AgeWindows
	w := big.NewRat(tier.Num, tier.Den)
	w.Mul(w, big.NewRat(max(0, min(v.CleanWindows, age)), age))
	if v.Record.Evaluated > 0 {
		good := max(0, v.Record.Evaluated-v.Record.False)
		w.Mul(w, big.NewRat(min(good, v.Record.Evaluated), v.Record.Evaluated))
	}
	return w
}

// View is this node's view of a subject in one domain: the most severe S for which the reporters who found at least S
// weigh θ together, or its own finding if that is more severe. A reporter speaks once: of several voices
// of one key the most severe counts. Findings in another topic do not.
func View(topic spec.Topic, own spec.Severity, voices []Voice) spec.Severity {
	if s, ok := Threshold(topic, voices); ok {
		return own.Worse(s)
	}
	return own
}

// Threshold is the view without this node's own finding; ok says whether θ was met at all, which is what
// standing/1.0 answers under mode threshold.
func Threshold(topic spec.Topic, voices []Voice) (sev spec.Severity, ok bool) {
	theta := big.NewRat(spec.C().Trust.Theta.Num, spec.C().Trust.Theta.Den)
	for s := spec.S4; s >= spec.S1; s-- {
		loudest := map[nostr.PubKey]*big.Rat{}
		sum := new(big.Rat)
		for _, v := range voices {
			if v.Topic != topic || v.Severity < s {
				continue
			}
			w := v.Weight()
			if old := loudest[v.Reporter]; old != nil {
				if old.Cmp(w) >= 0 {
					continue
				}
				sum.Sub(sum, old)
			}
			loudest[v.Reporter] = w
			sum.Add(sum, w)
		}
		if sum.Cmp(theta) >= 0 {
			return s, true
		}
	}
	return spec.S0, false
}

// Start is the standing that a new peering begins with, given the view of the subject: what the operator or the
// policy would grant, lowered by the view and never raised. ok is false where no grant is issued at all.
func Start(want Standing, view spec.Severity) (s Standing, ok bool) {
	switch view {
	case spec.S0:
		s = want
		s.Limits = want.Limits.Clamp(want.Tier)
		return s, s.Tier != spec.TierRevoked
	case spec.S1, spec.S2:
		s = want.remedy(view, 0)
		s.Overruns = want.Overruns
		s.Limits = s.Limits.Clamp(s.Tier)
		return s, s.Tier != spec.TierRevoked
	}
	return Standing{Tier: spec.TierRevoked, Limits: Limits{}.Clamp(spec.TierRevoked)}, false
}

// Rank is the score that kind 30385 projects a severity onto: 100 × what the ladder leaves of a limit.
func Rank(s spec.Severity) int64 {
	if s == spec.S0 {
		return 100
	}
	r, ok := spec.C().Remedy(s)
	if !ok {
		return 0
	}
	return r.Factor.Floor(100)
}
