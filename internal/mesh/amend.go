package mesh

import (
	"maps"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Amend is the operator's hand on a grant of ours: another tier, or limits below the tier's ceiling. A limit that an operator set stays where it was set;
// Free gives it back to the arithmetic. What is above the ceiling is for the caller to refuse: here it is lowered to it.
type Amend struct {
	Peer   nostr.PubKey
	Tier   spec.Tier     // "" leaves it
	Limits ledger.Limits // those that are set, nil for none
	Free   []spec.Limit
}

func (Amend) input() {}

func (t *turn) amend(in Amend) {
	p := t.peers[in.Peer]
	if p == nil || p.Stands.Limits == nil || p.Stands.Tier == spec.TierRevoked {
		return
	}
	if in.Tier != "" {
		p.Seed = in.Tier
		p.Stands.Tier, p.Stands.Limits, p.Stands.ZeroUntil = in.Tier, t.opens(in.Tier, ledger.Seeded(in.Tier)), 0
	}
	p.Stands.Limits = p.Stands.Limits.Clone()
	if p.Caps == nil {
		p.Caps = ledger.Limits{}
	}
	for n, v := range in.Limits {
		p.Caps[n], p.Stands.Limits[n] = v, v
	}
	for _, n := range in.Free {
		delete(p.Caps, n)
	}
	p.Stands.Limits = p.Stands.Limits.Clamp(p.Stands.Tier)
	p.capped()
	if p.Cause != spec.CauseRemedy {
		p.Cause = spec.CauseOperator
	}
	t.save(p, false)
	t.tell(p, "amended-by-operator", "tier %s", p.Stands.Tier)
	t.refresh(p)
}

// capped holds what the standing grew to against what the operator set.
func (p *peer) capped() {
	if len(p.Caps) == 0 {
		return
	}
	limits := maps.Clone(p.Stands.Limits)
	for n, v := range p.Caps {
		limits[n] = min(limits[n], v)
	}
	p.Stands.Limits = limits
}

// target is what a grant to the peer states now: its standing, less what this node sheds.
func (t *turn) target(p *peer) ledger.Limits {
	l := p.Stands.Limits.Clamp(p.Stands.Tier)
	if !strain.Resume(t.shed.Engaged).Engaged(strain.AmendDown) {
		return l
	}
	for n, v := range l {
		l[n] = strain.Shed(n, v, t.shed.Pressure)
	}
	return l
}
