package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/cluster"
	"fleetmesh.org/fleetmesh/spec"
)

type clusterCmd struct {
	Start  clusterStartCmd  `cmd:"" help:"Run several nodes on this machine, put events in, and see whether they agree."`
	Status clusterStatusCmd `cmd:"" help:"How the running cluster goes."`
	Stop   clusterStopCmd   `cmd:"" help:"End the running cluster; it reports first."`
	Kill   clusterKillCmd   `cmd:"" help:"Kill a node as kill -9 does."`
	Cut    clusterCutCmd    `cmd:"" help:"Cut a node off, or one of its links."`
	Slow   clusterSlowCmd   `cmd:"" help:"Slow a node's links, or one of them."`
	Skew   clusterSkewCmd   `cmd:"" help:"Set a node's clock off; it is stopped and started."`
	Heal   clusterHealCmd   `cmd:"" help:"Start a node that was killed, and join and hasten its links."`
}

func (c *clusterCmd) Help() string {
	return `Real nodes: each is a process of this binary in a directory of its own, listens on 127.0.0.1, peers through its control socket and dials
the others through a wire that can be cut and slowed. They are one operator's, so each grants the others the tier that --tier says.

Examples:
  meshnode cluster start --nodes 5 --topology ring --events 5000 --until-converged --json
  meshnode cluster start --nodes 5 --topology star --dir mycluster --page 127.0.0.1:7800
  meshnode cluster cut --dir mycluster 2          # in another terminal
  meshnode cluster heal --dir mycluster 2`
}

type clusterStartCmd struct {
	Nodes    int           `help:"How many nodes." default:"5"`
	Topology string        `help:"ring, star, line, or mesh, where each peers with each." enum:"ring,star,line,mesh" default:"ring"`
	Events   int           `help:"How many signed events are put in, each at a node drawn at random." default:"1000"`
	For      time.Duration `help:"Spread the events over so long instead of putting them in at once." placeholder:"DURATION"`
	Window   int64         `help:"Seconds of the accounting windows." default:"60"`
	Tier     string        `help:"The tier of the grants that the nodes give each other." enum:"probation,member,trusted,anchor" default:"anchor"`

	UntilConverged bool          `help:"End when every node holds every event, instead of staying until Ctrl-C or cluster stop."`
	Settle         bool          `help:"Before that, wait until every window with traffic is closed and judged: some minutes."`
	Timeout        time.Duration `help:"How long the nodes may take to converge after the last event." default:"10m"`

	KillEvery time.Duration `help:"While events are put in, kill -9 a random node about so often, and start it again." placeholder:"DURATION"`
	CutEvery  time.Duration `help:"While events are put in, cut a random link about so often, for a third of that." placeholder:"DURATION"`
	SlowEvery time.Duration `help:"While events are put in, slow a random link by 300 ms about so often, for a third of that." placeholder:"DURATION"`
	Skew      time.Duration `help:"How far ahead the clock of every second node is; 60s is what nodes bear." placeholder:"DURATION"`
	Seed      uint64        `help:"Of every random choice; drawn if absent."`
	Page      string        `help:"Show it all on a page here, such as 127.0.0.1:7800." placeholder:"HOST:PORT"`
}

func (c *clusterStartCmd) Help() string {
	return `The report says whether all nodes hold the same events, how fast they got there, what the two ends of every link counted and by how much they
differ (0 between honest nodes), and every verdict above S0. Exit status 0: converged, no finding, and without faults no divergence; 1 otherwise.

Without --dir the cluster lives in ./cluster; with --until-converged and without --dir it is removed at the end.

Examples:
  meshnode cluster start --nodes 5 --topology ring --events 5000 --until-converged --json
  meshnode cluster start --nodes 4 --topology line --events 500 --until-converged --settle
  meshnode cluster start --events 20000 --for 20m --kill-every 30s --cut-every 1m --until-converged`
}

