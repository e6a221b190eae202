package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/gateway/border"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

type gatewayCmd struct {
	Config string `help:"The gateway's configuration." required:"" type:"path" placeholder:"FILE"`

	Run        gatewayRunCmd        `cmd:"" default:"1" help:"Run the gateway until stopped."`
	Status     gatewayStatusCmd     `cmd:"" help:"How the running gateway stands."`
	Kill       gatewayKillCmd       `cmd:"" help:"Cut one side off at once, also over a restart."`
	Restore    gatewayRestoreCmd    `cmd:"" help:"Take a cut back."`
	Quarantine gatewayQuarantineCmd `cmd:"" help:"What waits to be let into the estate, and where it came from."`
	Release    gatewayReleaseCmd    `cmd:"" help:"Let events out of the quarantine now; the rules still hold."`
	Refuse     gatewayRefuseCmd     `cmd:"" help:"Refuse quarantined events for good."`
	Why        gatewayWhyCmd        `cmd:"" help:"Where an event came from, where it is, and where it went."`
}

func (*gatewayCmd) Help() string {
	return `A gateway stands between an estate of your own relays and the mesh. It is a process of its own, with its own key, directory and quota, and to both sides nothing
but a client over wss. What comes from the mesh waits in quarantine with its origin; direct messages, wallet and signer traffic, protected and expired events cross in
neither direction. docs/gateway.md tells more, docs/gateway.schema.json is the schema of the file.

Examples:
  meshnode gateway --config gateway.yaml
  meshnode gateway kill mesh --config gateway.yaml
  meshnode gateway quarantine --config gateway.yaml`
}

type gatewayRunCmd struct{}

func (c *gatewayRunCmd) Run(a *app, g *gatewayCmd) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(a.err, nil))
	return daemon.RunGateway(a.ctx, cfg, log, func(r daemon.GatewayReady) {
		if a.json {
			a.line(r)
			return
		}
		fmt.Fprintf(a.out, "the gateway runs, with the key %s, in %s\n", r.PubKey, r.Dir)
	})
}

func (g *gatewayCmd) load() (*daemon.GatewayConfig, error) {
	cfg, err := daemon.LoadGateway(g.Config)
	if err != nil {
		return nil, &exit{spec.ExitUsage, err.Error()}
	}
	return cfg, nil
}

// call asks the running gateway.
func (g *gatewayCmd) call(a *app, method string, params, result any) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	c, err := control.Dial(a.ctx, daemon.GatewaySocket(cfg))
	if errors.Is(err, control.ErrNoNode) {
		return &exit{spec.ExitUnreachable, "no gateway runs in " + cfg.Dir}
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(a.ctx, method, params, result, func(json.RawMessage) {})
}

type gatewayStatusCmd struct{}

func (c *gatewayStatusCmd) Run(a *app, g *gatewayCmd) error {
	var st border.Status
	if err := g.call(a, "gateway.status", nil, &st); err != nil {
		return err
	}
	return a.print(st, func(w io.Writer) {
		fmt.Fprintf(w, "key %s, %d in quarantine, %d released\n", st.PubKey, st.Quarantine, st.Released)
		for side, cut := range map[string]bool{"mesh": st.Cuts.Mesh, "estate": st.Cuts.Estate} {
			if cut {
				fmt.Fprintf(w, "the %s is cut off\n", side)
			}
		}
		if len(st.Refused) > 0 {
			fmt.Fprintf(w, "refused after quarantine: %v\n", st.Refused)
		}
		printStreams(w, st.Streams)
	})
}

type gatewayKillCmd struct {
	Side string `arg:"" help:"mesh or estate." enum:"mesh,estate"`
}

func (c *gatewayKillCmd) Run(a *app, g *gatewayCmd) error { return g.cut(a, c.Side, true) }

type gatewayRestoreCmd struct {
	Side string `arg:"" help:"mesh or estate." enum:"mesh,estate"`
}

