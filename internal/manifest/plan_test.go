package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const self = "did:nostr:7bc08f8863ac795e3fdfcc26a47f6775a844366e0638a1fc30a6de4e7ac466c2"

// fake is a node that carries steps out on a Running.
type fake struct {
	run  Running
	fail string // the operation that fails, by its text
	late bool   // it fails although it took effect
	log  []string
}

func newFake(t *testing.T, yaml string) *fake {
	t.Helper()
	config, err := Normal([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return &fake{run: Running{DID: self, Config: config, InForce: config, Schemes: []string{"wss"}}}
}

func (f *fake) do(op Op) error {
	f.log = append(f.log, op.String())
	fails := f.fail != "" && strings.HasPrefix(op.String(), f.fail)
	if fails {
		f.fail = ""
		if !f.late {
			return errors.New("the disk is full")
		}
	}
	at := func(did string) int {
		return slices.IndexFunc(f.run.Peers, func(p RunningPeer) bool { return p.DID == did })
	}
	switch op.Verb {
	case WriteConfig:
		f.run.Config = op.Config
	case TakeUp:
		f.run.InForce = TakeLive(f.run.InForce, op.Config)
	case AddPeer:
		if i := at(op.Peer.DID); i >= 0 {
			f.run.Peers[i].Wants = op.Peer.Wants
			if op.Peer.Budget != nil {
				f.run.Peers[i].Budget = op.Peer.Budget
			}
		} else {
			f.run.Peers = append(f.run.Peers, RunningPeer{DID: op.Peer.DID, Stage: "active", Tier: op.Peer.Tier, Wants: op.Peer.Wants, Shadow: op.Peer.Shadow, Budget: op.Peer.Budget})
		}
	case EndPeer:
		if i := at(op.Peer.DID); i >= 0 {
			f.run.Peers = slices.Delete(f.run.Peers, i, i+1)
		}
	case Record:
		if err := json.Unmarshal(op.Applied, &f.run.Applied); err != nil {
			return err
		}
		f.run.Hash = HashOf(f.run.Applied)
	}
	if fails {
		return errors.New("the disk is full")
	}
	return nil
}

func (f *fake) apply(t *testing.T, s Set, opt Options) *Plan {
	t.Helper()
	p := Make(s, &f.run, opt)
	if p.Refused {
		t.Fatalf("refused: %+v", p.Changes)
	}
	if err := Run(p.Steps, f.do); err != nil {
		t.Fatal(err)
	}
	return p
}

func changes(p *Plan) string {
	var b strings.Builder
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "%s %s %s %s\n", c.Effect, c.Action, c.Object, c.Key)
	}
	return b.String()
}

func TestPlanTellsEachKey(t *testing.T) {
	f := newFake(t, node("  relay: {name: old, denyKinds: [4]}\n"))
	p := Make(parse(t, node("  relay: {name: new, minPow: 8}\n  storage: {engine: eventlog, maxBytes: 1000}\n")), &f.run, Options{})
	want := `live remove MeshNode/here spec.relay.denyKinds
live create MeshNode/here spec.relay.minPow
restart change MeshNode/here spec.relay.name
restart create MeshNode/here spec.storage.maxBytes
`
	if got := changes(p); got != want || p.Refused || !p.Restart {
		t.Errorf("got\n%s", got)
	}
	var verbs []string
	for _, s := range p.Steps {
		verbs = append(verbs, s.Do.Verb)
	}
	if !slices.Equal(verbs, []string{WriteConfig, TakeUp, Record}) {
		t.Errorf("steps %v", verbs)
	}
}

func TestPlanRefuses(t *testing.T) {
	f := newFake(t, node(""))
	for _, c := range []struct{ name, doc, want string }{
		{"another node's", node("  identity: {did: " + peer1 + "}\n"), "refused change MeshNode/here spec.identity.did"},
		{"engine", node("  storage: {engine: memory}\n"), "refused create MeshNode/here spec.storage.engine"},
		{"store moved", node("  storage: {engine: eventlog, path: elsewhere}\n"), "refused change MeshNode/here spec.storage.path"},
		{"retention", node("  retention: self\n"), "refused create MeshNode/here spec.retention"},
		{"peer itself", peering("p", self, ""), "refused create Peering/p spec.peer"},
		{"transport", peering("p", peer1, "  transport: iroh\n"), "refused create Peering/p spec.transport"},
		{"plugin", peering("p", peer1, "  ingress: {plugin: /bin/x}\n"), "refused create Peering/p spec.ingress.plugin"},
		{"compute", head + "kind: ComputeProvider\nmetadata: {name: c}\nspec: {executors: [{name: wasm, msat: 1}]}\n", "refused create ComputeProvider/c "},
		{"inference", head + "kind: InferenceRouter\nmetadata: {name: c}\nspec: {provider: x, endpoint: 'http://127.0.0.1/', models: [{id: m}]}\n", "refused create InferenceRouter/c "},
	} {
		p := Make(parse(t, c.doc), &f.run, Options{})
		if !p.Refused || len(p.Steps) > 0 || !strings.Contains(changes(p), c.want) || p.RefusedError() == nil {
			t.Errorf("%s: %v\n%s", c.name, p.RefusedError(), changes(p))
		}
	}
	// A transport that the node has is no reason to refuse.
	if p := Make(parse(t, peering("p", peer1, "  transport: wss\n")), &f.run, Options{}); p.Refused {
		t.Errorf("wss: %s", changes(p))
	}
}

