package sim

import (
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// voice is what a reporter's finding weighs with this node: by what this node grants it, and by nothing that it says of itself.
func (n *node) voice(reporter *node, s spec.Severity) ledger.Voice {
	v := ledger.Voice{Reporter: reporter.key, Tier: spec.TierProbation, Topic: spec.TopicTransit, Severity: s}
	for _, p := range n.mesh.Peers(n.clock()) {
		if p.Key == reporter.key {
			v.Tier, v.CleanWindows = p.Standing.Tier, p.Standing.CleanWindows
		}
	}
	return v
}

// unmoved demands that voices do not move a reader's view of an honest node.
func (w *world) unmoved(reader, victim *node, voices []ledger.Voice) {
	own := w.watch.of(reader.i, victim.i).Worst
	if got := ledger.View(spec.TopicTransit, own, voices); got != own {
		w.violate("no number of voices without weight moves a view", "node %d sees node %d at %s, found %s itself", reader.i, victim.i, got, own)
	}
}

// falseReport makes a report of a finding that never was. With evidence it carries a genuine receipt of the victim's, signed by it, for other numbers than
// the report's.
func (w *world) falseReport(by, victim *node, evidence bool) *ledger.Report {
	now := by.unix()
	window := ledger.WindowAt(now, w.cfg.Seconds).Epoch - 1
	frame := &ledger.Frame{ID: nostr.ID{31: byte(by.i + 1)}, Issuer: by.key, CreatedAt: now - 3600, Window: w.cfg.Seconds, Expiration: now + 86400}
	w.court.frames[frame.ID] = frame
	r := &ledger.Report{Reporter: by.key, Subject: victim.key, At: now, Outcome: spec.S3, Topic: spec.TopicTransit, Grant: frame.ID, First: window, Last: window,
		Observed: []ledger.Observed{{Limit: spec.LimitEventsIn, Measured: 700, Allowed: 750}}, Claimed: []ledger.Claimed{{Limit: spec.LimitEventsIn, Count: 700}}, Expiration: now + 86400}
	if evidence {
		chain := ledger.NewChain(frame.ID, ledger.Window{Epoch: window, Length: w.cfg.Seconds}, victim.key)
		rc, err := chain.Next(victim.agent, ledger.Counters{spec.CounterEventsIn: 700}, nil, now)
		if err != nil {
			w.violate("a receipt can be signed", "%v", err)
			return r
		}
		a, err := ledger.NewArtefact(ledger.EvidenceReceipt, rc.JSON())
		if err != nil {
			w.violate("evidence has a digest", "%v", err)
			return r
		}
		r.Evidence = append(r.Evidence, a)
	}
	return r
}
