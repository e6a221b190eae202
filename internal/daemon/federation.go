package daemon

import (
	"context"
	"crypto/ecdh"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/tracing"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// federation is the mesh side of a node. It comes up behind the relay: the descriptor may have to be mined first.
type federation struct {
	n     *node
	wss   *transport.WSS
	https *transport.HTTPS
	wraps *transport.GiftWrap
	net   *transport.Network // how this node dials
	ready chan struct{}      // closed when host is there, or err
	work  sync.WaitGroup
	stops context.CancelFunc

	known    *knownNodes
	invites  *invitations
	resolver *resolver
	outbox   *outbox
	renew    chan struct{}   // asks for a look at the descriptor
	life     context.Context // ends when federation does

	gating   sync.Mutex
	gates    map[string]*gate              // that are open
	traces   *tracing.Tracer               // of syncs, nil: none
	posts    transport.Listener            // of those that are paths of the relay face, nil before the first
	wrapped  map[string]context.CancelFunc // ends listening for gift wraps, by relay
	renewing sync.Mutex                    // one look at a time
	covering sync.Mutex                    // one measure of the shards at a time

	mu         sync.Mutex
	host       *host.Host
	descriptor *nostr.Event
	revocation *nostr.Event // of our own key
	door       transport.Listener
	watched    []place
	err        error

	samples      *sampler                  // of what peers assert to hold
	narrowed     bool                      // shards that are held only through the mesh are not claimed now
	contradicted map[nostr.PubKey]nostr.ID // descriptors that a heartbeat contradicted
}

func newFederation(n *node) (*federation, error) {
	network, err := transport.NewNetwork(n.cfg().Spec.Proxy, nil)
	if err != nil {
		return nil, fmt.Errorf("set up the network for peers: %w", err)
	}
	wraps, err := newWraps(n, network)
	if err != nil {
		return nil, fmt.Errorf("set up gift wraps for peers: %w", err)
	}
	f := &federation{
		n: n, wss: transport.NewWSS(network), https: transport.NewHTTPS(network), wraps: wraps, net: network, ready: make(chan struct{}),
		resolver: newResolver(), outbox: newOutbox(), renew: make(chan struct{}, 1),
		gates: map[string]*gate{}, wrapped: map[string]context.CancelFunc{},
	}
	if f.known, err = openKnown(n.opt.Dir.known(), n.log); err != nil {
		return nil, err
	}
	if f.invites, err = openInvitations(n.opt.Dir.invitations()); err != nil {
		return nil, err
	}
	return f, f.openTraces()
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
	f.life = ctx
	f.work.Go(func() {
		h, err := f.bringUp(ctx)
		f.mu.Lock()
		f.host, f.err = h, err
		late := h != nil && f.revocation != nil // it came while we came up
		f.mu.Unlock()
		close(f.ready)
		if late {
			f.leave(h)
		}
		if err != nil && ctx.Err() == nil {
			f.n.log.Error("federation is off", "err", err)
		}
		if err == nil {
			f.collectWraps(ctx, h)
			f.appear(ctx)
			f.refresh(ctx)
		}
	})
	return nil
}

func (f *federation) bringUp(ctx context.Context) (*host.Host, error) {
	now := host.Now().Unix()
	revoked, err := newest(ctx, f.n.store, spec.KindRevocation, f.n.agent.PubKey(), now)
	if err != nil {
		return nil, err
	}
	if revoked != nil {
		f.retire(revoked)
		f.discover(ctx) // the revocation still goes out to those who have not seen it
		return nil, errRetired
	}
	if err := f.findMediators(ctx); err != nil {
		return nil, err
	}
	d, err := f.ownDescriptor(ctx)
	if err != nil {
		return nil, err
	}
	f.setDescriptor(d)
	agreement, err := f.n.opt.Dir.readKey(string(identity.RoleAgreement))
	if err != nil {
		return nil, err
	}
	cfg := f.config(d, agreementKey(agreement))
	if err := f.mediation(&cfg); err != nil {
		return nil, err
	}
	h, err := host.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := f.takeUpKeys(h, now); err != nil {
		return nil, err
	}
	l, err := f.wss.Listen(ctx, transport.Endpoint{Scheme: "wss", Address: f.n.url})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.door = l
	f.mu.Unlock()
	h.Start(l)
	f.work.Go(func() { f.passOn(ctx, h) })
	if err := f.openGates(h, f.n.cfg().Spec.Endpoints); err != nil {
		f.n.log.Error("a door for peers stays shut", "err", err) // the others are open
	}
	return h, nil
}

// appear makes the node seen: it publishes what it is, looks for others, and does what is due on a schedule.
func (f *federation) appear(ctx context.Context) {
	if err := f.project(ctx); err != nil && ctx.Err() == nil {
		f.n.log.Warn("publish what this node is", "err", err)
	}
	f.discover(ctx)
	if h := f.running(); h != nil {
		h.Announce()
	}
	if h := f.running(); h != nil {
		f.work.Go(func() { f.tendMediators(ctx, h) })
	}
	f.work.Go(func() { f.beat(ctx) })
	f.work.Go(func() { f.cover(ctx) })
	f.work.Go(func() { f.diagnose(ctx) })
	if h := f.running(); h != nil {
		f.work.Go(func() { f.readReports(ctx, h) })
		f.work.Go(func() { f.sampleCoverage(ctx, h) })
	}
}

// running is the host, nil while federation is not up.
func (f *federation) running() *host.Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.host
}