func TestApplyConverges(t *testing.T) {
	f := newFake(t, node(""))
	s := parse(t, node("  relay: {denyKinds: [4]}\n"), peering("p", peer1, "  tier: member\n  ingress: {filter: {kinds: [1]}}\n  egress: {filter: {kinds: [1]}}\n"),
		head+"kind: GrantPolicy\nmetadata: {name: g}\nspec: {admission: proof-of-work, powBits: 12, authors: [{subject: "+author+", tier: revoked}]}\n")
	f.apply(t, s, Options{})
	if f.run.Hash != s.Hash() {
		t.Errorf("running %s, declared %s", f.run.Hash, s.Hash())
	}
	if w := f.run.Peers[0].Wants; len(w) != 1 || w[0].Mode != "both" || string(w[0].Filter) != `{"kinds":[1]}` {
		t.Errorf("wants %+v", w)
	}
	if text := string(canonical(f.run.Config)); !strings.Contains(text, author) || !strings.Contains(text, `"enrolment":"pow"`) {
		t.Errorf("config %s", text)
	}
	if p := Make(s, &f.run, Options{}); len(p.Changes)+len(p.Steps) > 0 {
		t.Errorf("a second apply would change\n%s%v", changes(p), p.Steps)
	}
	if d := Drift(f.run.Applied, f.run.Config, f.run.Peers); len(d) > 0 {
		t.Errorf("drift %+v", d)
	}
	narrow := parse(t, node("  relay: {denyKinds: [4]}\n"), peering("p", peer1, "  tier: member\n  ingress: {filter: {kinds: [1], '#t': [a]}}\n"))
	if p := Make(narrow, &f.run, Options{}); !strings.Contains(changes(p), "live change Peering/p wants") {
		t.Errorf("narrowed:\n%s", changes(p))
	}
}

func TestOwnersAndPrune(t *testing.T) {
	f := newFake(t, node(""))
	f.run.Peers = []RunningPeer{{DID: peer2, Stage: "active"}} // by hand
	f.apply(t, parse(t, peering("p", peer1, "")), Options{Owner: "a"})
	empty := parse(t, node(""))

	// What another owner applied, and what was made by hand, stays.
	p := Make(empty, &f.run, Options{Owner: "b"})
	if got := changes(p); got != " keep Peering/"+peer2+" \n keep Peering/p \n" {
		t.Errorf("another owner:\n%s", got)
	}
	if p := Make(parse(t, peering("p", peer1, "")), &f.run, Options{Owner: "b"}); !p.Refused {
		t.Error("an object of another owner was taken over")
	}
	// The owner's own goes when it is no longer declared; only prune ends the foreign one.
	if got := changes(Make(empty, &f.run, Options{Owner: "a"})); !strings.Contains(got, "live remove Peering/p") || !strings.Contains(got, " keep Peering/"+peer2) {
		t.Errorf("the owner:\n%s", got)
	}
	f.apply(t, empty, Options{Owner: "b", Prune: true})
	if len(f.run.Peers) != 0 {
		t.Errorf("after prune: %+v", f.run.Peers)
	}
}

func TestDrift(t *testing.T) {
	f := newFake(t, node(""))
	f.apply(t, parse(t, node("  relay: {minPow: 4}\n"), peering("p", peer1, "  ingress: {filter: {kinds: [1]}}\n")), Options{})
	f.run.Peers[0].Wants[0].Mode = "both"
	edited, err := Normal([]byte(node("  relay: {minPow: 9}\n")))
	if err != nil {
		t.Fatal(err)
	}
	d := Drift(f.run.Applied, edited, f.run.Peers)
	if len(d) != 2 || d[0].Key != "spec.relay.minPow" || d[1].Key != "wants" {
		t.Errorf("drift %+v", d)
	}
	if d := Drift(f.run.Applied, f.run.Config, nil); len(d) != 1 || d[0].Action != Remove {
		t.Errorf("an ended peering: %+v", d)
	}
}

