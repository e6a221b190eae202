// Package cluster runs several nodes on one machine, as an operator would run them each on its own: every node is a process of the real binary
// with its own directory and ports, peers through its control socket, and reaches the others through a wire that can be cut and slowed. It puts
// signed events in at random, breaks things on request, and audits what comes of it: whether all hold the same, whether the accounts of both
// ends of every link agree, and whether an honest node was found at fault.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
	"fleetmesh.org/fleetmesh/spec"
)

// Config says which cluster to run, and what to do with it.
type Config struct {
	Binary   string // meshnode
	Dir      string // of the cluster; node I has DIR/nI
	Nodes    int
	Topology string // one of Topologies
	Window   int64  // seconds of the accounting windows
	Tier     string // what every node's grants to the others open at: they are one operator's

	Events  int           // put in all in all
	For     time.Duration // spread over so long; 0: as fast as the nodes take them
	Seed    uint64        // of every choice; 0: drawn
	Settle  bool          // wait until every window with traffic is closed
	Stay    bool          // run until the context ends or somebody says stop, instead of ending when all is done
	Timeout time.Duration // for the nodes to converge after the last event

	KillEvery time.Duration // kill -9 a node at random; 0: never
	CutEvery  time.Duration // cut a link at random, for a third of that
	SlowEvery time.Duration // slow a link at random by 300 ms, for a third of that
	Skew      time.Duration // how far ahead the clock of every second node is
	Page      string        // HOST:PORT of the page that shows it all; "": none

	Progress func(Status) // about once a second; may be nil
}

// Cluster is a running cluster.
type Cluster struct {
	cfg   Config
	links []Link
	nodes []*node
	wires *wires
	quit  context.CancelFunc
	rand  *rand.Rand // of the traffic alone

	mu        sync.Mutex
	phase     string
	page      string
	count     int            // events that some node acknowledged
	sum       negentropy.Sum // of their ids
	began     time.Time      // of the traffic
	since     int64          // unix second before which no event of this run was made
	converged time.Time
	seen      []NodeStatus
	faults    Faults
	nudges    int
	fault     error // ends the run
}

// Phases of a run.
const (
	phaseStart    = "starting"
	phasePeer     = "peering"
	phaseTraffic  = "traffic"
	phaseConverge = "converging"
	phaseSettle   = "settling"
	phaseStay     = "running"
	phaseStop     = "stopping"
)

// saved is cluster.json: what a cluster's directory holds.
type saved struct {
	Topology string  `json:"topology"`
	Window   int64   `json:"window_seconds"`
	Ports    []ports `json:"ports"`
}

// Socket is the control socket of the cluster in a directory.
func Socket(dir string) string { return filepath.Join(dir, "cluster.sock") }

// Check says what is wrong with a configuration, or who peers with whom.
func (cfg Config) Check() ([]Link, error) {
	links, err := Links(cfg.Topology, cfg.Nodes)
	if err == nil {
		err = reachable(cfg.Topology, links, cfg.Nodes, spec.C().Forwarding.MaxHops)
	}
	if err != nil {
		return nil, err
	}
	if w := spec.C().Window; cfg.Window < w.MinSeconds || cfg.Window > w.MaxSeconds {
		return nil, fmt.Errorf("--window is %d, want %d to %d seconds", cfg.Window, w.MinSeconds, w.MaxSeconds)
	}
	if most := time.Duration(spec.C().Window.SkewSeconds) * time.Second; cfg.Skew > most || cfg.Skew < -most {
		return nil, fmt.Errorf("--skew is %s, and clocks may be off by %s at most", cfg.Skew, most)
	}
	if cfg.Events < 0 {
		return nil, fmt.Errorf("--events is %d, want 0 or more", cfg.Events)
	}
	return links, nil
}

// Fits says whether the sockets of a cluster in a directory have paths that a system takes.
func Fits(dir string) error {
	const most = 104 - len("/n63/control.sock")
	if len(dir) > most {
		return fmt.Errorf("--dir %s has %d octets, and the paths of the sockets in it may not be that long: %d at most", dir, len(dir), most)
	}
	return nil
}

