package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// reported is what a behaviour is reported for in calm weather, "" for what is priced and not reported: nothing that a stranger could check shows it, or a
// notice is enough.
var reported = []struct {
	adversary string
	factor    int64
	outcome   string
}{
	{"over-spender", 105, ""}, {"over-spender", 120, "S1"}, {"over-spender", 250, "S2"}, {"over-spender", 600, "S3"},
	{"liar", 0, "S2"}, {"liar", 600, "S3"}, {"boaster", 0, "S2"}, {"silent", 0, "S2"}, {"replayer", 0, "S3"}, {"receipt-forker", 0, "S4"}, {"hop-forger", 0, ""},
	{"sybils", 0, ""}, {"report-spammer", 0, ""}, {"colluders", 0, ""}, {"quarter-wind", 0, ""},
}

// TestWhatIsReported runs every behaviour in calm weather. The checkers look at each report as a stranger does, at how long a notice stood, at who read it.
func TestWhatIsReported(t *testing.T) {
	for _, c := range reported {
		t.Run(fmt.Sprint(c.adversary, c.factor), func(t *testing.T) {
			t.Parallel()
			r := sound(t, Config{Nodes: 4, Windows: 8, Seed: 7, Adversary: c.adversary, Factor: c.factor, Reports: true, Quiet: true})
			for _, p := range r.Prices {
				if p.Reported != c.outcome {
					t.Errorf("found at %s, reported at %q, want %q", p.Severity, p.Reported, c.outcome)
				}
			}
			if r.Answers == 0 || c.outcome != "" && r.Readings == 0 {
				t.Errorf("%d reports, read %d times; %d of %d questions answered", r.Reports, r.Readings, r.Answers, r.Questions)
			}
			t.Logf("%d notices, %d reports, read %d times, %d of %d questions answered", r.Notices, r.Reports, r.Readings, r.Answers, r.Questions)
		})
	}
}

// stormy is a run of an adversary in bad weather.
func stormy(adversary string, factor int64, seed uint64) Config {
	c := Config{Nodes: 4, Windows: 8, Seed: seed, Adversary: adversary, Factor: factor, Reports: true, Quiet: true, Faults: Rough()}
	c.Faults.Crash = 200
	return c
}

func TestOneInBadWeather(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil || os.Getenv("ADVERSARY") == "" {
		t.Skip()
	}
	factor, _ := strconv.ParseInt(os.Getenv("FACTOR"), 10, 64)
	c := stormy(os.Getenv("ADVERSARY"), factor, seed)
	c.Quiet = false
	r := sound(t, c)
	for _, l := range r.Lines {
		t.Log(l)
	}
}

// TestReportsInBadWeather wants it to stay true that no honest node is reported, and that abuse and malice are, whatever crashes and partitions do.
func TestReportsInBadWeather(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	if os.Getenv("FLEETMESH_FULL") == "1" {
		seeds = 40
	}
	for _, c := range reported {
		t.Run(fmt.Sprint(c.adversary, c.factor), func(t *testing.T) {
			t.Parallel()
			var crashes, notices, reports, readings, answers int64
			for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
				r := sound(t, stormy(c.adversary, c.factor, seed))
				crashes, notices, reports, readings, answers = crashes+r.Crashes, notices+r.Notices, reports+r.Reports, readings+r.Readings, answers+r.Answers
			}
			t.Logf("%d crashes, %d notices, %d reports, read %d times, %d answers", crashes, notices, reports, readings, answers)
		})
	}
}
