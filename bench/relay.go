package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

type relayCmd struct {
	Target []string `help:"A relay to measure: NAME=ws://HOST:PORT. With two, rounds are interleaved, and ratios are the first's to the second's." required:"" sep:"none" placeholder:"NAME=URL"`
	PID    []string `help:"The process of a target, for its CPU and memory: NAME=PID. Same machine, same user." name:"pid" sep:"none" placeholder:"NAME=PID"`
	Dir    []string `help:"The store of a target, for its octets on disk: NAME=PATH." sep:"none" placeholder:"NAME=PATH"`

	Phases []string `help:"Which to run. Without ingest the corpus is published unmeasured." default:"${phases}"`
	Rounds int      `help:"Rounds of each cell; medians are over them." default:"5"`
	Events int      `help:"Size of the corpus, which a relay holds after ingest." default:"20000"`
	Ingest int      `help:"How many of these events ingest measures; the others are loaded beside it. 0: half of them." default:"0"`
	Loaded bool     `help:"The targets hold the whole corpus already: publish nothing of it." name:"no-load"`
	Seed   uint64   `help:"What the corpus is made from." default:"1"`
	Cache  string   `help:"Where the made corpus is kept; default: the system's temporary directory."`

	Queries int   `help:"Queries of one cell and round." default:"200"`
	Live    int   `help:"Events of one fan-out cell and round at the low rate, and as many in a burst." default:"50"`
	Rate    int   `help:"The low rate, in events a second." default:"10"`
	Subs    []int `help:"Live subscriptions." default:"500,5000"`
	Share   int   `help:"Live subscriptions of one connection; 0: as few as makes 500 connections or fewer." default:"0"`
	Idle    int   `help:"Idle connections." default:"500"`

	Grow []int  `help:"Grow the store to these sizes, measuring at each, instead of the phases: 10000,100000,1000000. The targets start empty."`
	Plot string `help:"With --grow: the SVG file to write." default:"growth.svg"`
	JSON bool   `help:"Print one JSON object." name:"json"`
}

// phaseNames are the phases in the order in which they run.
var phaseNames = []string{"idle", "ingest", "query", "fanout", "neg"}

// target is a relay under measurement.
type target struct {
	name, url string
	pid       int    // 0: not known
	dir       string // "": not known
}

func (c *relayCmd) targets() ([]target, error) {
	var out []target
	for _, s := range c.Target {
		name, url, ok := strings.Cut(s, "=")
		if !ok || name == "" || !strings.HasPrefix(url, "ws://") && !strings.HasPrefix(url, "wss://") {
			return nil, fmt.Errorf("--target %q: want NAME=ws://HOST:PORT", s)
		}
		if slices.ContainsFunc(out, func(t target) bool { return t.name == name }) {
			return nil, fmt.Errorf("--target: two are named %q", name)
		}
		out = append(out, target{name: name, url: url})
	}
	find := func(flag, s string) (*target, string, error) {
		name, value, _ := strings.Cut(s, "=")
		for i := range out {
			if out[i].name == name {
				return &out[i], value, nil
			}
		}
		return nil, "", fmt.Errorf("--%s %q: no target has that name", flag, s)
	}
	for _, s := range c.PID {
		t, value, err := find("pid", s)
		if err != nil {
			return nil, err
		}
		if t.pid, err = strconv.Atoi(value); err != nil || t.pid <= 0 {
			return nil, fmt.Errorf("--pid %q: want NAME=NUMBER", s)
		}
		if _, err := processUsage(t.pid); err != nil {
			return nil, fmt.Errorf("--pid %q: %w", s, err)
		}
	}
	for _, s := range c.Dir {
		t, value, err := find("dir", s)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(value); err != nil {
			return nil, fmt.Errorf("--dir %q: %w", s, err)
		}
		t.dir = value
	}
	return out, nil
}

