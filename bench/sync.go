package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

type syncCmd struct {
	Events  int    `help:"How many events one side has and the other lacks." default:"25000"`
	Rounds  int    `help:"Rounds, each with a fresh receiver; numbers are medians." default:"5"`
	Seed    uint64 `help:"What the corpus is made from." default:"1"`
	Cache   string `help:"Where the made corpus is kept; default: the system's temporary directory."`
	Only    string `help:"Run one way alone." enum:",nip77,sync/1.0" default:""`
	Profile string `help:"Write a CPU profile of the run." type:"path"`
	JSON    bool   `help:"Print the report as JSON."`
}

// syncWay is one way to bring a set of events from one node to another; it returns when all are stored there.
type syncWay struct {
	name string
	run  func(ctx context.Context, from, to *syncNode, events int) error
}

// Run compares what it costs to bring the same events from one node to another, over real sockets: by NIP-77 and REQ, which anybody may do and
// nobody answers for, and by sync/1.0 with envelopes, receipts and encryption. Both ends run in this process, so CPU is that of both.
func (c *syncCmd) Run(a *app) error {
	if c.Profile != "" {
		f, err := os.Create(c.Profile)
		if err != nil {
			return fmt.Errorf("write the profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	items, err := newCorpus(c.Seed).load(a.ctx, c.Cache, c.Events)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-sync")
	if err != nil {
		return fmt.Errorf("make room for the nodes: %w", err)
	}
	defer os.RemoveAll(dir)
	from, err := newSyncNode(filepath.Join(dir, "from"), 1)
	if err != nil {
		return err
	}
	defer from.close()
	if err := from.fill(a.ctx, items); err != nil {
		return err
	}
	ways := []syncWay{{"sync/1.0", viaSync}, {"nip77", viaNIP77}}
	rep := report{Started: time.Now().UTC().Format(time.RFC3339), Go: runtime.Version(), CPU: processor(), Cores: runtime.NumCPU(), LoadBefore: loadAverage(),
		Rounds: c.Rounds, Seed: c.Seed, Events: len(items), EventBytes: meanSize(items)}
	for round := range c.Rounds {
		for i, w := range ways {
			if c.Only != "" && c.Only != w.name {
				continue
			}
			s := &sample{Phase: "sync", Cell: "all missing", Target: w.name, Round: round, Values: map[string]float64{}}
			if err := c.once(a.ctx, from, filepath.Join(dir, fmt.Sprint(round, i)), byte(2+2*round+i), w, s); err != nil {
				return fmt.Errorf("%s, round %d: %w", w.name, round, err)
			}
			rep.Samples = append(rep.Samples, s)
			a.note("round %d, %s: %.0f events a second, %.0f µs of CPU and %.0f octets an event", round, w.name, s.Values["events_per_s"], s.Values["cpu_us_per_event"], s.Values["wire_bytes_per_event"])
		}
	}
	rep.summarise([]target{{name: ways[0].name}, {name: ways[1].name}})
	rep.LoadAfter = loadAverage()
	return rep.print(os.Stdout, c.JSON)
}

func (c *syncCmd) once(ctx context.Context, from *syncNode, dir string, secret byte, w syncWay, s *sample) error {
	to, err := newSyncNode(dir, secret)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer to.close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wire, cpu, began := from.wire.Load()+to.wire.Load(), ownTime(), time.Now()
	if err := w.run(ctx, from, to, c.Events); err != nil {
		return err
	}
	wall := time.Since(began)
	n := float64(c.Events)
	s.set("events_per_s", n/wall.Seconds())
	s.set("cpu_us_per_event", float64((ownTime()-cpu).Microseconds())/n)
	s.set("wire_bytes_per_event", float64(from.wire.Load()+to.wire.Load()-wire)/n)
	return nil
}

// viaNIP77 has the receiver fetch as a client: negentropy, then REQs by id.
func viaNIP77(ctx context.Context, from, to *syncNode, events int) error {
	link := gateway.NewLink(from.url, gateway.Options{})
	defer link.Close()
	r, err := gateway.Sync(ctx, link, to.store, gateway.SyncOptions{Direction: gateway.Pull, Sink: to.relay.Sink(policy.FromSync)})
	if err == nil && r.New < events {
		err = fmt.Errorf("%d events arrived, want %d", r.New, events)
	}
	return err
}

// viaSync has the receiver pull as a peer. It includes the peering: proposal, grants, acceptance.
func viaSync(ctx context.Context, from, to *syncNode, events int) error {
	from.know(to)
	to.know(from)
	if err := from.host.AddPeer(ctx, to.pub, spec.TierAnchor, nil, nil); err != nil {
		return err
	}
	want := []mesh.Want{{Shard: "all", Filter: json.RawMessage(`{}`), Mode: mesh.ModePull}}
	if err := to.host.AddPeer(ctx, from.pub, spec.TierAnchor, want, nil); err != nil {
		return err
	}
	for {
		list, more := to.host.History(from.pub)
		for _, h := range list {
			switch h.Tell.What {
			case "sync-live":
				n, err := to.store.Count(ctx, []nostr.Filter{{}}, to.view, time.Now().Unix())
				if err == nil && n < events {
					err = fmt.Errorf("%d events arrived, want %d", n, events)
				}
				from.host.EndPeer(to.pub, "measured")
				return err
			case "sync-ended", "fault":
				return errors.New(h.Tell.What + " " + string(h.Tell.Code) + " " + h.Tell.Detail)
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
