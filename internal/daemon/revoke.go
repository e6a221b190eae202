package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// RevokeParams are those of node.revoke.
type RevokeParams struct {
	Reason    string `json:"reason"`              // retired, key-compromise, migrated, or any text
	Successor string `json:"successor,omitempty"` // DID, hex or npub: advisory, it inherits nothing
	Note      string `json:"note,omitempty"`
	Print     bool   `json:"print,omitempty"` // only sign: to be kept and published later, by whatever relay
}

// Revoked says how far a revocation got.
type Revoked struct {
	Event     string            `json:"event"`     // the signed kind 11802, as JSON
	Published bool              `json:"published"` // in the node's own store
	Relays    map[string]string `json:"relays"`    // what each relay and each peer's face said; "ok" when it took it
}

// revocation builds and signs one.
func (p *RevokeParams) revocation(agent identity.Agent, now int64) (*nostr.Event, error) {
	var successor nostr.PubKey
	var err error
	if p.Successor != "" {
		if successor, err = identity.ParseDID(p.Successor); err != nil {
			if successor, err = nostr.ParsePubKey(p.Successor); err != nil {
				return nil, control.BadParams("successor: %v", err)
			}
		}
	}
	r, err := identity.NewRevocation(agent.PubKey(), now, p.Reason, successor, p.Note)
	if err != nil {
		return nil, control.BadParams("%v", err)
	}
	e := r.Event()
	return e, identity.SignEvent(agent, e)
}

// revoke retires this node's key for good: the revocation goes to the own store, to the relays, and to the faces of the peers and of the nodes that
// are known; then federation ends. The relay goes on.
func (n *node) revoke(ctx context.Context, p RevokeParams) (Revoked, error) {
	e, err := p.revocation(n.agent, time.Now().Unix())
	if err != nil {
		return Revoked{}, err
	}
	out := Revoked{Event: string(e.JSON()), Relays: map[string]string{}}
	if p.Print {
		return out, nil
	}
	if err := n.fed.publish(ctx, e); err != nil {
		return out, err
	}
	out.Published = true
	n.fed.retire(e)
	out.Relays = spread(ctx, e, n.fed.reachable(), n.fed.net, n.secret)
	return out, nil
}

// reachable are the relays where a revocation of ours should be seen: our own, those where others look, and the faces of the nodes that are known.
func (f *federation) reachable() (urls []string) {
	f.mu.Lock()
	for _, p := range f.watched {
		urls = append(urls, p.url)
	}
	f.mu.Unlock()
	return append(urls, facesOf(f.known.list(time.Now().Unix()))...)
}

// maxSpread bounds the faces that a revocation is sent to directly.
const maxSpread = 200

func facesOf(list []KnownNode) (urls []string) {
	for _, k := range list {
		for _, e := range k.Endpoints {
			if u, err := nostr.NormalizeRelayURL(e.Address); e.Scheme == "wss" && err == nil && k.Live && !slices.Contains(urls, u) && len(urls) < maxSpread {
				urls = append(urls, u)
			}
		}
	}
	return urls
}

// spreadPatience is how long one relay may take.
const spreadPatience = 5 * time.Second

// spread publishes one event to many relays at once, and says what each answered.
func spread(ctx context.Context, e *nostr.Event, urls []string, network *transport.Network, key *nostr.SecretKey) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, spreadPatience)
	defer cancel()
	answers := make(map[string]string, len(urls))
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, url := range urls {
		work.Go(func() {
			said := "ok"
			if err := offer(ctx, e, url, network, key); err != nil {
				said = err.Error()
			}
			mu.Lock()
			answers[url] = said
			mu.Unlock()
		})
	}
	work.Wait()
	return answers
}

func offer(ctx context.Context, e *nostr.Event, url string, network *transport.Network, key *nostr.SecretKey) error {
	conn, err := gateway.Dial(ctx, url, gateway.Options{Client: network.HTTPClient(), Key: key})
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := conn.Publish(ctx, e)
	if err == nil && !answer.OK {
		err = errors.New(answer.Reason)
	}
	return err
}

// retire ends federation because our own key is revoked, by us or by whoever else holds it.
func (f *federation) retire(e *nostr.Event) {
	f.outbox.put(e)
	f.mu.Lock()
	before := f.revocation
	f.revocation = e
	h := f.host
	f.mu.Unlock()
	if before != nil {
		return
	}
	f.n.log.Error("this node's key is revoked: federation ends, the relay goes on", "revocation", e.ID.String())
	f.resolver.forget(e.PubKey)
	if h != nil {
		f.work.Go(func() { f.leave(h) })
	}
}

// errRetired is why a node whose own key is revoked deals with nobody.
var errRetired = errors.New("this node's key is revoked; make a new node with meshnode init")

// leave ends every peering of a node whose own key is revoked, shuts the door for peers and stops the host.
func (f *federation) leave(h *host.Host) {
	for _, p := range h.Peers() {
		h.EndPeer(p.Key, "this node's key is revoked")
	}
	ctx, cancel := context.WithTimeout(context.Background(), spreadPatience)
	defer cancel()
	f.mu.Lock()
	door := f.door
	f.host, f.err = nil, errRetired
	f.mu.Unlock()
	if door != nil {
		door.Close()
	}
	if err := h.Stop(ctx); err != nil {
		f.n.log.Warn("stop federation", "err", err)
	}
}

// retired reports whether our own key is revoked.
func (f *federation) retired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revocation != nil
}

// Revoke does on a stopped node what node.revoke does on a running one.
func (o *Offline) Revoke(ctx context.Context, dir Dir, p RevokeParams) (Revoked, error) {
	c, err := LoadConfig(dir.Config())
	if err != nil {
		return Revoked{}, err
	}
	keys, err := dir.LoadKeys()
	if err != nil {
		return Revoked{}, err
	}
	agent, err := identity.NewKeyAgent(keys.Node)
	if err != nil {
		return Revoked{}, err
	}
	now := time.Now().Unix()
	e, err := p.revocation(agent, now)
	if err != nil {
		return Revoked{}, err
	}
	out := Revoked{Event: string(e.JSON()), Relays: map[string]string{}}
	if p.Print {
		return out, nil
	}
	outcomes, err := o.store.Insert(ctx, []*nostr.Event{e}, now)
	if err != nil {
		return out, fmt.Errorf("keep the revocation: %w", err)
	}
	out.Published = outcomes[0] == store.Stored
	network, err := transport.NewNetwork(c.Spec.Proxy, nil)
	if err != nil {
		return out, err
	}
	known, err := openKnown(dir.known(), slog.New(slog.DiscardHandler))
	if err != nil {
		return out, err
	}
	urls := slices.Clone(c.Spec.Relays)
	seeds, err := dir.Seeds()
	if err != nil {
		return out, err
	}
	for _, s := range seeds {
		urls = append(urls, s.Relay)
	}
	out.Relays = spread(ctx, e, append(urls, facesOf(known.list(now))...), network, &keys.Node)
	return out, nil
}