// Run runs a cluster to its end and reports. The report is whole even where the error says that the nodes did not converge in time.
func Run(ctx context.Context, cfg Config) (Report, error) {
	links, err := cfg.Check()
	if err == nil {
		err = Fits(cfg.Dir)
	}
	if err != nil {
		return Report{}, err
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64N(1 << 48) // short enough for every reader of JSON
	}
	c := &Cluster{cfg: cfg, links: links, wires: newWires(), phase: phaseStart, rand: rand.New(rand.NewPCG(cfg.Seed, 1))}
	ctx, c.quit = context.WithCancel(ctx)
	defer c.quit()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return Report{}, fmt.Errorf("make the cluster's directory: %w", err)
	}
	server, err := control.Listen(Socket(cfg.Dir), c.methods())
	if err != nil {
		return Report{}, err
	}
	defer server.Close()
	defer c.wires.close()
	if err := c.load(); err != nil {
		return Report{}, err
	}
	defer c.stop()
	if cfg.Page != "" {
		end, err := c.serve(cfg.Page)
		if err != nil {
			return Report{}, err
		}
		defer end()
	}
	return c.run(ctx)
}

// load takes up the directory's cluster, or makes one.
func (c *Cluster) load() error {
	path := filepath.Join(c.cfg.Dir, "cluster.json")
	var s saved
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if len(s.Ports) != c.cfg.Nodes || s.Topology != c.cfg.Topology || s.Window != c.cfg.Window {
			return fmt.Errorf("%s holds a %s of %d nodes with windows of %d s: ask for the same, or use another --dir", c.cfg.Dir, s.Topology, len(s.Ports), s.Window)
		}
	case errors.Is(err, os.ErrNotExist):
		free, err := freePorts(2 * c.cfg.Nodes)
		if err != nil {
			return err
		}
		s = saved{Topology: c.cfg.Topology, Window: c.cfg.Window}
		for i := range c.cfg.Nodes {
			s.Ports = append(s.Ports, ports{free[2*i], free[2*i+1]})
		}
		text, err := json.Marshal(s)
		if err == nil {
			err = os.WriteFile(path, append(text, '\n'), 0o644)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	default:
		return fmt.Errorf("read %s: %w", path, err)
	}
	for i, p := range s.Ports {
		n := &node{n: i, dir: filepath.Join(c.cfg.Dir, fmt.Sprintf("n%d", i)), binary: c.cfg.Binary, ports: p}
		if i%2 == 1 && c.cfg.Skew != 0 {
			n.off(c.cfg.Skew)
			c.faults.Skews++
		}
		c.nodes = append(c.nodes, n)
		c.seen = append(c.seen, NodeStatus{Node: i})
		if err := c.wires.join(i, p.face(), p.wire()); err != nil {
			return err
		}
	}
	return nil
}

// run goes through the phases.
func (c *Cluster) run(ctx context.Context) (Report, error) {
	if err := c.startAll(ctx); err != nil {
		return Report{}, err
	}
	c.enter(phasePeer)
	if err := c.peerAll(ctx); err != nil {
		return Report{}, err
	}
	var side sync.WaitGroup
	defer side.Wait()
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	side.Go(func() { c.watch(watching) })

	c.enter(phaseTraffic)
	breaking, whole := context.WithCancel(ctx)
	defer whole()
	var breaks sync.WaitGroup
	c.mayhem(breaking, &breaks)
	err := c.traffic(ctx)
	whole()
	breaks.Wait()
	if err == nil {
		c.enter(phaseConverge)
		err = c.untilConverged(ctx)
	}
	if err == nil && c.cfg.Settle {
		c.enter(phaseSettle)
		err = c.untilSettled(ctx)
	}
	if err == nil && c.cfg.Stay {
		c.enter(phaseStay)
		<-ctx.Done()
	}
	unwatch()
	side.Wait()
	c.mu.Lock()
	err = errors.Join(err, c.fault)
	c.mu.Unlock()
	report, auditErr := c.audit(context.WithoutCancel(ctx))
	return report, errors.Join(err, auditErr)
}

