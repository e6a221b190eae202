package ledger

import (
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/spec"
)

// TestExplainSaysWhatClassifyDoes holds the sentences against the verdicts, at the edges of every step.
func TestExplainSaysWhatClassifyDoes(t *testing.T) {
	for _, c := range []struct {
		limit, measured, claimed int64
		want                     []string
	}{
		{750, 0, 0, []string{"0 / 750 = 0, below 1.1: S0", "at most 0.1: agrees"}},
		{1000, 1100, 1100, []string{"1100 / 1000 = 1.1, at least 1.1: S1", "|1100 - 1100| / max(1100, 50) = 0"}},
		{1000, 1099, 1099, []string{"= 1.099, below 1.1: S0"}},
		{1000, 4999, 4000, []string{"= 4.999, at least 2: S2", "= 0.199, above 0.1: at least S2"}},
		{1000, 5000, 5000, []string{"= 5, at least 5: S3"}},
		{0, 7, 7, []string{"7 under a limit of 0", ": S3"}},
		{0, 0, 0, []string{"0 under a limit of 0: S0"}},
		{1 << 52, 1, 1, []string{"= less than 0.001,"}},
		{4, 1, 0, []string{"|1 - 0| / max(1, 1) = 1, above 0.1"}},
	} {
		limits := Opening("member")
		limits["events_in"] = c.limit
		v := Evaluate(limits, Counters{"events_in": c.measured}, Counters{"events_in": c.claimed})
		l := Line{Limit: "events_in", Allowed: c.limit, Measured: c.measured, Claimed: c.claimed,
			Severity: ClassifyClaim(c.limit, c.measured, c.claimed), Diverges: divergent(c.limit, c.measured, c.claimed)}
		for _, got := range v.Lines {
			if got.Limit == l.Limit && got != l {
				t.Errorf("%+v: evaluated as %+v, want %+v", c, got, l)
			}
		}
		text := strings.Join(Explain(limits, l), "\n")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%+v: %q lacks %q", c, text, want)
			}
		}
	}
}

func TestExplainDuplicates(t *testing.T) {
	limits := Opening("member") // events_in 750, so the floor is 37
	for _, c := range []struct {
		events, dups int64
		want         string
	}{
		{36, 36, "36 events, fewer than the floor of 37: not evaluated"},
		{0, 0, "not evaluated"},
		{200, 33, "33 / 200 / 0.15 = 1.1, at least 1.1: S1"},
		{200, 30, "= 1, below 1.1: S0"},
		{100, 400, "100 / 100 / 0.15 = 6.666, at least 5: S3"},
	} {
		l := Line{Limit: spec.LimitDupRatio, Allowed: c.events, Measured: c.dups, Severity: ClassifyDuplicates(limits["events_in"], c.events, c.dups)}
		if got := strings.Join(Explain(limits, l), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%d of %d: %q lacks %q", c.dups, c.events, got, c.want)
		}
	}
}
