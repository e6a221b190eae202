package mesh

import (
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// peer is everything a node keeps of another: a journal record, and another for what changes with every message.
type peer struct {
	Key       nostr.PubKey
	Stage     stage
	Thread    string    // of the peering
	Added     bool      // the operator wants it
	Seed      spec.Tier `json:",omitempty"` // tier that the operator seeded
	Wants     []Want    `json:",omitempty"`
	PeerWants []Want    `json:",omitempty"`

	Issued grants          // ours to the peer, newest first
	Held   grants          // the peer's to us, newest first
	Stands ledger.Standing // the peer's, with us
	Worst  spec.Severity   // of any window or finding so far

	Measured []*book       `json:"-"` // what the peer caused here, by window of Issued
	Used     []*book       `json:"-"` // what we caused there, by window of Held
	Settled  int64         // windows of Issued before this epoch are closed
	Back     int64         `json:"-"`                  // latest time at which the peer used our grant: an open claim of a window before it is overdue
	Terms    []term        `json:",omitempty"`         // of the grants of Issued, in their order
	Cause    spec.Cause    `json:",omitempty"`         // why the grant that is due amends
	Reported []WindowClose `json:"-"`                  // the last verdicts, newest last: a record each
	Closes   int64         `json:",omitempty"`         // verdicts so far
	Whole    []WindowClose `json:"Reported,omitempty"` // as a record of before had them: read, and never written
	Caps     ledger.Limits `json:",omitempty"`         // that the operator set; the arithmetic stays below

	Alive  int64 `json:"-"` // when we last used the peer's grant: what it may have counted since is asked for after a crash
	Forgot int64 `json:"-"` // windows of Held before this epoch are settled and forgotten, and never opened again

	Cases   docket   `json:"-"` // complaints, ours and the peer's
	Proofs  []proof  `json:"-"` // the grants of Issued as they were published
	Samples []sample `json:"-"` // what the peer delivered in windows that it has claimed nothing of

	InShadow bool    `json:",omitempty"` // the operator wants to see what verdicts would do
	Shadow   *Shadow `json:",omitempty"` // and what they would have done

	Revoked    bool   `json:",omitempty"` // by its holder: for good
	Invitation string `json:",omitempty"` // of the peer's, to be named when we propose

	NextSync int64 `json:",omitempty"` // unix second of the next sync, 0: none planned
	NextWant int
	Waiting  bool      `json:"-"` // a sync of ours waits for one of the peer's to end
	Live     int       `json:"-"` // syncs of ours that are live
	Fresh    int       `json:"-"` // of the last verdicts: not written yet
	closings []closing // verdicts being taken up
	Crashed  bool      `json:"-"` // taken up from the journal, and not asked yet about what it may not know
	Breaks   int       `json:"-"` // syncs of ours in a row that ended by a fault of the way

	// From the descriptor, which is seen anew after a restart.
	Asking        string     `json:"-"` // thread of the peers-query under way
	Described     bool       `json:"-"`
	Class         spec.Class `json:"-"`
	Work          int        `json:"-"`
	Protocols     []string   `json:"-"`
	DigestDiffers bool       `json:"-"`
	Issuing       bool       `json:"-"` // a grant is under way
	Dialling      bool       `json:"-"` // the budget of a session was taken in DialWindow, and it is not open yet
	DialWindow    int64      `json:"-"`
	Strays        int64      `json:"-"` // messages of no session in StrayWindow
	StrayWindow   int64      `json:"-"`
	RetryAt       int64      `json:"-"` // when what was not answered is said again, 0: nothing is
	Tries         int        `json:"-"`
}

// books is that other record.
type books struct {
	Key      nostr.PubKey
	Back     int64   `json:",omitempty"`
	Alive    int64   `json:",omitempty"`
	Forgot   int64   `json:",omitempty"`
	Measured []*book `json:",omitempty"`
	Used     []*book `json:",omitempty"`
}

// term is what binds the peer to a grant of ours.
type term struct {
	Grant  nostr.ID
	Remedy bool  `json:",omitempty"` // it follows a finding and binds at once
	Known  int64 `json:",omitempty"` // when the peer showed that it holds it, 0: not yet
}

// knowsCurrent reports whether the peer showed that it holds the newest grant.
func (p *peer) knowsCurrent() bool { return len(p.Terms) > 0 && p.Terms[0].Known > 0 }

// showedGrant reports whether the peer named a grant of ours, or used one.
func (p *peer) showedGrant() bool {
	return len(p.Issued) > 0 && (p.Back > 0 || slices.ContainsFunc(p.Terms, func(k term) bool { return k.Known > 0 }))
}

// limits are what a window of our grant is held to. A grant that was lowered without any fault, by disuse, binds from the first
// window after the peer showed that it knows it; before that the more generous of it and the one before counts.
func (p *peer) limits(w ledger.Window) ledger.Limits {
	g := p.Issued.of(w.Start())
	out := g.Limits
	for i := slices.Index(p.Issued, g); i+1 < len(p.Issued) && i < len(p.Terms); i++ {
		if t := p.Terms[i]; t.Remedy || t.Known > 0 && t.Known+spec.C().Window.SkewSeconds <= w.Start() {
			break
		}
		out = out.Clone()
		for n, v := range p.Issued[i+1].Limits {
			out[n] = max(out[n], v)
		}
	}
	return out
}

// allowed is what a message of a window is let through by. It is what the window is priced by, but for a remedy, which is in force at once: who does not
// know of it yet is refused, and is not charged for having asked.
func (p *peer) allowed(w ledger.Window) ledger.Limits {
	out := p.limits(w)
	lower := func(l ledger.Limits) {
		out = out.Clone()
		for n, v := range out {
			out[n] = min(v, l[n])
		}
	}
	if p.Cause == spec.CauseRemedy || p.Stands.ZeroUntil > 0 {
		lower(p.Stands.Limits)
	}
	for i, g := range p.Issued {
		if g.CreatedAt+spec.C().Window.SkewSeconds <= w.Start() || i >= len(p.Terms) {
			break
		}
		if p.Terms[i].Remedy {
			lower(g.Limits)
		}
	}
	return out
}

// heldTo is what the issuer holds a window of ours to, as far as we can know: a grant that we learned of in the middle of the window may bind it by its
// date, and what we used before that was within those that we knew.
func (p *peer) heldTo(b *book) ledger.Limits {
	out := ledger.Limits{}
	from := max(0, slices.Index(p.Held, p.Held.of(b.Window.Start())))
	until := max(from, slices.IndexFunc(p.Held, func(g *ledger.Grant) bool { return g.ID == b.Grant }))
	for _, g := range p.Held[from : until+1] {
		for n, v := range g.Limits {
			out[n] = max(out[n], v)
		}
	}
	return out
}

// WindowClose is the verdict on one window of a grant of ours.
type WindowClose struct {
	Window   int64           `json:"window"` // epoch
	At       int64           `json:"at"`
	Severity string          `json:"severity"`
	Measured ledger.Counters `json:"measured"`
	Claimed  ledger.Counters `json:"claimed,omitempty"`
	Limits   ledger.Limits   `json:"limits,omitempty"` // what it was held to; absent in verdicts of before this was kept
	Receipts int64           `json:"receipts"`
	Limit    spec.Limit      `json:"limit,omitempty"`    // that decided, above S0
	Withheld string          `json:"withheld,omitempty"` // in shadow mode: what it would have cost
}

// keptVerdicts is how many verdicts a peer's record remembers.
const keptVerdicts = 48

// grants are the grants of one direction, newest first: the one in force now and those before it, under which older
// windows may still be open.
type grants []*ledger.Grant

func (g grants) current() *ledger.Grant {
	if len(g) == 0 {
		return nil
	}
	return g[0]
}

// push makes a grant the newest. The oldest go, but for those that a window which may still be open is accounted under: an operator who amends often
// within one window must not move what that window names.
func (g grants) push(n *ledger.Grant) grants {
	out := append(grants{n}, g...)
	bound := ledger.WindowAt(n.CreatedAt, n.Window).Start() - windowsOpen*n.Window
	for len(out) > keptGrants && (len(out) > mostGrants || out[len(out)-2].CreatedAt+spec.C().Window.SkewSeconds <= bound) {
		out = out[:len(out)-1]
	}
	return out
}

// How many windows back one may still be open, and how many grants are remembered at the most.
const (
	windowsOpen = 3
	mostGrants  = 64
)

// keptGrants is how many grants of a direction are remembered. At the shortest window a grant binds three windows after it was made.
const keptGrants = 6

// of returns the grant that a window is accounted under: the newest that was made a skew or more before the window began, so
// that the subject has had the time to learn of it; else the oldest. Limits change at a window's edge, and both ends compute
// the same.
func (g grants) of(start int64) *ledger.Grant {
	for _, grant := range g {
		if grant.CreatedAt+spec.C().Window.SkewSeconds <= start {
			return grant
		}
	}
	if len(g) == 0 {
		return nil
	}
	return g[len(g)-1]
}

// has reports whether an id is that of one of the grants.
func (g grants) has(id nostr.ID) bool {
	return slices.ContainsFunc(g, func(grant *ledger.Grant) bool { return grant.ID == id })
}

// at returns the grant and window of a message.
func (g grants) at(created, arrived int64) (*ledger.Grant, ledger.Window) {
	w := ledger.AssignWindow(created, arrived, g.current().Window)
	return g.of(w.Start()), w
}

// book is one window's account. The subject's has three parts: Counters is what it knows the issuer to have counted, and what it
// claims; Pending is what it sent and got no answer to, which may have arrived or not; Ahead is what the issuer said it
// counted and the subject did not see.
type book struct {
	Window   ledger.Window
	Grant    nostr.ID
	Counters ledger.Counters
	Pending  ledger.Counters `json:",omitempty"`
	Ahead    ledger.Counters `json:",omitempty"`
	Last     *ledger.Receipt `json:",omitempty"` // newest receipt, sent or received
	Acked    bool            `json:",omitempty"` // the issuer holds Last
	Settled  bool            `json:",omitempty"` // the window is over and both ends say the same of it
	Closed   bool            `json:",omitempty"` // the last receipt was sent as the window's close
	Signing  bool            `json:"-"`          // a receipt is being signed
	Doubt    bool            `json:"-"`          // taken up from the journal: what was counted last may be missing
	lastText []byte          // the receipt textOf as it travels
	textOf   *ledger.Receipt
	AskAt    int64 `json:"-"` // when the last receipt is sent again
	Asks     int   `json:"-"`
}

// spent is what may have been used: what is known and what is in doubt.
func (b *book) spent() ledger.Counters {
	c := b.Counters.Clone()
	c.Add(b.Pending)
	return c
}

// send notes what leaves; whether it arrives is not known yet.
func (b *book) send(c ledger.Counters) {
	if b.Pending == nil {
		b.Pending = ledger.Counters{}
	}
	b.Pending.Add(c)
}

// confirm takes what was answered out of doubt.
func (b *book) confirm(c ledger.Counters) {
	for n, v := range c {
		v = min(v, b.Pending[n])
		b.Pending[n] -= v
		b.Counters[n] += v
	}
}

// reopen opens a settled window again for what came after, and reports whether it was settled. That has to be durable at once, as a book is that is new: a
// machine that crashed would else take the window up as settled, and never ask what it forgot.
func (b *book) reopen() (was bool) {
	was, b.Settled = b.Settled, false
	return was
}

// withdraw forgets what the issuer refused and did not count.
func (b *book) withdraw(c ledger.Counters) {
	for n, v := range c {
		b.Pending[n] -= min(v, b.Pending[n])
	}
}

// saw counts what came from the issuer, unless it said so before. What it sends beyond a limit of its own grant is nothing that we used: it sends
// so only where a crash has made it forget what it counted. Without limits everything is counted.
func (b *book) saw(c ledger.Counters, limits ledger.Limits) {
	for n, v := range c {
		d := min(v, b.Ahead[n])
		if d > 0 {
			b.Ahead[n] -= d
		}
		v -= d
		if most, ok := limitOf(limits, n); ok {
			v = min(v, max(0, most-b.Counters[n]))
		}
		b.Counters.Add(ledger.Counters{n: v})
	}
}

// limitOf returns what bounds a counter.
func limitOf(limits ledger.Limits, n spec.Counter) (most int64, ok bool) {
	for i := range spec.C().Limits {
		if l := spec.C().Limits[i].Name; spec.C().CounterOf(l) == n {
			if v, has := limits[l]; has && (!ok || v < most) {
				most, ok = v, true
			}
		}
	}
	return most, ok
}

// told takes the issuer's word for what it counted, within what the grant allows: within it nothing can be charged, and what got
// lost on the way only the issuer knows. It reports whether that changes the claim.
func (b *book) told(measured ledger.Counters, limits ledger.Limits) (changed bool) {
	for _, n := range spec.C().Counters {
		m := measured[n]
		if most, ok := limitOf(limits, n); ok {
			m = min(m, most)
		}
		more := m - b.Counters[n]
		if more <= 0 {
			continue
		}
		changed = true
		b.Counters[n] = m
		d := min(more, b.Pending[n])
		if d > 0 {
			b.Pending[n] -= d
		}
		if more > d {
			if b.Ahead == nil {
				b.Ahead = ledger.Counters{}
			}
			b.Ahead[n] += more - d
		}
	}
	return changed
}

// chain takes up the window's receipts.
func (b *book) chain(subject nostr.PubKey) *ledger.Chain {
	if b.Last == nil {
		return ledger.NewChain(b.Grant, b.Window, subject)
	}
	return ledger.ResumeChain(b.Window, subject, b.Last)
}

// find returns a window's book, making it if need be.
func find(books *[]*book, g *ledger.Grant, w ledger.Window) *book {
	b, _ := open(books, g, w)
	return b
}

// open is find, and says whether the book was there. A new one is made durable at once: a machine that crashes may lose
// counts, and must not forget that there was anything to count.
func open(books *[]*book, g *ledger.Grant, w ledger.Window) (b *book, known bool) {
	if b := lookup(*books, w.Epoch); b != nil {
		return b, true
	}
	b = &book{Window: w, Grant: g.ID, Counters: ledger.Counters{}}
	*books = append(*books, b)
	return b, false
}

func lookup(books []*book, epoch int64) *book {
	for _, b := range books {
		if b.Window.Epoch == epoch {
			return b
		}
	}
	return nil
}

// Peer is what a node tells of a peering.
type Peer struct {
	Key      nostr.PubKey    `json:"key"`
	Stage    string          `json:"stage"`
	Tier     spec.Tier       `json:"tier"`
	Worst    string          `json:"worst_severity"`
	Clean    int64           `json:"clean_windows"`
	Wants    []Want          `json:"wants"`
	Issued   *Budget         `json:"issued,omitempty"` // ours to the peer, and what it used of it
	Held     *Budget         `json:"held,omitempty"`   // the peer's to us, and what we used of it
	Windows  []WindowClose   `json:"windows"`
	Receipts []ReceiptHead   `json:"receipts"`
	Accounts []Account       `json:"accounts"`      // windows that are still open
	Digest   string          `json:"schema_digest"` // "same", "differs" or "unknown"
	Standing ledger.Standing `json:"standing"`
	Caps     ledger.Limits   `json:"set_by_operator,omitempty"` // limits that the operator set
	Shadow   *Shadow         `json:"shadow,omitempty"`          // verdicts cost it nothing; this is what they would have made of it
}

// Budget is a grant with the counters of its present window.
type Budget struct {
	Grant  nostr.ID        `json:"grant"`
	Tier   spec.Tier       `json:"tier"`
	Window int64           `json:"window_seconds"`
	Epoch  int64           `json:"epoch"`
	Limits ledger.Limits   `json:"limits"`
	Used   ledger.Counters `json:"used"`

	Made    int64 `json:"made"`    // unix second of the newest grant, which need not bind yet
	Expires int64 `json:"expires"` // unix second
}

// Account is a window that is still open, as this node has it.
type Account struct {
	Way     string          `json:"way"` // "issued": what the peer caused here, under our grant; "held": what we caused there, under its
	Window  int64           `json:"window"`
	Counted ledger.Counters `json:"counted"`            // issued: measured; held: what we know of, and would claim now
	InDoubt ledger.Counters `json:"in_doubt,omitempty"` // held: sent, and not answered: it may have arrived or not
	Claimed ledger.Counters `json:"claimed,omitempty"`  // by the last receipt
}

// ReceiptHead is the newest receipt of a window.
type ReceiptHead struct {
	Way      string          `json:"way"` // "sent" or "received"
	Window   int64           `json:"window"`
	Seq      int64           `json:"seq"`
	Head     string          `json:"head"`
	Counters ledger.Counters `json:"counters"`
}
