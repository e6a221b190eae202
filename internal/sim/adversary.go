package sim

import (
	"fmt"
	"strings"

	"fleetmesh.org/fleetmesh/spec"
)

// Adversary is one hostile behaviour. It has a file of its own.
type Adversary struct {
	Name string
	What string // in a sentence

	setup func(w *world) error
	price func(w *world) []Price
}

// Price is what a behaviour cost, as one honest peer saw it.
type Price struct {
	Adversary string        `json:"adversary"`
	Variant   string        `json:"variant,omitempty"`
	Worst     spec.Severity `json:"-"`
	Severity  string        `json:"severity"`
	First     int64         `json:"first_window"` // counted from 1, in which the first finding was made; 0: none
	Windows   int64         `json:"windows"`      // evaluated
	Tier      spec.Tier     `json:"tier"`         // in the end
	Granted   int64         `json:"events_in"`    // that it may push in a window in the end
	Took      int64         `json:"took"`         // events that the peer took from it in all
	Ended     bool          `json:"ended"`
	Reported  string        `json:"reported,omitempty"` // the gravest outcome that the peer published about it, where there are reports
	Note      string        `json:"note,omitempty"`
}

// Adversaries lists every behaviour.
func Adversaries() []*Adversary {
	return []*Adversary{overspender(), liar(), boaster(), silent(), replayer(), forker(), hopForger(), sybils(), spammer(), colluders(), quarterWind()}
}

func adversaryOf(name string) (*Adversary, error) {
	if name == "" || name == "none" {
		return nil, nil
	}
	var names []string
	for _, a := range Adversaries() {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return nil, fmt.Errorf("no adversary %q: there are %s", name, strings.Join(names, ", "))
}

// first makes the first node a rogue.
func first(c func(w *world) conduct) func(w *world) error {
	return func(w *world) error {
		w.nodes[0].turn(c(w))
		return nil
	}
}

// factor is what an overspending adversary pushes, in hundredths of its limit.
func (w *world) factor(otherwise int64) int64 {
	if w.cfg.Factor > 0 {
		return w.cfg.Factor
	}
	return otherwise
}

// priced is what the second node, honest, made of the first.
func priced(name string) func(w *world) []Price {
	return func(w *world) []Price { return []Price{w.priceOf(name, w.nodes[len(w.nodes)-1], w.nodes[0])} }
}

func (w *world) priceOf(name string, by, of *node) Price {
	v := w.watch.of(by.i, of.i)
	p := Price{Adversary: name, Worst: v.Worst, Severity: v.Worst.String(), First: v.First, Windows: v.Seen, Tier: v.Tier, Granted: v.Granted, Took: v.Took}
	p.Reported = by.hasReported(of)
	if w.cfg.Factor > 0 {
		p.Variant = fmt.Sprintf("%d %%", w.cfg.Factor)
	}
	for _, peer := range by.mesh.Peers(by.clock()) {
		if peer.Key == of.key {
			p.Tier = peer.Standing.Tier
			p.Ended = peer.Stage == "ended"
			if peer.Issued == nil {
				p.Granted = 0
			} else {
				p.Granted = peer.Issued.Limits[spec.LimitEventsIn]
			}
		}
	}
	return p
}
