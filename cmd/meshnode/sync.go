package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/gateway"
)

type syncCmd struct {
	URL       string `arg:"" help:"The other relay: ws:// or wss://."`
	Direction string `help:"pull: from it; push: to it; both." enum:"pull,push,both" default:"pull" short:"d"`
	Filter    string `help:"Only events that match this NIP-01 filter." default:"{}"`
	NoPaging  bool   `help:"Fail where the relay refuses NIP-77, instead of paging with REQ."`
	Auth      bool   `help:"Answer the relay's challenges (NIP-42) with the node's key."`
	Own       bool   `help:"The other relay is your own: move also what never crosses between networks, such as direct messages."`
	Proxy     string `help:"Go through this proxy." placeholder:"socks5://HOST:PORT"`
}

func (c *syncCmd) Help() string {
	var b strings.Builder
	b.WriteString(`Reconciles this node's store with another relay by NIP-77, and moves what is missing. A run that was cut is continued by running it again;
a run against a relay that has not changed moves nothing. Works on a running node and on a stopped one. Direct messages, wallet and signer traffic,
protected and expired events stay where they are; --own moves the kinds among them too.

Examples:
  meshnode sync --own wss://your.old.relay
  meshnode sync --direction both --filter '{"kinds":[0,3,10002]}' wss://relay.example.org

Exit codes:
`)
	for _, e := range gateway.ExitCodes {
		fmt.Fprintf(&b, "  %2d  %s\n", e.Code, e.Meaning)
	}
	return b.String()
}

func (c *syncCmd) Run(a *app) error {
	filter, err := rawFilter(c.Filter)
	if err != nil {
		return err
	}
	if _, err := relayURL(c.URL); err != nil {
		return err
	}
	p := daemon.SyncParams{URL: c.URL, Direction: c.Direction, Filter: filter, NoPaging: c.NoPaging, Auth: c.Auth, Own: c.Own, Proxy: c.Proxy}
	bar := a.progress("sync", 0)
	step := func(s daemon.SyncStep) {
		if a.json {
			text, _ := json.Marshal(s) // counts and text
			fmt.Fprintf(a.out, "%s\n", text)
			return
		}
		bar.show(0, strings.ReplaceAll(s.Summary, "\n", "; "))
	}
	end, err := c.sync(a, p, step)
	bar.end()
	if err != nil {
		return err
	}
	if err := a.print(end, func(w io.Writer) { daemon.PrintSync(w, end) }); err != nil {
		return err
	}
	if end.Exit != 0 {
		return &exit{end.Exit, end.Failure}
	}
	return nil
}

func (c *syncCmd) sync(a *app, p daemon.SyncParams, step func(daemon.SyncStep)) (end daemon.SyncStep, err error) {
	if a.running() {
		return end, a.call("relay.sync", p, &end, func(raw json.RawMessage) {
			var s daemon.SyncStep
			if json.Unmarshal(raw, &s) == nil {
				step(s)
			}
		})
	}
	s, err := daemon.OpenOffline(a.dir)
	if err != nil {
		return end, err
	}
	defer s.Close()
	return s.Sync(a.ctx, a.dir, p, step)
}
