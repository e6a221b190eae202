package sim

import (
	"fmt"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// sybils are many strangers of one hand: each takes what a stranger is given, and all of them report one honest node. Identities
// cost nothing, so nothing may be had for them: weight at probation is zero, and no number of zeros is more.
func sybils() *Adversary {
	return &Adversary{Name: "sybils", What: "many strangers that all report one honest node as malicious",
		setup: func(w *world) error {
			for i := range len(w.nodes) - 2 {
				w.nodes[i].turn(conduct{spend: 100, claim: honest, accuses: true})
			}
			return nil
		},
		price: func(w *world) []Price {
			reader, victim := w.nodes[len(w.nodes)-1], w.nodes[len(w.nodes)-2]
			var voices []ledger.Voice
			for _, n := range w.nodes {
				if n.rogue != nil {
					voices = append(voices, reader.voice(n, spec.S4))
				}
			}
			own := len(voices)
			for i := range 1000 { // and a thousand more that nobody has heard of
				voices = append(voices, ledger.Voice{Reporter: nostr.PubKey{30: byte(i >> 8), 31: byte(i)}, Tier: spec.TierProbation, CleanWindows: 100_000, Topic: spec.TopicTransit, Severity: spec.S4})
			}
			w.unmoved(reader, victim, voices)
			p := w.priceOf("sybils", reader, w.nodes[0])
			p.Variant = fmt.Sprintf("%d of them", own)
			p.Note = "each has what a stranger has; their reports weigh nothing"
			return []Price{p}
		}}
}
