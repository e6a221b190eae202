package ledger

import (
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Chain is the receipts of one grant and one window, from either end: the subject extends it
// with Next, the issuer with Add. It keeps the last receipt only: counters are cumulative,
// so that one states the whole claim. It is not safe for concurrent use.
type Chain struct {
	Grant   nostr.ID
	Window  Window
	Subject nostr.PubKey

	last *Receipt
	link [32]byte
}

// NewChain starts the chain of a window.
func NewChain(grant nostr.ID, w Window, subject nostr.PubKey) *Chain {
	return &Chain{Grant: grant, Window: w, Subject: subject}
}

// ResumeChain takes a chain up from the last receipt that was kept, as after a restart.
func ResumeChain(w Window, subject nostr.PubKey, last *Receipt) *Chain {
	return &Chain{Grant: last.Grant, Window: w, Subject: subject, last: last, link: last.Link()}
}

// Head is the link of the last receipt, zero before the first.
func (c *Chain) Head() [32]byte { return c.link }

// Last is the receipt that stands as the subject's claim, nil before the first.
func (c *Chain) Last() *Receipt { return c.last }

// Claim is what the subject claims so far; ok is false before the first receipt.
func (c *Chain) Claim() (counters Counters, ok bool) {
	if c.last == nil {
		return nil, false
	}
	return c.last.Counters.Clone(), true
}

// Next makes the subject's next receipt and signs it, without adding it: the caller journals it first,
// then adds and sends it. Counters must cover those of the last receipt. A receipt once
// signed must be sent as it is and never made again with other numbers: that would be a fork.
func (c *Chain) Next(a identity.Agent, counters Counters, forwardedFor []nostr.PubKey, at int64) (*Receipt, error) {
	r := &Receipt{Grant: c.Grant, Window: c.Window.Epoch, Prev: c.link, Counters: counters.Clone(), At: at}
	r.ForwardedFor = slices.Clone(forwardedFor)
	slices.SortFunc(r.ForwardedFor, func(a, b nostr.PubKey) int { return slices.Compare(a[:], b[:]) })
	r.ForwardedFor = slices.Compact(r.ForwardedFor)
	if c.last != nil {
		r.Seq = c.last.Seq + 1
		if !r.Counters.Covers(c.last.Counters) {
			return nil, fault(ReceiptRegress, "own counters went down")
		}
		r.At = max(r.At, c.last.At)
	}
	sig, err := a.Sign(r.Link())
	if err != nil {
		return nil, err
	}
	r.Sig = sig
	return r, nil
}

// Check says whether a receipt continues the chain, without adding it. now is the reader's clock. Codes
// that speak of malice (ReceiptFork, ReceiptRegress) are given only for receipts the subject signed.
func (c *Chain) Check(r *Receipt, now int64) error {
	switch {
	case r.Grant != c.Grant:
		return fault(ReceiptGrant, r.Grant.String())
	case r.Window != c.Window.Epoch:
		return fault(ReceiptWindow, strconv.FormatInt(r.Window, 10))
	case !r.Triple(c.Subject).Holds():
		return fault(ReceiptSig, "")
	case r.At > now+spec.C().Window.SkewSeconds:
		return fault(ReceiptFuture, strconv.FormatInt(r.At, 10))
	}
	next := int64(0)
	if c.last != nil {
		next = c.last.Seq + 1
	}
	switch {
	case r.Seq > next:
		return fault(ReceiptGap, "seq "+strconv.FormatInt(r.Seq, 10)+", next is "+strconv.FormatInt(next, 10))
	case r.Seq == next-1 && r.Link() != c.link:
		return fault(ReceiptFork, "two receipts of seq "+strconv.FormatInt(r.Seq, 10))
	case r.Seq < next:
		return fault(ReceiptStale, "seq "+strconv.FormatInt(r.Seq, 10))
	case r.Prev != c.link:
		return fault(ReceiptFork, "prev is not the head")
	case c.last != nil && !r.Counters.Covers(c.last.Counters):
		return fault(ReceiptRegress, "")
	}
	return nil
}

// Add checks a receipt and makes it the head.
func (c *Chain) Add(r *Receipt, now int64) error {
	if err := c.Check(r, now); err != nil {
		return err
	}
	c.last, c.link = r, r.Link()
	return nil
}

// AckStatus is what an issuer answers to a receipt.
type AckStatus string

// The answers: the head stands; it stands and disagrees with what was measured so far; it stands as
// the window's last.
const (
	Accepted  AckStatus = "accepted"
	Divergent AckStatus = "divergent"
	Final     AckStatus = "final"
)

// Ack carries the head that the issuer holds, so that a subject always knows which receipt is its claim.
type Ack struct {
	Head   [32]byte
	Status AckStatus
}

// Acknowledge answers the receipt that is the chain's head. closing says it came as budget/1.0/close, which
// is final until the end of the grace and a receipt like any other after it. Divergence outranks both,
// and is a word between the two and no finding before the window closes.
func (c *Chain) Acknowledge(limits Limits, measured Counters, closing bool, now int64) Ack {
	ack := Ack{Head: c.link, Status: Accepted}
	switch {
	case c.last == nil:
	case diverges(limits, measured, c.last.Counters):
		ack.Status = Divergent
	case closing && now < c.Window.GraceEnd():
		ack.Status = Final
	}
	return ack
}

func diverges(limits Limits, measured, claimed Counters) bool {
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		if divergent(limits[n], measured.Of(n), claimed.Of(n)) {
			return true
		}
	}
	return false
}

// ReceiptDue reports whether the cadence asks for a receipt: so many seconds after the last one, or so
// many octets in both directions since, and never where nothing was used: that silence is honest.
func (g *Grant) ReceiptDue(c *Chain, used Counters, now int64) bool {
	before, since := Counters{}, c.Window.Start()
	if c.last != nil {
		before, since = c.last.Counters, c.last.At
	}
	if before.Covers(used) {
		return false
	}
	octets := func(n Counters) int64 { return n[spec.CounterBytesIn] + n[spec.CounterBytesOut] }
	return now-since >= g.ReceiptSeconds || octets(used)-octets(before) >= g.ReceiptBytes
}
