package sim

// forker signs two receipts for one place of its chain, so that it can show either later.
func forker() *Adversary {
	return &Adversary{Name: "receipt-forker", What: "signs two receipts for one place in its chain",
		setup: first(func(w *world) conduct { return conduct{spend: w.factor(60), claim: honest, fork: true} }),
		price: priced("receipt-forker")}
}