// clusterDir is --dir, or ./cluster where that was not given; where that is too long a path for a socket, a place for temporary files.
func (a *app) clusterDir() (dir string, given bool) {
	if string(a.dir) == defaultDir() {
		dir = filepath.Join(filepath.Dir(string(a.dir)), "cluster")
		if cluster.Fits(dir) != nil { // one place for each working directory, so that the other verbs find it
			dir = filepath.Join(os.TempDir(), fmt.Sprintf("meshnode-cluster-%x", sha256.Sum256([]byte(dir)))[:25])
		}
		return dir, false
	}
	return string(a.dir), true
}

func (c *clusterStartCmd) Run(a *app) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	dir, given := a.clusterDir()
	cfg := cluster.Config{
		Binary: self, Dir: dir, Nodes: c.Nodes, Topology: c.Topology, Window: c.Window, Tier: c.Tier,
		Events: c.Events, For: c.For, Seed: c.Seed, Settle: c.Settle, Stay: !c.UntilConverged, Timeout: c.Timeout,
		KillEvery: c.KillEvery, CutEvery: c.CutEvery, SlowEvery: c.SlowEvery, Skew: c.Skew, Page: c.Page, Progress: c.progress(a),
	}
	if _, err := cfg.Check(); err != nil {
		return &exit{spec.ExitUsage, err.Error()}
	}
	if _, err := os.Stat(dir); !given && c.UntilConverged && os.IsNotExist(err) {
		defer os.RemoveAll(dir) // nothing of it is wanted any more
	}
	report, err := cluster.Run(a.ctx, cfg)
	if a.ctx.Err() != nil || report.Converged {
		err = nil // it was told to end, or says all in its report
	}
	if report.Nodes == 0 {
		return err
	}
	if err := a.print(report, func(w io.Writer) { printCluster(w, report) }); err != nil {
		return err
	}
	if err == nil && !report.Good() {
		return &exit{code: spec.ExitFailure}
	}
	return err
}

// progress shows a line about once a second, or one for each phase where nobody looks.
func (c *clusterStartCmd) progress(a *app) func(cluster.Status) {
	var phase string
	var last time.Time
	return func(s cluster.Status) {
		if a.json || s.Phase == phase && time.Since(last) < time.Second {
			return
		}
		phase, last = s.Phase, time.Now()
		fmt.Fprintln(a.err, statusLine(s))
	}
}

func statusLine(s cluster.Status) string {
	var nodes []string
	for _, n := range s.Nodes {
		text := fmt.Sprint(n.Events)
		if !n.Up {
			text = "down"
		}
		nodes = append(nodes, text)
	}
	line := fmt.Sprintf("%-10s %6.1f s  %d of %d events put in; held: %s", s.Phase, s.Seconds, s.Events, s.Planned, strings.Join(nodes, " "))
	if s.Page != "" {
		line += "  " + s.Page
	}
	return line
}

func printCluster(w io.Writer, r cluster.Report) {
	state := "did not converge"
	if r.Converged {
		state = fmt.Sprintf("converged in %.1f s, %.0f events a second", r.Seconds, r.EventsPerSecond)
	}
	fmt.Fprintf(w, "%s of %d nodes, %d events: %s\n", r.Topology, r.Nodes, r.Events, state)
	for _, f := range r.Fingerprints {
		fmt.Fprintf(w, "node %d  %7d events  fingerprint %s\n", f.Node, f.Events, f.Fingerprint)
	}
	fmt.Fprintf(w, "divergence %d over %d directions of links, %d windows closed, %d findings above S0\n", r.Divergence, len(r.Links), r.WindowsClosed, len(r.Findings))
	for _, f := range r.Findings {
		fmt.Fprintf(w, "FINDING %s by node %d on node %d, window %d %s\n", f.Severity, f.By, f.On, f.Window, f.Limit)
	}
	if r.Faults != (cluster.Faults{}) {
		fmt.Fprintf(w, "%d kills, %d cuts, %d slowed links, %d clocks off\n", r.Faults.Kills, r.Faults.Cuts, r.Faults.Slows, r.Faults.Skews)
	}
}
