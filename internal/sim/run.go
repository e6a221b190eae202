package sim

import (
	"encoding/json"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// Result is what came of a run.
type Result struct {
	Nodes      int         `json:"nodes"`
	Windows    int         `json:"windows"`
	Seed       uint64      `json:"seed"`
	Seconds    int64       `json:"window_seconds"`
	Adversary  string      `json:"adversary,omitempty"`
	Trace      string      `json:"trace"` // SHA-256 of everything that happened
	Steps      int64       `json:"steps"`
	Frames     int64       `json:"frames"`
	Lost       int64       `json:"lost"`
	Crashes    int64       `json:"crashes"`
	Receipts   int64       `json:"receipts"`
	Closed     int64       `json:"windows_closed"`
	Notices    int64       `json:"notices,omitempty"`   // complaints told to the peer
	Reports    int64       `json:"reports,omitempty"`   // published
	Readings   int64       `json:"readings,omitempty"`  // reports judged by somebody else
	Questions  int64       `json:"questions,omitempty"` // of standing
	Answers    int64       `json:"answers,omitempty"`
	Prices     []Price     `json:"prices,omitempty"`
	Violations []Violation `json:"violations"`
	Lines      []string    `json:"-"`
}

// runRegion runs one world to its end.
func runRegion(cfg Config) (*Result, error) {
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	adv, err := adversaryOf(cfg.Adversary)
	if err != nil {
		return nil, err
	}
	for range w.cfg.Nodes {
		if _, err := w.add(); err != nil {
			return nil, err
		}
	}
	if adv != nil {
		if err := adv.setup(w); err != nil {
			return nil, fmt.Errorf("set up %s: %w", adv.Name, err)
		}
	}
	w.meet()
	w.after(60_000, w.storms)
	if w.cfg.Reports {
		w.after(90_000, w.askAround)
	}
	span := int64(cfg.Windows) * w.cfg.Seconds * 1000
	w.run(span)
	w.settle(span)
	var prices []Price
	if adv != nil {
		prices = adv.price(w)
	}
	r := w.result()
	r.Prices = prices
	return r, nil
}

// result sums up.
func (w *world) result() *Result {
	r := &Result{Nodes: w.cfg.Nodes, Windows: w.cfg.Windows, Seed: w.cfg.Seed, Seconds: w.cfg.Seconds, Adversary: w.cfg.Adversary}
	r.Trace, r.Steps, r.Frames, r.Lost, r.Crashes = w.digest(), w.count.steps, w.count.frames, w.count.lost, w.count.crashes
	r.Notices, r.Reports, r.Readings, r.Questions, r.Answers = w.count.notices, w.count.reports, w.count.readings, w.count.questions, w.count.answers
	r.Receipts, r.Closed, r.Violations, r.Lines = w.count.receipts, w.count.windows, w.violations, w.lines
	if r.Violations == nil {
		r.Violations = []Violation{}
	}
	return r
}

// meet lets operators add each other, each at a time of its own.
func (w *world) meet() {
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a == b || !w.wanted(a, b) {
				continue
			}
			if a.i < b.i || !w.wanted(b, a) {
				w.pairs = append(w.pairs, pairOf(a.i, b.i))
			}
			w.after(w.dice.between(0, 30_000), func() { a.befriend(b) })
		}
	}
}

// wanted says who peers with whom: everybody in small worlds, pairs in large ones.
func (w *world) wanted(a, b *node) bool {
	if a.rogue != nil && b.rogue != nil {
		return w.cfg.Adversary == "colluders"
	}
	if len(w.nodes) <= 8 && !w.oneWay || a.rogue != nil || b.rogue != nil {
		return true
	}
	return a.i/2 == b.i/2
}

// seeds is the tier at which a node's operator lets another in.
func (n *node) seeds(peer *node) spec.Tier {
	if peer.rogue != nil {
		if n.w.cfg.Adversary == "sybils" {
			return spec.TierProbation
		}
		return spec.TierMember
	}
	if n.w.cfg.Load != Mixed {
		return spec.TierProbation
	}
	d := rng{n.w.cfg.Seed ^ uint64(n.i*1000+peer.i)}
	return []spec.Tier{spec.TierProbation, spec.TierProbation, spec.TierMember, spec.TierTrusted}[d.below(4)]
}

func (n *node) befriend(peer *node) {
	if !n.up {
		n.w.after(10_000, func() { n.befriend(peer) })
		return
	}
	n.friends[peer.i] = true
	add := mesh.AddPeer{Peer: peer.key}
	if t := n.seeds(peer); t != spec.TierProbation {
		add.Tier = t
	}
	if n.rogue == nil && n.w.cfg.Load != Idle {
		mode := []string{mesh.ModeBoth, mesh.ModePull, mesh.ModePush}[n.w.dice.below(3)]
		if n.w.cfg.Load != Mixed {
			mode = mesh.ModeBoth
		}
		add.Wants = []mesh.Want{{Shard: "all", Filter: json.RawMessage(`{}`), Mode: mode}}
	}
	life := n.life
	n.step(add)
	if n.life != life { // it crashed over it; the operator tries again
		n.w.after(240_000, func() { n.befriend(peer) })
		return
	}
	n.step(mesh.Described{Descriptor: peer.descriptor()})
}

// settle ends the faults, lets four windows more go by, and demands that every peering of honest nodes stands and owes nothing.
func (w *world) settle(span int64) {
	w.calm = true
	clear(w.parted)
	if w.cfg.Brief {
		w.run(span + (w.cfg.Seconds+200)*1000)
		return
	}
	w.run(span + (2*w.cfg.Seconds+700)*1000)
	w.still = true
	w.run(span + (4*w.cfg.Seconds+1400)*1000)
	for _, n := range w.nodes {
		if n.rogue != nil || !n.up {
			continue
		}
		for _, p := range n.mesh.Peers(n.clock()) {
			peer := w.byKey[p.Key]
			if peer.rogue == nil && (p.Stage != "active" || p.Held == nil) && w.wanted(n, peer) {
				w.violate("in calm weather every peering stands", "node %d with %d: %s", n.i, peer.i, p.Stage)
			}
		}
		if n.rogue == nil {
			w.settled(n)
		}
		if n.rogue == nil && w.cfg.Reports {
			w.heardOut(n)
		}
	}
}

// settled demands that no window of an honest pair stays in dispute.
func (w *world) settled(n *node) {
	for _, p := range n.mesh.Peers(n.clock()) {
		peer := w.byKey[p.Key]
		if peer.rogue != nil || p.Issued == nil {
			continue
		}
		late := p.Issued.Epoch - 3
		if slices.ContainsFunc(p.Receipts, func(h mesh.ReceiptHead) bool { return h.Way == "received" && h.Window <= late }) {
			w.violate("in calm weather every window is settled", "node %d about %d: a window before %d is open", n.i, peer.i, late)
		}
	}
}
