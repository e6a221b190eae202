package sim

import (
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
)

// hopForger puts another node's name at the head of a path, with a signature that the other never made, and signs its own hop
// after it. The finding must fall on it and never on the node whose name it took. Every signature here is real, or really forged.
func hopForger() *Adversary {
	return &Adversary{Name: "hop-forger", What: "forges the hop of another node and signs its own after it",
		setup: first(func(w *world) conduct {
			return conduct{spend: 10, claim: honest, forge: forgeHop}
		}),
		price: priced("hop-forger")}
}

func forgeHop(r *rogue, to *node, f *frame) {
	w := r.n.w
	victim := w.nodes[1]
	e := &nostr.Event{Kind: 1, CreatedAt: r.n.unix(), Content: "carried from afar", Tags: []nostr.Tag{}}
	if err := identity.SignEvent(r.n.agent, e); err != nil {
		w.violate("an event can be signed", "%v", err)
		return
	}
	env := &ledger.Envelope{Event: e}
	sig, err := r.n.agent.Sign(ledger.HopMessage(e.ID, "", r.n.unix()))
	if err != nil {
		w.violate("a hop can be signed", "%v", err)
		return
	}
	env.Path = []ledger.Hop{{Node: victim.key, At: r.n.unix(), Sig: sig}} // the forger's signature under the victim's name
	if err := env.SignHop(r.n.agent, r.n.unix()); err != nil {
		w.violate("a hop can be signed", "%v", err)
		return
	}
	f.envelopes = []*ledger.Envelope{env}
}
