package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

type peersCmd struct {
	Peerings []int  `help:"How many peerings the node in the middle has." default:"10,100,1000"`
	Events   int    `help:"How many events go out live to all peers." default:"50"`
	Plot     string `help:"Draw the picture into this file." type:"path"`
}

// peering is what one size of a star cost.
type peering struct {
	peers          int
	kib, goroutine float64 // of memory, and goroutines, a peering: both ends
	cpu            float64 // microseconds a delivery, both ends: sealed, opened, verified, stored, answered
}

// Run measures a star on simulated links: one node and its peers, all in this process. What a peering costs is therefore that of both ends and
// of the peer's whole node; what is left after the smallest star is taken off is the least that one more costs.
func (c *peersCmd) Run(a *app) error {
	items := newCorpus(1).make(0, c.Events)
	var all []peering
	for _, n := range c.Peerings {
		p, err := c.star(a.ctx, n, items)
		if err != nil {
			return fmt.Errorf("%d peerings: %w", n, err)
		}
		all = append(all, p)
		fmt.Printf("%5d peerings: %.0f KiB and %.1f goroutines a peering, %.0f µs of CPU a delivery (load %s)\n", p.peers, p.kib, p.goroutine, p.cpu, loadAverage())
	}
	if c.Plot == "" {
		return nil
	}
	memory, cpu := line{name: "both ends"}, line{name: "both ends"}
	for _, p := range all {
		memory.x, memory.y = append(memory.x, float64(p.peers)), append(memory.y, p.kib)
		cpu.x, cpu.y = append(cpu.x, float64(p.peers)), append(cpu.y, p.cpu)
	}
	f, err := os.Create(c.Plot)
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	defer f.Close()
	return plot(f, []chart{{"memory a peering", "KiB", []line{memory}}, {"CPU a live delivery", "µs", []line{cpu}}})
}

func (c *peersCmd) star(ctx context.Context, n int, items []item) (p peering, err error) {
	dir, err := os.MkdirTemp("", "bench-peers")
	if err != nil {
		return p, fmt.Errorf("make room for the nodes: %w", err)
	}
	defer os.RemoveAll(dir)
	net := transport.NewMemory("memory")
	before, routines := heap(), runtime.NumGoroutine()
	hub, err := newStarNode(filepath.Join(dir, "hub"), 1, net)
	if err != nil {
		return p, err
	}
	defer hub.leave()
	nodes := make([]*syncNode, n)
	for i := range nodes {
		if nodes[i], err = newStarNode(filepath.Join(dir, fmt.Sprint(i)), i+2, net); err != nil {
			return p, err
		}
		defer nodes[i].leave()
		hub.know(nodes[i])
		nodes[i].know(hub)
		if err := hub.host.AddPeer(ctx, nodes[i].pub, spec.TierAnchor, nil, nil); err != nil {
			return p, err
		}
		want := []mesh.Want{{Shard: "all", Filter: json.RawMessage(`{"kinds":[1,6,7,1111,9735,30023]}`), Mode: mesh.ModePull}}
		if err := nodes[i].host.AddPeer(ctx, hub.pub, spec.TierAnchor, want, nil); err != nil {
			return p, err
		}
	}
	for _, peer := range nodes {
		if err := peer.await(ctx, hub.pub, "sync-live"); err != nil {
			return p, err
		}
	}
	p = peering{peers: n, kib: float64(heap()-before) / 1024 / float64(n), goroutine: float64(runtime.NumGoroutine()-routines) / float64(n)}
	cpu := ownTime()
	if err := hub.fill(ctx, items); err != nil {
		return p, err
	}
	hub.host.Arrived()
	for _, peer := range nodes {
		if err := peer.full(ctx, len(items)); err != nil {
			return p, err
		}
	}
	p.cpu = float64((ownTime() - cpu).Microseconds()) / float64(n*len(items))
	return p, nil
}

// heap is what is in use after a collection, stacks included.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func newStarNode(dir string, secret int, net *transport.Memory) (*syncNode, error) {
	n := &syncNode{known: map[nostr.PubKey]*nostr.Event{}, view: policy.NewGate(policy.PrivateKinds, true).View(nil), store: store.NewMemory(), taken: make(chan struct{}, 1)}
	take := func(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error) {
		out, err := n.store.Insert(ctx, events, time.Now().Unix())
		select {
		case n.taken <- struct{}{}:
		default:
		}
		return out, err
	}
	address := fmt.Sprint("node", secret)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make room for a node: %w", err)
	}
	if err := n.federate(dir, secret, net, address, take); err != nil {
		return nil, err
	}
	door, err := net.Listen(context.Background(), transport.Endpoint{Scheme: net.Scheme(), Address: address})
	if err != nil {
		return nil, err
	}
	n.stop = func() { door.Close() }
	n.host.Start(door)
	return n, nil
}

func (n *syncNode) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n.stop()
	_ = n.host.Stop(ctx)
}

// await waits until something was told of a peer.
func (n *syncNode) await(ctx context.Context, peer nostr.PubKey, what string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		list, more := n.host.History(peer)
		for _, h := range list {
			if h.Tell.What == what {
				return nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// full waits until the node holds so many events of the corpus.
func (n *syncNode) full(ctx context.Context, events int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		held, err := n.store.Count(ctx, []nostr.Filter{{Kinds: []nostr.Kind{1, 6, 7, 1111, 9735, 30023}}}, n.view, time.Now().Unix())
		if err != nil || held >= events {
			return err
		}
		select {
		case <-n.taken:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events: %w", held, events, ctx.Err())
		}
	}
}
