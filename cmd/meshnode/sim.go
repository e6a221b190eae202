package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/sim"
	"fleetmesh.org/fleetmesh/spec"
)

type simCmd struct {
	Nodes     int    `help:"How many nodes." default:"4"`
	Windows   int    `help:"How many windows of accounting." default:"8"`
	Seed      uint64 `help:"The same seed replays the same run, byte for byte." default:"1"`
	Adversary string `help:"A hostile behaviour, or all for the table of prices, or none." default:"none"`
	Factor    int64  `help:"What an overspending adversary pushes, in hundredths of its limit."`
	Calm      bool   `help:"A perfect network: nothing is lost, no clock is off, nothing crashes." xor:"weather"`
	Rough     bool   `help:"A bad network, which is the default without an adversary." xor:"weather"`
	Reports   bool   `help:"Complaints, reports and questions of standing too: it costs signatures."`
	Trace     bool   `help:"Print everything that happened."`
	Plot      string `help:"Instead, simulate growth and disuse and write sim-growth.svg and sim-decay.svg into this directory." type:"existingdir" placeholder:"DIR"`
}

func (c *simCmd) Help() string {
	return `Many nodes in one process, on a network that loses, delays, repeats and parts, with clocks that are off and nodes that crash. Exit status 1 when anything happened that must
never happen.

Examples:
  meshnode sim --nodes 3 --windows 4 --seed 7
  meshnode sim --adversary liar --calm --json
  meshnode sim --adversary all
  meshnode sim --adversary receipt-forker --reports --rough
  meshnode sim --plot docs --nodes 1000 --windows 336`
}

func (c *simCmd) Run(a *app) error {
	switch {
	case c.Plot != "":
		return c.plot(a)
	case c.Adversary == "all":
		return c.survey(a)
	}
	cfg := sim.Config{Nodes: c.Nodes, Windows: c.Windows, Seed: c.Seed, Adversary: c.Adversary, Factor: c.Factor, Quiet: !c.Trace, Reports: c.Reports}
	if c.Rough || !c.Calm && c.Adversary == "none" {
		cfg.Faults = sim.Rough()
	}
	r, err := sim.Run(cfg)
	if err != nil {
		return err
	}
	for _, l := range r.Lines {
		fmt.Fprintln(a.err, l)
	}
	err = a.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "seed %d: %d nodes, %d windows of %d s: %d steps, %d frames (%d lost), %d crashes, %d receipts, %d windows closed\n",
			r.Seed, r.Nodes, r.Windows, r.Seconds, r.Steps, r.Frames, r.Lost, r.Crashes, r.Receipts, r.Closed)
		if c.Reports {
			fmt.Fprintf(w, "%d notices, %d reports, read %d times, %d of %d questions answered\n", r.Notices, r.Reports, r.Readings, r.Answers, r.Questions)
		}
		fmt.Fprintf(w, "trace %s\n", r.Trace)
		printPrices(w, r.Prices)
		printViolations(w, r.Violations)
	})
	return verdict(err, r.Violations)
}

// survey prints what every adversary pays.
func (c *simCmd) survey(a *app) error {
	prices, broken, err := sim.Survey(c.Seed, c.Nodes, c.Windows, mesh.Ladder{})
	if err != nil {
		return err
	}
	err = a.print(map[string]any{"prices": prices, "violations": broken}, func(w io.Writer) {
		printPrices(w, prices)
		printViolations(w, broken)
	})
	return verdict(err, broken)
}

func verdict(err error, broken []sim.Violation) error {
	if err == nil && len(broken) > 0 {
		return &exit{code: spec.ExitFailure}
	}
	return err
}

func printPrices(w io.Writer, prices []sim.Price) {
	if len(prices) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "behaviour\tappetite\tfound at\tin window\ttier after\tevents a window\ttaken\tpeering\treported at\t")
	for _, p := range prices {
		first, state := "-", "stands"
		if p.First > 0 {
			first = fmt.Sprint(p.First)
		}
		if p.Ended {
			state = "ended"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", p.Adversary, p.Variant, p.Severity, first, p.Tier, p.Granted, p.Took, state, p.Reported, p.Note)
	}
	t.Flush()
}

func printViolations(w io.Writer, list []sim.Violation) {
	for _, v := range list {
		fmt.Fprintf(w, "VIOLATION at %d ms: %s: %s\n", v.At, v.Rule, v.Detail)
	}
}

// plot simulates growth and disuse and draws both.
func (c *simCmd) plot(a *app) error {
	type run struct {
		name       string
		load, then sim.Load
		at         int
	}
	for _, p := range []struct {
		file, title string
		runs        []run
	}{
		{"sim-growth.svg", fmt.Sprintf("Growth: events_in of %d simulated nodes, in percent of the ceiling", c.Nodes),
			[]run{{"full", sim.Full, "", 0}, {"one event a window", sim.Light, "", 0}}},
		{"sim-decay.svg", fmt.Sprintf("Disuse after 12 full windows, %d simulated nodes", c.Nodes),
			[]run{{"sessions, no events", sim.Full, sim.Talk, 12}, {"nothing at all", sim.Full, sim.Idle, 12}}},
	} {
		var curves []*sim.Curve
		for _, r := range p.runs {
			curve, result, err := sim.Grow(c.Nodes, c.Windows, c.Seed, r.load, r.then, r.at, spec.LimitEventsIn, mesh.Ladder{})
			if err != nil {
				return err
			}
			if err := verdict(nil, result.Violations); err != nil {
				printViolations(a.err, result.Violations)
				return err
			}
			curve.Name = r.name
			curves = append(curves, curve)
		}
		path := filepath.Join(c.Plot, p.file)
		if err := os.WriteFile(path, sim.Plot(p.title, curves), 0o644); err != nil {
			return fmt.Errorf("write the plot: %w", err)
		}
		fmt.Fprintln(a.out, path)
	}
	return nil
}
