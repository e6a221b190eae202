package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// How long and how many descriptors a resolver remembers.
const (
	resolverAge  = 10 * time.Minute
	resolverSize = 1000
)

// resolver remembers descriptors for at most resolverAge. What has expired, or was revoked, is never answered as live, however fresh the
// memory is. It is safe for concurrent use.
type resolver struct {
	mu   sync.Mutex
	held map[nostr.PubKey]resolved
}

type resolved struct {
	d  *identity.Descriptor
	at int64 // when it was verified, unix seconds
}

func newResolver() *resolver { return &resolver{held: map[nostr.PubKey]resolved{}} }

// get returns a descriptor that is live at now and was verified less than resolverAge ago.
func (r *resolver) get(key nostr.PubKey, now int64) (*identity.Descriptor, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.held[key]
	if !ok {
		return nil, false
	}
	if now-h.at >= int64(resolverAge/time.Second) || now < h.at || !h.d.LiveAt(now) {
		delete(r.held, key)
		return nil, false
	}
	return h.d, true
}

func (r *resolver) put(d *identity.Descriptor, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) >= resolverSize {
		for key := range r.held { // any: the memory only saves work
			delete(r.held, key)
			break
		}
	}
	r.held[d.Subject] = resolved{d, now}
}

func (r *resolver) forget(key nostr.PubKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, key)
}

// selfContained resolves the DIDs that need nothing but themselves.
func selfContained(did string) (doc *identity.Document, ok bool, err error) {
	switch {
	case strings.HasPrefix(did, "did:peer:"):
		doc, err = identity.ParseDIDPeer(did)
	case strings.HasPrefix(did, "did:key:"):
		var m identity.Multikey
		if m, err = identity.ParseDIDKey(did); err == nil {
			doc = identity.KeyDocument(m)
		}
	default:
		return nil, false, nil
	}
	return doc, true, err
}

// fromStore returns the live descriptor of a key that the store holds, nil if there is none or the key is revoked.
func fromStore(ctx context.Context, s store.Store, key nostr.PubKey, now int64) (*identity.Descriptor, error) {
	r, err := newest(ctx, s, spec.KindRevocation, key, now)
	if err != nil || r != nil {
		return nil, err
	}
	e, err := newest(ctx, s, spec.KindDescriptor, key, now)
	if err != nil || e == nil {
		return nil, err
	}
	d, err := identity.CheckDescriptor(e, identity.Rules{Subject: &key, Now: now, Held: true})
	if err != nil {
		return nil, nil // one that does not hold is none
	}
	return d, nil
}

// userDocument is the document of a key that is no node here: what its relay list says, or the key alone.
func userDocument(ctx context.Context, s store.Store, key nostr.PubKey, now int64) (*identity.Document, error) {
	e, err := newest(ctx, s, nostr.KindRelayList, key, now)
	if err != nil || e == nil {
		return identity.MinimalDocument(key), err
	}
	facts := identity.UserFacts{Modified: e.CreatedAt}
	for url := range e.TagValues("r") {
		facts.Relays = append(facts.Relays, url)
	}
	return identity.UserDocument(key, facts), nil
}

// resolve returns the DID document: of a node whose live descriptor is found the enhanced one, of any other key the minimal one and what
// its relay list adds. seek looks at relays too.
func (n *node) document(ctx context.Context, did string, seek bool) (*identity.Document, error) {
	if did == "" {
		did = identity.FormatDID(n.agent.PubKey())
	}
	if doc, ok, err := selfContained(did); ok {
		if err != nil {
			return nil, control.BadParams("%v", err)
		}
		return doc, nil
	}
	key, err := identity.ParseDID(did)
	if err != nil {
		return nil, control.BadParams("%v", err)
	}
	now := time.Now().Unix()
	if d, ok := n.fed.resolver.get(key, now); ok {
		return identity.NodeDocument(d, now), nil
	}
	if n.fed.known.revoked(key) {
		return identity.MinimalDocument(key), nil
	}
	d, err := fromStore(ctx, n.store, key, now)
	if err != nil {
		return nil, fmt.Errorf("look for a descriptor: %w", err)
	}
	if d == nil && seek && key != n.agent.PubKey() {
		if e, err := n.fed.find(ctx, key, nil); err == nil {
			d, _ = identity.CheckDescriptor(e, identity.Rules{Subject: &key, Now: now}) // nil when it does not hold
		}
	}
	if d == nil {
		return userDocument(ctx, n.store, key, now)
	}
	n.fed.resolver.put(d, now)
	return identity.NodeDocument(d, now), nil
}

// resolve is did.resolve.
func (n *node) resolve(ctx context.Context, p DIDParams) (*identity.Document, error) {
	if p.DID == "" || p.DID == identity.FormatDID(n.agent.PubKey()) {
		_, _ = n.fed.get(ctx) // our own descriptor may still be in the making; without one the minimal document is the truth
	}
	return n.document(ctx, p.DID, true)
}

// Resolve answers as the running node would, from the store and the keys. Of this node itself, where no descriptor was published yet, it is the
// document of the one that will be.
func (o *Offline) Resolve(ctx context.Context, dir Dir, did string) (*identity.Document, error) {
	if doc, ok, err := selfContained(did); ok {
		return doc, err
	}
	self, err := dir.PublicKey()
	if err != nil {
		return nil, err
	}
	key := self
	if did != "" {
		if key, err = identity.ParseDID(did); err != nil {
			return nil, err
		}
	}
	now := time.Now().Unix()
	d, err := fromStore(ctx, o.store, key, now)
	if err != nil {
		return nil, fmt.Errorf("look for a descriptor: %w", err)
	}
	if d != nil {
		return identity.NodeDocument(d, now), nil
	}
	if key != self {
		return userDocument(ctx, o.store, key, now)
	}
	if r, err := newest(ctx, o.store, spec.KindRevocation, key, now); err != nil || r != nil {
		return identity.MinimalDocument(key), err
	}
	c, err := LoadConfig(dir.Config())
	if err != nil {
		return nil, err
	}
	if d, err = describe(dir, c, facts{self: self}, now); err != nil {
		return nil, err
	}
	return identity.NodeDocument(d, now), nil
}

// documentJSON is what /.well-known/did serves; strangers cause no search elsewhere.
func (n *node) documentJSON(ctx context.Context, did string) ([]byte, error) {
	doc, err := n.document(ctx, did, false)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, errors.New("the document does not encode")
	}
	return text, nil
}
