package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/spec"
)

// slowBy is how much later everything comes on a link that is slowed at random.
const slowBy = 300 * time.Millisecond

// mayhem breaks things at random, as the configuration asks, until the context ends. Then everything is whole again.
func (c *Cluster) mayhem(ctx context.Context, work *sync.WaitGroup) {
	every := func(d time.Duration, stream uint64, f func(*rand.Rand)) {
		if d <= 0 {
			return
		}
		r := rand.New(rand.NewPCG(c.cfg.Seed, stream))
		work.Go(func() {
			for pause(ctx, d/2+time.Duration(r.Int64N(int64(d)))) {
				f(r)
			}
		})
	}
	every(c.cfg.KillEvery, 2, func(r *rand.Rand) {
		n := c.nodes[r.IntN(len(c.nodes))]
		c.Kill(n.n)
		pause(ctx, time.Duration(r.Int64N(int64(3*time.Second))))
		if err := n.start(context.WithoutCancel(ctx)); err != nil {
			c.fail(err)
		}
	})
	every(c.cfg.CutEvery, 3, func(r *rand.Rand) {
		l := c.links[r.IntN(len(c.links))]
		c.cut(l)
		pause(ctx, c.cfg.CutEvery/3)
		c.wires.setCut(l, false)
	})
	every(c.cfg.SlowEvery, 4, func(r *rand.Rand) {
		l := c.links[r.IntN(len(c.links))]
		c.slow(l, slowBy)
		pause(ctx, c.cfg.SlowEvery/3)
		c.wires.setDelay(l, 0)
	})
}

// heal ends every cut and every delay.
func (c *Cluster) heal() {
	for _, l := range c.links {
		c.wires.setCut(l, false)
		c.wires.setDelay(l, 0)
	}
}

// Kill ends a node as kill -9 does.
func (c *Cluster) Kill(n int) {
	c.mu.Lock()
	c.faults.Kills++
	c.mu.Unlock()
	c.nodes[n].kill()
}

func (c *Cluster) cut(l Link) {
	c.mu.Lock()
	c.faults.Cuts++
	c.mu.Unlock()
	c.wires.setCut(l, true)
}

func (c *Cluster) slow(l Link, d time.Duration) {
	c.mu.Lock()
	c.faults.Slows++
	c.mu.Unlock()
	c.wires.setDelay(l, d)
}

// FaultParams are those of the cluster's verbs. Other, where it is given, narrows a cut or a delay to the link between the two.
type FaultParams struct {
	Node    int     `json:"node"`
	Other   *int    `json:"other,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // kill: down for so long; slow: the delay; skew: the offset
}

// methods are what the cluster's socket offers.
func (c *Cluster) methods() map[string]control.Handler {
	verb := func(f func(context.Context, FaultParams) error) control.Handler {
		return func(ctx context.Context, raw json.RawMessage, _ func(any)) (any, error) {
			var p FaultParams
			if err := control.Params(raw, &p); err != nil {
				return nil, err
			}
			if p.Node < 0 || p.Node >= len(c.nodes) || p.Other != nil && (*p.Other < 0 || *p.Other >= len(c.nodes)) {
				return nil, control.BadParams("nodes are numbered 0 to %d", len(c.nodes)-1)
			}
			if err := f(ctx, p); err != nil {
				return nil, err
			}
			return c.Status(), nil
		}
	}
	return map[string]control.Handler{
		"cluster.status": func(context.Context, json.RawMessage, func(any)) (any, error) { return c.Status(), nil },
		"cluster.stop": func(context.Context, json.RawMessage, func(any)) (any, error) {
			c.quit()
			return c.Status(), nil
		},
		"cluster.kill": verb(c.killed),
		"cluster.cut": verb(func(_ context.Context, p FaultParams) error {
			return c.onLinks(p, func(l Link) { c.cut(l) })
		}),
		"cluster.slow": verb(func(_ context.Context, p FaultParams) error {
			if p.Seconds < 0 || p.Seconds > 60 {
				return control.BadParams("the delay is %v s, want 0 to 60", p.Seconds)
			}
			return c.onLinks(p, func(l Link) { c.slow(l, seconds(p.Seconds)) })
		}),
		"cluster.skew": verb(c.skewed),
		"cluster.heal": verb(func(ctx context.Context, p FaultParams) error {
			err := c.onLinks(p, func(l Link) { c.wires.setCut(l, false); c.wires.setDelay(l, 0) })
			if err != nil {
				return err
			}
			return c.nodes[p.Node].start(ctx)
		}),
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// killed kills a node and starts it again after so many seconds; with 0 it stays down until it is healed.
func (c *Cluster) killed(ctx context.Context, p FaultParams) error {
	c.Kill(p.Node)
	if p.Seconds <= 0 {
		return nil
	}
	if !pause(ctx, seconds(min(p.Seconds, 3600))) {
		return ctx.Err()
	}
	return c.nodes[p.Node].start(ctx)
}

// skewed sets a node's clock off by so many seconds. A clock does not jump while a node runs: it is stopped and started.
func (c *Cluster) skewed(ctx context.Context, p FaultParams) error {
	if most := float64(spec.C().Window.SkewSeconds); p.Seconds > most || p.Seconds < -most {
		return control.BadParams("the clock would be off by %v s, and %v s is what nodes bear", p.Seconds, most)
	}
	n := c.nodes[p.Node]
	c.mu.Lock()
	c.faults.Skews++
	c.mu.Unlock()
	n.stop()
	n.off(seconds(p.Seconds))
	return n.start(context.WithoutCancel(ctx))
}

// onLinks does something to the links of a node, or to the one between two.
func (c *Cluster) onLinks(p FaultParams, f func(Link)) error {
	if p.Other != nil {
		l := link(p.Node, *p.Other)
		if !slices.Contains(c.links, l) {
			return control.BadParams("no link joins node %d and node %d", l.A, l.B)
		}
		f(l)
		return nil
	}
	for _, l := range c.links {
		if l.A == p.Node || l.B == p.Node {
			f(l)
		}
	}
	return nil
}

// Call runs one method of the cluster in a directory.
func Call(ctx context.Context, dir, method string, p FaultParams) (s Status, err error) {
	c, err := control.Dial(ctx, Socket(dir))
	if err != nil {
		return s, fmt.Errorf("ask the cluster in %s: %w", dir, err)
	}
	defer c.Close()
	return s, c.Call(ctx, method, p, &s, nil)
}