// Run measures.
func (c *relayCmd) Run(a *app) error {
	targets, err := c.targets()
	if err != nil {
		return err
	}
	for _, p := range c.Phases {
		if !slices.Contains(phaseNames, p) {
			return fmt.Errorf("--phases: no phase %q; there are %s", p, strings.Join(phaseNames, ", "))
		}
	}
	r := &run{app: a, cmd: c, targets: targets, corpus: newCorpus(c.Seed), id: strconv.FormatInt(time.Now().UnixNano(), 36)}
	r.report = report{Started: time.Now().UTC().Format(time.RFC3339), Go: runtime.Version(), CPU: processor(), Cores: runtime.NumCPU(), LoadBefore: loadAverage(), Rounds: c.Rounds, Seed: c.Seed}
	if len(c.Grow) > 0 {
		err = r.grow()
	} else {
		err = r.phases()
	}
	r.report.LoadAfter = loadAverage()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	r.report.summarise(targets)
	return r.report.print(os.Stdout, c.JSON)
}

// run is one measurement of all targets.
type run struct {
	*app
	cmd     *relayCmd
	targets []target
	corpus  *corpus
	items   []item
	report  report
	id      string // tells the live events of this run from those of earlier ones
}

func (r *run) phases() error {
	r.note("corpus of %d events, seed %d", r.cmd.Events, r.cmd.Seed)
	var err error
	if r.items, err = r.corpus.load(r.ctx, r.cmd.Cache, r.cmd.Events); err != nil {
		return err
	}
	r.report.Events, r.report.EventBytes = len(r.items), meanSize(r.items)
	has := func(p string) bool { return slices.Contains(r.cmd.Phases, p) }
	if has("idle") { // first, while the processes are as small as they will be
		if err := r.idle(); err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	if err := r.fill(has("ingest")); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		do   func() error
	}{{"query", r.query}, {"fanout", r.fanout}, {"neg", r.neg}} {
		if !has(p.name) {
			continue
		}
		if err := p.do(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// fill gets the corpus into the targets: measured as far as ingest goes, the rest quickly.
func (r *run) fill(measured bool) error {
	if r.cmd.Loaded {
		return nil
	}
	n := 0
	if measured {
		n = r.cmd.Ingest
		if n <= 0 || n > len(r.items) {
			n = len(r.items) / 2
		}
		if err := r.ingest(r.items[:n]); err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
	}
	for i := range r.targets {
		if err := r.loadRest(&r.targets[i], r.items[n:]); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	return nil
}

// cell runs one cell of a phase: each round on each target in turn.
func (r *run) cell(phase, name string, rounds int, do func(t *target, round int, s *sample) error) error {
	for round := range rounds {
		for i := range r.targets {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			t := &r.targets[i]
			s := &sample{Phase: phase, Cell: name, Target: t.name, Round: round, Values: map[string]float64{}}
			if err := do(t, round, s); err != nil {
				return fmt.Errorf("%s, round %d of %s: %w", t.name, round+1, name, err)
			}
			r.report.Samples = append(r.report.Samples, s)
		}
	}
	r.note("%-7s %-28s load %s", phase, name, loadAverage())
	return nil
}

// meter is what a cell's operations cost: started before, read after.
type meter struct {
	t      *target
	began  time.Time
	server usage
	client time.Duration
}

func startMeter(t *target) (*meter, error) {
	m := &meter{t: t, client: ownTime()}
	if t.pid != 0 {
		var err error
		if m.server, err = processUsage(t.pid); err != nil {
			return nil, err
		}
	}
	m.began = time.Now()
	return m, nil
}

// read puts throughput, CPU and octets written for each of n operations into the sample.
func (m *meter) read(s *sample, n int) error {
	wall := time.Since(m.began)
	if n == 0 {
		return errors.New("nothing was done")
	}
	per := func(d time.Duration) float64 { return float64(d) / 1e3 / float64(n) }
	s.set("ops_per_s", float64(n)/wall.Seconds())
	s.set("client_cpu_us_per_op", per(ownTime()-m.client))
	if m.t.pid == 0 {
		return nil
	}
	u, err := processUsage(m.t.pid)
	if err != nil {
		return err
	}
	s.set("server_cpu_us_per_op", per(u.cpu-m.server.cpu))
	s.set("server_rss_mb", float64(u.rss)/1e6)
	s.set("server_anon_mb", float64(u.anon)/1e6)
	if wrote := u.wrote - m.server.wrote; wrote > 0 {
		s.set("wrote_bytes_per_op", float64(wrote)/float64(n))
	}
	if written := u.written - m.server.written; written > 0 {
		s.set("block_bytes_per_op", float64(written)/float64(n))
	}
	return nil
}
