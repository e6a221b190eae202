package main

import (
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
)

type whyCmd struct {
	ID string `arg:"" help:"Event id, 64 hex digits."`
}

func (c *whyCmd) Help() string {
	return `Says whether the event is held, by which path it came through the mesh and under which grant and window, or the reason under which it was refused; and to whom it went.

Example:
  meshnode why 5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36`
}

func (c *whyCmd) Run(a *app) error {
	var w daemon.Why
	if err := a.call("why.event", daemon.WhyParams{ID: c.ID}, &w, nil); err != nil {
		return err
	}
	return a.print(w, func(out io.Writer) {
		switch {
		case w.Held:
			fmt.Fprintln(out, "held")
		case w.Refused != "":
			fmt.Fprintf(out, "not held: %s, at %s\n", w.Refused, time.Unix(w.At, 0).Format(time.DateTime))
		default:
			fmt.Fprintln(out, "never seen, or forgotten")
		}
		if o := w.Origin; o != nil {
			fmt.Fprintf(out, "came from %s at %s, charged to grant %s, window %d\n", identity.FormatDID(o.From), time.Unix(o.At, 0).Format(time.DateTime), o.Grant, o.Window)
			for i, hop := range o.Path {
				fmt.Fprintf(out, "  hop %d  %s at %s\n", i+1, identity.FormatDID(hop.Node), time.Unix(hop.At, 0).Format(time.DateTime))
			}
		}
		printLeft(out, w.Left)
	})
}

type leftCmd struct {
	ID string `arg:"" help:"Event id, 64 hex digits."`
}

func (c *leftCmd) Help() string {
	return `Says to which peers and relays the event went from here, when, by which road, and under which grant of theirs. It is written down as it
happens, for the last million departures or so; nothing of it leaves the machine.

Example:
  meshnode left 5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36`
}

func (c *leftCmd) Run(a *app) error {
	var l daemon.Left
	if err := a.call("left.event", daemon.WhyParams{ID: c.ID}, &l, nil); err != nil {
		return err
	}
	return a.print(l, func(out io.Writer) { printLeft(out, l) })
}

func printLeft(out io.Writer, l daemon.Left) {
	for _, d := range l.To {
		fmt.Fprintf(out, "went to %s at %s, by %s", d.To, time.Unix(d.At, 0).Format(time.DateTime), d.Road)
		if d.Grant != nil {
			fmt.Fprintf(out, ", charged to grant %s, window %d", d.Grant, d.Window)
		}
		fmt.Fprintln(out)
	}
	switch {
	case len(l.To) > 0:
	case l.Since == 0:
		fmt.Fprintln(out, "went to nobody")
	default:
		fmt.Fprintf(out, "went to nobody since %s, before which nothing is remembered\n", time.Unix(l.Since, 0).Format(time.DateTime))
	}
}
