package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// clusterReport is what `meshnode cluster start --json` prints, as far as the tests need it.
type clusterReport struct {
	Nodes           int
	Topology        string
	Events          int
	Converged       bool
	Seconds         float64
	EventsPerSecond float64 `json:"events_per_second"`
	Lost            int
	Divergence      int64
	WindowsClosed   int `json:"windows_closed"`
	Nudges          int
	Findings        []struct {
		By, On   int
		Severity string
	}
	Fingerprints []struct {
		Fingerprint string
		Events      int
	}
	Links []struct {
		Issuer, Subject int
		Divergence      int64
		Closed          int `json:"windows_closed"`
		Measured        map[string]int64
		Claimed         map[string]int64
	}
	Faults struct{ Kills, Cuts, Slows, Skews int }
}

// full says that the long forms are asked for.
func full() bool { return os.Getenv("FLEETMESH_FULL") == "1" }

// runCluster runs a cluster to its end and reads its report.
func runCluster(t *testing.T, args ...string) (r clusterReport, code int) {
	t.Helper()
	dir := filepath.Dir(newDir(t))
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"cluster", "start", "--until-converged", "--json", "--dir", filepath.Join(dir, "c")}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its nodes
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(lastLine(string(out)), &r); err != nil {
		t.Fatalf("the report: %v\n%s%s", err, out, errs.String())
	}
	code = cmd.ProcessState.ExitCode()
	t.Logf("%s of %d, %d events: %.1f s, %.0f events a second, divergence %d, %d windows closed, %d nudges, faults %+v, findings %+v",
		r.Topology, r.Nodes, r.Events, r.Seconds, r.EventsPerSecond, r.Divergence, r.WindowsClosed, r.Nudges, r.Faults, r.Findings)
	return r, code
}

// check wants that all nodes hold the same, that nothing acknowledged is lost and that nobody was found at fault.
func (r *clusterReport) check(t *testing.T, events int) {
	t.Helper()
	if !r.Converged || r.Events != events || r.Lost != 0 || len(r.Findings) != 0 {
		t.Fatalf("%+v", r)
	}
	for _, f := range r.Fingerprints {
		if f.Fingerprint != r.Fingerprints[0].Fingerprint || f.Events != events {
			t.Errorf("fingerprints differ: %+v", r.Fingerprints)
		}
	}
}

// TestClustersConverge has real nodes in several shapes forward what each of them got, over links that none of them shares with all.
func TestClustersConverge(t *testing.T) {
	events, shapes := "300", [][2]string{{"ring", "5"}, {"star", "4"}}
	want := 300
	if full() {
		events, shapes, want = "50000", [][2]string{{"ring", "5"}, {"star", "5"}}, 50000
	}
	if testing.Short() {
		shapes = shapes[:1]
	}
	for _, s := range shapes {
		t.Run(s[0], func(t *testing.T) {
			args := []string{"--topology", s[0], "--nodes", s[1], "--events", events}
			if full() {
				args = append(args, "--settle", "--timeout", "30m")
			}
			r, code := runCluster(t, args...)
			r.check(t, want)
			if code != 0 || r.Divergence != 0 {
				t.Errorf("status %d, divergence %d: %+v", code, r.Divergence, r.Links)
			}
			if full() && r.WindowsClosed == 0 {
				t.Error("no window was closed")
			}
		})
	}
}

// TestAClusterThatBreaks kills nodes, cuts and slows links and sets clocks off while events are put in, and wants nothing acknowledged lost and no
// honest node above S0 in the end.
func TestAClusterThatBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("what was broken needs a window or two to be taken up again")
	}
	args, want := []string{"--nodes", "3", "--topology", "line", "--events", "200", "--for", "12s", "--kill-every", "6s", "--cut-every", "5s", "--slow-every", "5s", "--seed", "3"}, 200
	if full() {
		args = []string{"--nodes", "5", "--topology", "ring", "--events", "20000", "--for", "20m", "--kill-every", "30s", "--cut-every", "60s", "--slow-every", "60s", "--skew", "50s", "--settle"}
		want = 20000
	}
	r, code := runCluster(t, args...)
	r.check(t, want)
	if code != 0 || r.Faults.Kills == 0 || r.Faults.Cuts == 0 || r.Faults.Slows == 0 {
		t.Errorf("status %d, faults %+v", code, r.Faults)
	}
}
