package main

import (
	"encoding/json"
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/manifest"
)

type getCmd struct{ socket }

func (getCmd) Help() string {
	return `Prints the manifests that were applied, as YAML that can be applied again; comments say their owner, what drifted since, and what waits for a restart.

Examples:
  meshctl get --socket node/control.sock > now.yaml
  meshctl get --json`
}

func (c *getCmd) Run(a *app) error {
	var run manifest.Running
	if err := c.ask(a, 0, manifest.MethodGet, struct{}{}, &run); err != nil {
		return err
	}
	return a.print(run, func(w io.Writer) {
		fmt.Fprintf(w, "# node    %s\n# running %s\n", run.DID, or(run.Hash, "(nothing was applied yet: this is node.yaml)"))
		for _, d := range run.Drift {
			fmt.Fprintf(w, "# drift   %s %s%s: %s\n", d.Object, d.Key, arrow(d), d.Why)
		}
		for _, d := range run.Pending {
			fmt.Fprintf(w, "# restart %s%s\n", d.Key, arrow(d))
		}
		if len(run.Applied) == 0 {
			_, _ = w.Write(manifest.ConfigYAML(run.Config))
			return
		}
		for i, r := range run.Applied {
			if i > 0 {
				fmt.Fprintln(w, "---")
			}
			fmt.Fprintf(w, "# owner %s\n", r.Owner)
			if set, err := manifest.FromDocuments([]json.RawMessage{r.Object}); err == nil {
				_, _ = w.Write(set.YAML())
			}
		}
	})
}

type keysCmd struct {
	Kind string `arg:"" help:"MeshNode, Peering, GrantPolicy, ComputeProvider or InferenceRouter." enum:"MeshNode,Peering,GrantPolicy,ComputeProvider,InferenceRouter" default:"MeshNode"`
}

func (c *keysCmd) Run(a *app) error {
	rules := manifest.Rules(c.Kind)
	return a.print(rules, func(w io.Writer) {
		for _, r := range rules {
			fmt.Fprintf(w, "%-11s %-28s %s\n", r.Effect, r.Key, r.Why)
		}
	})
}

type schemaCmd struct {
	Kind string `arg:"" help:"MeshNode, Peering, GrantPolicy, ComputeProvider or InferenceRouter."`
}

func (c *schemaCmd) Run(a *app) error {
	s, err := manifest.Schema(c.Kind)
	if err != nil {
		return err
	}
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(s)
}
