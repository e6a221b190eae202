package mesh

import (
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// What an issuer sends within a session that we began is counted when it leaves, in the window of its own clock, whether it arrives or not. Where the way breaks,
// or we crash, there may be a window of which nothing ever reached us and in which something was counted: no receipt of ours would come for it, and that
// is a silence. So whoever may have missed something asks about every window that it may fall in, and spends nothing more before it has been answered. The
// question is a receipt: of what we know, of nothing where nothing is known.

// lingers is how many seconds an issuer goes on counting, at most, when we are gone: it gives a session up after sixty seconds without an answer.
const lingers = 120

// maxAsked is how many windows are asked about at most, the latest: that a way broke is noticed within a few of the shortest.
const maxAsked = 16

// used notes that the peer's grant is in use, and persists the accounts.
func (t *turn) used(p *peer, lazy bool) {
	p.Alive = t.now
	t.account(p, lazy)
}

// doubt asks the other end what it has counted since a time at which it was heard, and spends nothing more before it has said so. A deliver that was lost with
// its stream is counted at the end that sent it: who does not know of it and spends all that is left goes beyond the limit, and could not own up to that.
func (t *turn) doubt(p *peer, since int64) {
	t.mayHaveCounted(p, since, t.now)
	for _, b := range p.Used {
		if !b.Settled {
			b.Doubt, b.AskAt = true, t.now
		}
	}
	t.receiptsDue(p)
}

// takeUp opens, after a crash, the windows of which the journal may know nothing. What it holds reaches back to when the last window was opened, at most.
func (t *turn) takeUp() {
	t.crashed = false
	for _, p := range t.sorted() {
		if !p.Crashed {
			continue
		}
		p.Crashed = false
		if g := p.Held.current(); g != nil && p.Alive > 0 && p.Stage == active {
			t.mayHaveCounted(p, p.Alive, min(t.now, p.Alive+g.Window+lingers))
		}
	}
}

// mayHaveCounted opens, in doubt, every window that the issuer may have counted something in between two times of our clock.
func (t *turn) mayHaveCounted(p *peer, from, until int64) {
	g := p.Held.current()
	if g == nil {
		return
	}
	skew, length := spec.C().Window.SkewSeconds, g.Window
	from, until = max(from-skew, until+skew-maxAsked*length), until+skew
	for w := ledger.WindowAt(from, length); w.Start() <= until; w = w.Next() {
		if w.Epoch < p.Forgot {
			continue
		}
		if b, known := open(&p.Used, p.Held.of(w.Start()), w); !known {
			b.Doubt = true
		}
	}
}
