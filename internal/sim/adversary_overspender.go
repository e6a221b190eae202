package sim

// overspender uses more than it was granted and says so. It is unshaped and not dishonest, and is priced by how far it goes.
func overspender() *Adversary {
	return &Adversary{Name: "over-spender", What: "pushes more than it was granted, and claims all of it",
		setup: first(func(w *world) conduct { return conduct{spend: w.factor(250), claim: honest} }),
		price: priced("over-spender")}
}
