package mesh

import (
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Blobs go over HTTP and not through sessions, and are accounted for like these (RULINGS § 4): a request of the peer's, signed with its node
// key, counts one req and its octets in blob_bytes. The size is known to both ends before the first octet goes.

// BlobAsked says that the peer asks for a blob of ours, or brings one: the answer is Permit or Withhold.
type BlobAsked struct {
	Peer    nostr.PubKey
	Created int64 // created_at of its token
	Octets  int64
}

// BlobFetching takes the budget of a request for a blob of the peer's before it is sent: the answer is Permit or Withhold.
type BlobFetching struct {
	Peer    nostr.PubKey
	Created int64 // created_at of our token
	Octets  int64
}

// BlobFetched says how such a request ended. What got no answer stays in doubt until the peer says what it counted.
type BlobFetched struct {
	Peer   nostr.PubKey
	Window int64 // as Permit said
	Octets int64
	Served bool // the peer answered with the blob; else it refused, and counted nothing
}

func (BlobAsked) input()    {}
func (BlobFetching) input() {}
func (BlobFetched) input()  {}

func blobLoad(octets int64) ledger.Counters {
	return ledger.Counters{spec.CounterReq: 1, spec.CounterBlobBytes: octets}
}

func (t *turn) blobAsked(in BlobAsked) {
	p := t.peers[in.Peer]
	if p == nil || len(p.Issued) == 0 || p.Stage == ended {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	g, w := p.Issued.at(in.Created, t.now)
	b, known := open(&p.Measured, g, w)
	c := blobLoad(in.Octets)
	if over := exceeds(p.allowed(w), b.Counters, c); over != "" {
		t.do(Withhold{Code: spec.CodeOverBudget, Limit: over, Until: w.End()})
		return
	}
	t.meter(b, c)
	t.account(p, known)
	t.do(Permit{Window: w.Epoch, Grant: g.ID})
}

func (t *turn) blobFetching(in BlobFetching) {
	p := t.peers[in.Peer]
	if p == nil || len(p.Held) == 0 || p.Stage == ended {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	if t.owes(p, in.Created) {
		t.do(Withhold{Code: spec.CodeOverBudget, Until: t.now + busySeconds})
		return
	}
	g, w := p.Held.at(in.Created, t.now)
	b, known := open(&p.Used, g, w)
	c := blobLoad(in.Octets)
	if over := exceeds(g.Limits, b.spent(), c); over != "" {
		t.do(Withhold{Code: spec.CodeOverBudget, Limit: over, Until: w.End()})
		return
	}
	b.send(c)
	again := b.reopen()
	t.used(p, known && !again)
	t.do(Permit{Window: w.Epoch, Grant: g.ID})
}

func (t *turn) blobFetched(in BlobFetched) {
	p := t.peers[in.Peer]
	if p == nil {
		return
	}
	b := lookup(p.Used, in.Window)
	if b == nil {
		return
	}
	c := blobLoad(in.Octets)
	if in.Served {
		b.confirm(c)
	} else {
		b.withdraw(c)
	}
	t.account(p, true)
	if len(p.Held) > 0 {
		t.receiptIfDue(p, p.Held.of(b.Window.Start()), b)
	}
}
