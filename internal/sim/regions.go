package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"sync"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// regionNodes is how many nodes live in one region. In large worlds nodes peer in pairs, so that regions have nothing to do with each other: each
// is a world with a seed of its own, and they run side by side.
const regionNodes = 50

// regions cuts a large world up. A small one, or one with an adversary, stays whole.
func (c Config) regions() []Config {
	if c.Nodes <= 2*regionNodes || c.Adversary != "" && c.Adversary != "none" {
		return []Config{c}
	}
	var out []Config
	for first := 0; first < c.Nodes; first += regionNodes {
		r := c
		r.first, r.Nodes = first, min(regionNodes, c.Nodes-first)
		if c.Nodes-first-r.Nodes == 1 { // nobody is left alone
			r.Nodes++
		}
		d := rng{c.Seed ^ uint64(first+1)}
		r.Seed = d.next()
		out = append(out, r)
		if r.Nodes > regionNodes {
			break
		}
	}
	return out
}

// eachRegion runs something for every region, as many at a time as there are processors, and returns the first error.
func eachRegion[T any](list []Config, run func(Config) (T, error)) ([]T, error) {
	out, errs := make([]T, len(list)), make([]error, len(list))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, c := range list {
		all.Go(func() {
			slots <- struct{}{}
			out[i], errs[i] = run(c)
			<-slots
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sum makes one result of those of the regions. Its trace is the hash of theirs.
func sum(cfg Config, parts []*Result) *Result {
	if len(parts) == 1 {
		return parts[0]
	}
	out := &Result{Nodes: cfg.Nodes, Windows: cfg.Windows, Seed: cfg.Seed, Seconds: parts[0].Seconds, Adversary: cfg.Adversary, Violations: []Violation{}}
	trace := sha256.New()
	for i, r := range parts {
		trace.Write([]byte(r.Trace))
		out.Steps, out.Frames, out.Lost, out.Crashes = out.Steps+r.Steps, out.Frames+r.Frames, out.Lost+r.Lost, out.Crashes+r.Crashes
		out.Receipts, out.Closed, out.Lines = out.Receipts+r.Receipts, out.Closed+r.Closed, append(out.Lines, r.Lines...)
		out.Notices, out.Reports, out.Readings = out.Notices+r.Notices, out.Reports+r.Reports, out.Readings+r.Readings
		out.Questions, out.Answers = out.Questions+r.Questions, out.Answers+r.Answers
		for _, v := range r.Violations {
			v.Detail = fmt.Sprintf("region %d: %s", i, v.Detail)
			out.Violations = append(out.Violations, v)
		}
	}
	out.Trace = hex.EncodeToString(trace.Sum(nil))
	return out
}

// joined makes one curve of those of the regions, of which each counts by its peerings.
func joined(parts []*Curve) *Curve {
	out := *parts[0]
	if len(parts) == 1 {
		return &out
	}
	out.Least, out.Mean, out.Most = nil, nil, nil
	for w := range parts[0].Mean {
		least, most, total, n := int64(1<<62), int64(0), int64(0), int64(0)
		for _, c := range parts {
			least, most = min(least, c.Least[w]), max(most, c.Most[w])
			total, n = total+c.Mean[w]*c.pairs, n+c.pairs
		}
		out.Least, out.Mean, out.Most = append(out.Least, least), append(out.Mean, total/n), append(out.Most, most)
	}
	return &out
}

// Run runs a simulation to its end.
func Run(cfg Config) (*Result, error) {
	parts, err := eachRegion(cfg.regions(), runRegion)
	if err != nil {
		return nil, err
	}
	return sum(cfg, parts), nil
}

// Grow simulates so many nodes, in pairs that each use what the other grants, and watches one limit. From window thenAt on, counted
// from 1, the load is another; 0 is never.
func Grow(nodes, windows int, seed uint64, load, then Load, thenAt int, limit spec.Limit, ladder mesh.Ladder) (*Curve, *Result, error) {
	type grown struct {
		curve  *Curve
		result *Result
	}
	cfg := Config{Nodes: nodes, Windows: windows, Seed: seed, Load: load, Then: then, ThenAt: thenAt, Ladder: ladder, Quiet: true}
	parts, err := eachRegion(cfg.regions(), func(c Config) (g grown, err error) {
		g.curve, g.result, err = growRegion(c, limit)
		return g, err
	})
	if err != nil {
		return nil, nil, err
	}
	var curves []*Curve
	var results []*Result
	for _, g := range parts {
		curves, results = append(curves, g.curve), append(results, g.result)
	}
	return joined(curves), sum(cfg, results), nil
}
