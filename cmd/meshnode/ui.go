package main

import (
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/web"
)

type uiCmd struct {
	Code     uiCodeCmd     `cmd:"" help:"A one-time code to sign in with, good for five minutes."`
	Sessions uiSessionsCmd `cmd:"" help:"Who is signed in."`
	End      uiEndCmd      `cmd:"" help:"Sign everybody out."`
}

func (uiCmd) Help() string {
	return `The node serves its operator's page under /ui/ on its own address. Whoever reaches the control socket may sign in, by a code; the operator whom spec.operator.pubkey names also by a NIP-07 extension.

Examples:
  meshnode ui code
  meshnode ui sessions
  meshnode ui end`
}

type uiCodeCmd struct{}

func (uiCodeCmd) Help() string {
	return `The code is good once. A new one voids the one before. The link carries it behind the #, which browsers do not send.

Example:
  meshnode ui code`
}

func (uiCodeCmd) Run(a *app) error {
	var c web.Code
	if err := a.call("page.code", nil, &c, nil); err != nil {
		return err
	}
	return a.print(c, func(w io.Writer) {
		fmt.Fprintf(w, "%s\nopen %s\ngood until %s\n", c.Code, c.URL, time.Unix(c.Expires, 0).Format(time.TimeOnly))
	})
}

type uiSessionsCmd struct{}

func (uiSessionsCmd) Run(a *app) error {
	list := []web.Session{}
	if err := a.call("page.sessions", nil, &list, nil); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, s := range list {
			fmt.Fprintf(w, "by %-5s since %s until %s\n", s.How, time.Unix(s.Since, 0).Format(time.DateTime), time.Unix(s.Expires, 0).Format(time.DateTime))
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "nobody is signed in")
		}
	})
}

type uiEndCmd struct{}

func (uiEndCmd) Run(a *app) error {
	var e web.Ended
	if err := a.call("page.end", nil, &e, nil); err != nil {
		return err
	}
	return a.print(e, func(w io.Writer) { fmt.Fprintf(w, "%d signed out\n", e.Ended) })
}
