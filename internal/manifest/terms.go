package manifest

import (
	"fmt"
	"strings"

	"fleetmesh.org/fleetmesh/spec"
)

// terms are what GrantPolicies say about grants: spec.federation.grants of the node's configuration.
type terms map[string]any

func termsOf(config map[string]any) terms {
	return object(object(object(config["spec"])["federation"])["grants"])
}

// listed is the tier under which spec.nodes lists a node at a time, "" where it does not. An entry whose time is over says nothing.
func (t terms) listed(did string, at int64) string {
	for _, v := range list(t["nodes"]) {
		e := object(v)
		if expires, _ := whole(e["expires"]); bareKey(e["subject"]) == bareKey(did) && (expires == 0 || expires > at) {
			return text(e["tier"])
		}
	}
	return ""
}

// bareKey is a node's key in hex, whether it is written so or as a DID.
func bareKey(v any) string { return strings.TrimPrefix(text(v), "did:nostr:") }

// terms are those that a set declares.
func (s Set) terms() terms {
	fed := map[string]any{}
	if o := s.Node(); o != nil {
		fed["grants"] = clone(object(o.spec()["federation"])["grants"])
	}
	for _, o := range s {
		if o.Kind == "GrantPolicy" {
			grantTerms(fed, o.spec())
		}
	}
	return object(fed["grants"])
}

func (t terms) revokes(did string, at int64) bool {
	return t.listed(did, at) == string(spec.TierRevoked)
}

// contradicts says which key of a Peering the terms do not allow, and why; "" if none.
func (t terms) contradicts(o *Object, at int64) (key, why string) {
	s := o.spec()
	if t.revokes(text(s["peer"]), at) {
		return "spec.peer", "spec.nodes of a GrantPolicy lists it as revoked: remove the one or the other"
	}
	push, bounded := object(t["scope"])["push"]
	if _, pulls := s["ingress"]; bounded && pulls {
		if wide := beyond(object(push), orEmpty(object(object(s["ingress"])["filter"]))); wide != "" {
			return "spec.ingress.filter", "it asks for more than spec.scope.push of a GrantPolicy lets a peer push, in " + wide
		}
	}
	return "", ""
}

// withinTerms refuses what a Peering asks for beyond the terms for grants, and a budget above the ceiling of the tier that the peer has or will begin at.
func (p *planner) withinTerms(o *Object, want *Intent, now *RunningPeer) {
	if key, why := p.terms.contradicts(o, p.run.At); key != "" {
		p.change(Change{Object: o.Ref(), Key: key, Action: Create, Effect: Refused, Why: why})
	}
	tier := want.Tier
	switch {
	case tier != "":
	case now != nil && now.Tier != "":
		tier = now.Tier
	default:
		if tier = p.terms.listed(want.DID, p.run.At); tier == "" {
			tier = string(spec.TierProbation)
		}
	}
	for _, row := range spec.C().Limits {
		n, set := want.Budget[string(row.Name)]
		if top := row.Ceiling[spec.Tier(tier)]; set && n > top && tier != string(spec.TierRevoked) {
			p.change(Change{Object: o.Ref(), Key: "spec.budget." + string(row.Name), Action: Create, Effect: Refused, To: n,
				Why: fmt.Sprintf("it is above the ceiling of tier %s, %d a window: give less, or say spec.tier", tier, top)})
		}
	}
}

// budgetOf reads spec.budget of a Peering; nil where it is not declared.
func budgetOf(v any) map[string]int64 {
	b, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := map[string]int64{}
	for name, limit := range b {
		if n, ok := whole(limit); ok && name != "window" {
			out[name] = n
		}
	}
	return out
}

func noneNil(b map[string]int64) map[string]int64 {
	if b == nil {
		return map[string]int64{}
	}
	return b
}

// grantTerms writes what a GrantPolicy says about grants into the node's configuration. Of two policies that say the same, the later by name holds;
// their lists of nodes are joined.
func grantTerms(fed, p map[string]any) {
	keys := []string{"tiers", "scope", "lifetimeSeconds", "receipt"}
	grants := part(fed, "grants")
	for _, k := range keys {
		if v, ok := p[k]; ok {
			grants[k] = clone(v)
		}
	}
	nodes := list(grants["nodes"])
	for _, v := range list(p["nodes"]) {
		e := map[string]any{"subject": bareKey(object(v)["subject"])}
		for _, k := range []string{"tier", "expires"} {
			if x, ok := object(v)[k]; ok {
				e[k] = x
			}
		}
		nodes = append(withoutSubject(nodes, text(e["subject"])), e)
	}
	if len(nodes) > 0 {
		grants["nodes"] = nodes
	}
}

func withoutSubject(nodes []any, subject string) (out []any) {
	for _, v := range nodes {
		if bareKey(object(v)["subject"]) != subject {
			out = append(out, v)
		}
	}
	return out
}
