package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

type revokeCmd struct {
	Reason    string `help:"retired, key-compromise, migrated, or any text." required:""`
	Successor string `help:"The node that takes its place: DID, hex or npub. Advisory: it inherits nothing." placeholder:"DID"`
	Note      string `help:"A sentence for people."`
	Print     bool   `help:"Only sign it and print it: keep it in a safe place, and publish it when the key is lost."`
	Yes       bool   `help:"Yes: there is no way back."`
}

func (c *revokeCmd) Help() string {
	return `Peers zero their grants and end their sessions as soon as they see it. Works on a running node and on a stopped one.

Examples:
  meshnode revoke --reason retired --print > revocation.json
  meshnode revoke --reason key-compromise --successor did:nostr:… --yes`
}

func (c *revokeCmd) Run(a *app) error {
	if !c.Yes && !c.Print {
		return &exit{spec.ExitUsage, "there is no way back from a revocation: say --yes"}
	}
	p := daemon.RevokeParams{Reason: c.Reason, Successor: c.Successor, Note: c.Note, Print: c.Print}
	var r daemon.Revoked
	var err error
	if a.running() {
		err = a.call("node.revoke", p, &r, nil)
	} else {
		err = a.stopped(func(s *daemon.Offline) (err error) {
			r, err = s.Revoke(a.ctx, a.dir, p)
			return err
		})
	}
	if err != nil {
		return err
	}
	return a.print(r, func(w io.Writer) {
		if c.Print {
			fmt.Fprintln(w, r.Event)
			return
		}
		fmt.Fprintln(w, "revoked; federation has ended")
		for url, said := range r.Relays {
			fmt.Fprintf(w, "%s: %s\n", url, said)
		}
	})
}
