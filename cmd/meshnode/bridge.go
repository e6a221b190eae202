package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/spec"
)

type bridgeCmd struct {
	Sync   bridgeSyncCmd   `cmd:"" help:"Close the gaps of all streams once: a backfill."`
	Run    bridgeRunCmd    `cmd:"" help:"Run the streams until stopped; a changed configuration is taken up at once."`
	Status bridgeStatusCmd `cmd:"" help:"How the streams of the running node's bridges stand."`
}

func (*bridgeCmd) Help() string {
	return `A bridge connects this node with ordinary relays by streams, down, up or both, in the configuration format of strfry's router. Nothing is written to a
relay that no stream with dir "up" or "both" names, nothing goes back to where it came from, and direct messages, wallet and signer traffic, protected and expired
events stay where they are whatever the configuration says. It works on a running node and on a stopped one.

A configuration:
  streams {
    friends { dir = "both"  filter = { "kinds": [0, 1, 3] }  urls = [ "wss://relay.example.org" ] }
  }

Examples:
  meshnode bridge sync --config router.config
  meshnode bridge run --config router.config --relay wss://relay.example.org
  meshnode bridge sync --relay wss://relay.example.org --direction down --filter '{"kinds":[1]}'`
}

// bridgeFlags say which streams to run.
type bridgeFlags struct {
	Config    string   `help:"Streams in the format of strfry's router." type:"path" placeholder:"FILE"`
	Relay     []string `help:"With --config: only these of its relays. Without: the relays of one stream." placeholder:"URL"`
	Direction string   `help:"Of the stream without --config: down, up, both." enum:"down,up,both" default:"down" short:"d"`
	Filter    string   `help:"Of the stream without --config." default:"{}"`
}

func (f *bridgeFlags) params() (p daemon.BridgeParams, err error) {
	if f.Config == "" && len(f.Relay) == 0 {
		return p, &exit{spec.ExitUsage, "name a configuration with --config, or a relay with --relay"}
	}
	p = daemon.BridgeParams{Relays: f.Relay, Direction: f.Direction}
	if p.Filter, err = rawFilter(f.Filter); err != nil {
		return p, err
	}
	if f.Config != "" {
		p.Config, err = filepath.Abs(f.Config)
	}
	return p, err
}

type bridgeSyncCmd struct{ bridgeFlags }

func (c *bridgeSyncCmd) Run(a *app) error {
	p, err := c.params()
	if err != nil {
		return err
	}
	bar := a.progress("bridge", 0)
	step := func(s bridge.Pass) {
		if a.json {
			a.line(s)
			return
		}
		bar.show(0, s.Stream+" "+s.Relay+": "+strings.ReplaceAll(s.Summary, "\n", "; "))
	}
	var end daemon.BridgeSynced
	if a.running() {
		err = a.call("bridge.sync", p, &end, func(raw json.RawMessage) {
			var s bridge.Pass
			if json.Unmarshal(raw, &s) == nil {
				step(s)
			}
		})
	} else {
		err = a.stopped(func(o *daemon.Offline) (err error) {
			end, err = o.BridgeSync(a.ctx, a.dir, p, step)
			return err
		})
	}
	bar.end()
	if err != nil {
		return err
	}
	err = a.print(end, func(w io.Writer) {
		for _, s := range end.Passes {
			fmt.Fprintf(w, "%s, %s, %s: %s\n", s.Stream, s.Relay, s.Dir, strings.ReplaceAll(s.Summary, "\n", "; "))
			if s.Failure != "" {
				fmt.Fprintf(w, "  failed: %s\n", s.Failure)
			}
		}
	})
	if err == nil && end.Exit != 0 {
		return &exit{end.Exit, end.Failure}
	}
	return err
}

type bridgeRunCmd struct{ bridgeFlags }

func (c *bridgeRunCmd) Run(a *app) error {
	p, err := c.params()
	if err != nil {
		return err
	}
	step := func(s daemon.BridgeStep) {
		if a.json {
			a.line(s)
			return
		}
		for _, ch := range s.Changes {
			fmt.Fprintf(a.out, "%s, %s: %s\n", ch.Stream, ch.Relay, ch.What)
		}
		if s.Failure != "" {
			fmt.Fprintf(a.out, "the changed configuration is not in force: %s\n", s.Failure)
		}
		printStreams(a.out, s.Streams)
	}
	if a.running() {
		err = a.call("bridge.run", p, nil, func(raw json.RawMessage) {
			var s daemon.BridgeStep
			if json.Unmarshal(raw, &s) == nil {
				step(s)
			}
		})
	} else {
		err = a.stopped(func(o *daemon.Offline) error { return o.BridgeRun(a.ctx, a.dir, p, step) })
	}
	if a.ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil // stopped by its user
	}
	return err
}

type bridgeStatusCmd struct{}

func (c *bridgeStatusCmd) Run(a *app) error {
	var list []bridge.LaneStatus
	if err := a.call("bridge.status", nil, &list, nil); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "no stream runs: meshnode bridge run begins those of a configuration")
		}
		printStreams(w, list)
	})
}

func printStreams(w io.Writer, list []bridge.LaneStatus) {
	for _, s := range list {
		state := "connected"
		if !s.Connected {
			state = "not connected"
		}
		age := "no event yet"
		if s.LastEventAge >= 0 {
			age = fmt.Sprintf("last event %v ago", time.Duration(s.LastEventAge)*time.Second)
		}
		fmt.Fprintf(w, "%s, %s, %s: %s, %s, %d taken, %d sent, %d disconnects", s.Stream, s.Relay, s.Dir, state, age, s.New, s.Sent, s.Disconnects)
		if len(s.Stopped) > 0 {
			fmt.Fprintf(w, ", stopped %v", s.Stopped)
		}
		if s.Failure != "" {
			fmt.Fprintf(w, ", %s", s.Failure)
		}
		fmt.Fprintln(w)
	}
}
