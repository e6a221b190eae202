package sim

import (
	"flag"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"fleetmesh.org/fleetmesh/internal/mesh"
)

// rough is a seed's run: few nodes, few windows, everything that can go wrong. One seed in 64 goes on until everything is settled.
func rough(seed uint64) Config {
	d := rng{seed * 7919}
	c := Config{Nodes: 2, Windows: 2, Seed: seed, Seconds: []int64{60, 60, 120, 300}[d.below(4)], Faults: Rough(), Quiet: true, Brief: seed%64 != 0}
	if d.below(8) == 0 {
		c.Nodes, c.Windows = 3, int(d.between(2, 4))
	}
	c.Faults.Crash, c.Faults.Part = 300, 8000 // there is little time
	return c
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

// seeds is how many runs TestSeeds makes.
var seeds = flag.Int("seeds", 10_000, "how many seeds to run")

// TestSeeds is the protocol's safety, run after run. Runs share nothing, so the test runner may have them side by side.
func TestSeeds(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = 500
	}
	var steps, frames, lost, crashes, closed atomic.Int64
	const lanes = 8
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				for seed := lane + 1; seed <= n && !t.Failed(); seed += lanes {
					r := sound(t, rough(uint64(seed)))
					steps.Add(r.Steps)
					frames.Add(r.Frames)
					lost.Add(r.Lost)
					crashes.Add(r.Crashes)
					closed.Add(r.Closed)
				}
			})
		}
	})
	t.Logf("%d seeds: %d steps, %d frames, %d of them lost, %d crashes, %d windows closed", n, steps.Load(), frames.Load(), lost.Load(), crashes.Load(), closed.Load())
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

func TestMutantsAreCaught(t *testing.T) {
	for _, m := range Mutants() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			broken, err := Lives(3, m.Ladder)
			if err != nil {
				t.Fatal(err)
			}
			if len(broken) == 0 {
				if _, broken, err = survey(7, 4, 3, m.Ladder, true); err != nil {
					t.Fatal(err)
				}
			}
			if len(broken) == 0 {
				t.Fatal("nobody noticed")
			}
			t.Logf("%d objections, the first: %s: %s", len(broken), broken[0].Rule, broken[0].Detail)
		})
	}
}
