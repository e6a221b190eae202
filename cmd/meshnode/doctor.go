package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/doctor"
	"fleetmesh.org/fleetmesh/internal/monitor"
	"fleetmesh.org/fleetmesh/spec"
)

type machineCmd struct{}

func (machineCmd) Help() string {
	return `Looks at the directory's version, permissions, node.yaml, bootstrap.toml, keys and journal; at disk, port, proxy, limits of files and memory, and the clock; and, where the node
runs, at what it says of itself. Changes nothing and asks nobody on the network; for that there is meshnode net doctor.

Examples:
  meshnode doctor
  meshnode doctor --dir /var/lib/meshnode --json

Exit codes:
   0  the node can run; there may be advice
   1  something keeps it from running or would cost data: the sentences say what to do`
}

func (machineCmd) Run(a *app) error {
	r := doctor.Examine(a.ctx, a.dir, version, doctor.Here())
	if err := a.print(r, func(w io.Writer) {
		for _, f := range r.Findings {
			fmt.Fprintf(w, "%-8s %s: %s\n", f.Level, f.Check, f.Text)
		}
		if r.Level == monitor.OK {
			fmt.Fprintf(w, "%d things looked at; nothing is wrong\n", len(r.Checked))
		}
	}); err != nil {
		return err
	}
	if r.Level == monitor.Critical {
		return &exit{code: spec.ExitFailure}
	}
	return nil
}

type migrateCmd struct {
	DryRun bool `help:"Only say what would be done."`
}

func (c *migrateCmd) Help() string {
	return `meshnode up does the same at its start. A directory of a newer build than this is refused and left alone. The store takes up its older files by itself (docs/store-format.md).

Examples:
  meshnode migrate --dry-run
  meshnode migrate --dir /var/lib/meshnode`
}

func (c *migrateCmd) Run(a *app) error {
	if !a.dir.Exists() {
		return &exit{spec.ExitUsage, fmt.Sprintf("there is no node in %s", a.dir)}
	}
	steps, err := a.dir.Migrations()
	if err != nil {
		return err
	}
	if !c.DryRun && len(steps) > 0 {
		if a.running() {
			return &exit{spec.ExitRetry, "the node is running: stop it first (meshnode stop)"}
		}
		if steps, err = a.dir.Migrate(); err != nil {
			return err
		}
	}
	shown := map[string]any{"version": daemon.DirFormat, "steps": append([]daemon.Migration{}, steps...), "dry_run": c.DryRun}
	return a.print(shown, func(w io.Writer) {
		word := "done"
		if c.DryRun {
			word = "would be done"
		}
		for _, m := range steps {
			fmt.Fprintf(w, "version %d to %d, %s: %s\n", m.From, m.From+1, word, m.What)
		}
		if len(steps) == 0 {
			fmt.Fprintf(w, "%s is of version %d already\n", a.dir, daemon.DirFormat)
		}
	})
}