// takeUpKeys gives the host the agreement keys that are in the directory now.
func (f *federation) takeUpKeys(h *host.Host, now int64) error {
	secret, err := f.n.opt.Dir.readKey(string(identity.RoleAgreement))
	if err != nil {
		return err
	}
	former, err := f.n.opt.Dir.FormerKeys(string(identity.RoleAgreement), now)
	if err != nil {
		return err
	}
	var old []*ecdh.PrivateKey
	for _, k := range former {
		old = append(old, agreementKey(k.Key))
	}
	h.SetAgreement(agreementKey(secret), old)
	return nil
}

// reload takes up keys that were rotated, and publishes the descriptor that names them.
func (f *federation) reload(ctx context.Context) error {
	h, err := f.get(ctx)
	if err != nil {
		return err
	}
	if err := f.takeUpKeys(h, host.Now().Unix()); err != nil {
		return err
	}
	return f.renewNow(ctx)
}

func agreementKey(secret [32]byte) *ecdh.PrivateKey {
	k, err := ecdh.X25519().NewPrivateKey(secret[:])
	if err != nil {
		panic("daemon: X25519 takes any 32 bytes: " + err.Error())
	}
	return k
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

func (f *federation) config(d *nostr.Event, agreement *ecdh.PrivateKey) host.Config {
	n, c, g := f.n, &f.n.cfg().Spec, f.govern()
	hide := append(append([]nostr.Kind(nil), policy.PrivateKinds...), spec.C().Boundary.NeverKinds...)
	return host.Config{
		Agent: n.agent, Agreement: agreement, Dir: filepath.Dir(n.opt.Dir.Journal()), Store: n.store, View: store.View{Hide: hide},
		Leaving: n.seams.leaving, Trace: f.trace(), Left: f.left, Named: f.named, Take: f.take, Publish: f.publish, Announce: f.announce, Shed: f.shed, Find: f.find, Descriptor: f.own, Known: f.tellOf, Told: f.told,
		Invited:    func(id string, from nostr.PubKey) bool { return f.invites.redeem(id, from, host.Now().Unix()) },
		Transports: f.carriers(), Ours: f.ladderSide(), Log: n.log, Noted: f.noted,
		Mesh: mesh.Config{
			Self: n.agent.PubKey(), Class: spec.Class(c.Class), Digest: spec.DigestHex(), Protocols: protocols(), Descriptor: d.ID,
			Enrolment: g.Enrolment, PoWBits: g.PoWBits, Window: c.Federation.WindowSeconds, Standing: g.Standing, Capacity: c.Federation.Capacity, Shadow: g.Shadow, Serve: g.Serve, Terms: g.Terms,
		},
	}
}

func protocols() []string {
	return []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync, spec.PIURIComplaint, spec.PIURIStanding}
}

func (f *federation) bits() int {
	if b := f.n.cfg().Spec.Federation.DescriptorPoW; b != 0 {
		return b
	}
	return spec.C().PoW.DefaultBits
}

// passOn tells the host whenever the store has something new, from whatever door, so that live sessions carry it on.
func (f *federation) passOn(ctx context.Context, h *host.Host) {
	feed := f.n.relay.Follow([]nostr.Filter{{}}, 1)
	defer feed.Close()
	for {
		select {
		case <-feed.Events(): // what does not fit says nothing else
			h.Arrived()
		case <-ctx.Done():
			return
		}
	}
}

// named says whether a key names one of the relays in its kind 10050.
func (f *federation) named(ctx context.Context, recipient nostr.PubKey, relays []string) bool {
	return bridge.Named(ctx, f.n.store, recipient, relays, host.Now().Unix())
}

// take offers what a peer delivered, or attached, to the relay's own path. What never crosses is refused, whatever the peer thinks of it.
func (f *federation) take(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(events))
	var pass []*nostr.Event
	var at []int
	for i, e := range events {
		if out[i] = store.Refused; peerBoundary.Stops(ctx, e, host.Now().Unix()) == "" {
			pass, at = append(pass, events[i]), append(at, i)
		}
	}
	got, err := f.n.relay.Sink(policy.FromMesh).Offer(ctx, pass)
	if err != nil {
		return nil, fmt.Errorf("take a peer's events: %w", err)
	}
	for k, i := range at {
		out[i] = got[k]
	}
	return out, nil
}

// left writes down what was delivered to a peer.
func (f *federation) left(peer nostr.PubKey, envelopes []*ledger.Envelope) {
	list := make([]trail.Departure, len(envelopes))
	for i, e := range envelopes {
		list[i] = trail.Departure{Event: e.Event.ID, Road: "mesh", To: identity.FormatDID(peer), Grant: &e.Grant, Window: e.Window, At: host.Now().Unix()}
	}
	if err := f.n.trail.Add(list...); err != nil {
		f.n.log.Error("what left is not written down", "events", len(list), "err", err)
	}
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

// comingUp is how long a verb waits for federation. Mining a descriptor takes seconds on a small machine; a leaf may look for mediators for ever.
const comingUp = 90 * time.Second

// get waits until federation is up, and not for ever.
func (f *federation) get(ctx context.Context) (*host.Host, error) {
	patience := time.NewTimer(comingUp)
	defer patience.Stop()
	select {
	case <-f.ready:
	case <-patience.C:
		if f.chooses() {
			return nil, errors.New("federation is not up yet: this leaf still looks for two anchors of distinct operators that mediate; name them in spec.mediators, or more relays in spec.relays")
		}
		return nil, errors.New("federation is not up yet: the descriptor is still being mined; spec.federation.descriptorPow says how many bits")
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
	f.closeTraces(ctx)
}
