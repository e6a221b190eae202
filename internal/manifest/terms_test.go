package manifest

import (
	"strings"
	"testing"
)

const stranger = "4f355bdcb7cc0af728ef3cceb9615d90684bb5b2ca5f859ab0f0b704075871aa"

func policy(spec string) string {
	return head + "kind: GrantPolicy\nmetadata: {name: g}\nspec:\n" + spec
}

// A budget is taken up, changed, drifts, is mended and given back.
func TestBudget(t *testing.T) {
	f := newFake(t, node(""))
	declared := func(more string) Set { return parse(t, node(""), peering("p", peer1, "  tier: member\n"+more)) }
	f.apply(t, declared("  budget: {events_in: 100, blob_bytes: 5000}\n"), Options{})
	if b := f.run.Peers[0].Budget; b["events_in"] != 100 || b["blob_bytes"] != 5000 || len(b) != 2 {
		t.Fatalf("budget %v", b)
	}
	p := f.apply(t, declared("  budget: {events_in: 200}\n"), Options{})
	if got := changes(p); got != "next-window change Peering/p spec.budget\n" || len(f.run.Peers[0].Budget) != 1 {
		t.Errorf("changed:\n%s%v", got, f.run.Peers[0].Budget)
	}
	f.run.Peers[0].Budget["req"] = 7 // by hand
	if d := Drift(f.run.Applied, f.run.Config, f.run.Peers); len(d) != 1 || d[0].Key != "spec.budget" {
		t.Errorf("drift %+v", d)
	}
	f.apply(t, declared("  budget: {events_in: 200}\n"), Options{})
	if d := Drift(f.run.Applied, f.run.Config, f.run.Peers); len(d) > 0 {
		t.Errorf("drift after it was mended %+v", d)
	}
	// Declared no longer, conduct has it again; never declared, what was set by hand is left alone.
	f.apply(t, declared(""), Options{})
	if b := f.run.Peers[0].Budget; b == nil || len(b) > 0 {
		t.Errorf("given back: %v", b)
	}
	f.run.Peers[0].Budget = map[string]int64{"req": 7}
	if p := Make(declared(""), &f.run, Options{}); len(p.Changes) > 0 {
		t.Errorf("by hand:\n%s", changes(p))
	}
}

// Each is refused with the ceiling, or the other object, named: by validate where no node is needed to know it, else by plan.
func TestTermsRefuse(t *testing.T) {
	f := newFake(t, node(""))
	f.run.Peers = []RunningPeer{{DID: peer2, Stage: "active", Tier: "probation"}}
	for _, c := range []struct{ name, doc, want string }{
		{"budget above the tier", peering("p", peer1, "  tier: member\n  budget: {events_in: 3001}\n"), "3001 is above the ceiling of tier member, 3000 a window"},
		{"budget above every tier", peering("p", peer1, "  budget: {events_in: 48001}\n"), "48001 is above the ceiling of every tier, 48000"},
		{"tiers above", policy("  tiers: {probation: {req: 151}}\n"), "151 is above the ceiling of tier probation, 150"},
		{"lifetime", policy("  lifetimeSeconds: 60\n"), "it may live 86400 to 2592000"},
		{"receipt", policy("  receipt: {seconds: 0}\n"), "want 1 or more"},
		{"a node twice", policy("  nodes: [{subject: " + stranger + ", tier: member}, {subject: 'did:nostr:" + stranger + "', tier: anchor}]\n"), "stands here twice"},
		{"a peer that is revoked", policy("  nodes: [{subject: '"+peer1+"', tier: revoked}]\n") + "---\n" + peering("p", peer1, ""), "lists it as revoked"},
		{"beyond the scope", policy("  scope: {push: {kinds: [1]}}\n") + "---\n" + peering("p", peer1, "  ingress: {filter: {kinds: [7]}}\n"), "than spec.scope.push of a GrantPolicy lets a peer push, in kinds"},
		{"in the node's own file", node("  federation: {grants: {tiers: {anchor: {errors: 641}}}}\n"), "641 is above the ceiling of tier anchor, 640"},
	} {
		docs, err := Parse("x.yaml", []byte(c.doc))
		if err == nil {
			err = Check(docs)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, c := range []struct{ name, doc, want string }{
		{"budget above what the peer is", peering("p", peer2, "  budget: {events_in: 751}\n"), "the ceiling of tier probation, 750"},
		{"a window", peering("p", peer1, "  budget: {window: 60}\n"), "windows of one length"},
		{"a rate for one peer", peering("p", peer1, "  ingress: {maxEventsPerSec: 5}\n"), "spec.budget bounds"},
	} {
		p := Make(parse(t, c.doc), &f.run, Options{})
		if err := p.RefusedError(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", c.name, err, changes(p))
		}
	}
	// An entry whose time is over says nothing.
	f.run.At = 1000
	over := policy("  nodes: [{subject: '"+peer1+"', tier: revoked, expires: 999}]\n") + "---\n" + peering("p", peer1, "")
	if p := Make(parse(t, over), &f.run, Options{}); p.Refused {
		t.Errorf("an entry that is over: %v", p.RefusedError())
	}
}

// What a GrantPolicy says about grants is written into the node's configuration, and a peering with a node that it revokes ends.
func TestGrantPolicyTerms(t *testing.T) {
	f := newFake(t, node(""))
	f.run.Peers = []RunningPeer{{DID: peer2, Stage: "active"}}
	s := parse(t, node(""), policy("  tiers: {probation: {events_in: 10, blob_bytes: 0}}\n  scope: {pull: {kinds: [1]}}\n  lifetimeSeconds: 86400\n  nodes: [{subject: '"+peer2+"', tier: revoked, reason: spam}, {subject: "+stranger+", tier: trusted}]\n"))
	p := f.apply(t, s, Options{})
	want := `live create MeshNode/here spec.federation.grants.lifetimeSeconds
live create MeshNode/here spec.federation.grants.nodes
next-window create MeshNode/here spec.federation.grants.scope.pull.kinds
live create MeshNode/here spec.federation.grants.tiers.probation.blob_bytes
live create MeshNode/here spec.federation.grants.tiers.probation.events_in
live remove Peering/` + peer2 + " \n"
	if got := changes(p); got != want || p.Restart {
		t.Errorf("got\n%s", got)
	}
	if len(f.run.Peers) > 0 || !equal(f.run.InForce, f.run.Config) {
		t.Errorf("peers %v, in force %s", f.run.Peers, canonical(f.run.InForce))
	}
	if p := Make(s, &f.run, Options{}); len(p.Changes)+len(p.Steps) > 0 {
		t.Errorf("a second apply would change\n%s", changes(p))
	}
	again, err := Normal(ConfigYAML(f.run.Config))
	if err != nil || !equal(again, f.run.Config) {
		t.Errorf("read back: %s, %v", canonical(again), err)
	}
}

// What somebody wrote into node.yaml by hand is in force after apply, though the file says it already.
func TestHandWrittenIsTakenUp(t *testing.T) {
	f := newFake(t, node(""))
	edited, err := Normal([]byte(node("  relay: {minPow: 4}\n")))
	if err != nil {
		t.Fatal(err)
	}
	f.run.Config = edited
	p := f.apply(t, parse(t, node("  relay: {minPow: 4}\n")), Options{})
	if len(p.Changes) != 1 || p.Changes[0].Key != "spec.relay.minPow" || !equal(f.run.InForce, edited) {
		t.Errorf("%s%s", changes(p), canonical(f.run.InForce))
	}
}
