package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/spec"
)

type peerTierCmd struct {
	DID  string `arg:"" help:"The other node."`
	Tier string `arg:"" help:"probation, member, trusted or anchor." enum:"probation,member,trusted,anchor"`
}

func (c *peerTierCmd) Help() string {
	return `A tier is raised by a person and by nothing else. The grant opens at the tier's ceiling; the peer is told with cause operator.

Example:
  meshnode peer tier did:nostr:… member`
}

func (c *peerTierCmd) Run(a *app) error {
	return a.call("peer.amend", daemon.AmendParams{DID: c.DID, Tier: spec.Tier(c.Tier)}, nil, nil)
}

type peerAmendCmd struct {
	DID   string            `arg:"" help:"The other node."`
	Limit map[string]string `help:"A limit and what it shall be in a window; auto gives it back to the arithmetic." placeholder:"NAME=COUNT"`
}

func (c *peerAmendCmd) Help() string {
	return `Sets limits of our grant to a peer, never above the ceiling of its tier. What you set stays: use neither grows nor decays beyond it until you give it back.

Examples:
  meshnode peer amend did:nostr:… --limit events_in=500 --limit blob_bytes=1000000
  meshnode peer amend did:nostr:… --limit events_in=auto`
}

func (c *peerAmendCmd) Run(a *app) error {
	p := daemon.AmendParams{DID: c.DID, Limits: map[spec.Limit]int64{}}
	for name, text := range c.Limit {
		if text == "auto" {
			p.Free = append(p.Free, spec.Limit(name))
			continue
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return &exit{spec.ExitUsage, fmt.Sprintf("--limit %s=%s: want a whole number, or auto", name, text)}
		}
		p.Limits[spec.Limit(name)] = v
	}
	if len(c.Limit) == 0 {
		return &exit{spec.ExitUsage, "name a limit, as in --limit events_in=500"}
	}
	return a.call("peer.amend", p, nil, nil)
}

type peerStandingCmd struct {
	DID  string `arg:"" help:"The node that is asked about."`
	Ask  string `help:"One peer that is asked; every active one if absent." placeholder:"DID"`
	Mode string `help:"threshold: does enough weight stand behind a finding; own: the peer's own finding." enum:"threshold,own" default:"threshold"`
}

func (c *peerStandingCmd) Help() string {
	return `Costs one request of each peer's grant. A peer may decline, which looks the same whatever the reason and says nothing about the node.

Example:
  meshnode peer standing did:nostr:… --mode own`
}

func (c *peerStandingCmd) Run(a *app) error {
	var list []daemon.StandingAnswer
	if err := a.call("peer.standing", daemon.StandingParams{DID: c.DID, Ask: c.Ask, Mode: c.Mode}, &list, nil); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, s := range list {
			switch {
			case s.Problem != "":
				fmt.Fprintf(w, "%s  not asked: %s\n", s.Peer, s.Problem)
			case !s.Answered:
				fmt.Fprintf(w, "%s  declined\n", s.Peer)
			case s.Answer.Met != nil:
				fmt.Fprintf(w, "%s  threshold met: %v\n", s.Peer, *s.Answer.Met)
			case s.Answer.Severity != nil && s.Answer.Windows != nil:
				fmt.Fprintf(w, "%s  %s, %d clean windows in a row\n", s.Peer, *s.Answer.Severity, *s.Answer.Windows)
			}
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no active peer to ask")
		}
	})
}

type grantCmd struct {
	List grantListCmd `cmd:"" help:"Every grant in force, both ways, a line each."`
	Show grantShowCmd `cmd:"" help:"The grants between this node and a peer, limit by limit."`
}

type grantListCmd struct{}

