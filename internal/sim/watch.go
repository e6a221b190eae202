package sim

import (
	"bytes"
	"encoding/json"
	"fmt"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// watch is what the checkers remember. They look at what leaves a node and at what it tells, never into its state.
type watch struct {
	granted  map[[2]nostr.PubKey]*ledger.Grant // the last of each pair
	faulted  map[[2]nostr.PubKey]bool          // a finding since that grant
	clean    map[[2]nostr.PubKey]int64         // windows without a finding since that grant
	signed   map[place][32]byte                // what an honest node said in each place of a chain
	verdicts map[[2]int]*Verdicts
}

// place is one place of a receipt chain.
type place struct {
	subject nostr.PubKey
	grant   nostr.ID
	window  int64
	seq     int64
}

// Verdicts is what one node made of another.
type Verdicts struct {
	Closed  [5]int64      // windows by severity
	Worst   spec.Severity // of all
	First   int64         // the window, counted from 1, of the first finding; 0 if none
	Tier    spec.Tier     // in the end
	Ended   bool
	Granted int64 // events_in that the subject may push in the end
	Took    int64 // events that the issuer took
	Seen    int64 // windows seen
}

func (v *watch) init() {
	v.granted = map[[2]nostr.PubKey]*ledger.Grant{}
	v.faulted = map[[2]nostr.PubKey]bool{}
	v.clean = map[[2]nostr.PubKey]int64{}
	v.signed = map[place][32]byte{}
	v.verdicts = map[[2]int]*Verdicts{}
}

func (v *watch) of(issuer, subject int) *Verdicts {
	x := v.verdicts[[2]int{issuer, subject}]
	if x == nil {
		x = &Verdicts{}
		v.verdicts[[2]int{issuer, subject}] = x
	}
	return x
}

// told looks at everything that mesh reports.
func (w *world) told(n *node, t mesh.Tell) {
	w.note(n, "%s %d %s %d %s %s %s", t.What, w.byKey[t.Peer].i, t.Code, t.Window, t.Severity, "", t.Detail)
	subject := w.byKey[t.Peer]
	if t.What == "receipt-impossible" && n.rogue == nil {
		w.violate("an honest node can always claim", "node %d about %d: %s", n.i, subject.i, t.Detail)
	}
	w.court.told(w, n, subject, t)
	if t.What != "window-closed" {
		return
	}
	w.count.windows++
	v := w.watch.of(n.i, subject.i)
	v.Closed[t.Severity]++
	v.Seen++
	v.Worst = v.Worst.Worse(t.Severity)
	if t.Severity > spec.S0 {
		if v.First == 0 {
			v.First = v.Seen
		}
		w.watch.faulted[[2]nostr.PubKey{n.key, subject.key}] = true
		if n.rogue == nil && subject.rogue == nil {
			w.violate("an honest node is never charged by an honest node", "node %d charges node %d with %s for window %d: %s%s", n.i, subject.i, t.Severity, t.Window, t.Detail, n.verdict(subject))
		}
	} else {
		w.watch.faulted[[2]nostr.PubKey{n.key, subject.key}] = false
		w.watch.clean[[2]nostr.PubKey{n.key, subject.key}]++
	}
	if w.onClose != nil {
		w.onClose(n, subject, t)
	}
}

// verdict is the last verdict on a peer, for people.
func (n *node) verdict(subject *node) string {
	for _, p := range n.mesh.Peers(n.clock()) {
		if p.Key == subject.key && len(p.Windows) > 0 {
			v := p.Windows[len(p.Windows)-1]
			return fmt.Sprintf("; measured %v, claimed %v", v.Measured, v.Claimed)
		}
	}
	return ""
}

// grants holds what an honest node issues against what it issued before.
func (w *world) grantedCheck(n *node, g *ledger.Grant) {
	pair := [2]nostr.PubKey{g.Issuer, g.Subject}
	for i := range spec.C().Limits {
		l := spec.C().Limits[i].Name
		if g.Limits[l] > spec.C().Ceiling(l, g.Tier) {
			w.violate("no limit above the ceiling of its tier", "node %d grants %s %d at tier %s", n.i, l, g.Limits[l], g.Tier)
		}
	}
	if before := w.watch.granted[pair]; before != nil {
		if rank(g.Tier) > rank(before.Tier) && (n.vouched[w.byKey[g.Subject].i] || g.Tier != n.seeds(w.byKey[g.Subject])) {
			w.violate("no path raises a tier", "node %d raises %d from %s to %s", n.i, w.byKey[g.Subject].i, before.Tier, g.Tier)
		}
		if w.watch.faulted[pair] {
			for i := range spec.C().Limits {
				l := spec.C().Limits[i].Name
				step := max(spec.C().Growth.Step.Floor(spec.C().Ceiling(l, before.Tier)), spec.C().Growth.StepMin.Floor(spec.C().Ceiling(l, before.Tier)))
				if g.Limits[l] > before.Limits[l]+w.watch.clean[pair]*step { // clean windows before the finding grew it, each by a step
					w.violate("a remedy never raises", "node %d raises %s from %d to %d after a finding", n.i, l, before.Limits[l], g.Limits[l])
				}
			}
		}
	} else if rank(g.Tier) > rank(n.seeds(w.byKey[g.Subject])) {
		w.violate("no path raises a tier", "node %d begins with %d at %s", n.i, w.byKey[g.Subject].i, g.Tier)
	}
	if g.Tier == n.seeds(w.byKey[g.Subject]) {
		n.vouched[w.byKey[g.Subject].i] = true // an operator's word counts once
	}
	if w.watch.faulted[pair] {
		w.court.strict[pair] = g
	}
	w.watch.granted[pair], w.watch.faulted[pair], w.watch.clean[pair] = g, false, 0
	v := w.watch.of(n.i, w.byKey[g.Subject].i)
	v.Tier, v.Granted = g.Tier, g.Limits[spec.LimitEventsIn]
}

func (w *world) granted(n *node, g *ledger.Grant) {
	if n.rogue == nil {
		w.grantedCheck(n, g)
	}
}

// rank orders tiers; revoked is the lowest.
func rank(t spec.Tier) int { return spec.C().TierRank(t) }

// receiptLeaves demands that a receipt is on the disk before it is sent, and that an honest node never says two things in one place.
func (w *world) receiptLeaves(n *node, to nostr.PubKey, r *ledger.Receipt) {
	w.count.receipts++
	if n.rogue != nil {
		return
	}
	at := place{n.key, r.Grant, r.Window, r.Seq}
	link := r.Link()
	if was, ok := w.watch.signed[at]; ok && was != link {
		w.violate("an honest node never forks its chain", "node %d, window %d, seq %d", n.i, r.Window, r.Seq)
	}
	w.watch.signed[at] = link
	if bytes.Contains(n.disk["books/"+to.String()], []byte(r.Sig.String())) {
		return
	}
	var record struct {
		Used []struct {
			Window ledger.Window
			Last   *ledger.Receipt
		}
	}
	if err := json.Unmarshal(n.disk["books/"+to.String()], &record); err == nil {
		for _, b := range record.Used {
			if b.Window.Epoch == r.Window && b.Last != nil && b.Last.Seq >= r.Seq && (b.Last.Seq > r.Seq || b.Last.Link() == link) {
				return
			}
		}
	}
	w.violate("a receipt is never sent before it is journaled", "node %d, window %d, seq %d", n.i, r.Window, r.Seq)
}
