package mesh

import (
	"encoding/json"
	"maps"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Terms are what the operator has new grants say, within what the protocol allows. The zero Terms are the protocol's own.
type Terms struct {
	Open  map[spec.Tier]ledger.Limits // where a grant of a tier opens; a limit that is absent opens where the protocol says
	Nodes map[nostr.PubKey]Listed     // nodes that the operator names beforehand
	Push  *nostr.Filter               // the most that any peer may push here; nil: what each is asked for

	LifetimeSeconds int64 // of a grant; 0: the protocol's
	ReceiptSeconds  int64 // a receipt every so many seconds; 0: the protocol's
	ReceiptBytes    int64 // or octets; 0: the protocol's
}

// Listed is the tier that a named node begins at: it is met so whatever enrolment says. TierRevoked turns it away.
type Listed struct {
	Tier    spec.Tier
	Expires int64 // unix second, 0: never
}

// Govern changes how strangers are met and what grants say while the node runs. New grants are made by it; those that stand are amended where their scope
// is another now, and are left otherwise as conduct has moved them.
type Govern struct {
	Descriptor nostr.ID // of our own current descriptor
	Enrolment  Enrolment
	PoWBits    int
	Standing   StandingPolicy
	Shadow     bool
	Serve      []json.RawMessage
	Terms      Terms
}

func (Govern) input() {}

// Into makes a configuration say the same.
func (g *Govern) Into(c *Config) {
	c.Descriptor, c.Enrolment, c.PoWBits, c.Standing, c.Shadow, c.Serve, c.Terms = g.Descriptor, g.Enrolment, g.PoWBits, g.Standing, g.Shadow, g.Serve, g.Terms
}

func (t *turn) govern(in Govern) {
	n := t.Node
	in.Into(&n.cfg)
	for _, p := range t.sorted() {
		t.leaveShadow(p)
		g := p.Issued.current()
		if g == nil || p.Stage != active {
			continue
		}
		if p.Cause == "" && !sameScopes(g.Scopes, t.scopes(p)) {
			p.Cause = spec.CauseOperator
			t.save(p, false)
		}
		t.refresh(p)
	}
}

// listed is the tier of a node that the operator named beforehand.
func (t *turn) listed(key nostr.PubKey) (tier spec.Tier, ok bool) {
	l, ok := t.cfg.Terms.Nodes[key]
	return l.Tier, ok && (l.Expires == 0 || l.Expires > t.now)
}

// opens is where a new grant of a tier stands: base is the protocol's table.
func (n *Node) opens(tier spec.Tier, base ledger.Limits) ledger.Limits {
	out := base.Clone()
	maps.Copy(out, n.cfg.Terms.Open[tier])
	return out.Clamp(tier)
}

// budgeted sets the limits of a standing that the operator set for this peer, within the ceiling of its tier.
func (p *peer) budgeted(s ledger.Standing) ledger.Standing {
	if len(p.Caps) == 0 || s.Tier == spec.TierRevoked {
		return s
	}
	limits := s.Limits.Clone()
	maps.Copy(limits, p.Caps)
	s.Limits = limits.Clamp(s.Tier)
	return s
}

// budget takes up the limits that the operator sets for a peer, all of them. What is set no more is conduct's again.
func (t *turn) budget(p *peer, limits ledger.Limits) {
	if maps.Equal(p.Caps, limits) {
		return
	}
	p.Caps = nil
	if len(limits) > 0 {
		p.Caps = limits.Clone()
	}
	if p.Stands.Limits == nil || p.Stands.Tier == spec.TierRevoked || p.Stands.ZeroUntil > 0 {
		return // it is held to them when it begins, or begins again
	}
	p.Stands = p.budgeted(p.Stands)
	if p.Cause != spec.CauseRemedy {
		p.Cause = spec.CauseOperator
	}
}

// pushed reports whether a want lets the peer push: not one that only sends, beyond what any peer may push here.
func (n *Node) pushed(w *Want, f *nostr.Filter) bool {
	return n.cfg.Terms.Push == nil || w.Mode != ModePush || within(f, n.cfg.Terms.Push)
}

// MayPush reports whether all that a filter can match lies within what any peer may push here.
func (k *Terms) MayPush(f *nostr.Filter) bool { return k.Push == nil || within(f, k.Push) }
