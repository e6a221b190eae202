package daemon

import (
	"context"
	"fmt"
	"net/url"

	"fleetmesh.org/fleetmesh/internal/attach"
	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// attach makes the relay of spec.attach the store, with the store of the node directory beside it for what is the node's own.
func (n *node) attach() error {
	relay := n.cfg().Spec.Attach.Relay
	if relay == "" {
		return nil
	}
	if norm, err := nostr.NormalizeRelayURL(relay); err != nil {
		return fmt.Errorf("spec.attach.relay is %q: %w", relay, err)
	} else if own, err := nostr.NormalizeRelayURL(n.url); err == nil && own == norm {
		return fmt.Errorf("spec.attach.relay is %q, which is this node's own face: name the relay that holds the events", relay)
	}
	dial := gateway.Options{Key: n.secret, Log: n.log}
	if p := n.cfg().Spec.Proxy; p != "" {
		u, err := url.Parse(p)
		if err != nil {
			return fmt.Errorf("spec.proxy: %w", err)
		}
		dial.Proxy = u
	}
	s, err := attach.New(attach.Config{Relay: relay, Dial: dial, Local: n.store, Self: n.agent.PubKey(), Log: n.log})
	if err != nil {
		return err
	}
	n.store, n.away = s, s
	return nil
}

// followAway lets in what others publish at the attached relay, so that it reaches this node's subscribers and peers.
func (n *node) followAway(ctx context.Context) {
	if n.away == nil {
		return
	}
	sink := n.relay.Sink(policy.FromSync)
	n.away.Follow(ctx, func(ctx context.Context, events []*nostr.Event) error {
		_, err := sink.Offer(ctx, events)
		return err
	})
}
