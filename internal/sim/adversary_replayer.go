package sim

// replayer sends the same events window after window, every frame twice, and every receipt three times. Only the receiver knows
// what it already held; repeated frames and receipts change nothing.
func replayer() *Adversary {
	return &Adversary{Name: "replayer", What: "delivers the same events in every window, repeats its frames and receipts",
		setup: first(func(w *world) conduct {
			return conduct{spend: w.factor(60), claim: honest, stale: true, replay: true}
		}),
		price: priced("replayer")}
}
