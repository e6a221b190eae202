package mesh

import (
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// peer is everything a node keeps of another: one journal record.
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

	Measured []*book       `json:",omitempty"` // what the peer caused here, by window of Issued
	Used     []*book       `json:",omitempty"` // what we caused there, by window of Held
	Settled  int64         // windows of Issued before this epoch are closed
	Reported []WindowClose `json:",omitempty"` // the last verdicts, newest last

	NextSync int64 `json:",omitempty"` // unix second of the next sync, 0: none planned
	NextWant int
	Waiting  bool `json:"-"` // a sync of ours waits for one of the peer's to end

	// From the descriptor, which is seen anew after a restart.
	Described     bool       `json:"-"`
	Class         spec.Class `json:"-"`
	Work          int        `json:"-"`
	Protocols     []string   `json:"-"`
	DigestDiffers bool       `json:"-"`
	Cause         spec.Cause `json:"-"` // why the grant under way amends
}

// WindowClose is the verdict on one window of a grant of ours.
type WindowClose struct {
	Window   int64           `json:"window"` // epoch
	At       int64           `json:"at"`
	Severity string          `json:"severity"`
	Measured ledger.Counters `json:"measured"`
	Claimed  ledger.Counters `json:"claimed,omitempty"`
	Receipts int64           `json:"receipts"`
	Limit    spec.Limit      `json:"limit,omitempty"` // that decided, above S0
}

// keptVerdicts is how many verdicts a peer's record remembers.
const keptVerdicts = 48

// grants are the grants of one direction, newest first: the one in force now and the one before it, under which an
// older window may still be open.
type grants []*ledger.Grant

func (g grants) current() *ledger.Grant {
	if len(g) == 0 {
		return nil
	}
	return g[0]
}

// push makes a grant the newest.
func (g grants) push(n *ledger.Grant) grants {
	out := grants{n}
	if len(g) > 0 {
		out = append(out, g[0])
	}
	return out
}

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

// book is one window's account.
type book struct {
	Window   ledger.Window
	Grant    nostr.ID
	Counters ledger.Counters
	Last     *ledger.Receipt `json:",omitempty"` // newest receipt, sent or received
	Signing  bool            `json:"-"`          // a receipt is being signed
	Closed   bool            `json:",omitempty"` // the last receipt was sent as the window's close
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
	if b := lookup(*books, w.Epoch); b != nil {
		return b
	}
	b := &book{Window: w, Grant: g.ID, Counters: ledger.Counters{}}
	*books = append(*books, b)
	return b
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
	Digest   string          `json:"schema_digest"` // "same", "differs" or "unknown"
	Standing ledger.Standing `json:"standing"`
}

// Budget is a grant with the counters of its present window.
type Budget struct {
	Grant  nostr.ID        `json:"grant"`
	Tier   spec.Tier       `json:"tier"`
	Window int64           `json:"window_seconds"`
	Epoch  int64           `json:"epoch"`
	Limits ledger.Limits   `json:"limits"`
	Used   ledger.Counters `json:"used"`
}

// ReceiptHead is the newest receipt of a window.
type ReceiptHead struct {
	Way      string          `json:"way"` // "sent" or "received"
	Window   int64           `json:"window"`
	Seq      int64           `json:"seq"`
	Head     string          `json:"head"`
	Counters ledger.Counters `json:"counters"`
}
