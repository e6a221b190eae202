package daemon

import (
	"context"
	"crypto/ecdh"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// federation is the mesh side of a node. It comes up behind the relay: the descriptor may have to be mined first.
type federation struct {
	n     *node
	wss   *transport.WSS
	wraps *transport.GiftWrap
	net   *transport.Network // how this node dials
	ready chan struct{}      // closed when host is there, or err
	work  sync.WaitGroup
	stops context.CancelFunc

	mu         sync.Mutex
	host       *host.Host
	descriptor *nostr.Event
	err        error
}

func newFederation(n *node) (*federation, error) {
	network, err := transport.NewNetwork(n.cfg.Spec.Proxy, nil)
	if err != nil {
		return nil, fmt.Errorf("set up the network for peers: %w", err)
	}
	wraps, err := newWraps(n, network)
	if err != nil {
		return nil, fmt.Errorf("set up gift wraps for peers: %w", err)
	}
	return &federation{n: n, wss: transport.NewWSS(network), wraps: wraps, net: network, ready: make(chan struct{})}, nil
}

// subprotocols lets peers in on the relay's own URL.
func (f *federation) subprotocols() map[string]func(context.Context, relay.Conn) {
	return map[string]func(context.Context, relay.Conn){
		transport.Subprotocol: func(ctx context.Context, c relay.Conn) {
			_ = f.wss.Serve(ctx, c) // the end of a stream is the peer's business
		},
	}
}

// start brings federation up in the background.
func (f *federation) start(ctx context.Context) error {
	ctx, f.stops = context.WithCancel(ctx)
	f.work.Go(func() {
		h, err := f.bringUp(ctx)
		f.mu.Lock()
		f.host, f.err = h, err
		f.mu.Unlock()
		close(f.ready)
		if err != nil && ctx.Err() == nil {
			f.n.log.Error("federation is off", "err", err)
		}
		if err == nil {
			f.collectWraps(ctx, h)
			f.refresh(ctx)
		}
	})
	return nil
}

func (f *federation) bringUp(ctx context.Context) (*host.Host, error) {
	d, err := f.ownDescriptor(ctx)
	if err != nil {
		return nil, err
	}
	f.setDescriptor(d)
	h, err := host.New(f.config(d))
	if err != nil {
		return nil, err
	}
	l, err := f.wss.Listen(ctx, transport.Endpoint{Scheme: "wss", Address: f.n.url})
	if err != nil {
		return nil, err
	}
	h.Start(l)
	return h, nil
}

func (f *federation) setDescriptor(d *nostr.Event) {
	f.mu.Lock()
	f.descriptor = d
	f.mu.Unlock()
}

// own returns our current descriptor, nil before it is mined.
func (f *federation) own() *nostr.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.descriptor
}

func (f *federation) config(d *nostr.Event) host.Config {
	n, c := f.n, &f.n.cfg.Spec
	agreement, err := ecdh.X25519().NewPrivateKey(n.keys.Agreement[:])
	if err != nil {
		panic("daemon: X25519 takes any 32 bytes: " + err.Error())
	}
	hide := append(append([]nostr.Kind(nil), policy.PrivateKinds...), spec.C().Boundary.NeverKinds...)
	return host.Config{
		Agent: n.agent, Agreement: agreement, Dir: filepath.Dir(n.opt.Dir.Journal()), Store: n.store, View: store.View{Hide: hide},
		Take: f.take, Publish: f.publish, Find: f.find, Descriptor: f.own,
		Transports: []transport.Transport{f.wss, f.wraps},
		Ours:       []transport.Endpoint{{Scheme: f.wss.Scheme()}, {Scheme: f.wraps.Scheme(), Preference: transport.LastPreference}}, Log: n.log,
		Mesh: mesh.Config{
			Self: n.agent.PubKey(), Class: spec.Class(c.Class), Digest: spec.DigestHex(), Protocols: protocols(), Descriptor: d.ID,
			Enrolment: mesh.Enrolment(c.Federation.Enrolment), PoWBits: f.bits(), Window: c.Federation.WindowSeconds, Serve: []json.RawMessage{json.RawMessage(`{}`)},
		},
	}
}

func protocols() []string { return []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync} }

func (f *federation) bits() int {
	if b := f.n.cfg.Spec.Federation.DescriptorPoW; b != 0 {
		return b
	}
	return spec.C().PoW.DefaultBits
}

// take offers what a peer delivered, or attached, to the relay's own path.
func (f *federation) take(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error) {
	verdicts, err := f.n.relay.Publish(ctx, events, policy.FromMesh)
	if err != nil {
		return nil, fmt.Errorf("take a peer's events: %w", err)
	}
	out := make([]store.Outcome, len(verdicts))
	for i, v := range verdicts {
		out[i] = v.Outcome
		if v.Outcome == 0 && !v.OK {
			out[i] = store.Refused
		}
	}
	return out, nil
}

// publish stores and serves an event of our own.
func (f *federation) publish(ctx context.Context, e *nostr.Event) error {
	verdicts, err := f.n.relay.Publish(ctx, []*nostr.Event{e}, policy.FromMesh)
	if err != nil {
		return fmt.Errorf("publish an event of kind %d: %w", e.Kind, err)
	}
	if !verdicts[0].OK {
		return fmt.Errorf("publish an event of kind %d: our own relay says %q: check spec.relay.allowKinds and denyKinds", e.Kind, verdicts[0].Reason)
	}
	return nil
}

// find asks the relays that the operator named for a peer's descriptor, then those where this node looks for others.
func (f *federation) find(ctx context.Context, key nostr.PubKey, hints []string) (*nostr.Event, error) {
	err := errors.New("no relay was named: give one with --relay")
	for _, url := range hints {
		var e *nostr.Event
		if e, err = f.findAt(ctx, url, key); err == nil {
			return e, nil
		}
	}
	return nil, err
}

func (f *federation) findAt(ctx context.Context, url string, key nostr.PubKey) (*nostr.Event, error) {
	conn, err := gateway.Dial(ctx, url, gateway.Options{Client: f.net.HTTPClient()})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	one := 1
	list, err := conn.QueryAll(ctx, nostr.Filter{Kinds: []nostr.Kind{spec.KindDescriptor}, Authors: []nostr.PubKey{key}, Limit: &one})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s holds no descriptor of it", url)
	}
	return list[0], nil
}

// get waits until federation is up.
func (f *federation) get(ctx context.Context) (*host.Host, error) {
	select {
	case <-f.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, fmt.Errorf("federation is off: %w", f.err)
	}
	return f.host, nil
}

// count is how many peers are known.
func (f *federation) count() int {
	f.mu.Lock()
	h := f.host
	f.mu.Unlock()
	if h == nil {
		return 0
	}
	return len(h.Peers())
}

// stop says goodbye within ctx.
func (f *federation) stop(ctx context.Context) {
	if f.stops == nil {
		return
	}
	f.stops()
	f.work.Wait()
	f.mu.Lock()
	h := f.host
	f.mu.Unlock()
	if h == nil {
		return
	}
	if err := h.Stop(ctx); err != nil {
		f.n.log.Warn("stop federation", "err", err)
	}
}
