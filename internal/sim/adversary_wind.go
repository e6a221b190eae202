package sim

import (
	"fmt"
	"strconv"

	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/spec"
)

// quarterWind is stress that always blows from one quarter: one peer that breaks its streams again and again, and strangers that do
// the same. A node's reserves grow with the number of directions and never with the force of one, so the attacker buys at most one
// direction's worth, strangers buy nothing, and the operator is told whom the node depends on.
func quarterWind() *Adversary {
	return &Adversary{Name: "quarter-wind", What: "one peer that causes all the stress a node has",
		setup: func(w *world) error {
			n := w.nodes[0]
			n.turn(conduct{spend: 30, claim: honest})
			var gust func()
			gust = func() {
				for _, peer := range w.nodes[1:] {
					w.link(n.i, peer.i).stream = 0
					peer.strain[n.i]++
				}
				w.after(45_000, gust)
			}
			w.after(120_000, gust)
			return nil
		},
		price: windPrice}
}

const reserveBase, reserveMost = 3600, 86400

func windPrice(w *world) []Price {
	n, by := w.nodes[0], w.nodes[len(w.nodes)-1]
	var record strain.Record
	feed := func(from string, tier spec.Tier, times int64) {
		for i := range times {
			record = record.With(strain.Stress{At: origin + i, From: strain.Direction{Side: strain.Peer, Name: from}, Tier: tier})
		}
	}
	for i := range 500 {
		feed("stranger "+strconv.Itoa(i), spec.TierProbation, 3)
	}
	if got := record.Reserve(reserveBase, reserveMost); got != reserveBase {
		w.violate("strangers move no reserve", "%d", got)
	}
	record = strain.Record{}
	feed(n.key.String(), spec.TierMember, by.strain[n.i])
	once := strain.Record{}.With(strain.Stress{At: origin, From: strain.Direction{Side: strain.Peer, Name: n.key.String()}, Tier: spec.TierMember})
	got := record.Reserve(reserveBase, reserveMost)
	if got != once.Reserve(reserveBase, reserveMost) {
		w.violate("one direction moves a reserve once", "%d", got)
	}
	on, depends := record.Dependence()
	if by.strain[n.i] >= 20 && (!depends || on.Name != n.key.String()) {
		w.violate("a dependence is told", "after %d events from one side", by.strain[n.i])
	}
	p := w.priceOf("quarter-wind", by, n)
	p.Note = fmt.Sprintf("%d gusts: a reserve of %d s became %d s, and the operator was warned", by.strain[n.i], reserveBase, got)
	return []Price{p}
}