func (grantListCmd) Run(a *app) error {
	list, err := a.peers()
	if err != nil {
		return err
	}
	type line struct {
		Peer string         `json:"peer"`
		Way  string         `json:"way"` // issued: ours to it; held: its to us
		Of   *daemon.Budget `json:"grant"`
	}
	lines := []line{}
	for i := range list {
		did := identity.FormatDID(list[i].Key)
		if b := list[i].Issued; b != nil {
			lines = append(lines, line{did, "issued", b})
		}
		if b := list[i].Held; b != nil {
			lines = append(lines, line{did, "held", b})
		}
	}
	return a.print(lines, func(w io.Writer) {
		for _, l := range lines {
			fmt.Fprintf(w, "%s  %-6s tier %-9s window of %d s, %d events, grant %s\n", l.Peer, l.Way, l.Of.Tier, l.Of.Window, l.Of.Limits[spec.LimitEventsIn], l.Of.Grant)
		}
		if len(lines) == 0 {
			fmt.Fprintln(w, "no grant in force")
		}
	})
}

type grantShowCmd struct {
	DID string `arg:"" help:"The other node."`
}

func (c *grantShowCmd) Run(a *app) error {
	list, err := a.peers()
	if err != nil {
		return err
	}
	for i := range list {
		p := &list[i]
		if identity.FormatDID(p.Key) != c.DID {
			continue
		}
		return a.print(map[string]any{"issued": p.Issued, "held": p.Held, "tier": p.Tier}, func(w io.Writer) {
			if p.Issued != nil && p.Issued.Tier != p.Tier {
				fmt.Fprintf(w, "its tier is %s: the grant that says so is in force from the next window that it can know of\n", p.Tier)
			}
			for _, b := range []struct {
				title  string
				budget *daemon.Budget
			}{{"ours to it", p.Issued}, {"its to us", p.Held}} {
				if b.budget == nil {
					fmt.Fprintf(w, "%s: none\n", b.title)
					continue
				}
				fmt.Fprintf(w, "%s: %s, tier %s, window %d of %d s\n", b.title, b.budget.Grant, b.budget.Tier, b.budget.Epoch, b.budget.Window)
				for _, l := range spec.C().Limits {
					fmt.Fprintf(w, "  %-12s %12d used of %12d, ceiling %d\n", l.Name, b.budget.Used.Of(l.Name), b.budget.Limits[l.Name], spec.C().Ceiling(l.Name, b.budget.Tier))
				}
			}
		})
	}
	return &exit{spec.ExitRefused, fmt.Sprintf("%s is no peer of this node", c.DID)}
}

type capacityCmd struct{}

func (capacityCmd) Help() string {
	return `What all peers together use in a window, against what spec.federation.capacity declares; and which rungs of the shedding ladder are engaged.

Example:
  meshnode capacity`
}

func (capacityCmd) Run(a *app) error {
	var l daemon.Load
	if err := a.call("node.load", nil, &l, nil); err != nil {
		return err
	}
	return a.print(l.Capacity, func(w io.Writer) {
		if len(l.Declared) == 0 {
			fmt.Fprintln(w, "no total is declared in spec.federation.capacity: pressure is not measured and nothing is shed")
			return
		}
		for _, n := range slices.Sorted(maps.Keys(l.Declared)) {
			fmt.Fprintf(w, "%-12s %12d used of %12d, last window %d, room for %d\n", n, l.Used[n], l.Declared[n], l.Last[n], l.Headroom[n])
		}
		fmt.Fprintf(w, "pressure %d %% (%s), engaged: %v\n", l.Percent, l.Counter, l.Rungs)
	})
}

type strainCmd struct{}

func (strainCmd) Help() string {
	return `What this node survived, by the direction it came from. It stays on this machine, is never held against anybody, and warns where nearly all of it has one source.

Example:
  meshnode strain`
}

func (strainCmd) Run(a *app) error {
	var l daemon.Load
	if err := a.call("node.load", nil, &l, nil); err != nil {
		return err
	}
	return a.print(map[string]any{"strain": l.Strain, "breadth": l.Breadth, "depends_on": l.DependsOn}, func(w io.Writer) {
		for _, s := range l.Strain {
			fmt.Fprintf(w, "%-9s %s  %d times, last at %s\n", s.Side, s.Name, s.Events, time.Unix(s.Last, 0).Format(time.DateTime))
		}
		fmt.Fprintf(w, "breadth %s\n", l.Breadth)
		if l.DependsOn != "" {
			fmt.Fprintf(w, "nearly all of it comes from %s: this node depends on it\n", l.DependsOn)
		}
	})
}
