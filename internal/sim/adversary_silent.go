package sim

// silent uses its grant, never says what it used, and comes back for more: active silence.
func silent() *Adversary {
	return &Adversary{Name: "silent", What: "uses its grant and sends no receipt",
		setup: first(func(w *world) conduct { return conduct{spend: w.factor(80)} }),
		price: priced("silent")}
}
