package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// diary is where what happens with peers is written down.
func (d Dir) diary() string { return filepath.Join(string(d), "happened") }

// openTrails opens what is written down for the operator: what left, and what happened with peers.
func (n *node) openTrails() (err error) {
	if n.trail, err = trail.Open(n.opt.Dir.trail()); err != nil {
		return err
	}
	if n.diary, err = trail.OpenDiary(n.opt.Dir.diary()); err != nil {
		return errors.Join(err, n.trail.Close())
	}
	return nil
}

func (n *node) closeTrails() {
	if err := errors.Join(n.trail.Close(), n.diary.Close()); err != nil {
		n.log.Warn("close what is written down", "err", err)
	}
}

// noted writes down what happened with a peer.
func (f *federation) noted(h host.Happening) {
	t := h.Tell
	e := trail.Entry{At: h.At.Unix(), Peer: identity.FormatDID(t.Peer), What: t.What, Window: t.Window, Code: string(t.Code), Detail: t.Detail}
	if judged(t.What) {
		e.Severity = t.Severity.String()
	}
	if s := t.Slip; s != nil {
		e.Slip = &trail.Slip{Way: "received", Head: s.Head, Status: string(s.Status)}
		if s.Sent {
			e.Slip.Way = "sent"
		}
		if s.Receipt != nil {
			e.Slip.Receipt = s.Receipt.JSON()
		}
		if s.Status != "" {
			e.Slip.Measured = map[string]int64{}
			for n, v := range s.Measured {
				e.Slip.Measured[string(n)] = v
			}
		}
	}
	if err := f.n.diary.Add(e); err != nil {
		f.n.log.Error("what happened with a peer is not written down", "what", t.What, "err", err)
	}
}

// judged says whether what happened has a severity.
func judged(what string) bool { return what == "window-closed" || what == "finding" }

// Receipts are what peer.receipts answers: the receipts of windows, each a chain.
type Receipts struct {
	Chains []ReceiptChain `json:"chains"`
	Since  int64          `json:"since,omitempty"` // unix second before which nothing is remembered, 0 if nothing ever happened
}

// ReceiptChain is the receipts of one window, by the way they went.
type ReceiptChain struct {
	Way     string    `json:"way"`     // "received": what the peer says it caused here, under our grant; "sent": what we say we caused there, under its
	Subject string    `json:"subject"` // who signed them: a DID
	Issuer  string    `json:"issuer"`  // of the grant: a DID
	Grant   string    `json:"grant"`
	Window  int64     `json:"window"`
	Links   []Receipt `json:"receipts"` // in the order of their numbers
}

// Receipt is one receipt, and what its issuer answered.
type Receipt struct {
	Seq      int64           `json:"seq"`
	Head     string          `json:"head"` // SHA-256 of its body: what the next one's prev names
	Receipt  json.RawMessage `json:"receipt"`
	Claimed  ledger.Counters `json:"claimed"`
	At       int64           `json:"at"`                 // unix second at which it was sent or taken
	Acked    int64           `json:"acked_at,omitempty"` // and at which it was acknowledged, 0: not yet, or that is forgotten
	Status   string          `json:"status,omitempty"`   // accepted, divergent or final
	Measured ledger.Counters `json:"measured,omitempty"` // what the issuer had counted by then
}

// ReceiptsParams name a peer and, where it is not 0, one window.
type ReceiptsParams struct {
	DID    string `json:"did"`
	Window int64  `json:"window,omitempty"`
}

func (n *node) peerReceipts(ctx context.Context, p ReceiptsParams) (r Receipts, err error) {
	peer, err := n.peerNamed(ctx, p.DID)
	if err != nil {
		return r, err
	}
	return n.receiptsOf(peer.Key, p.Window)
}

// peerNamed finds a peer by its DID.
func (n *node) peerNamed(ctx context.Context, did string) (p mesh.Peer, err error) {
	if did == "" {
		return p, control.BadParams("did is empty, want a peer's")
	}
	list, err := n.named(ctx, did)
	if err != nil {
		return p, err
	}
	return list[0], nil
}

// named is peerNamed for one or all: an empty one stands for all.
func (n *node) named(ctx context.Context, did string) ([]mesh.Peer, error) {
	h, err := n.fed.get(ctx)
	if err != nil {
		return nil, err
	}
	peers := h.Peers()
	if did == "" {
		return peers, nil
	}
	key, err := ParseNode(did)
	if err != nil {
		return nil, control.BadParams("%v", err)
	}
	i := slices.IndexFunc(peers, func(q mesh.Peer) bool { return q.Key == key })
	if i < 0 {
		return nil, control.Refuse(string(spec.CodePolicy), "%s is no peer of this node", did)
	}
	return peers[i : i+1], nil
}

// receiptsOf builds chains from the diary. window 0 stands for all.
func (n *node) receiptsOf(peer nostr.PubKey, window int64) (r Receipts, err error) {
	list, since, err := n.diary.Of(identity.FormatDID(peer), func(e *trail.Entry) bool {
		return e.Slip != nil && (window == 0 || e.Window == window)
	})
	if err != nil {
		return r, err
	}
	r.Since, r.Chains = since, []ReceiptChain{}
	ours, theirs := identity.FormatDID(n.agent.PubKey()), identity.FormatDID(peer)
	for i := range list {
		e := &list[i]
		at := slices.IndexFunc(r.Chains, func(c ReceiptChain) bool { return c.Way == e.Slip.Way && c.Window == e.Window })
		if at < 0 {
			c := ReceiptChain{Way: e.Slip.Way, Subject: theirs, Issuer: ours, Window: e.Window, Links: []Receipt{}}
			if c.Way == "sent" {
				c.Subject, c.Issuer = ours, theirs
			}
			at, r.Chains = len(r.Chains), append(r.Chains, c)
		}
		if err := r.Chains[at].take(e); err != nil {
			return r, fmt.Errorf("read the receipts of window %d: %w", e.Window, err)
		}
	}
	r.Chains = slices.DeleteFunc(r.Chains, func(c ReceiptChain) bool { return len(c.Links) == 0 })
	slices.SortStableFunc(r.Chains, func(a, b ReceiptChain) int { return cmp.Compare(a.Window, b.Window) })
	return r, nil
}

// take puts an entry of the diary into its chain. A receipt that was sent again is there already; an answer to one that is forgotten says nothing.
func (c *ReceiptChain) take(e *trail.Entry) error {
	at := slices.IndexFunc(c.Links, func(l Receipt) bool { return l.Head == e.Slip.Head })
	if at < 0 {
		if e.Slip.Receipt == nil {
			return nil
		}
		r, err := ledger.ParseReceipt(e.Slip.Receipt)
		if err != nil {
			return err
		}
		c.Grant = r.Grant.String()
		at, c.Links = len(c.Links), append(c.Links, Receipt{Seq: r.Seq, Head: e.Slip.Head, Receipt: e.Slip.Receipt, Claimed: r.Counters, At: e.At})
	}
	if e.Slip.Status == "" {
		return nil
	}
	l := &c.Links[at]
	if l.Acked == 0 {
		l.Acked = e.At
	}
	l.Status, l.Measured = e.Slip.Status, ledger.Counters{}
	for k, v := range e.Slip.Measured {
		l.Measured[spec.Counter(k)] = v
	}
	return nil
}
