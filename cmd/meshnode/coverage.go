package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
)

type coverageCmd struct {
	Take   coverageTakeCmd   `cmd:"" default:"1" help:"Take the node's coverage claims anew, and show them."`
	Sample coverageSampleCmd `cmd:"" help:"Ask peers for a handful of what they assert to hold."`
}

type coverageTakeCmd struct{}

func (coverageTakeCmd) Run(a *app) error {
	var list []daemon.Claim
	if err := a.call("coverage.take", nil, &list, nil); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, c := range list {
			fmt.Fprintf(w, "%s  %s, %d events, fingerprint %s %s\n", c.Shard, c.Completeness, c.Count, c.Fingerprint, c.Why)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "nothing is claimed: list shards in spec.shards")
		}
	})
}

type coverageSampleCmd struct {
	DID string `arg:"" optional:"" help:"One peer; every active one if absent."`
}

func (c *coverageSampleCmd) Help() string {
	return `Of each shard that a peer asserts to hold whole, at most 64 events that this node holds too are asked for at the peer's face. One that is missing is asked for once more by the next sample, and a
hole that is still there is a finding (self-misreport, S2): the claim and the event prove it. The node samples by itself every hour.

Examples:
  meshnode coverage sample
  meshnode coverage sample did:nostr:… --json`
}

func (c *coverageSampleCmd) Run(a *app) error {
	var list []daemon.Sampled
	if err := a.call("coverage.sample", daemon.DIDParams{DID: c.DID}, &list, nil); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, s := range list {
			verdict := "nothing is missing"
			switch {
			case s.Problem != "":
				verdict = s.Problem
			case s.Found:
				verdict = fmt.Sprintf("%d missing, as before: a finding", len(s.Missing))
			case len(s.Missing) > 0:
				verdict = fmt.Sprintf("%d missing: asked for again by the next sample", len(s.Missing))
			case s.Asked == 0:
				verdict = "this node holds nothing to ask for"
			}
			fmt.Fprintf(w, "%s  shard %q, %d asked for: %s\n", s.Peer, s.Shard, s.Asked, verdict)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no active peer asserts a shard")
		}
	})
}