func (c *gatewayRestoreCmd) Run(a *app, g *gatewayCmd) error { return g.cut(a, c.Side, false) }

// cut throws a switch: by the running gateway, which answers when it is in force, else by its file.
func (g *gatewayCmd) cut(a *app, side string, cut bool) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	if err := daemon.CutGateway(cfg, side, cut); err != nil {
		return err
	}
	var now border.Cuts
	err = g.call(a, "gateway.cut", daemon.GatewayCut{Side: side, Cut: cut}, &now)
	var stopped *exit
	inForce := true
	if errors.As(err, &stopped) {
		inForce = false
	} else if err != nil {
		return err
	}
	return a.print(map[string]any{"side": side, "cut": cut, "running": inForce}, func(w io.Writer) {
		what := map[bool]string{true: "cut off", false: "connected again"}[cut]
		if inForce {
			fmt.Fprintf(w, "the %s is %s\n", side, what)
		} else {
			fmt.Fprintf(w, "no gateway runs; the %s is %s from its next start on\n", side, what)
		}
	})
}

type gatewayQuarantineCmd struct {
	Limit int `help:"List so many at most; 0: all." default:"100"`
}

func (c *gatewayQuarantineCmd) Run(a *app, g *gatewayCmd) error {
	var list []border.Waits
	if err := g.call(a, "gateway.quarantine", daemon.GatewayList{Limit: c.Limit}, &list); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, e := range list {
			fmt.Fprintf(w, "%s  kind %d, by %s, from %s %s, since %s\n", e.Event, e.Kind, e.Author, e.Relay, e.Node, time.Unix(e.Since, 0).Format(time.DateTime))
		}
	})
}

type gatewayReleaseCmd struct {
	IDs []string `arg:"" help:"Event ids."`
}

func (c *gatewayReleaseCmd) Run(a *app, g *gatewayCmd) error { return g.decide(a, c.IDs, true) }

type gatewayRefuseCmd struct {
	IDs []string `arg:"" help:"Event ids."`
}

func (c *gatewayRefuseCmd) Run(a *app, g *gatewayCmd) error { return g.decide(a, c.IDs, false) }

func (g *gatewayCmd) decide(a *app, texts []string, release bool) error {
	p := daemon.GatewayDecide{Release: release}
	for _, t := range texts {
		id, err := nostr.ParseID(t)
		if err != nil {
			return &exit{spec.ExitUsage, fmt.Sprintf("%q: %v", t, err)}
		}
		p.IDs = append(p.IDs, id)
	}
	var d daemon.GatewayDecided
	if err := g.call(a, "gateway.decide", p, &d); err != nil {
		return err
	}
	return a.print(d, func(w io.Writer) {
		fmt.Fprintf(w, "%d of %d %s\n", d.Count, len(p.IDs), map[bool]string{true: "released", false: "refused"}[release])
	})
}

type gatewayWhyCmd struct {
	ID string `arg:"" help:"Event id, 64 hex digits."`
}

func (c *gatewayWhyCmd) Run(a *app, g *gatewayCmd) error {
	var w border.Where
	if err := g.call(a, "gateway.why", daemon.WhyParams{ID: c.ID}, &w); err != nil {
		return err
	}
	return a.print(w, func(out io.Writer) {
		if o := w.Origin; o != nil {
			fmt.Fprintf(out, "came from the mesh: %s %s at %s\n", o.Relay, o.Node, time.Unix(o.At, 0).Format(time.DateTime))
		}
		for what, is := range map[string]bool{"waits in quarantine": w.Quarantine, "was released": w.Released, "came from the estate": w.Estate} {
			if is {
				fmt.Fprintln(out, what)
			}
		}
		if w.Refused != "" {
			fmt.Fprintf(out, "was refused: %s\n", w.Refused)
		}
		printLeft(out, daemon.Left{To: w.Left})
	})
}
