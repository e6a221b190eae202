package main

import (
	"fmt"
	"io"
	"math"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

type netCmd struct {
	Doctor doctorCmd `cmd:"" help:"Dial every rung to every peer, and this node's own doors; say what would help."`
}

type doctorCmd struct {
	DID   string   `arg:"" optional:"" help:"One node; all peers if absent."`
	Relay []string `help:"Where its descriptor is found, if it is no peer." placeholder:"URL"`
}

func (c *doctorCmd) Help() string {
	return `Dials every rung to every peer, whether or not a better one holds, and says for each: dialled, time, error, what would help. Looks at this node's own
doors as it advertises them, at endpoints that cannot work for others, at the clock, and at the proxy. Sessions that are open are left alone, and
nothing of this counts in anybody's budget.

Examples:
  meshnode net doctor
  meshnode net doctor --json did:nostr:…

Exit codes:
   0  every node asked about can be reached by some rung, and nothing is wrong here
   1  federation is off
   2  the DID cannot be read
   8  something cannot be reached, or the clock or the proxy is wrong: the problems are listed`
}

func (c *doctorCmd) Run(a *app) error {
	var d daemon.Doctor
	if err := a.call("net.doctor", daemon.PingParams{DID: c.DID, Relays: c.Relay}, &d, nil); err != nil {
		return err
	}
	if err := a.print(d, func(w io.Writer) { printDoctor(w, d) }); err != nil {
		return err
	}
	if !d.Healthy {
		return &exit{spec.ExitUnreachable, ""}
	}
	return nil
}

func printDoctor(w io.Writer, d daemon.Doctor) {
	fmt.Fprintf(w, "this node (%s)\n", d.Class)
	for _, door := range d.Doors {
		row(w, door.Scheme, door.Address, door.OK, door.Dialled, door.TookMS, door.Error, door.Help)
	}
	for _, e := range d.Endpoints {
		fmt.Fprintf(w, "  note: %s %s; %s\n", e.Address, e.Problem, e.Help)
	}
	if d.Proxy != nil {
		row(w, "proxy", "", d.Proxy.OK, true, 0, d.Proxy.Error, d.Proxy.Help)
	}
	if d.Clock.Offset != nil {
		fmt.Fprintf(w, "  clock: %d s off the median of %d servers\n", int(math.Round(math.Abs(*d.Clock.Offset))), d.Clock.Compared)
	} else {
		fmt.Fprintf(w, "  clock: %s\n", d.Clock.Help)
	}
	for _, m := range d.Mediators {
		fmt.Fprintf(w, "  mediator %s: %s\n", m.DID, map[bool]string{true: "serves us", false: "does not serve us now"}[m.Served])
	}
	if h := d.Mediation; h != nil {
		fmt.Fprintf(w, "  mediates for %d leaves, %d of them connected, and holds %d octets\n", h.Clients, h.Live, h.Octets)
	}
	for _, p := range d.Peers {
		printHealth(w, p)
	}
	for _, s := range d.Problems {
		fmt.Fprintln(w, "problem:", s)
	}
	if d.Healthy {
		fmt.Fprintln(w, "all is well")
	}
}

func printHealth(w io.Writer, p daemon.PeerHealth) {
	state := "cannot be reached"
	switch {
	case p.Session != "":
		state = "is connected by " + p.Session
	case p.Reachable:
		state = "can be reached"
	}
	fmt.Fprintf(w, "%s %s\n", p.DID, state)
	for _, m := range p.Mediators {
		fmt.Fprintf(w, "  by way of mediator %s\n", m)
	}
	for _, r := range p.Rungs {
		row(w, r.Scheme, r.Address, r.OK, r.Dialled, r.TookMS, r.Error, r.Help)
	}
	for _, e := range p.Unusable {
		fmt.Fprintf(w, "  note: %s %s; %s\n", e.Address, e.Problem, e.Help)
	}
	if p.Error != "" {
		fmt.Fprintf(w, "  %s: %s\n", p.Error, p.Help)
	}
}

func row(w io.Writer, scheme, address string, ok, dialled bool, tookMS int64, err, help string) {
	switch {
	case ok && !dialled:
		fmt.Fprintf(w, "  %-9s %s: open\n", scheme, address)
	case ok:
		fmt.Fprintf(w, "  %-9s %s: ok in %d ms\n", scheme, address, tookMS)
	case !dialled:
		fmt.Fprintf(w, "  %-9s %s: %s\n", scheme, address, help)
	default:
		fmt.Fprintf(w, "  %-9s %s: %s after %d ms\n%12shelp: %s\n", scheme, address, err, tookMS, "", help)
	}
}