// Whichever step fails, and whether or not it took effect, the node is afterwards what it was.
func TestAllOrNothing(t *testing.T) {
	first := []string{node("  relay: {denyKinds: [4]}\n"), peering("gone", peer2, "  egress: {}\n")}
	next := []string{node("  relay: {denyKinds: [5]}\n"), peering("p", peer1, "  ingress: {}\n")}
	for _, late := range []bool{false, true} {
		for _, step := range []string{"write", "put what changed", "peer with", "end the peering", "record"} {
			f := newFake(t, node(""))
			f.apply(t, parse(t, first...), Options{})
			before := string(canonical([]any{toAny(t, f.run)}))
			f.fail, f.late, f.log = step, late, nil
			p := Make(parse(t, next...), &f.run, Options{})
			err := Run(p.Steps, f.do)
			if err == nil || !strings.Contains(err.Error(), "the disk is full") {
				t.Fatalf("%s: %v", step, err)
			}
			if after := string(canonical([]any{toAny(t, f.run)})); after != before {
				t.Errorf("%s, late %v: it is\n%s\nwas\n%s\nlog %v", step, late, after, before, f.log)
			}
		}
	}
}

func toAny(t *testing.T, v any) (out any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTakeLive(t *testing.T) {
	was, _ := Normal([]byte(node("  relay: {name: a, denyKinds: [1]}\n")))
	now, _ := Normal([]byte(node("  relay: {name: b, minPow: 3}\n")))
	got := TakeLive(was, now)
	want, _ := Normal([]byte(node("  relay: {name: a, minPow: 3}\n")))
	if !equal(got, want) {
		t.Errorf("%s\n%s", canonical(got), canonical(want))
	}
	if p := Pending(got, now); len(p) != 1 || p[0].Key != "spec.relay.name" {
		t.Errorf("pending %+v", p)
	}
}

func TestManifestTests(t *testing.T) {
	s := parse(t, node(`  relay: {denyKinds: [4], allowPubkeys: [`+author+`]}
  tests:
    - {name: deny kind, event: {kind: 4, pubkey: `+author+`}, expect: deny}
    - {name: allow author, event: {kind: 1, pubkey: `+author+`}, expect: allow}
    - {name: deny stranger, event: {kind: 1}, expect: deny}
`), peering("p", peer1, `  ingress: {filter: {kinds: [1, 7], "#t": [a, b], since: 100}}
  tests:
    - {name: in, event: {kind: 1, tags: [[t, a]], created_at: 100}, expect: allow}
    - {name: early, event: {kind: 1, tags: [[t, a]], created_at: 99}, expect: deny}
    - {name: private, event: {kind: 4}, expect: deny}
    - {name: out, direction: egress, event: {kind: 1}, expect: deny}
    - {name: narrower, filter: {kinds: [1], "#t": [b], since: 200}, expect: allow}
    - {name: wider, filter: {kinds: [1]}, expect: deny}
    - {name: earlier, filter: {kinds: [1], "#t": [b], since: 1}, expect: deny}
`), head+`kind: GrantPolicy
metadata: {name: g}
spec:
  admission: invitation
  nodes: [{subject: `+author+`, tier: member}]
  tests:
    - {name: known, subject: `+author+`, expect: allow}
    - {name: stranger, subject: `+peer1[10:]+`, expect: deny}
`)
	results := RunTests(s)
	if err := Failed(results); err != nil || len(results) != 12 {
		t.Errorf("%d tests: %v", len(results), err)
	}
	wrong := parse(t, peering("p", peer1, "  tests:\n    - {name: hello, event: {kind: 1}, expect: allow}\n"))
	err := Failed(RunTests(wrong))
	if err == nil || !strings.HasPrefix(err.Error(), `m.yaml:7:7: Peering/p: test "hello" wants allow, and the manifest says deny`) {
		t.Errorf("%v", err)
	}
	if p := Make(wrong, &newFake(t, node("")).run, Options{}); !p.Refused || len(p.Steps) > 0 {
		t.Error("a plan goes ahead although a test fails")
	}
}

// Each key of each schema has a rule, so that plan never answers with a shrug.
func TestEveryKeyHasARule(t *testing.T) {
	for _, kind := range []string{"MeshNode", "Peering", "GrantPolicy"} {
		schema, err := Schema(kind)
		if err != nil {
			t.Fatal(err)
		}
		for key := range object(object(object(schema["properties"])["spec"])["properties"]) {
			switch r := RuleFor(kind, "spec."+key); {
			case kind == "MeshNode" && slices.Contains([]string{"description", "listen", "admission"}, key): // written out as other keys
			case kind == "Peering" && (key == "ingress" || key == "egress"): // by what is below
			case r.Why == "this node does not know the key":
				t.Errorf("%s: spec.%s has no rule", kind, key)
			}
		}
	}
}
