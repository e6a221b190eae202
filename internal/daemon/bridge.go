package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
)

// bridgeDir is where bridges remember what relays refused, and how far streams have come.
func (d Dir) bridgeDir() string { return filepath.Join(string(d), "bridge") }

// BridgeParams are those of bridge.sync and bridge.run. Without a configuration file one stream is made of Relays, Direction and Filter.
type BridgeParams struct {
	Config    string          `json:"config,omitempty"` // path, absolute
	Relays    []string        `json:"relays,omitempty"` // with a file: only these of its relays
	Direction string          `json:"direction,omitempty"`
	Filter    json.RawMessage `json:"filter,omitempty"`
}

func (p *BridgeParams) load() (*bridge.Config, error) {
	if p.Config != "" {
		return bridge.LoadConfig(p.Config)
	}
	s := bridge.Stream{Name: "relay"}
	var err error
	if s.Dir, err = gateway.ParseDirection(p.Direction); err != nil {
		return nil, err
	}
	if len(p.Relays) == 0 {
		return nil, fmt.Errorf("%w: neither a configuration file nor a relay is named", gateway.ErrUsage)
	}
	for _, u := range p.Relays {
		norm, err := nostr.NormalizeRelayURL(u)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", gateway.ErrURL, err)
		}
		s.URLs = append(s.URLs, norm)
	}
	if len(p.Filter) > 0 {
		if s.Filter, err = nostr.ParseFilter(p.Filter); err != nil {
			return nil, fmt.Errorf("%w: filter: %w", gateway.ErrUsage, err)
		}
		s.Filter.Limit = nil
	}
	return &bridge.Config{ConnectionTimeout: 20 * time.Second, Verbose: true, Streams: []bridge.Stream{s}}, nil
}

// bridgeJob is what a bridge needs of its node, running or stopped.
type bridgeJob struct {
	dir   Dir
	cfg   *Config
	local bridge.Local
	seams seams
	trail *trail.Book
	key   *nostr.SecretKey
	log   *slog.Logger
}

func (j *bridgeJob) open(p BridgeParams) (*bridge.Bridge, error) {
	cfg, err := p.load()
	if err != nil {
		return nil, err
	}
	o := bridge.Options{Local: j.local, Dir: j.dir.bridgeDir(), Key: j.key, Only: p.Relays, Out: j.seams.out, Trail: j.trail, Stderr: os.Stderr, Log: j.log}
	if proxy := j.cfg.Spec.Proxy; proxy != "" {
		if o.Proxy, err = url.Parse(proxy); err != nil {
			return nil, fmt.Errorf("spec.proxy: %w", err)
		}
	}
	b, err := bridge.New(o)
	if err != nil {
		return nil, err
	}
	if _, err := b.Apply(cfg); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// BridgeSynced is what bridge.sync did.
type BridgeSynced struct {
	Passes  []bridge.Pass `json:"passes"`
	Exit    int           `json:"exit"`
	Failure string        `json:"failure,omitempty"`
}

func (j *bridgeJob) sync(ctx context.Context, p BridgeParams, step func(bridge.Pass)) (BridgeSynced, error) {
	b, err := j.open(p)
	if err != nil {
		return BridgeSynced{Exit: gateway.ExitCode(err)}, err
	}
	defer b.Close()
	var last time.Time
	passes, err := b.Sync(ctx, func(s bridge.Pass) {
		if time.Since(last) >= 200*time.Millisecond {
			last = time.Now()
			step(s)
		}
	})
	out := BridgeSynced{Passes: passes, Exit: gateway.ExitCode(err)}
	if err != nil {
		out.Failure = err.Error()
	}
	return out, nil
}

// BridgeStep is what a running bridge tells: how its streams stand, and what a new configuration changed.
type BridgeStep struct {
	Streams []bridge.LaneStatus `json:"streams,omitempty"`
	Changes []bridge.Change     `json:"changes,omitempty"`
	Failure string              `json:"failure,omitempty"` // why a changed configuration is not in force
}

// statusEvery is how often a running bridge tells how it stands; watchEvery, how often it looks at its configuration.
const (
	statusEvery = 5 * time.Second
	watchEvery  = time.Second
)

func (j *bridgeJob) run(ctx context.Context, b *bridge.Bridge, p BridgeParams, step func(BridgeStep)) error {
	defer b.Close()
	b.Start(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	var telling sync.Mutex
	tell := func(s BridgeStep) {
		telling.Lock()
		defer telling.Unlock()
		step(s)
	}
	if p.Config != "" {
		work.Go(func() {
			b.Watch(ctx, p.Config, watchEvery, func(changes []bridge.Change, err error) {
				s := BridgeStep{Changes: changes}
				if err != nil {
					s.Failure = err.Error()
					j.log.Error("the bridge's configuration is wrong: the old one stays in force", "err", err)
				}
				tell(s)
			})
		})
	}
	tell(BridgeStep{Streams: b.Status()})
	t := time.NewTicker(statusEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			tell(BridgeStep{Streams: b.Status()})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bridges are those that run in this node.
type bridges struct {
	mu   sync.Mutex
	list []*bridge.Bridge
}

func (s *bridges) add(b *bridge.Bridge) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, b)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = slices.DeleteFunc(s.list, func(x *bridge.Bridge) bool { return x == b })
	}
}

func (s *bridges) status(context.Context, none) ([]bridge.LaneStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []bridge.LaneStatus{}
	for _, b := range s.list {
		out = append(out, b.Status()...)
	}
	return out, nil
}

// bridgeJob makes this running node one end of a bridge. stop must be called in the end.
func (n *node) bridgeJob() (j *bridgeJob, stop func()) {
	bell := new(bridge.Bell)
	feed := n.relay.Follow([]nostr.Filter{{}}, 1)
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-feed.Events():
				bell.Ring()
			case <-end:
				return
			}
		}
	}()
	urls := append([]string{n.url}, n.cfg().Spec.Relay.PublicURLs...)
	j = &bridgeJob{
		dir: n.opt.Dir, cfg: n.cfg(), seams: n.seams, trail: n.trail, key: n.secret, log: n.log,
		local: bridge.Local{Store: n.store, Sink: n.relay.Sink(policy.FromStream), Bell: bell, URLs: urls},
	}
	return j, func() {
		close(end)
		feed.Close()
	}
}

