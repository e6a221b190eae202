package mesh

import (
	"encoding/hex"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
)

// Charge returns the grant and the window that a message of a session is accounted under: what a delivery envelope names,
// and what it is held against. The grant is the one that the session's responder issued to its initiator.
func (n *Node) Charge(peer nostr.PubKey, session string, created int64, now time.Time) (g *ledger.Grant, w ledger.Window, ok bool) {
	p, s := n.peers[peer], n.threads[session]
	if p == nil || s == nil || s.peer != peer {
		return nil, w, false
	}
	list := p.Issued
	if s.ours {
		list = p.Held
	}
	if len(list) == 0 {
		return nil, w, false
	}
	g, w = list.at(created, now.Unix())
	return g, w, true
}

// Peers tells of every peering, in the order of keys.
func (n *Node) Peers(now time.Time) []Peer {
	out := []Peer{}
	for _, p := range n.sorted() {
		v := Peer{Key: p.Key, Stage: string(p.Stage), Tier: p.Stands.Tier, Worst: p.Worst.String(), Clean: p.Stands.CleanWindows,
			Wants: nonNil(p.Wants), Windows: nonNil(p.Reported), Digest: "unknown", Standing: p.Stands, Caps: p.Caps.Clone()}
		if n.shadowed(p) {
			v.Shadow = &Shadow{Since: now.Unix(), Standing: p.Stands}
			if p.Shadow != nil {
				shown := *p.Shadow
				v.Shadow = &shown
			}
			v.Shadow.Whole = n.cfg.Shadow
		}
		v.Issued, v.Held = budget(p.Issued, p.Measured, now), budget(p.Held, p.Used, now)
		v.Receipts = nonNil(append(heads("sent", p.Used), heads("received", p.Measured)...))
		v.Accounts = nonNil(append(accounts("issued", p.Measured), accounts("held", p.Used)...))
		switch {
		case p.Described && p.DigestDiffers:
			v.Digest = "differs"
		case p.Described:
			v.Digest = "same"
		}
		out = append(out, v)
	}
	return out
}

func budget(list grants, books []*book, now time.Time) *Budget {
	g := list.current()
	if g == nil {
		return nil
	}
	w := g.WindowAt(now.Unix())
	made, expires := g.CreatedAt, g.Expiration
	g = list.of(w.Start()) // the one in force: a newer one binds from a later window
	b := &Budget{Grant: g.ID, Tier: g.Tier, Window: g.Window, Epoch: w.Epoch, Limits: g.Limits, Used: ledger.Counters{}.Clone(), Made: made, Expires: expires}
	if k := lookup(books, w.Epoch); k != nil {
		b.Used = k.Counters.Clone()
	}
	return b
}

func heads(way string, books []*book) (out []ReceiptHead) {
	for _, b := range books {
		if b.Last != nil {
			link := b.Last.Link()
			out = append(out, ReceiptHead{Way: way, Window: b.Window.Epoch, Seq: b.Last.Seq, Head: hex.EncodeToString(link[:]), Counters: b.Last.Counters})
		}
	}
	return out
}

func accounts(way string, books []*book) (out []Account) {
	for _, b := range books {
		a := Account{Way: way, Window: b.Window.Epoch, Counted: b.Counters.Clone(), InDoubt: b.Pending.Clone()}
		if b.Last != nil {
			a.Claimed = b.Last.Counters
		}
		out = append(out, a)
	}
	return out
}
