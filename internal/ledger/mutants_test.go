package ledger

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a bug planted in one place of the arithmetic.
type mutant struct{ name, file, old, new string }

var mutants = []mutant{
	{"a schedule that begins above its ratio", "classify.go", "max(limit, 0)) >= 0", "max(limit, 0)) > 0"},
	{"no divergence floor", "classify.go", "max(measured, DivergenceFloor(limit))) > 0", "max(measured, 1)) > 0"},
	{"a tolerance that does not tolerate itself", "classify.go", "DivergenceFloor(limit))) > 0", "DivergenceFloor(limit))) >= 0"},
	{"a misreport as a ceiling", "classify.go", "sev = sev.Worse(spec.C().Divergence.Severity)", "sev = spec.C().Divergence.Severity"},
	{"over-claims are free", "classify.go", "d = -d", "d = 0"},
	{"duplicates priced in noise", "classify.go", "events <= 0 || events < DivergenceFloor(eventsLimit)", "events <= 0"},
	{"limits priced against counters of their own name", "classify.go", "Measured: measured.Of(n), Claimed: claimed.Of(n)", "Measured: measured[spec.Counter(n)], Claimed: claimed[spec.Counter(n)]"},
	{"silence is clean", "classify.go", "if measured.Zero() && claimed.Zero() {", "if claimed == nil {"},
	{"the last line decides and not the worst", "classify.go", "v.Severity = v.Severity.Worse(l.Severity)", "v.Severity = l.Severity"},
	{"no clamp", "standing.go", "s.Limits = s.Limits.Clamp(s.Tier) // always, whatever the branch", ""},
	{"a remedy that raises", "standing.go", "limits[n] = min(v, s.Limits[n])", "limits[n] = v"},
	{"a remedy without floor", "standing.go", "v = max(v, spec.C().Ceiling(n, r.FloorTier))", "_ = v"},
	{"a misreport keeps its tier", "standing.go", "s.Tier = r.Tier", "_ = r.Tier"},
	{"abuse without a suspension", "standing.go", "s.ZeroUntil = max(s.ZeroUntil, now+r.ZeroSeconds)", ""},
	{"a suspension that ends a second late", "standing.go", "now < s.ZeroUntil", "now <= s.ZeroUntil"},
	{"a fault leaves the streak", "standing.go", "s.CleanWindows, s.IdleWindows = 0, 0", "s.IdleWindows = 0"},
	{"decay below where a stranger starts", "standing.go", "return max(open, g.Decay.Floor(limit))", "return g.Decay.Floor(limit)"},
	{"no least step", "standing.go", "return limit + max(least, strained.Floor(ceiling))", "return limit + strained.Floor(ceiling)"},
	{"growth for what was not used", "standing.go", "case used == 0:\n\t\treturn limit\n", "case used == 0:\n\t\treturn limit + least\n"},
	{"blobs rise by themselves", "standing.go", "case limit == 0 && (opens == spec.OpensAtZero || used > 0):", "case limit == 0 && used > 0:"},
	{"growth that is not scaled by use", "standing.go", "g.Step.Num * min(used, allowed)", "g.Step.Num * allowed"},
	{"every idle window decays", "standing.go", "s.IdleWindows%int64(spec.C().Growth.DecayIdleWindows) != 0", "s.IdleWindows == 0"},
	{"an unmetered window counts as clean", "standing.go", "if !v.Unmetered { // standing", "if true { // standing"},
	{"the first overrun is published", "standing.go", "overruns < int64(r.PublishFromOccurrence)", "overruns < 1"},
	{"published without waiting", "standing.go", "return Publication{At: noticed + int64(r.NoticeWindows)*window}, false", "return Publication{At: noticed}, false"},
	{"the threshold must be passed", "trust.go", "sum.Cmp(theta) >= 0", "sum.Cmp(theta) > 0"},
	{"topics bleed into each other", "trust.go", "v.Topic != topic || v.Severity < s", "v.Severity < s"},
	{"others talk a finding down", "trust.go", "return own.Worse(s)", "return s"},
	{"a key speaks as often as it likes", "trust.go", "sum.Sub(sum, old)", ""},
	{"false reports cost nothing", "trust.go", "good := max(0, v.Record.Evaluated-v.Record.False)", "good := v.Record.Evaluated"},
	{"reservations are forgotten", "bucket.go", "b.limits[n]-b.spent[c]-b.reserved[c] {", "b.limits[n]-b.spent[c] {"},
	{"counters may go down", "chain.go", "case c.last != nil && !r.Counters.Covers(c.last.Counters):", "case false:"},
	{"a fork goes unseen", "chain.go", "case r.Prev != c.link:", "case false:"},
	{"a commitment without blinding", "seal.go", "h.Write(blinding[:])", ""},
	{"any limit may be granted", "grant.go", "case v > spec.C().Ceiling(n, g.Tier):", "case false:"},
	{"the hop before is not signed", "envelope.go", "event.String(), before, strconv", "event.String(), \"\", strconv"},
}

// Every planted bug must fail a test. It takes minutes, so it is asked for:
// FLEETMESH_MUTANTS=1 go test -timeout 1h -run TestPlantedBugs -v ./internal/ledger
func TestPlantedBugs(t *testing.T) {
	if os.Getenv("FLEETMESH_MUTANTS") == "" {
		t.Skip("set FLEETMESH_MUTANTS=1 to plant bugs and see each one caught")
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			path := filepath.Join(here, m.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(text), m.old) != 1 {
				t.Fatalf("%q stands %d times in %s", m.old, strings.Count(string(text), m.old), m.file)
			}
			dir := t.TempDir()
			bad, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(bad, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: bad}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(overlay, replace, 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-vet=off", "-failfast", "-overlay", overlay, "-run", "Test", ".", "-rapid.checks=40", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), "FLEETMESH_MUTANTS=")
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Error("nobody noticed")
			case strings.Contains(string(out), "build failed"):
				t.Fatalf("the mutant does not compile:\n%s", out)
			}
		})
	}
}