func badBridge(err error) error {
	if err != nil && gateway.ExitCode(err) == gateway.ExitCode(gateway.ErrUsage) {
		return control.BadParams("%v", err)
	}
	var line *bridge.LineError
	if errors.As(err, &line) {
		return control.BadParams("%v", err)
	}
	return err
}

func (n *node) bridgeSync(ctx context.Context, raw json.RawMessage, notify func(any)) (any, error) {
	var p BridgeParams
	if err := control.Params(raw, &p); err != nil {
		return nil, err
	}
	j, stop := n.bridgeJob()
	defer stop()
	out, err := j.sync(ctx, p, func(s bridge.Pass) { notify(s) })
	return out, badBridge(err)
}

func (n *node) bridgeRun(ctx context.Context, raw json.RawMessage, notify func(any)) (any, error) {
	var p BridgeParams
	if err := control.Params(raw, &p); err != nil {
		return nil, err
	}
	j, stop := n.bridgeJob()
	defer stop()
	b, err := j.open(p)
	if err != nil {
		return nil, badBridge(err)
	}
	defer n.bridges.add(b)()
	return nil, j.run(ctx, b, p, func(s BridgeStep) { notify(s) })
}

var _ gateway.Sink = (*relay.Sink)(nil)

func (o *Offline) bridgeJob(dir Dir) (*bridgeJob, error) {
	cfg, err := LoadConfig(dir.Config())
	if err != nil {
		return nil, err
	}
	j := &bridgeJob{dir: dir, cfg: cfg, seams: o.seams, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	bell := new(bridge.Bell)
	j.local = bridge.Local{Store: o.store, Bell: bell, URLs: cfg.Spec.Relay.PublicURLs,
		Sink: &bridge.RingingSink{Sink: &gateway.StoreSink{Store: o.store, Policy: o.policy, Source: policy.FromStream}, Bell: bell}}
	if keys, err := dir.LoadKeys(); err == nil { // else an agent keeps it, and streams with auth are refused
		j.key = &keys.Node
	}
	j.trail, err = trail.Open(dir.trail())
	return j, err
}

// BridgeSync runs one pass on a stopped node.
func (o *Offline) BridgeSync(ctx context.Context, dir Dir, p BridgeParams, step func(bridge.Pass)) (BridgeSynced, error) {
	j, err := o.bridgeJob(dir)
	if err != nil {
		return BridgeSynced{}, err
	}
	defer j.trail.Close()
	out, err := j.sync(ctx, p, step)
	return out, badBridge(err)
}

// BridgeRun runs a bridge on a stopped node until ctx ends.
func (o *Offline) BridgeRun(ctx context.Context, dir Dir, p BridgeParams, step func(BridgeStep)) error {
	j, err := o.bridgeJob(dir)
	if err != nil {
		return err
	}
	defer j.trail.Close()
	b, err := j.open(p)
	if err != nil {
		return badBridge(err)
	}
	return j.run(ctx, b, p, step)
}
