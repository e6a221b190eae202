package sim

import (
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// colluders are two members that peer with each other, vouch for each other, and report one honest node alike. What they give each other
// counts with nobody else, and two members weigh half of what moves a view.
func colluders() *Adversary {
	return &Adversary{Name: "colluders", What: "two members that vouch for each other and report one honest node",
		setup: func(w *world) error {
			w.nodes[0].turn(conduct{spend: 90, claim: honest, accuses: true})
			w.nodes[1].turn(conduct{spend: 90, claim: honest, accuses: true})
			return nil
		},
		price: func(w *world) []Price {
			reader, victim := w.nodes[len(w.nodes)-1], w.nodes[len(w.nodes)-2]
			var voices []ledger.Voice
			for _, n := range w.nodes[:2] {
				v := reader.voice(n, spec.S4)
				v.CleanWindows = spec.C().Trust.AgeWindows // as old as age counts, and never caught
				voices = append(voices, v)
			}
			w.unmoved(reader, victim, voices)
			p := w.priceOf("colluders", reader, w.nodes[0])
			p.Note = "both voices together weigh one half; one is needed"
			return []Price{p}
		}}
}
