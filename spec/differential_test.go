package spec_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// The vectors hold the cases that somebody thought of. Here the ledger's arithmetic
// and the independent checker are given thousands that nobody did, drawn about the
// points where the answer changes.
func TestLedgerAgreesWithTheIndependentChecker(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is not installed: the arithmetic cannot be checked independently")
		}
		t.Skip("python3 is not installed: the independent checker is not run")
	}
	each := 1500
	if testing.Short() {
		each = 150
	}
	draw := dice{rand.New(rand.NewPCG(1, 2))}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ledger"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "ledger", "drawn.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	write := func(function string, input, output any) {
		if err := enc.Encode(map[string]any{"about": "drawn", "layer": "ledger", "function": function, "input": input, "output": output}); err != nil {
			t.Fatal(err)
		}
	}
	for range each {
		limit := draw.limit()
		measured := draw.near(limit)
		claimed := draw.about(measured)
		write("classify", map[string]any{"limit": limit, "measured": measured, "claimed": claimed}, map[string]any{
			"severity": ledger.ClassifyClaim(limit, measured, claimed), "floor": ledger.DivergenceFloor(limit),
			"diverges": ledger.ClassifyClaim(limit, measured, claimed) > ledger.Classify(limit, measured) || draw.lies(limit, measured, claimed)})
	}
	for range each {
		events := draw.near(3000)
		dups := min(events, draw.near(events*3/20))
		write("duplicates", map[string]any{"events_limit": 3000, "events": events, "duplicates": dups}, ledger.ClassifyDuplicates(3000, events, dups))
	}
	for range each {
		st := draw.standing()
		measured, claimed := draw.window(st.Limits)
		found := draw.structural()
		now := int64(draw.IntN(1 << 20))
		after, move := st.Close(ledger.Evaluate(st.Limits, measured, claimed), now, found...)
		write("close", map[string]any{"standing": st, "measured": measured, "claimed": claimed, "structural": found, "now": now},
			map[string]any{"standing": after, "move": move})
	}
	for range each {
		n := draw.near(draw.limit())
		write("round", n, ledger.RoundFigures(n))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "vectors/checker/check.py", dir).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%.4000s", err, out)
	}
	if want := fmt.Sprintf("%d agree, 0 differ, 0 not checked", 4*each); !t.Failed() && !contains(out, want) {
		t.Errorf("want %q\n%.4000s", want, out)
	}
}

func contains(out []byte, want string) bool {
	return len(out) > len(want) && string(out[len(out)-len(want)-1:len(out)-1]) == want
}

type dice struct{ *rand.Rand }

func (d dice) limit() int64 {
	switch d.IntN(4) {
	case 0:
		return int64(d.IntN(20))
	case 1:
		return int64(d.IntN(5000))
	}
	c := spec.C()
	return c.Ceiling(c.Limits[d.IntN(len(c.Limits))].Name, c.Tiers[d.IntN(len(c.Tiers))].Name)
}

// near draws a count about one of the steps of the schedule, or anywhere below.
func (d dice) near(limit int64) int64 {
	switch d.IntN(5) {
	case 0:
		return 0
	case 1:
		return d.Int64N(limit + 2)
	}
	s := spec.C().Schedule[d.IntN(len(spec.C().Schedule))]
	return max(0, s.Ratio.Floor(limit)+int64(d.IntN(5))-2)
}

// about draws a claim: true, a little off the tolerance, or anything.
func (d dice) about(measured int64) int64 {
	switch d.IntN(4) {
	case 0:
		return measured
	case 1:
		return d.Int64N(measured + 2)
	}
	off := spec.C().Divergence.Tolerance.Floor(measured) + int64(d.IntN(5)) - 2
	if d.IntN(2) == 0 {
		off = -off
	}
	return max(0, measured+off)
}

// lies is the definition of divergence, in floating point's absence, written out once more.
func (dice) lies(limit, measured, claimed int64) bool {
	diff := measured - claimed
	if diff < 0 {
		diff = -diff
	}
	return 10*diff > max(measured, limit/20, 1)
}

func (d dice) standing() ledger.Standing {
	c := spec.C()
	tier := c.Tiers[d.IntN(len(c.Tiers))].Name
	st := ledger.NewStanding(tier)
	for _, l := range c.Limits {
		switch top := c.Ceiling(l.Name, tier); d.IntN(3) {
		case 0:
			st.Limits[l.Name] = top
		case 1:
			st.Limits[l.Name] = d.Int64N(top + 1)
		}
	}
	st.CleanWindows, st.IdleWindows, st.Overruns = int64(d.IntN(200)), int64(d.IntN(100)), int64(d.IntN(3))
	return st
}

// window draws what was measured and claimed, either of which may be missing.
func (d dice) window(limits ledger.Limits) (measured, claimed ledger.Counters) {
	if d.IntN(20) == 0 {
		return nil, nil
	}
	measured = ledger.Counters{}
	for _, n := range spec.C().Counters {
		measured[n] = 0
	}
	busy := d.IntN(4)
	for _, l := range spec.C().Limits {
		if busy == 0 || d.IntN(4) > busy {
			continue
		}
		top := limits[l.Name]
		if d.IntN(8) > 0 { // most windows stay within their limits
			measured[spec.C().CounterOf(l.Name)] = d.Int64N(top + 1)
			continue
		}
		measured[spec.C().CounterOf(l.Name)] = d.near(top)
	}
	if d.IntN(6) == 0 {
		measured[spec.CounterDupsSent] = d.Int64N(measured[spec.CounterEventsIn] + 1)
	}
	if d.IntN(8) == 0 {
		return measured, nil
	}
	claimed = measured.Clone()
	if d.IntN(5) == 0 {
		n := spec.C().Counters[d.IntN(len(spec.C().Counters))]
		claimed[n] = d.about(measured[n])
	}
	return measured, claimed
}

func (d dice) structural() []ledger.Structural {
	if d.IntN(12) > 0 {
		return nil
	}
	all := []ledger.Structural{ledger.OutsideScope, ledger.HopLimitAbuse, ledger.ExpiredBackfill, ledger.SelfMisreport, ledger.ForgedSignature, ledger.CorruptChain}
	return []ledger.Structural{all[d.IntN(len(all))]}
}
