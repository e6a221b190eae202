package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/spec"
)

// declared are the flags of plan, diff and apply.
type declared struct {
	files
	socket
	Owner string        `help:"Whose objects these are. Objects of this owner that the files no longer name are ended; those of others are left alone." default:"meshctl" placeholder:"NAME"`
	Prune bool          `help:"End the peerings of other owners, and those made by hand, as well."`
	Wait  time.Duration `help:"Wait that long for the node to start." default:"0s" placeholder:"60s"`
}

func (d *declared) params(a *app) (manifest.Params, error) {
	set, err := d.load(a)
	if err != nil {
		return manifest.Params{}, err
	}
	if err := manifest.Failed(manifest.RunTests(set)); err != nil {
		return manifest.Params{}, err
	}
	return manifest.Params{Documents: set.Documents(), Owner: d.Owner, Prune: d.Prune}, nil
}

func (d *declared) plan(a *app) (p manifest.Plan, err error) {
	params, err := d.params(a)
	if err != nil {
		return p, err
	}
	return p, d.ask(a, d.Wait, manifest.MethodPlan, params, &p)
}

type planCmd struct{ declared }

func (planCmd) Help() string {
	return `Each key that differs is one line: "live" is in force when apply returns and drops no connection; "next-window" is taken up then and binds the peer from the next accounting window; "restart" is written to node.yaml and in force after the next start; "refused" is what this node cannot do, and then apply would change nothing at all. Exits 3 where something is refused.

Examples:
  meshctl plan -f node.yaml --socket /var/lib/meshnode/control.sock
  meshctl plan -f manifests/ --prune --json`
}

func (c *planCmd) Run(a *app) error {
	p, err := c.plan(a)
	if err != nil {
		return err
	}
	if err := a.print(p, func(w io.Writer) { tell(w, &p) }); err != nil {
		return err
	}
	if p.Refused {
		return &exit{spec.ExitRefused, ""}
	}
	return nil
}

// tell writes a plan for people.
func tell(w io.Writer, p *manifest.Plan) {
	for _, c := range p.Changes {
		at := c.Object
		if c.Key != "" {
			at += " " + c.Key
		}
		effect := string(c.Effect)
		if effect == "" {
			effect = "-"
		}
		fmt.Fprintf(w, "%-11s  %-6s  %s%s\n", effect, c.Action, at, arrow(c))
		if c.Why != "" {
			fmt.Fprintf(w, "                       %s\n", c.Why)
		}
	}
	passed := 0
	for _, t := range p.Tests {
		if t.Passed() {
			passed++
		}
	}
	if len(p.Tests) > 0 {
		fmt.Fprintf(w, "tests: %d of %d pass\n", passed, len(p.Tests))
	}
	switch {
	case p.Refused:
		fmt.Fprintln(w, "Something is refused, so apply would change nothing.")
	case len(p.Changes) == 0:
		fmt.Fprintln(w, "Nothing to do: the node is what the files say.")
	case p.Restart:
		fmt.Fprintln(w, "Part of it needs a restart of the node: apply writes it to node.yaml.")
	}
	fmt.Fprintf(w, "declared %s\nrunning  %s\n", p.Hash, or(p.Running, "(nothing was applied yet)"))
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

func arrow(c manifest.Change) string {
	if c.Key == "" {
		return ""
	}
	switch {
	case c.From == nil:
		return ": " + short(c.To)
	case c.To == nil:
		return ": " + short(c.From) + " -> the default"
	}
	return ": " + short(c.From) + " -> " + short(c.To)
}

func short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	if len(text) > 60 {
		return string(text[:57]) + "..."
	}
	return string(text)
}

type diffCmd struct {
	declared
	ExitCode bool `help:"Exit 1 where they differ." name:"exit-code"`
}

func (diffCmd) Help() string {
	return `Examples:
  meshctl diff -f node.yaml
  meshctl diff -f manifests/ --exit-code && echo in step`
}

func (c *diffCmd) Run(a *app) error {
	p, err := c.plan(a)
	if err != nil {
		return err
	}
	differs := false
	for _, ch := range p.Changes {
		differs = differs || ch.Action != manifest.Keep
	}
	err = a.print(p.Changes, func(w io.Writer) {
		for _, ch := range p.Changes {
			at := ch.Object
			if ch.Key != "" {
				at += " " + ch.Key
			}
			if ch.From != nil && ch.Action != manifest.Keep {
				fmt.Fprintf(w, "- %s: %s\n", at, short(ch.From))
			}
			if ch.To != nil {
				fmt.Fprintf(w, "+ %s: %s\n", at, short(ch.To))
			}
			if ch.Action == manifest.Keep {
				fmt.Fprintf(w, "  %s: %s\n", at, ch.Why)
			}
		}
	})
	if err == nil && differs && c.ExitCode {
		return &exit{spec.ExitFailure, ""}
	}
	return err
}

type applyCmd struct {
	declared
	If    string        `help:"Apply only if the running hash is this one, as plan told it: nobody applied anything since." name:"if-running" placeholder:"HASH"`
	Every time.Duration `help:"Stay, read the files anew and apply them that often; what fails is told and tried again." default:"0s" placeholder:"60s"`
}

func (applyCmd) Help() string {
	return `Checks the files, runs their tests, and lets the node carry out what plan shows. If a step fails, those before it are undone. Connections stay open.

Examples:
  meshctl apply -f node.yaml -f peers/
  meshctl apply -f manifests/ --wait 60s       # of a node that is just starting
  meshctl apply -f manifests/ --every 60s      # keeps a node what the files say
  meshctl apply -f peers/ --owner peers-team   # only what peers-team applied may be ended by this`
}

func (c *applyCmd) Run(a *app) error {
	if c.Every <= 0 {
		return c.once(a, true)
	}
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for {
		if err := c.once(a, false); err != nil && a.ctx.Err() == nil {
			a.status(err)
		}
		select {
		case <-a.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// once applies the files. What changed nothing is worth a line only to who waits for it.
func (c *applyCmd) once(a *app, always bool) error {
	params, err := c.params(a)
	if err != nil {
		return err
	}
	params.Hash = c.If
	var done manifest.Applied
	if err := c.ask(a, c.Wait, manifest.MethodApply, params, &done); err != nil {
		return err
	}
	if done.Done == 0 && !always {
		return nil
	}
	return a.print(done, func(w io.Writer) {
		for _, ch := range done.Changes {
			at := ch.Object
			if ch.Key != "" {
				at += " " + ch.Key
			}
			word := map[manifest.Effect]string{manifest.Live: "applied", manifest.NextWindow: "next window", manifest.Restart: "needs restart", manifest.Refused: "refused"}[ch.Effect]
			fmt.Fprintf(w, "%-13s  %-6s  %s%s\n", or(word, "left alone"), ch.Action, at, arrow(ch))
		}
		if done.Done == 0 {
			fmt.Fprintln(w, "Nothing to do: the node is what the files say.")
		}
		if done.Restart {
			fmt.Fprintln(w, "Restart the node for the rest; node.yaml has it.")
		}
		fmt.Fprintf(w, "running  %s\n", done.Hash)
	})
}
