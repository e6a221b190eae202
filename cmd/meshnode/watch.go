package main

import (
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/monitor"
	"fleetmesh.org/fleetmesh/spec"
)

type watchCmd struct {
	Follow  bool          `help:"Audit again and again, until Ctrl-C." short:"f"`
	Every   time.Duration `help:"Time between two audits, with --follow." default:"60s"`
	Recount int           `help:"Ids of the store to count again at each audit, in a range chosen at random; -1: all of them." default:"100000"`
	Offline bool          `help:"Ask no other server for the time."`
	Timeout time.Duration `help:"Time that one audit may take before the node counts as stuck." default:"30s"`
}

func (c *watchCmd) Help() string {
	return `Asks a running node for its state and judges it: connections, the store (its fingerprints against a recount, some events read back), disk, clock, expiry of the
descriptor and of grants, what was used of each budget, the windows closed in the last day, the rung of the shedding ladder. Prints one line that Nagios, Icinga,
Zabbix and the like read, performance data after the bar.

Examples:
  meshnode watch --dir /var/lib/meshnode
  meshnode watch --json
  meshnode watch --follow --every 30s
  meshnode watch --recount=-1 --offline

Exit codes, those of a monitoring system; with --follow, of the last audit:
   0  OK
   1  WARNING: something will need the operator
   2  CRITICAL: something does now, or the node does not answer`
}

func (c *watchCmd) Run(a *app) error {
	if c.Every < time.Second || c.Timeout < time.Second {
		return &exit{spec.ExitUsage, "--every and --timeout take one second or more"}
	}
	w := &monitor.Watcher{
		Socket: a.dir.Control(), Params: monitor.Params{Recount: c.Recount, Clock: !c.Offline}, Thresholds: monitor.Defaults(), Patience: c.Timeout,
	}
	show := func(r monitor.Report) error {
		return a.print(r, func(out io.Writer) { fmt.Fprintln(out, r.Line()) })
	}
	if c.Follow {
		last, err := w.Follow(a.ctx, c.Every, show)
		if err != nil {
			return err
		}
		return &exit{code: int(last.Level)}
	}
	r := w.Audit(a.ctx)
	if err := show(r); err != nil {
		return err
	}
	return &exit{code: int(r.Level)}
}
