package sim

import (
	"fmt"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Curve is how one limit of every peering moved, window by window, in thousandths of the tier's ceiling.
type Curve struct {
	Name  string  `json:"name"`
	Load  Load    `json:"load"`
	Then  Load    `json:"then,omitempty"`
	Least []int64 `json:"least"`
	Mean  []int64 `json:"mean"`
	Most  []int64 `json:"most"`

	pairs int64 // that it is of
}

// Talk is a load of sessions that move nothing.
const Talk Load = "talk"

// growRegion is Grow in one world.
func growRegion(cfg Config, limit spec.Limit) (*Curve, *Result, error) {
	w, err := newWorld(cfg)
	if err != nil {
		return nil, nil, err
	}
	for range cfg.Nodes {
		if _, err := w.add(); err != nil {
			return nil, nil, fmt.Errorf("grow: %w", err)
		}
	}
	w.calm, w.oneWay = true, true
	w.meet()
	c := &Curve{Name: string(cfg.Load), Load: cfg.Load, Then: cfg.Then, pairs: int64(cfg.Nodes / 2)}
	var sample func()
	sample = func() {
		c.take(w, limit)
		w.after(w.cfg.Seconds*1000, sample)
	}
	// A window is evaluated after its grace. What it left of the limit shows just before the next one is.
	w.after((w.cfg.Seconds+w.cfg.Seconds/2)*1000, sample)
	c.take(w, limit)
	w.run((int64(cfg.Windows) + 1) * w.cfg.Seconds * 1000)
	return c, w.result(), nil
}

// take adds one window to the curve. Before the first grant there is what a grant opens at.
func (c *Curve) take(w *world, limit spec.Limit) {
	tier := spec.TierProbation
	share := func(v int64) int64 { return v * 1000 / spec.C().Ceiling(limit, tier) }
	least, most, sum, n := int64(1<<62), int64(0), int64(0), int64(0)
	for pair := range w.watch.granted {
		if w.byKey[pair[1]].i%2 == 1 {
			continue
		}
		v := share(w.standing(pair, limit))
		least, most, sum, n = min(least, v), max(most, v), sum+v, n+1
	}
	if n == 0 {
		least = share(spec.C().Open(limit, tier))
		most, sum, n = least, least, 1
	}
	c.Least, c.Mean, c.Most = append(c.Least, least), append(c.Mean, sum/n), append(c.Most, most)
}

func (w *world) standing(pair [2]nostr.PubKey, limit spec.Limit) int64 {
	return w.watch.granted[pair].Limits[limit]
}
