package main

import (
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

// whyPeer answers of a peer or of a window.
func whyPeer(a *app, p daemon.WhyPeerParams) error {
	var list []daemon.WhyPeer
	if err := a.call("why.peer", p, &list, nil); err != nil {
		return err
	}
	if p.Window != 0 && (len(list) == 0 || p.DID != "" && len(list[0].Windows)+len(list[0].Open)+len(list[0].Happened)+len(list[0].Receipts) == 0) {
		return &exit{spec.ExitRefused, fmt.Sprintf("nothing is remembered of window %d", p.Window)}
	}
	return a.print(list, func(w io.Writer) {
		for i := range list {
			showWhy(w, &list[i])
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no peers yet: meshnode peer add --relay wss://THEIR.RELAY did:nostr:…")
		}
	})
}

func showWhy(w io.Writer, y *daemon.WhyPeer) {
	fmt.Fprintf(w, "%s is %s, tier %s, worst finding %s\n", y.Peer, y.Stage, y.Tier, y.Worst)
	for _, s := range y.Says {
		fmt.Fprintf(w, "  %s\n", s)
	}
	for i := range y.Windows {
		showWindow(w, &y.Windows[i], true)
	}
	for _, a := range y.Open {
		what := "open, what it caused here"
		if a.Way == "held" {
			what = "open, what we caused there"
		}
		fmt.Fprintf(w, "window %d %s: %s\n", a.Window, what, claims(&daemon.Receipt{Claimed: a.Counted}))
	}
	for i := range y.Receipts {
		showChain(w, &redone{ReceiptChain: y.Receipts[i]})
	}
	for _, c := range y.Cases {
		for _, o := range c.Ours {
			fmt.Fprintf(w, "complaint of ours at %s: %s for windows %d to %d, %s %s\n", time.Unix(o.At, 0).Format(time.DateTime), o.Outcome, o.First, o.Last, o.Stage, o.Why)
		}
		for range c.Theirs {
			fmt.Fprintln(w, "complaint about us: see meshnode report list")
		}
	}
	for _, h := range y.Happened {
		fmt.Fprintf(w, "%s %s window %d %s %s %s\n", time.Unix(h.At, 0).Format(time.DateTime), h.What, h.Window, h.Severity, h.Code, h.Detail)
	}
	if y.Since != 0 {
		fmt.Fprintf(w, "before %s nothing is remembered\n", time.Unix(y.Since, 0).Format(time.DateTime))
	}
}
