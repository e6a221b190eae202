package sim

import "fleetmesh.org/fleetmesh/internal/ledger"

// liar claims half of what it used. It must never fare better than the over-spender of the same appetite.
func liar() *Adversary {
	return &Adversary{Name: "liar", What: "claims half of what it used, ends the peering after a while and begins anew",
		setup: first(func(w *world) conduct {
			return conduct{spend: w.factor(80), claim: scaled(1, 2), endings: w.cfg.Factor == 0}
		}),
		price: priced("liar")}
}

// boaster claims twice what it used: a claim that does not agree is a misreport, whichever way.
func boaster() *Adversary {
	return &Adversary{Name: "boaster", What: "claims twice what it used",
		setup: first(func(w *world) conduct { return conduct{spend: w.factor(40), claim: scaled(2, 1)} }),
		price: priced("boaster")}
}

func scaled(num, den int64) func(ledger.Counters) ledger.Counters {
	return func(used ledger.Counters) ledger.Counters {
		for n := range used {
			used[n] = used[n] * num / den
		}
		return used
	}
}
