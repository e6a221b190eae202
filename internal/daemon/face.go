package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/nostr"
)

// face turns the operator's relay section into the relay's configuration. self is the node's key.
func face(c *RelaySpec, self nostr.PubKey) (relay.Config, error) {
	cfg := relay.Config{
		PublicURLs: c.PublicURLs,
		Limits:     faceLimits(&c.Limits),
		Off: relay.Features{
			Auth: slices.Contains(c.Off, "auth"), Count: slices.Contains(c.Off, "count"),
			Search: slices.Contains(c.Off, "search"), Negentropy: slices.Contains(c.Off, "negentropy"),
		},
		Info: relay.Info{Name: c.Name, Description: c.Description, Contact: c.Contact, Icon: c.Icon, Self: self.String(), Software: "https://fleetmesh.org"},
	}
	for _, s := range c.TrustedProxies {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return cfg, fmt.Errorf("spec.relay.trustedProxies: %w", err)
		}
		cfg.TrustedProxies = append(cfg.TrustedProxies, p)
	}
	chain, err := rules(c)
	if err != nil {
		return cfg, err
	}
	cfg.Policy = chain
	return cfg, nil
}

// faceLimits are the operator's limits as the relay takes them.
func faceLimits(l *Limits) relay.Limits {
	return relay.Limits{
		MaxMessageBytes: l.MaxMessageBytes, MaxConnections: l.MaxConnections, ConnectionsPerIP: l.ConnectionsPerIP, MaxSubscriptions: l.MaxSubscriptions,
		MaxFilters: l.MaxFilters, MaxLimit: l.MaxLimit,
		EventsPerSecond: l.EventsPerSecond, RequestsPerSecond: l.RequestsPerSecond, BytesPerSecond: l.BytesPerSecond,
	}
}

// rules builds the operator's policy from the relay section.
func rules(c *RelaySpec) (policy.Chain, error) {
	var chain policy.Chain
	if c.ReadOnly {
		chain = append(chain, policy.ReadOnly{})
	}
	if len(c.AllowKinds)+len(c.DenyKinds) > 0 {
		chain = append(chain, policy.NewKinds(kinds(c.AllowKinds), kinds(c.DenyKinds)))
	}
	if len(c.AllowPubkeys)+len(c.DenyPubkeys) > 0 {
		allow, err := pubkeys("allowPubkeys", c.AllowPubkeys)
		if err != nil {
			return nil, err
		}
		deny, err := pubkeys("denyPubkeys", c.DenyPubkeys)
		if err != nil {
			return nil, err
		}
		chain = append(chain, policy.NewAuthors(allow, deny))
	}
	if c.MinPoW > 0 {
		chain = append(chain, policy.MinPoW{Bits: c.MinPoW})
	}
	return chain, nil
}

func kinds(list []int) (out []nostr.Kind) {
	for _, k := range list {
		out = append(out, nostr.Kind(k))
	}
	return out
}

func pubkeys(knob string, list []string) (out []nostr.PubKey, err error) {
	for _, s := range list {
		k, err := nostr.ParsePubKey(s)
		if err != nil {
			return nil, fmt.Errorf("spec.relay.%s has %q: %w", knob, s, err)
		}
		out = append(out, k)
	}
	return out, nil
}
