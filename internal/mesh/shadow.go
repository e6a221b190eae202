package mesh

import (
	"fmt"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// Shadow mode judges and lets no verdict cost anything: no limit is lowered, no tier, no grant deleted, no notice sent and nothing published. Beside
// the standing that is in force runs the one that the ladder alone would have made, so that an operator sees what the rules would do before they
// do it. What binds within a window stays: nobody takes more than a grant allows.

// Shadow is what the ladder would have made of a peer, since the peering is in the shadow.
type Shadow struct {
	Whole    bool            `json:"whole_node"` // every peer is, not this one alone
	Since    int64           `json:"since"`
	Standing ledger.Standing `json:"standing"`
	Remedies int64           `json:"remedies"`       // verdicts that would have cost something
	Last     string          `json:"last,omitempty"` // what the last of them would have done
}

// shadowed reports whether verdicts about a peer cost nothing.
func (n *Node) shadowed(p *peer) bool { return n.cfg.Shadow || p.InShadow }

// shade closes a window of a peer that is in the shadow: the ladder is run beside the standing in force, which takes from it what is no
// remedy. It returns what the second would have done, "" for nothing.
func (t *turn) shade(p *peer, v ledger.Evaluation, found []ledger.Structural) (next ledger.Standing, move ledger.Move, withheld string) {
	if p.Shadow == nil {
		p.Shadow = &Shadow{Since: t.now, Standing: p.Stands}
	}
	before := p.Shadow.Standing
	after, would := t.cfg.Ladder.Close(before, v, t.now, found...)
	p.Shadow.Standing = after
	next, move = t.cfg.Ladder.Close(p.Stands, v, t.now, found...)
	if move.Severity == spec.S0 {
		return next, move, ""
	}
	next = p.Stands
	next.CleanWindows, next.IdleWindows = 0, 0 // a streak is no remedy: the window was not clean
	withheld = remedyText(before, after, would)
	p.Shadow.Remedies++
	p.Shadow.Last = withheld
	return next, ledger.Move{Severity: move.Severity}, withheld
}

// remedyText says what a verdict does to a standing.
func remedyText(before, after ledger.Standing, m ledger.Move) string {
	switch {
	case m.Delete, before.Tier == spec.TierRevoked:
		return "the grant deleted, published at once"
	case after.ZeroUntil > before.ZeroUntil:
		return fmt.Sprintf("every limit zero until %d, tier %s to %s, published at once", after.ZeroUntil, before.Tier, after.Tier)
	case after.Tier != before.Tier:
		return fmt.Sprintf("tier %s to %s, noticed, published after a window", before.Tier, after.Tier)
	case after.Limits.Equal(before.Limits):
		return "nothing more: it stands as low as that already; noticed"
	}
	return "the limits lowered, noticed"
}

// leaveShadow forgets the second standing where a peer's verdicts cost something again. What was withheld stays so.
func (t *turn) leaveShadow(p *peer) {
	if !t.shadowed(p) {
		p.Shadow = nil
	}
}
