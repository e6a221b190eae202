package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

type upCmd struct {
	Listen      string        `help:"Serve the relay face here instead of at spec.relay.listen." placeholder:"HOST:PORT"`
	Bootstrap   []string      `help:"Look for other nodes here instead of in bootstrap.toml and DNS; may be repeated." placeholder:"URL"`
	Attach      string        `help:"Keep no events of others here: read and write them at this relay, instead of at spec.attach.relay." placeholder:"URL"`
	ClockOffset time.Duration `help:"Federate as if the machine's clock were so much ahead (or, below zero, behind): for drills." placeholder:"DURATION"`
	Verbose     bool          `help:"Log more." short:"v"`
	LogJSON     bool          `help:"Log JSON lines." name:"log-json"`
}

func (c *upCmd) Help() string {
	return `Runs until Ctrl-C or SIGTERM. What it logs goes to stderr and holds no event content, key or client address.

Examples:
  meshnode up                                  # node directory ./node, ws://127.0.0.1:7777
  meshnode up --dir /var/lib/meshnode --listen 0.0.0.0:7777
  meshnode up --bootstrap wss://relay.example.org
  meshnode up --attach ws://127.0.0.1:7778     # federate for a relay that is there already`
}

func (c *upCmd) Run(a *app) error {
	var seeds []daemon.Seed
	for _, s := range c.Bootstrap {
		seed, err := daemon.ParseSeed(s)
		if err != nil {
			return &exit{spec.ExitUsage, err.Error()}
		}
		seeds = append(seeds, seed)
	}
	return daemon.Run(a.ctx, daemon.Options{
		Bootstrap: seeds, Dir: a.dir, Listen: c.Listen, Attach: c.Attach, Ahead: c.ClockOffset, Build: version, Log: c.logger(a.err),
		Ready: func(r daemon.Ready) { c.ready(a, r) },
		Step:  c.step(a),
	})
}

func (c *upCmd) logger(w io.Writer) *slog.Logger {
	opt := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.Verbose {
		opt.Level = slog.LevelDebug
	}
	if c.LogJSON {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// step shows long work before the node serves, such as mining the descriptor.
func (c *upCmd) step(a *app) func(string, int64, int64) {
	last := time.Now() // quick work is not worth a line
	return func(what string, done, all int64) {
		if a.json || (time.Since(last) < time.Second && (all == 0 || done < all)) {
			return
		}
		last = time.Now()
		if all > 0 {
			fmt.Fprintf(a.err, "%s: %d of %d\n", what, done, all)
			return
		}
		fmt.Fprintf(a.err, "%s: %d\n", what, done)
	}
}

func (c *upCmd) ready(a *app, r daemon.Ready) {
	if a.json {
		text, _ := json.Marshal(r) // strings and a bool
		fmt.Fprintf(a.out, "%s\n", text)
		return
	}
	dir := ""
	if r.Dir != defaultDir() {
		dir = " --dir " + r.Dir
	}
	if r.Made {
		fmt.Fprintf(a.out, "Made a node in %s: its keys are in %s, its configuration is %s.\n", r.Dir, filepath.Join(r.Dir, "keys"), filepath.Join(r.Dir, "node.yaml"))
	}
	fmt.Fprintf(a.out, `This node is %s
It serves %s

Next, in another terminal:
  meshnode selftest %s                  probe what it serves
  meshnode event --content hello --relay %s
  meshnode ui%s code                 sign in to the operator's page
  meshnode sync%s --direction pull wss://YOUR.OLD.RELAY
  meshnode peer%s add --relay wss://THEIR.RELAY did:nostr:THEIR-KEY
(meshnode is the binary that "go build ./cmd/meshnode" makes, or "go run ./cmd/meshnode".)
`, r.DID, r.Relay, r.Relay, r.Relay, dir, dir, dir)
}

func defaultDir() string {
	p, err := filepath.Abs("node")
	if err != nil {
		return "node"
	}
	return p
}

type statusCmd struct{}

func (statusCmd) Run(a *app) error {
	var s daemon.Status
	if err := a.call("node.status", nil, &s, nil); err != nil {
		return err
	}
	return a.print(s, func(w io.Writer) {
		fmt.Fprintf(w, "%s, %s, up %s\n", s.DID, s.Class, time.Duration(s.Uptime)*time.Second)
		fmt.Fprintf(w, "relay       %s\n", s.Relay)
		fmt.Fprintf(w, "protocol    %s, digest %s\n", s.Protocol, s.Digest)
		fmt.Fprintf(w, "store       %d events, %d octets on disk (%d freed, not yet returned), %d tombstones, %d known and refused\n",
			s.Store.Events, s.Store.Bytes, s.Store.DeadBytes, s.Store.Tombstones, s.Store.Refusals)
		fmt.Fprintf(w, "federation  enrolment %s, %d peers\n", s.Federation, s.Peers)
	})
}

type stopCmd struct{}

// A node that is gone before it could answer has done what it was asked for. Who starts it again must not find it still there.
func (stopCmd) Run(a *app) error {
	if err := a.call("node.stop", nil, nil, nil); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	patience := time.NewTimer(15 * time.Second)
	defer patience.Stop()
	for {
		c, err := control.Dial(a.ctx, a.dir.Control())
		if err != nil {
			return a.ctx.Err()
		}
		c.Close()
		select {
		case <-look.C:
		case <-patience.C:
			return errors.New("the node was told to stop, and still runs: its log says what it waits for")
		}
	}
}
