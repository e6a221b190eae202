package main

import (
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
)

type idCmd struct{}

func (idCmd) Run(a *app) error {
	var id daemon.ID
	err := a.either("node.id", &id, func(s *daemon.Offline) (err error) {
		id, err = s.Identify(a.ctx, a.dir)
		return err
	})
	if err != nil {
		return err
	}
	return a.print(id, func(w io.Writer) { showID(w, id) })
}

// either runs a method of the running node, or its like on a stopped one.
func (a *app) either(method string, result any, work func(*daemon.Offline) error) error {
	if a.running() {
		return a.call(method, nil, result, nil)
	}
	return a.stopped(work)
}

func showID(w io.Writer, id daemon.ID) {
	fmt.Fprintf(w, "%s\n%s\n", id.DID, id.Npub)
	if id.Revoked {
		fmt.Fprintln(w, "REVOKED: no peer deals with this key any more")
	}
	fmt.Fprintf(w, "class       %s\noperator    %s\n", id.Class, orNone(id.Operator))
	for _, k := range id.Agreement {
		until := ""
		if k.Until != 0 {
			until = ", rotated out, honoured until " + time.Unix(k.Until, 0).Format(time.DateTime)
		}
		fmt.Fprintf(w, "agreement   %s%s\n", k.Key, until)
	}
	for _, k := range id.Transport {
		fmt.Fprintf(w, "transport   %s\n", k)
	}
	for _, e := range id.Endpoints {
		fmt.Fprintf(w, "endpoint    %s %s, preference %d\n", e.Scheme, e.Address, e.Preference)
	}
	for _, r := range id.Relays {
		fmt.Fprintf(w, "relay       %s\n", r)
	}
	fmt.Fprintf(w, "protocol    %s, digest %s\nkeys        %s\n", id.Protocol, id.Digest, id.Backend)
	if d := id.Descriptor; d != nil {
		fmt.Fprintf(w, "descriptor  %s, %d bits of work, live until %s\n", d.ID, d.Work, time.Unix(d.Expires, 0).Format(time.DateTime))
	} else {
		fmt.Fprintln(w, "descriptor  none yet: meshnode up mines and publishes it")
	}
}

func orNone(s string) string {
	if s == "" {
		return "none declared"
	}
	return s
}
