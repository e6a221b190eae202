package sim

import (
	"os"
	"testing"
)

// TestCrashAtEveryEffect runs the same calm meeting of two nodes again and again, and each time takes the first node down at one effect later, once the
// process alone and once the whole machine, until a run has no effect of that number any more.
func TestCrashAtEveryEffect(t *testing.T) {
	for _, machine := range []bool{false, true} {
		name := map[bool]string{false: "process", true: "machine"}[machine]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := 7 // every one takes minutes: FLEETMESH_FULL=1
			switch {
			case testing.Short():
				step = 61
			case os.Getenv("FLEETMESH_FULL") == "1":
				step = 1
			}
			at := 1
			for ; ; at += step {
				r := mustRun(t, Config{Nodes: 2, Windows: 2, Seed: 5, Seconds: 60, Load: Light, CrashAt: at, Machine: machine, Quiet: true})
				for _, v := range r.Violations {
					t.Errorf("crash at effect %d, %d ms: %s: %s", at, v.At, v.Rule, v.Detail)
				}
				if r.Crashes == 0 {
					break
				}
			}
			t.Logf("%d effects", at-1)
		})
	}
}

// TestASeedReplays wants the same run from the same seed, to the octet.
func TestASeedReplays(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		c := rough(seed)
		c.Quiet = false
		a, b := mustRun(t, c), mustRun(t, c)
		if len(a.Lines) == 0 || len(a.Lines) != len(b.Lines) {
			t.Fatalf("seed %d: %d lines and %d lines", seed, len(a.Lines), len(b.Lines))
		}
		for i := range a.Lines {
			if a.Lines[i] != b.Lines[i] {
				t.Fatalf("seed %d, line %d:\n%s\n%s", seed, i, a.Lines[i], b.Lines[i])
			}
		}
	}
}

// TestARegionReplays wants the same of a world large enough to be cut into regions, which run side by side.
func TestARegionReplays(t *testing.T) {
	c := Config{Nodes: 2*regionNodes + 1, Windows: 2, Seed: 3, Seconds: 60, Faults: Rough(), Quiet: true, Brief: true}
	if list := c.regions(); len(list) != 2 || list[0].Nodes+list[1].Nodes != c.Nodes || list[1].first != list[0].Nodes {
		t.Fatalf("the regions are %+v", list)
	}
	if a, b := mustRun(t, c), mustRun(t, c); a.Trace != b.Trace || a.Nodes != c.Nodes {
		t.Fatalf("%s and %s, of %d nodes", a.Trace, b.Trace, a.Nodes)
	}
}
