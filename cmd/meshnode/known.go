package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
)

type knownCmd struct{}

func (knownCmd) Run(a *app) error {
	var list []daemon.KnownNode
	if err := a.call("peer.known", nil, &list, nil); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, k := range list {
			state := "live"
			switch {
			case k.Revoked != 0:
				state = "revoked"
			case !k.Live:
				state = "expired"
			case k.Peer:
				state = "peer"
			}
			fmt.Fprintf(w, "%s  %-7s %-6s from %s%s\n", k.DID, state, k.Class, k.From, doorsOf(k.Endpoints))
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no other node is known yet: list relays in spec.relays, or start with --bootstrap URL")
		}
	})
}

func doorsOf(list []identity.Endpoint) (text string) {
	for _, e := range list {
		text += "  " + e.Address
	}
	return text
}

type peerAskCmd struct{}

func (peerAskCmd) Run(a *app) error {
	var r daemon.Asked
	if err := a.call("peer.ask", nil, &r, nil); err != nil {
		return err
	}
	return a.print(r, func(w io.Writer) { fmt.Fprintf(w, "asked %d peers; see meshnode known\n", r.Peers) })
}
