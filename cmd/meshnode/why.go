package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

type whyCmd struct {
	Of     string `arg:"" name:"what" help:"Id of an event, 64 hex digits; DID of a peer; or number of a window."`
	Window int64  `help:"Of a peer: one window of it." placeholder:"N"`
}

func (c *whyCmd) Help() string {
	return `Of an event: whether it is held, by which path it came through the mesh and under which grant and window, or the reason under which it was refused; and to whom it went.
Of a peer: what binds between the two nodes now, which limits are used up and until when, the windows that cost something with their arithmetic, complaints, and what happened.
Of a window, of one peer or of all: what came, was charged, claimed, acknowledged and found, each with its time.

Examples:
  meshnode why 5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36
  meshnode why did:nostr:…
  meshnode why did:nostr:… --window 497219
  meshnode why 497219`
}

func (c *whyCmd) Run(a *app) error {
	if strings.HasPrefix(c.Of, "did:") {
		return whyPeer(a, daemon.WhyPeerParams{DID: c.Of, Window: c.Window})
	}
	if n, err := strconv.ParseInt(c.Of, 10, 64); err == nil && n > 0 && len(c.Of) < 16 {
		if c.Window != 0 {
			return &exit{spec.ExitUsage, "--window is for a peer: name its DID"}
		}
		return whyPeer(a, daemon.WhyPeerParams{Window: n})
	}
	if c.Window != 0 {
		return &exit{spec.ExitUsage, "--window is for a peer: name its DID"}
	}
	if _, err := nostr.ParseID(c.Of); err != nil {
		return &exit{spec.ExitUsage, fmt.Sprintf("%q is neither the id of an event (64 lower-case hex digits), nor the DID of a peer, nor the number of a window", c.Of)}
	}
	return whyEvent(a, c.Of)
}

func whyEvent(a *app, id string) error {
	var w daemon.Why
	if err := a.call("why.event", daemon.WhyParams{ID: id}, &w, nil); err != nil {
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
