package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/spec"
)

type peerCmd struct {
	Add  peerAddCmd  `cmd:"" help:"Peer with another node: propose, grant each other a budget, sync."`
	List peerListCmd `cmd:"" help:"Every peer, a line each."`
	Show peerShowCmd `cmd:"" help:"One peer: grants, counters, receipts, verdicts."`
	Log  peerLogCmd  `cmd:"" help:"What happened with a peer, or with all."`
	End  peerEndCmd  `cmd:"" help:"End a peering."`

	Tier     peerTierCmd     `cmd:"" help:"Give a peer another tier: a person's word."`
	Amend    peerAmendCmd    `cmd:"" help:"Set limits of our grant to a peer, below its tier's ceiling."`
	Standing peerStandingCmd `cmd:"" help:"Ask peers what they found of a node."`

	Window peerWindowCmd `cmd:"" help:"The closed windows of a peer, or one with its arithmetic laid open."`

	Known knownCmd   `cmd:"" help:"The nodes that this one has heard of, and from where."`
	Ask   peerAskCmd `cmd:"" help:"Ask every active peer which nodes it knows."`
}

type peerAddCmd struct {
	DID        string   `arg:"" optional:"" help:"The other node: did:nostr:…; not with --invitation."`
	Invitation string   `help:"A link by which the other node invites: it says who it is and where." placeholder:"LINK"`
	Relay      []string `help:"Where its descriptor is found: usually its own relay face." placeholder:"URL"`
	Tier       string   `help:"What our grant to it opens at: a person may vouch for a node." enum:",probation,member,trusted,anchor" default:""`
	Shadow     bool     `help:"Judge it, and let no verdict cost it anything: peer show says what each would have."`
	Shard      string   `help:"Name of the shard to sync." default:"all"`
	Filter     string   `help:"NIP-01 filter of the shard." default:"{}"`
	Mode       string   `help:"pull: from it; push: to it; both; none: only peer." enum:"pull,push,both,none" default:"both"`
}

func (c *peerAddCmd) Help() string {
	return `Both operators do this once, each naming the other. A stranger is answered only by a node whose spec.federation.enrolment lets strangers in.

Examples:
  meshnode peer add --relay wss://their.relay did:nostr:…
  meshnode peer add --relay wss://their.relay --tier member --shard notes --filter '{"kinds":[0,1,3,7]}' did:nostr:…`
}

func (c *peerAddCmd) Run(a *app) error {
	filter, err := rawFilter(c.Filter)
	if err != nil {
		return err
	}
	p := daemon.PeerParams{DID: c.DID, Relays: c.Relay, Tier: spec.Tier(c.Tier), Shadow: c.Shadow}
	if c.Invitation != "" {
		i, err := daemon.ReadInvitation(c.Invitation, time.Now())
		if err != nil {
			return &exit{spec.ExitInvalid, err.Error()}
		}
		if c.DID != "" && c.DID != i.DID {
			return &exit{spec.ExitUsage, fmt.Sprintf("the invitation is from %s", i.DID)}
		}
		c.DID = i.DID
		p.DID, p.Invitation, p.Relays = i.DID, i.ID, append(p.Relays, i.Relays...)
	}
	if c.DID == "" {
		return &exit{spec.ExitUsage, "name the other node, or give its --invitation"}
	}
	if c.Mode != "none" {
		p.Wants = []daemon.Want{{Shard: c.Shard, Filter: filter, Mode: c.Mode}}
	}
	if err := a.call("peer.add", p, nil, nil); err != nil {
		return err
	}
	return a.print(map[string]string{"proposed": c.DID}, func(w io.Writer) {
		fmt.Fprintf(w, "proposed to %s; see how it goes with: meshnode peer log %s\n", c.DID, c.DID)
	})
}

func (a *app) peers() (list []daemon.Peer, err error) {
	return list, a.call("peer.list", nil, &list, nil)
}

type peerListCmd struct{}

func (peerListCmd) Run(a *app) error {
	list, err := a.peers()
	if err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, p := range list {
			fmt.Fprintf(w, "%s  %-8s tier %-9s worst %s, %d clean windows, schema %s\n", identity.FormatDID(p.Key), p.Stage, p.Tier, p.Worst, p.Clean, p.Digest)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no peers yet: meshnode peer add --relay wss://THEIR.RELAY did:nostr:…")
		}
	})
}

type peerShowCmd struct {
	DID string `arg:"" help:"The other node."`
}

func (c *peerShowCmd) Run(a *app) error {
	list, err := a.peers()
	if err != nil {
		return err
	}
	for _, p := range list {
		if identity.FormatDID(p.Key) == c.DID {
			return a.print(p, func(w io.Writer) { showPeer(w, p) })
		}
	}
	return &exit{spec.ExitRefused, fmt.Sprintf("%s is no peer of this node", c.DID)}
}

func showPeer(w io.Writer, p daemon.Peer) {
	fmt.Fprintf(w, "%s is %s, tier %s, worst finding %s, %d clean windows in a row\n", identity.FormatDID(p.Key), p.Stage, p.Tier, p.Worst, p.Clean)
	if s := p.Shadow; s != nil {
		fmt.Fprintf(w, "in the shadow since %s: verdicts cost it nothing; they alone would have made it tier %s, by %d remedies\n", time.Unix(s.Since, 0).Format(time.DateTime), s.Standing.Tier, s.Remedies)
	}
	for _, b := range []struct {
		title  string
		budget *daemon.Budget
	}{{"what it may cause here (our grant to it)", p.Issued}, {"what we may cause there (its grant to us)", p.Held}} {
		if b.budget == nil {
			fmt.Fprintf(w, "%s: none\n", b.title)
			continue
		}
		fmt.Fprintf(w, "%s, window %d of %d s:\n", b.title, b.budget.Epoch, b.budget.Window)
		for _, l := range spec.C().Limits {
			fmt.Fprintf(w, "  %-12s %12d of %12d\n", l.Name, b.budget.Used.Of(l.Name), b.budget.Limits[l.Name])
		}
	}
	for _, r := range p.Receipts {
		fmt.Fprintf(w, "receipt %-8s window %d seq %d head %s\n", r.Way, r.Window, r.Seq, r.Head)
	}
	for _, v := range p.Windows {
		limit := ""
		if v.Limit != "" {
			limit = " by " + string(v.Limit)
		}
		if v.Withheld != "" {
			limit += ", withheld: " + v.Withheld
		}
		fmt.Fprintf(w, "window %d closed with %s%s, %d receipts\n", v.Window, v.Severity, limit, v.Receipts)
	}
}

type peerLogCmd struct {
	DID string `arg:"" optional:"" help:"One peer; all if absent."`
}

func (c *peerLogCmd) Run(a *app) error {
	var list []daemon.Happened
	if err := a.call("peer.history", daemon.DIDParams{DID: c.DID}, &list, nil); err != nil {
		return err
	}
	for _, h := range list {
		if err := a.print(h, func(w io.Writer) {
			line := []string{time.Unix(h.At, 0).Format(time.DateTime), h.Peer[:22] + "…", h.What, h.Severity, string(h.Code), h.Detail}
			fmt.Fprintln(w, strings.Join(line, " "))
		}); err != nil {
			return err
		}
	}
	return nil
}

type peerEndCmd struct {
	DID    string `arg:"" help:"The other node."`
	Reason string `help:"What the other operator is told." default:""`
}

func (c *peerEndCmd) Run(a *app) error {
	return a.call("peer.end", daemon.PeerEndParams{DID: c.DID, Reason: c.Reason}, nil, nil)
}
