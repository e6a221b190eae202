package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Report is what came of a run.
type Report struct {
	Nodes           int               `json:"nodes"`
	Topology        string            `json:"topology"`
	WindowSeconds   int64             `json:"window_seconds"`
	Seed            uint64            `json:"seed"`
	Events          int               `json:"events"` // that a node acknowledged
	Converged       bool              `json:"converged"`
	Seconds         float64           `json:"seconds"`           // from the first event to the moment when all held all
	EventsPerSecond float64           `json:"events_per_second"` // in that time; each goes to every node
	Fingerprints    []NodeFingerprint `json:"fingerprints"`
	Lost            int               `json:"lost"`       // acknowledged events that the poorest node lacks
	Divergence      int64             `json:"divergence"` // claimed against measured, over every link: 0 between honest nodes
	Links           []LinkAccount     `json:"links"`      // both directions of each
	Findings        []Finding         `json:"findings"`   // verdicts above S0
	WindowsClosed   int               `json:"windows_closed"`
	Faults          Faults            `json:"faults"`
	Nudges          int               `json:"nudges"` // how often a node that stood still was told to look again
}

// NodeFingerprint is what one node holds of the run's events (NIP-77).
type NodeFingerprint struct {
	Node        int    `json:"node"`
	DID         string `json:"did"`
	Fingerprint string `json:"fingerprint"`
	Events      int    `json:"events"`
}

// Good says whether the run was as it has to be: all nodes hold the same, nobody was found at fault, and without faults in the network the
// accounts agree to the octet.
func (r *Report) Good() bool {
	return r.Converged && len(r.Findings) == 0 && (r.Divergence == 0 || r.Faults.any())
}

// restPatience is how long the accounts of open windows may differ because a message is on its way.
const restPatience = 20 * time.Second

// audit makes the report. It looks again where the ends of a link differ, since a message may be on its way between them.
func (c *Cluster) audit(ctx context.Context) (Report, error) {
	end := time.Now().Add(restPatience)
	for {
		r, err := c.auditOnce(ctx)
		if err == nil && r.Divergence == 0 || time.Now().After(end) || !pause(ctx, time.Second) {
			return r, err
		}
	}
}

func (c *Cluster) auditOnce(ctx context.Context) (Report, error) {
	s := c.Status()
	r := Report{Nodes: c.cfg.Nodes, Topology: c.cfg.Topology, WindowSeconds: c.cfg.Window, Seed: c.cfg.Seed, Events: s.Events, Seconds: s.Seconds, Faults: s.Faults, Nudges: s.Nudges, Findings: []Finding{}}
	c.mu.Lock()
	r.Converged = !c.converged.IsZero()
	c.mu.Unlock()
	if r.Seconds > 0 {
		r.EventsPerSecond = float64(r.Events) / r.Seconds
	}
	lists := make([][]peer, len(c.nodes))
	err := c.each(func(n *node) (err error) {
		if !n.up() {
			return fmt.Errorf("node %d: %w", n.n, errDown)
		}
		lists[n.n], err = n.peers(ctx)
		return err
	})
	for i := range c.nodes {
		v := s.Nodes[i]
		r.Fingerprints = append(r.Fingerprints, NodeFingerprint{i, v.DID, v.Fingerprint, v.Events})
		r.Lost = max(r.Lost, r.Events-v.Events)
	}
	var errs []error
	for _, l := range c.links {
		for _, way := range []Link{{l.A, l.B}, {l.B, l.A}} {
			at, by := find(lists[way.A], c.nodes[way.B]), find(lists[way.B], c.nodes[way.A])
			if at == nil || by == nil {
				errs = append(errs, fmt.Errorf("nodes %d and %d do not know each other", way.A, way.B))
				continue
			}
			a := compare(way.A, way.B, at, by)
			r.Links = append(r.Links, a)
			r.Divergence += a.Divergence
			r.WindowsClosed += a.Closed
			r.Findings = append(r.Findings, findings(way.A, way.B, at)...)
		}
	}
	return r, errors.Join(append(errs, err)...)
}
