package mesh

import (
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Revoked says that whoever holds the peer's key retired it (kind 11802, verified). It proves no more than that, so
// everything ends here and nothing passes to a successor (§ Identity, Revocation).
type Revoked struct {
	Peer   nostr.PubKey
	Reason string
}

func (Revoked) input() {}

// revoked zeroes the grant that is in force, and ends the peering and its sessions for good.
func (t *turn) revoked(in Revoked) {
	p := t.peers[in.Peer]
	if p == nil || p.Revoked {
		return
	}
	if p.Stage == known && !p.Added {
		delete(t.peers, in.Peer) // a stranger leaves nothing behind; its descriptor is not believed again
		return
	}
	for thread, s := range t.threads {
		if s.peer == p.Key {
			delete(t.threads, thread)
		}
	}
	granted := p.Issued.current()
	p.Revoked, p.Worst, p.Invitation = true, spec.S4, ""
	p.Stage, p.Added, p.Described, p.NextSync, p.Waiting = ended, false, false, 0, false
	p.Live = 0
	p.Issued, p.Held, p.Wants, p.Terms = nil, nil, nil, nil
	p.Stands.Tier, p.Stands.Limits = spec.TierRevoked, ledger.Limits{}
	t.save(p, false)
	t.do(Tell{Peer: p.Key, What: "revoked", Severity: spec.S4, Code: spec.CodeRevoked, Detail: in.Reason})
	if granted == nil {
		return
	}
	zero := ledger.NewGrant(t.cfg.Self, p.Key, spec.TierRevoked, granted.Scopes, t.now)
	zero.Window, zero.Limits = granted.Window, ledger.Limits{}.Clamp(spec.TierRevoked)
	t.do(IssueGrant{Subject: p.Key, Grant: zero})
}
