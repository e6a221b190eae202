package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
)

type coverageCmd struct{}

func (coverageCmd) Run(a *app) error {
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
