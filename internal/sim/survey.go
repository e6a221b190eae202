package sim

import (
	"fmt"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// factors are the appetites, in hundredths of a limit, on each side of every step of the schedule.
var factors = []int64{105, 120, 250, 600}

// Survey runs every adversary once, the over-spender and the liar with each appetite, and holds what they paid against the ladder
// as the protocol tells it. It is the table of prices, and the net that planted bugs are to be caught in.
func Survey(seed uint64, nodes, windows int, ladder mesh.Ladder) (prices []Price, broken []Violation, err error) {
	return survey(seed, nodes, windows, ladder, false)
}

// survey stops at the first objection where that is enough.
func survey(seed uint64, nodes, windows int, ladder mesh.Ladder, enough bool) (prices []Price, broken []Violation, err error) {
	run := func(name string, factor int64) ([]Price, error) {
		r, err := Run(Config{Nodes: nodes, Windows: windows, Seed: seed, Adversary: name, Factor: factor, Ladder: ladder, Quiet: true})
		if err != nil {
			return nil, err
		}
		for _, v := range r.Violations {
			v.Detail = name + ": " + v.Detail
			broken = append(broken, v)
		}
		prices = append(prices, r.Prices...)
		for _, p := range r.Prices {
			broken = append(broken, fair(p)...)
		}
		return r.Prices, nil
	}
	for _, f := range factors {
		spent, err := run("over-spender", f)
		if err != nil {
			return nil, nil, err
		}
		lied, err := run("liar", f)
		if err != nil {
			return nil, nil, err
		}
		broken = append(broken, noCheaper(spent[0], lied[0])...)
		if enough && len(broken) > 0 {
			return prices, broken, nil
		}
	}
	for _, a := range Adversaries() {
		if a.Name == "over-spender" {
			continue
		}
		if enough && len(broken) > 0 {
			break
		}
		if _, err := run(a.Name, 0); err != nil {
			return nil, nil, err
		}
	}
	return prices, broken, nil
}

// noCheaper demands that the liar fares no better than the over-spender of the same appetite.
func noCheaper(spent, lied Price) (out []Violation) {
	if lied.Worst < spent.Worst || lied.Granted > spent.Granted || rank(lied.Tier) > rank(spent.Tier) {
		out = append(out, Violation{Rule: "a liar is never cheaper than an honest over-spender",
			Detail: fmt.Sprintf("at %s: %s, %s, %d left, against %s, %s, %d", lied.Variant, lied.Severity, lied.Tier, lied.Granted, spent.Severity, spent.Tier, spent.Granted)})
	}
	return out
}

// tariff is what each behaviour must be found at (§ Severity ladder).
var tariff = map[string]spec.Severity{
	"over-spender 105 %": spec.S0, "over-spender 120 %": spec.S1, "over-spender 250 %": spec.S2, "over-spender 600 %": spec.S3,
	"liar 105 %": spec.S2, "liar 120 %": spec.S2, "liar 250 %": spec.S2, "liar 600 %": spec.S3,
	"liar": spec.S2, "boaster": spec.S2, "silent": spec.S2, "replayer": spec.S3, "receipt-forker": spec.S4, "hop-forger": spec.S4,
	"sybils": spec.S0, "report-spammer": spec.S0, "colluders": spec.S0, "quarter-wind": spec.S0,
}

// fair holds a price against the ladder: the severity, and what is left of tier and limits after it.
func fair(p Price) (out []Violation) {
	name := p.Adversary
	if p.Variant != "" && p.Adversary != "sybils" {
		name += " " + p.Variant
	}
	bad := func(format string, args ...any) {
		out = append(out, Violation{Rule: "every behaviour has its price", Detail: name + ": " + fmt.Sprintf(format, args...)})
	}
	if want := tariff[name]; p.Worst != want {
		bad("found at %s, the ladder says %s", p.Worst, want)
	}
	stranger := spec.C().Ceiling(spec.LimitEventsIn, spec.TierProbation)
	member := spec.C().Ceiling(spec.LimitEventsIn, spec.TierMember)
	switch p.Worst {
	case spec.S0:
		if p.Tier != spec.TierMember && p.Adversary != "sybils" || p.Adversary != "sybils" && p.Granted != member {
			bad("tier %s and %d events are left", p.Tier, p.Granted)
		}
		if p.Adversary == "sybils" && (p.Tier != spec.TierProbation || p.Granted > stranger) {
			bad("a stranger has tier %s and %d events", p.Tier, p.Granted)
		}
	case spec.S1:
		if p.Tier != spec.TierMember || p.Granted > member/2 || p.Granted < stranger {
			bad("tier %s and %d events are left", p.Tier, p.Granted)
		}
	case spec.S2:
		if p.Tier != spec.TierProbation || p.Granted > stranger {
			bad("tier %s and %d events are left", p.Tier, p.Granted)
		}
	case spec.S3:
		if p.Tier != spec.TierProbation || p.Granted != 0 {
			bad("within the day tier %s and %d events are left", p.Tier, p.Granted)
		}
	case spec.S4:
		if p.Tier != spec.TierRevoked || !p.Ended {
			bad("tier %s, ended: %v", p.Tier, p.Ended)
		}
	}
	return out
}

// Lives runs honest nodes that use all, a little and nothing of what they are granted, and holds their grants against the
// arithmetic of growth and disuse.
func Lives(seed uint64, ladder mesh.Ladder) (broken []Violation, err error) {
	see := func(what string, load, then Load, windows, thenAt int, demand func(c *Curve) string) error {
		c, r, err := Grow(2, windows, seed, load, then, thenAt, spec.LimitEventsIn, ladder)
		if err != nil {
			return err
		}
		broken = append(broken, r.Violations...)
		if flaw := demand(c); flaw != "" {
			broken = append(broken, Violation{Rule: "growth and disuse follow the arithmetic", Detail: fmt.Sprintf("%s: %s: %v", what, flaw, c.Mean)})
		}
		return nil
	}
	if err := see("full", Full, "", 9, 0, func(c *Curve) string {
		if c.Mean[0] > 250 || c.Mean[8] != 1000 || c.Mean[7] == 1000 {
			return "eight full windows lead from a quarter to the ceiling"
		}
		return ""
	}); err != nil {
		return nil, err
	}
	if err := see("light", Light, "", 9, 0, func(c *Curve) string {
		if d := c.Mean[8] - c.Mean[7]; d < 15 || d > 25 || c.Mean[1] <= c.Mean[0] {
			return "a quiet window gives the least step"
		}
		return ""
	}); err != nil {
		return nil, err
	}
	if err := see("busy elsewhere", Full, Talk, 30, 9, func(c *Curve) string {
		if c.Mean[12] >= c.Mean[9] || c.Mean[29] < 248 || c.Mean[29] > 250 {
			return "what is not used is given back as far as the opening"
		}
		return ""
	}); err != nil {
		return nil, err
	}
	if err := see("idle", Full, Idle, 40, 9, func(c *Curve) string {
		if c.Mean[12] != c.Mean[28] || c.Mean[39] < 890 || c.Mean[39] > 910 {
			return "24 idle windows cost a tenth, once"
		}
		return ""
	}); err != nil {
		return nil, err
	}
	return broken, nil
}
