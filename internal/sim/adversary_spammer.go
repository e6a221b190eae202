package sim

import (
	"fmt"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// spammer is a member in good standing that reports honest nodes: with a genuine receipt of theirs that does not say what the report
// says, or with nothing. A reader that runs the classifier again refutes the first and finds the second unsupported, and its voice
// weighs less with each.
func spammer() *Adversary {
	return &Adversary{Name: "report-spammer", What: "publishes reports that its own evidence does not carry",
		setup: first(func(w *world) conduct { return conduct{spend: 50, claim: honest, accuses: true} }),
		price: func(w *world) []Price {
			r, reader, victim := w.nodes[0], w.nodes[len(w.nodes)-1], w.nodes[1]
			var record ledger.Record
			counts := map[ledger.Support]int{}
			for i := range 20 {
				j := w.judged(w.falseReport(r, victim, i%2 == 0), reader)
				record = record.With(j)
				counts[j.Support]++
				if j.Support == ledger.Supported {
					w.violate("no false report is supported", "of node %d", victim.i)
				}
			}
			v := reader.voice(r, spec.S3)
			v.Tier, v.CleanWindows, v.Record = spec.TierAnchor, spec.C().Trust.AgeWindows, record // however well it stood
			w.unmoved(reader, victim, []ledger.Voice{v})
			p := w.priceOf("report-spammer", reader, r)
			p.Note = fmt.Sprintf("%d reports refuted, %d unsupported: its voice weighs %s", counts[ledger.Refuted], counts[ledger.Unsupported], v.Weight().RatString())
			return []Price{p}
		}}
}
