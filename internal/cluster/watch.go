package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

var errDown = errors.New("the node is down")

// Status is how a run goes.
type Status struct {
	Phase    string       `json:"phase"`
	Topology string       `json:"topology"`
	Page     string       `json:"page,omitempty"`
	Events   int          `json:"events"` // that a node acknowledged
	Planned  int          `json:"planned"`
	Seconds  float64      `json:"seconds"` // since the first
	Nodes    []NodeStatus `json:"nodes"`
	Links    []LinkStatus `json:"links"`
	Faults   Faults       `json:"faults"`
	Nudges   int          `json:"nudges"` // how often a node that stood still was told to look again
}

// NodeStatus is one node, as it was seen last.
type NodeStatus struct {
	Node        int     `json:"node"`
	DID         string  `json:"did"`
	Relay       string  `json:"relay"`
	Up          bool    `json:"up"`
	Events      int     `json:"events"` // of this run
	Fingerprint string  `json:"fingerprint"`
	Worst       string  `json:"worst_severity,omitempty"` // that it found on a peer
	Skew        float64 `json:"skew_seconds,omitempty"`

	changed time.Time // when it last held more
	nudged  time.Time
}

// LinkStatus is a link and what is done to it.
type LinkStatus struct {
	Link
	Cut   bool    `json:"cut,omitempty"`
	Delay float64 `json:"delay_seconds,omitempty"`
}

// Faults counts what was done to the cluster.
type Faults struct {
	Kills int `json:"kills"`
	Cuts  int `json:"cuts"`
	Slows int `json:"slows"`
	Skews int `json:"skews"`
}

func (f Faults) any() bool { return f != Faults{} }

// Status says how it goes.
func (c *Cluster) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Phase: c.phase, Topology: c.cfg.Topology, Page: c.page, Events: c.count, Planned: c.cfg.Events, Faults: c.faults, Nudges: c.nudges}
	switch {
	case !c.converged.IsZero():
		s.Seconds = c.converged.Sub(c.began).Seconds()
	case !c.began.IsZero():
		s.Seconds = time.Since(c.began).Seconds()
	}
	for i, n := range c.nodes {
		v := c.seen[i]
		v.Up, v.Skew = n.up(), n.offset().Seconds()
		s.Nodes = append(s.Nodes, v)
	}
	for _, l := range c.links {
		cut, delay := c.wires.state(l)
		s.Links = append(s.Links, LinkStatus{l, cut, delay.Seconds()})
	}
	return s
}

const (
	watchEvery = 500 * time.Millisecond
	// A node that lacks something and got nothing for so long is told to look again: after a peer was away, it would otherwise rest.
	nudgeAfter = 4 * time.Second
)

// watch looks at every node again and again.
func (c *Cluster) watch(ctx context.Context) {
	for pause(ctx, watchEvery) {
		err := c.each(func(n *node) error {
			if n.died() {
				return fmt.Errorf("node %d ended by itself: see %s.log", n.n, n.dir)
			}
			c.look(ctx, n)
			return nil
		})
		if err != nil {
			c.fail(err)
		}
		c.tell()
	}
}

type filterParams struct {
	Filter json.RawMessage `json:"filter"`
}

type fingerprint struct {
	Fingerprint string `json:"fingerprint"`
	Count       int    `json:"count"`
}

// look asks one node what it holds of this run, and nudges it where it stands still.
func (c *Cluster) look(ctx context.Context, n *node) {
	c.mu.Lock()
	since := c.since
	c.mu.Unlock()
	var f fingerprint
	if since == 0 || !n.up() || n.call(ctx, "store.fingerprint", filterParams{fmt.Appendf(nil, `{"kinds":[1],"since":%d}`, since)}, &f) != nil {
		return // it is down or going; the next look tells
	}
	list, err := n.peers(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	c.mu.Lock()
	v := &c.seen[n.n]
	v.DID, v.Relay = n.did, n.url
	if v.Events != f.Count || v.Fingerprint != f.Fingerprint {
		v.Events, v.Fingerprint, v.changed = f.Count, f.Fingerprint, now
	}
	v.Worst = clean
	for _, p := range list {
		v.Worst = max(v.Worst, p.Worst) // S0 to S4 sort as they are written
	}
	nudge := v.Events < c.count && now.Sub(v.changed) > nudgeAfter && now.Sub(v.nudged) > nudgeAfter
	if nudge {
		v.nudged = now
		c.nudges++
	}
	c.mu.Unlock()
	if !nudge {
		return
	}
	for _, l := range c.links {
		switch n.n {
		case l.A:
			_ = c.add(ctx, n, c.nodes[l.B]) // a peer that is away now is for the next time
		case l.B:
			_ = c.add(ctx, n, c.nodes[l.A])
		}
	}
}

// same says whether every node holds exactly what was acknowledged.
func (c *Cluster) same() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := hexOf(negentropy.Fingerprint(c.sum, c.count))
	for i, n := range c.nodes {
		if !n.up() || c.seen[i].Events != c.count || c.seen[i].Fingerprint != want {
			return false
		}
	}
	return true
}

// untilConverged waits until every node holds what was acknowledged anywhere.
func (c *Cluster) untilConverged(ctx context.Context) error {
	c.heal()
	err := c.each(func(n *node) error { return n.start(ctx) })
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	for !c.same() {
		if !pause(limit, 100*time.Millisecond) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("the nodes did not converge within %s after the last event", c.cfg.Timeout)
		}
	}
	c.mu.Lock()
	c.converged = time.Now()
	c.mu.Unlock()
	return nil
}

// untilSettled waits until the windows up to the present one are closed on every link.
func (c *Cluster) untilSettled(ctx context.Context) error {
	epoch := time.Now().Unix() / c.cfg.Window
	limit, cancel := context.WithTimeout(ctx, c.cfg.Timeout+time.Duration(3*c.cfg.Window)*time.Second)
	defer cancel()
	for {
		open := 0
		for _, n := range c.nodes {
			list, err := n.peers(limit)
			if err != nil && limit.Err() == nil {
				return err
			}
			for i := range list {
				if unsettled(&list[i], epoch) {
					open++
				}
			}
		}
		if open == 0 && limit.Err() == nil {
			return nil
		}
		if !pause(limit, time.Second) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%d windows with traffic did not close in time", open)
		}
	}
}
