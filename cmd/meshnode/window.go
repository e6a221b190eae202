package main

import (
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

type peerWindowCmd struct {
	DID    string `arg:"" help:"The other node."`
	Window int64  `arg:"" optional:"" help:"Number of one window: it is shown with every step of its arithmetic."`
}

func (c *peerWindowCmd) Help() string {
	return `A window is priced from two sets of numbers, what this node measured and what the peer's last receipt claims. Anyone can redo the steps.

Examples:
  meshnode peer window did:nostr:…            # every closed window, a line each
  meshnode peer window did:nostr:… 497219     # one, step by step`
}

func (c *peerWindowCmd) Run(a *app) error {
	var list []daemon.WindowReport
	if err := a.call("peer.windows", daemon.WindowsParams{DID: c.DID, Window: c.Window}, &list, nil); err != nil {
		return err
	}
	if c.Window != 0 && len(list) == 0 {
		return &exit{spec.ExitRefused, fmt.Sprintf("window %d is not among the closed windows that this node remembers of %s", c.Window, c.DID)}
	}
	return a.print(list, func(w io.Writer) {
		for i := range list {
			showWindow(w, &list[i], c.Window != 0)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no window in which anything happened has closed yet")
		}
	})
}

func showWindow(w io.Writer, r *daemon.WindowReport, steps bool) {
	limit := ""
	if r.Limit != "" {
		limit = " by " + string(r.Limit)
	}
	fmt.Fprintf(w, "window %d closed at %s with %s%s, %d receipts\n", r.Window, time.Unix(r.At, 0).Format(time.DateTime), r.Severity, limit, r.Receipts)
	if !steps {
		return
	}
	for _, rule := range r.Rules {
		fmt.Fprintf(w, "  %s\n", rule)
	}
	if len(r.Lines) == 0 {
		fmt.Fprintln(w, "  the limits of this window were not kept")
	}
	if r.Silent {
		fmt.Fprintln(w, "  there was traffic and no receipt: everything counts as claimed 0")
	}
	for _, l := range r.Lines {
		fmt.Fprintf(w, "  %-12s %s\n", l.Limit, l.Severity)
		for _, s := range l.Steps {
			fmt.Fprintf(w, "    %s\n", s)
		}
	}
	if len(r.Lines) > 0 && r.Counted != r.Severity {
		fmt.Fprintf(w, "  the counts alone give %s: a finding made it %s (meshnode peer log)\n", r.Counted, r.Severity)
	}
}
