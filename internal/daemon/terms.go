package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// GrantTerms are what the operator has new grants say (GrantPolicy), within what the protocol allows.
type GrantTerms struct {
	Tiers           map[spec.Tier]map[spec.Limit]int64 `yaml:"tiers,omitempty"` // where a grant of a tier opens
	Scope           GrantScope                         `yaml:"scope,omitempty"`
	Nodes           []ListedNode                       `yaml:"nodes,omitempty"`
	LifetimeSeconds int64                              `yaml:"lifetimeSeconds,omitempty"`
	Receipt         GrantReceipt                       `yaml:"receipt,omitempty"`
}

// GrantScope is the most that any peer may push here and pull from here; an absent filter bounds nothing.
type GrantScope struct {
	Push map[string]any `yaml:"push,omitempty"`
	Pull map[string]any `yaml:"pull,omitempty"`
}

// GrantReceipt is the cadence of receipts that a grant asks for; zero is the protocol's.
type GrantReceipt struct {
	Seconds int64 `yaml:"seconds,omitempty"`
	Bytes   int64 `yaml:"bytes,omitempty"`
}

// ListedNode is a node whose tier the operator says beforehand; revoked turns it away.
type ListedNode struct {
	Subject string    `yaml:"subject"` // hex or did:nostr
	Tier    spec.Tier `yaml:"tier"`
	Expires int64     `yaml:"expires,omitempty"` // unix second, 0: never
}

// terms are the same as mesh takes them.
func (g *GrantTerms) terms() (k mesh.Terms, err error) {
	for tier, limits := range g.Tiers {
		if spec.C().TierRank(tier) < 0 {
			return k, fmt.Errorf("spec.federation.grants.tiers has %q, want probation, member, trusted or anchor", tier)
		}
		for name, v := range limits {
			if _, ok := spec.C().Limit(name); !ok {
				return k, fmt.Errorf("spec.federation.grants.tiers.%s has %q, which is no limit of a grant", tier, name)
			}
			if most := spec.C().Ceiling(name, tier); v < 0 || v > most {
				return k, fmt.Errorf("spec.federation.grants.tiers.%s.%s is %d, want 0 to %d, the ceiling of the tier", tier, name, v, most)
			}
		}
		if k.Open == nil {
			k.Open = map[spec.Tier]ledger.Limits{}
		}
		k.Open[tier] = limits
	}
	if g.Scope.Push != nil {
		f, err := scopeFilter(g.Scope.Push)
		if err != nil {
			return k, fmt.Errorf("spec.federation.grants.scope.push: %w", err)
		}
		k.Push = &f
	}
	k.Nodes = map[nostr.PubKey]mesh.Listed{}
	for _, n := range g.Nodes {
		key, err := nostr.ParsePubKey(strings.TrimPrefix(n.Subject, "did:nostr:"))
		if err != nil {
			return k, fmt.Errorf("spec.federation.grants.nodes has %q: %w", n.Subject, err)
		}
		if spec.C().TierRank(n.Tier) < 0 && n.Tier != spec.TierRevoked {
			return k, fmt.Errorf("spec.federation.grants.nodes has the tier %q, want probation, member, trusted, anchor or revoked", n.Tier)
		}
		k.Nodes[key] = mesh.Listed{Tier: n.Tier, Expires: n.Expires}
	}
	k.LifetimeSeconds, k.ReceiptSeconds, k.ReceiptBytes = g.LifetimeSeconds, g.Receipt.Seconds, g.Receipt.Bytes
	if most := spec.C().Lifetimes.GrantSeconds; k.LifetimeSeconds < 0 || k.LifetimeSeconds > most || k.LifetimeSeconds > 0 && k.LifetimeSeconds < 86400 {
		return k, fmt.Errorf("spec.federation.grants.lifetimeSeconds is %d, want 86400 to %d", k.LifetimeSeconds, most)
	}
	if k.ReceiptSeconds < 0 || k.ReceiptBytes < 0 {
		return k, fmt.Errorf("spec.federation.grants.receipt is negative")
	}
	return k, nil
}

func scopeFilter(m map[string]any) (nostr.Filter, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nostr.Filter{}, err
	}
	return nostr.ParseFilter(text)
}

// serves are the filters that a peer may pull within.
func (g *GrantTerms) serves() []json.RawMessage {
	text := json.RawMessage(`{}`)
	if g.Scope.Pull != nil {
		text, _ = json.Marshal(g.Scope.Pull) // it came from YAML and was checked
	}
	return []json.RawMessage{text}
}

// checkBudget holds limits that are set for a peer to what the tier may have; without a tier, to what any may.
func checkBudget(budget map[spec.Limit]int64, tier spec.Tier) error {
	if tier == "" {
		tier = spec.C().Tiers[len(spec.C().Tiers)-1].Name
	}
	for _, name := range slices.Sorted(maps.Keys(budget)) {
		if _, ok := spec.C().Limit(name); !ok {
			return control.BadParams("%q is no limit of a grant", name)
		}
		if v, most := budget[name], spec.C().Ceiling(name, tier); v < 0 || v > most {
			return control.BadParams("%s is %d, and a %s may have 0 to %d", name, v, tier, most)
		}
	}
	return nil
}

// permits holds a peering that is begun by hand to the operator's own terms for grants.
func (n *node) permits(p *PeerParams) error {
	terms := n.fed.govern().Terms
	if key, err := ParseNode(p.DID); err == nil {
		if l, ok := terms.Nodes[key]; ok && l.Tier == spec.TierRevoked && (l.Expires == 0 || l.Expires > host.Now().Unix()) {
			return control.Refuse(string(spec.CodePolicy), "spec.nodes of a GrantPolicy lists %s as revoked: take it out there first", p.DID)
		}
	}
	for _, w := range p.Wants {
		if f, err := nostr.ParseFilter(w.Filter); err == nil && w.Mode != mesh.ModePush && !terms.MayPush(&f) {
			return control.Refuse(string(spec.CodePolicy), "the filter of shard %q asks for more than spec.scope.push of a GrantPolicy lets a peer push", w.Shard)
		}
	}
	return nil
}

// govern is what of the configuration in force decides about strangers and grants.
func (f *federation) govern() mesh.Govern {
	c := &f.n.cfg().Spec.Federation
	terms, _ := c.Grants.terms() // checked with the configuration
	var own nostr.ID
	if d := f.own(); d != nil {
		own = d.ID
	}
	return mesh.Govern{Descriptor: own, Enrolment: mesh.Enrolment(c.Enrolment), PoWBits: f.bits(), Standing: c.standing(), Shadow: c.Shadow, Serve: c.Grants.serves(), Terms: terms}
}
