package host

import (
	"context"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// recipientsOnly says whether events of a kind go only to nodes that their recipient named (§ Never replicated): stored gift wraps. Both ends
// hold each against the recipient's own kind 10050, which anybody can read.
func recipientsOnly(k nostr.Kind) bool {
	return slices.Contains(spec.C().Boundary.RecipientRelaysOnlyKinds, k)
}

// addressed reports whether an event has recipients, and all of them name one of the relays.
func (h *Host) addressed(ctx context.Context, e *nostr.Event, relays []string) bool {
	if h.cfg.Named == nil || len(relays) == 0 {
		return false
	}
	some := false
	for v := range e.TagValues("p") {
		k, err := nostr.ParsePubKey(v)
		if err != nil || !h.cfg.Named(ctx, k, relays) {
			return false
		}
		some = true
	}
	return some
}

// peerRelays are the relay faces that a peer's descriptor names.
func (h *Host) peerRelays(peer nostr.PubKey) []string {
	h.mu.Lock()
	d := h.peers[peer]
	h.mu.Unlock()
	return relaysOf(d)
}

// ownRelays are those of our own descriptor.
func (h *Host) ownRelays() []string {
	e := h.cfg.Descriptor()
	if e == nil {
		return nil
	}
	d, err := identity.CheckDescriptor(e, identity.Rules{Now: Now().Unix(), Held: true})
	if err != nil {
		return nil
	}
	return relaysOf(d)
}

func relaysOf(d *identity.Descriptor) (urls []string) {
	if d == nil {
		return nil
	}
	for _, e := range d.Endpoints {
		if strings.HasPrefix(e.Address, "wss://") || strings.HasPrefix(e.Address, "ws://") {
			urls = append(urls, e.Address)
		}
	}
	return urls
}
