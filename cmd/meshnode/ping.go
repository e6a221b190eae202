package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

type pingCmd struct {
	DID   string   `arg:"" help:"The other node: did:nostr:…"`
	Relay []string `help:"Where its descriptor is found, if it is no peer: usually its own relay face." placeholder:"URL"`
}

func (c *pingCmd) Help() string {
	return `Sends a sealed trust-ping from the running node and waits for the answer. The session that is open is used; if there is none, or it does not
answer, the ladder of transports that the two nodes share is climbed, 5 seconds a rung, gift wraps through a relay last.

Examples:
  meshnode ping did:nostr:…
  meshnode ping --relay wss://their.relay did:nostr:…

Exit codes:
   0  the node answered
   1  federation is off
   2  the DID cannot be read
   8  nobody answered; meshnode net doctor DID says what would help`
}

func (c *pingCmd) Run(a *app) error {
	if _, err := daemon.ParseNode(c.DID); err != nil {
		return &exit{spec.ExitUsage, err.Error()}
	}
	var p daemon.Ping
	if err := a.call("net.ping", daemon.PingParams{DID: c.DID, Relays: c.Relay}, &p, nil); err != nil {
		return err
	}
	if err := a.print(p, func(w io.Writer) { printPing(w, p) }); err != nil {
		return err
	}
	if !p.OK {
		return &exit{spec.ExitUnreachable, ""}
	}
	return nil
}

func printPing(w io.Writer, p daemon.Ping) {
	for _, at := range p.Attempts {
		verdict := "holds"
		if at.Error != "" {
			verdict = at.Error
		}
		fmt.Fprintf(w, "  %-9s %s: %s (%d ms)\n", at.Scheme, at.Address, verdict, at.TookMS)
	}
	if !p.OK {
		fmt.Fprintf(w, "no answer from %s: %s\n%s\n", p.DID, p.Error, p.Help)
		return
	}
	session := "over the open session"
	if p.Fresh {
		session = "over a new session"
	}
	fmt.Fprintf(w, "%s answers by %s %s in %.1f ms\n", p.DID, p.Carrier, session, p.RoundTrip)
}
