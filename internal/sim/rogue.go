package sim

import (
	"encoding/json"
	"maps"
	"slices"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// rogue is a subject that keeps its own books and says of them what it likes. It peers as everybody does, and serves its peers
// honestly: what is wrong with it is how it uses what they grant.
type rogue struct {
	n      *node
	act    conduct
	held   map[int][]*ledger.Grant // newest first
	books  map[[2]int64]*ownBook   // by peer and window
	thread map[string]bool
}

// conduct is what an adversary does in each window. Its file says why.
type conduct struct {
	spend   int64                                      // events to push, in hundredths of the limit
	claim   func(used ledger.Counters) ledger.Counters // nil: no receipt at all
	stale   bool                                       // always the same events
	fork    bool                                       // two receipts in one place
	replay  bool                                       // every frame again, and receipts under new ids
	forge   func(r *rogue, to *node, f *frame)         // what it does to a deliver
	endings bool                                       // ends the peering after a while and begins anew
	accuses bool                                       // publishes reports about an honest node, where there are reports
}

type ownBook struct {
	used   ledger.Counters
	chain  *ledger.Chain
	window ledger.Window
}

func honest(used ledger.Counters) ledger.Counters { return used }

// turn makes a node a rogue.
func (n *node) turn(c conduct) {
	n.rogue = &rogue{n: n, act: c, held: map[int][]*ledger.Grant{}, books: map[[2]int64]*ownBook{}, thread: map[string]bool{}}
	n.w.after(100_000, n.rogue.window)
}

// window uses what each peer granted, and plans the next. It moves well after the last window's grace, when a claim that did not come is overdue.
func (r *rogue) window() {
	w := r.n.w
	for _, i := range slices.Sorted(maps.Keys(r.held)) {
		r.session(w.nodes[i])
	}
	seconds := w.cfg.Seconds
	left := (seconds - r.n.unix()%seconds) * 1000
	w.after(left+1000, r.claims)
	w.after(left+100_000, r.window)
	if r.act.accuses && w.cfg.Reports {
		r.accuse()
	}
	if r.act.endings && w.now/1000/seconds == 5 {
		for _, i := range slices.Sorted(maps.Keys(r.held)) {
			peer := w.nodes[i]
			r.n.step(mesh.EndPeer{Peer: peer.key, Reason: "a new beginning"})
			r.held[i] = nil
			w.after(20_000, func() { r.n.step(mesh.AddPeer{Peer: peer.key}) })
		}
	}
}

// grant is what the peer holds a window to, as far as the rogue knows.
func (r *rogue) grant(i int, start int64) *ledger.Grant {
	list := r.held[i]
	for _, g := range list {
		if g.CreatedAt+spec.C().Window.SkewSeconds <= start {
			return g
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

func (r *rogue) book(peer *node, created int64) *ownBook {
	w := ledger.WindowAt(created, r.n.w.cfg.Seconds)
	at := [2]int64{int64(peer.i), w.Epoch}
	b := r.books[at]
	if b == nil {
		g := r.grant(peer.i, w.Start())
		if g == nil {
			return &ownBook{used: ledger.Counters{}, window: w}
		}
		b = &ownBook{used: ledger.Counters{}.Clone(), chain: ledger.NewChain(g.ID, w, r.n.key), window: w}
		r.books[at] = b
	}
	return b
}

// session pushes what the conduct wants, without asking anybody.
func (r *rogue) session(peer *node) {
	now := r.n.unix()
	g := r.grant(peer.i, ledger.WindowAt(now, r.n.w.cfg.Seconds).Start())
	if g == nil || r.act.spend == 0 && r.act.forge == nil {
		return
	}
	body, err := json.Marshal(mesh.OpenBody{Shard: "all", Filter: serveAll[0], Mode: mesh.ModePush, Neg: "61"})
	if err != nil {
		r.n.w.violate("a body can be encoded", "%v", err)
		return
	}
	thread := r.n.newID()
	r.thread[thread] = true
	r.send(peer, thread, &frame{typ: spec.MsgSyncOpen, octets: openOctets, body: body})
	k := g.Limits[spec.LimitEventsIn] * r.act.spend / 100
	size := int64(1)
	if k > 0 {
		size = max(1, (g.Limits[spec.LimitBytesIn]*r.act.spend/100-4*openOctets)/k)
	}
	r.n.w.after(2000, func() {
		f := &frame{typ: spec.MsgSyncDeliver, octets: smallFrame + k*size, count: k, at: r.n.made, body: json.RawMessage(`{"count":1}`)}
		if r.act.stale && r.n.made > 0 {
			f.at = 0
		}
		switch {
		case r.act.forge != nil:
			r.act.forge(r, peer, f)
		case r.n.w.cfg.Reports:
			r.sign(f, g)
		}
		r.n.made = max(r.n.made, f.at+k)
		r.send(peer, thread, f)
	})
	r.n.w.after(5000, func() {
		r.send(peer, thread, &frame{typ: spec.MsgSyncDone, octets: smallFrame, body: json.RawMessage(`{"have":0,"need":0}`)})
	})
}

func (r *rogue) send(peer *node, thread string, f *frame) {
	f.to, f.thread, f.created, f.id, f.control = peer, thread, r.n.unix(), r.n.newID(), true
	b := r.book(peer, f.created)
	b.used.Add(ledger.Counters{spec.CounterBytesIn: f.octets, spec.CounterEventsIn: f.count})
	if f.typ == spec.MsgSyncOpen {
		b.used.Add(ledger.Counters{spec.CounterReq: 1, spec.CounterSyncRanges: 1})
	}
	r.n.queue(f)
	if r.act.replay {
		again := *f
		r.n.w.after(3000, func() { r.n.queue(&again) })
	}
}

// dialled counts a session on its own books.
func (r *rogue) dialled(f *frame) {
	if len(r.held[f.to.i]) > 0 {
		r.book(f.to, f.created).used.Add(ledger.Counters{spec.CounterConnOpen: 1})
	}
}

// heard looks at what comes before mesh does, and keeps what belongs to its own sessions.
func (r *rogue) heard(f *frame) bool {
	for _, g := range f.grants {
		if list := r.held[f.from.i]; len(list) == 0 || g.CreatedAt > list[0].CreatedAt {
			r.held[f.from.i] = append([]*ledger.Grant{g}, list...)
			r.held[f.from.i] = r.held[f.from.i][:min(len(r.held[f.from.i]), 2)]
		}
	}
	if !r.thread[f.thread] {
		return false
	}
	if f.typ != spec.MsgSyncRefuse {
		r.book(f.from, f.created).used.Add(ledger.Counters{spec.CounterBytesOut: f.octets})
	}
	return true
}

// claims sends what the conduct says of every window that is over.
func (r *rogue) claims() {
	now := r.n.unix()
	for _, at := range slices.SortedFunc(maps.Keys(r.books), func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) }) {
		b := r.books[at]
		if b.window.End() > now {
			continue
		}
		delete(r.books, at)
		if r.act.claim == nil {
			continue
		}
		peer := r.n.w.nodes[at[0]]
		first := r.receipt(b, r.act.claim(b.used.Clone()), now)
		r.tell(peer, first)
		if r.act.fork {
			other := b.used.Clone()
			other[spec.CounterBytesIn]++
			r.tell(peer, r.receipt(b, other, now))
		}
		if r.act.replay {
			r.tell(peer, first)
			r.tell(peer, first)
		}
	}
}

func (r *rogue) receipt(b *ownBook, claim ledger.Counters, at int64) *ledger.Receipt {
	rc, err := b.chain.Next(r.n.agent, claim, nil, at)
	if err != nil {
		r.n.w.violate("a receipt can be signed", "%v", err)
	}
	return rc
}

func (r *rogue) tell(peer *node, rc *ledger.Receipt) {
	if rc == nil {
		return
	}
	r.n.queue(&frame{to: peer, typ: spec.MsgBudgetClose, id: r.n.newID(), thread: "", created: r.n.unix(), body: rc.JSON(), control: true, octets: 1200})
}

// admits checks the envelopes of a deliver as a host does: every signature of every hop, and the length of the path. What it can
// prove against the deliverer it brings to mesh.
func (n *node) admits(f *frame) bool {
	for i, err := range ledger.VerifyEnvelopes(nostr.NewVerifier(), f.envelopes) {
		e := f.envelopes[i]
		switch {
		case err == nil && len(e.Path) <= spec.C().Forwarding.MaxHops:
		case identity.CodeOf(err) == ledger.HopSignature && e.Triples()[len(e.Path)-1].Holds() && e.Deliverer() == f.from.key:
			// It put its own name to a hop that nobody made.
			n.step(mesh.Found{Peer: f.from.key, Finding: ledger.ForgedSignature, Created: f.created, Detail: "hop",
				Evidence: []mesh.Exhibit{{Type: ledger.EvidenceEnvelope, Text: e.JSON()}}})
			return false
		case err == nil:
			if n.deep++; n.deep > 1 {
				n.step(mesh.Found{Peer: f.from.key, Finding: ledger.HopLimitAbuse, Created: f.created, Detail: "path"})
			}
			return false
		default:
			n.step(mesh.Faulted{Peer: f.from.key, Thread: f.thread, Code: spec.CodeInvalid})
			return false
		}
	}
	return true
}
