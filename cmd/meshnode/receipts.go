package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

type receiptsCmd struct {
	DID    string `arg:"" help:"The other node."`
	Window int64  `help:"One window; every one that is remembered if absent." placeholder:"N"`
	Verify bool   `help:"Do the chains again from the receipts alone: hashes, signatures, counters that never go down."`
}

func (c *receiptsCmd) Help() string {
	return `A receipt says what a node used of another's grant in a window so far; each names the hash of the one before. Shown are both ways: what the peer claims of our grant
(received) and what we claim of its (sent), with what the issuer had counted when it answered. --verify trusts no verdict of the node's: it reads the receipts as they
travelled. Exit status then: 0 every chain holds and begins at its first receipt; 6 one does not, or has a hole.

Examples:
  meshnode receipts did:nostr:…
  meshnode receipts did:nostr:… --window 497219 --verify
  meshnode receipts did:nostr:… --verify --json`
}

// redone is a chain as receipts prints it, with what --verify found.
type redone struct {
	daemon.ReceiptChain
	Verified *redoing `json:"verified,omitempty"`
}

// redoing is what doing a chain again found.
type redoing struct {
	Holds  bool        `json:"holds"`
	Code   ledger.Code `json:"code,omitempty"`
	Detail string      `json:"detail,omitempty"`
}

func (c *receiptsCmd) Run(a *app) error {
	var r daemon.Receipts
	if err := a.call("peer.receipts", daemon.ReceiptsParams{DID: c.DID, Window: c.Window}, &r, nil); err != nil {
		return err
	}
	list, broken := make([]redone, len(r.Chains)), 0
	for i := range r.Chains {
		list[i] = redone{ReceiptChain: r.Chains[i]}
		if c.Verify {
			if list[i].Verified = redo(&r.Chains[i]); !list[i].Verified.Holds {
				broken++
			}
		}
	}
	err := a.print(struct {
		Chains []redone `json:"chains"`
		Since  int64    `json:"since,omitempty"`
	}{list, r.Since}, func(w io.Writer) {
		for i := range list {
			showChain(w, &list[i])
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no receipt is remembered: nothing was used, or it is too long ago (meshnode peer window shows what windows closed with)")
		}
	})
	if err == nil && broken > 0 {
		return &exit{spec.ExitInvalid, fmt.Sprintf("%d of %d chains do not hold", broken, len(list))}
	}
	return err
}

// redo checks a chain from what was signed. What the node says beside it, such as its heads, is not believed.
func redo(c *daemon.ReceiptChain) *redoing {
	no := func(err error) *redoing { return &redoing{Code: identity.CodeOf(err), Detail: err.Error()} }
	subject, err := identity.ParseDID(c.Subject)
	if err != nil {
		return no(err)
	}
	var list []*ledger.Receipt
	for i := range c.Links {
		r, err := ledger.ParseReceipt(c.Links[i].Receipt)
		if err != nil {
			return no(err)
		}
		if link := fmt.Sprintf("%x", r.Link()); link != c.Links[i].Head {
			return &redoing{Code: ledger.ReceiptFork, Detail: fmt.Sprintf("the receipt of number %d hashes to %s, and %s is said to be its head", r.Seq, link, c.Links[i].Head)}
		}
		list = append(list, r)
	}
	if err := ledger.Redo(subject, list); err != nil {
		return no(err)
	}
	return &redoing{Holds: true}
}

func showChain(w io.Writer, c *redone) {
	fmt.Fprintf(w, "window %d %s: %s of grant %.16s…\n", c.Window, c.Way, map[string]string{"received": "what the peer claims", "sent": "what we claim"}[c.Way], c.Grant)
	for i := range c.Links {
		l := &c.Links[i]
		ack := "not acknowledged"
		if l.Acked != 0 {
			ack = l.Status + " at " + time.Unix(l.Acked, 0).Format(time.DateTime)
		}
		fmt.Fprintf(w, "  %4d  %s  head %.16s…  %s\n", l.Seq, time.Unix(l.At, 0).Format(time.DateTime), l.Head, ack)
		fmt.Fprintf(w, "        %s\n", claims(l))
	}
	switch v := c.Verified; {
	case v == nil:
	case v.Holds:
		fmt.Fprintf(w, "  the chain holds: %d receipts, each signed by %s\n", len(c.Links), c.Subject)
	default:
		fmt.Fprintf(w, "  the chain does not hold: %s\n", v.Detail)
	}
}

// claims says what a receipt claims, and beside it what the issuer had counted where it answered.
func claims(l *daemon.Receipt) string {
	var parts []string
	for _, n := range spec.C().Counters {
		switch claimed, counted := l.Claimed[n], l.Measured[n]; {
		case l.Measured != nil && claimed != counted:
			parts = append(parts, fmt.Sprintf("%s %d (counted %d)", n, claimed, counted))
		case claimed != 0:
			parts = append(parts, fmt.Sprintf("%s %d", n, claimed))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
