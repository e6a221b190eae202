package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"fleetmesh.org/fleetmesh/internal/mesh"
)

// rough is a seed's run: few nodes, few windows, everything that can go wrong.
func rough(seed uint64) Config {
	d := rng{seed * 7919}
	return Config{Nodes: int(d.between(2, 3)), Windows: int(d.between(2, 4)), Seed: seed, Seconds: []int64{60, 300, 600, 3600}[d.below(4)], Faults: Rough(), Quiet: true}
}

func mustRun(t testing.TB, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sound(t testing.TB, cfg Config) *Result {
	t.Helper()
	r := mustRun(t, cfg)
	for _, v := range r.Violations {
		t.Errorf("seed %d at %d ms: %s: %s", cfg.Seed, v.At, v.Rule, v.Detail)
	}
	return r
}

func TestCalm(t *testing.T) {
	for _, l := range []Load{Mixed, Full, Light, Idle} {
		r := sound(t, Config{Nodes: 2, Windows: 6, Seed: 1, Load: l})
		t.Logf("%s: %d steps, %d frames, %d receipts, %d windows", l, r.Steps, r.Frames, r.Receipts, r.Closed)
	}
}

func TestOne(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		t.Skip()
	}
	cfg := rough(seed)
	cfg.Quiet = false
	r := sound(t, cfg)
	t.Logf("%d steps %d frames", r.Steps, r.Frames)
	for _, l := range r.Lines {
		t.Log(l)
	}
	t.Logf("%+v", cfg)
}

func TestSeeds(t *testing.T) {
	var steps, frames, lost, crashes, closed int64
	for seed := uint64(1); seed <= 200; seed++ {
		r := sound(t, rough(seed))
		steps, frames, lost, crashes, closed = steps+r.Steps, frames+r.Frames, lost+r.Lost, crashes+r.Crashes, closed+r.Closed
	}
	t.Log(fmt.Sprintf("%d steps, %d frames, %d of them lost, %d crashes, %d windows closed", steps, frames, lost, crashes, closed))
}

func TestSurvey(t *testing.T) {
	prices, broken, err := Survey(7, 4, 8, mesh.Ladder{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prices {
		t.Logf("%-15s %-6s %s window %d of %d, %s, %d events left, %d taken, ended %v; %s", p.Adversary, p.Variant, p.Severity, p.First, p.Windows, p.Tier, p.Granted, p.Took, p.Ended, p.Note)
	}
	for _, v := range broken {
		t.Errorf("%s: %s", v.Rule, v.Detail)
	}
}

func TestLives(t *testing.T) {
	broken, err := Lives(3, mesh.Ladder{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range broken {
		t.Errorf("%s: %s", v.Rule, v.Detail)
	}
}