func (c *Cluster) enter(phase string) {
	c.mu.Lock()
	c.phase = phase
	c.mu.Unlock()
	c.tell()
}

func (c *Cluster) tell() {
	if c.cfg.Progress != nil {
		c.cfg.Progress(c.Status())
	}
}

// fail ends the run.
func (c *Cluster) fail(err error) {
	c.mu.Lock()
	if c.fault == nil {
		c.fault = err
	}
	c.mu.Unlock()
	c.quit()
}

// each runs f for every node, a few at a time, and returns what went wrong.
func (c *Cluster) each(f func(*node) error) error {
	errs := make([]error, len(c.nodes))
	slots := make(chan struct{}, 4)
	var work sync.WaitGroup
	for i, n := range c.nodes {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = f(n)
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) startAll(ctx context.Context) error {
	return c.each(func(n *node) error {
		if err := n.provision(ctx, c.cfg.Window); err != nil {
			return err
		}
		return n.start(ctx)
	})
}

func (c *Cluster) stop() {
	c.mu.Lock()
	c.phase = phaseStop
	c.mu.Unlock()
	_ = c.each(func(n *node) error { n.stop(); return nil }) // none fails
}

// interest is the shard that the nodes share. Each pulls it from its peers, so that what both already have crosses no link.
type interest struct {
	Shard  string          `json:"shard"`
	Filter json.RawMessage `json:"filter"`
	Mode   string          `json:"mode"`
}

type addParams struct {
	DID    string     `json:"did"`
	Relays []string   `json:"relays"`
	Tier   string     `json:"tier"`
	Wants  []interest `json:"wants"`
}

// add has one node want what another has. It repeats harmlessly, and begins a sync where none is under way.
func (c *Cluster) add(ctx context.Context, by, of *node) error {
	return by.call(ctx, "peer.add", addParams{DID: of.did, Relays: []string{of.url}, Tier: c.cfg.Tier,
		Wants: []interest{{"cluster", json.RawMessage(`{"kinds":[1]}`), "pull"}}}, nil)
}

const peerPatience = 2 * time.Minute

// peerAll has the two ends of each link add each other, and waits until each has granted the other.
func (c *Cluster) peerAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	var last error
	for {
		open := 0
		for _, l := range c.links {
			for _, way := range [][2]*node{{c.nodes[l.A], c.nodes[l.B]}, {c.nodes[l.B], c.nodes[l.A]}} {
				stage, err := way[0].stage(ctx, way[1])
				if err == nil && stage == "active" {
					continue
				}
				open++
				if err == nil && (stage == "" || stage == "refused" || stage == "ended" || stage == "known") {
					err = c.add(ctx, way[0], way[1])
				}
				if err != nil && ctx.Err() == nil {
					last = err // a node that came up a moment ago may not have described itself yet
				}
			}
		}
		if open == 0 {
			return nil
		}
		if !pause(ctx, 300*time.Millisecond) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return errors.Join(fmt.Errorf("the nodes did not peer within %s: %d ends of links are not active; see the logs in %s", peerPatience, open, c.cfg.Dir), last)
			}
			return ctx.Err()
		}
	}
}

// peers asks a node for its peerings.
func (n *node) peers(ctx context.Context) (list []peer, err error) {
	return list, n.call(ctx, "peer.list", struct{}{}, &list)
}

// stage is how far a node's peering with another has come, "" if there is none.
func (n *node) stage(ctx context.Context, other *node) (string, error) {
	list, err := n.peers(ctx)
	if err != nil {
		return "", err
	}
	if p := find(list, other); p != nil {
		return p.Stage, nil
	}
	return "", nil
}

// find returns a node's record of another.
func find(list []peer, other *node) *peer {
	i := slices.IndexFunc(list, func(p peer) bool { return didPrefix+p.Key == other.did })
	if i < 0 {
		return nil
	}
	return &list[i]
}

const didPrefix = "did:nostr:"

// pause waits, and says whether the context still stands.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
