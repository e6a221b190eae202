package manifest

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/spec"
)

const (
	head   = "apiVersion: fleetmesh.org/v1alpha1\n"
	peer1  = "did:nostr:a401be193db781510201501edfb1e2b2b3f5d5e79f74aa2af3b54db98fe938dd"
	peer2  = "did:nostr:2d50b1ac643f904c177811731d4b7eaa8e2ff3c2dd731554cba25f6b761fed48"
	author = "c8b63de982a148a2faebf771e40bc5e29935b355f8248ffb70d0e4afdbb2a4e8"
)

func peering(name, did, more string) string {
	return head + "kind: Peering\nmetadata: {name: " + name + "}\nspec:\n  peer: " + did + "\n" + more
}

func node(more string) string {
	return head + "kind: MeshNode\nmetadata: {name: here}\nspec:\n  class: edge\n" + more
}

// parse reads and checks documents that are right.
func parse(t *testing.T, docs ...string) Set {
	t.Helper()
	s, err := Parse("m.yaml", []byte(strings.Join(docs, "---\n")))
	if err == nil {
		err = Check(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The examples of § Operator surface. The one key that is abbreviated there is told, with its place, and nothing else.
func TestPublishedExamples(t *testing.T) {
	text, err := os.ReadFile("testdata/published.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse("published.yaml", text)
	if err != nil || len(set) != 3 {
		t.Fatalf("%d documents, %v", len(set), err)
	}
	err = Check(set)
	if err == nil || !strings.HasPrefix(err.Error(), "published.yaml:12:5: spec.identity.keyAgreement: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("check: %v", err)
	}
	text = bytes.Replace(text, []byte("fec01c7d2"), []byte("fec010000c7d2"), 1)
	if set, err = Parse("published.yaml", text); err != nil {
		t.Fatal(err)
	}
	if err := Check(set); err != nil {
		t.Errorf("with a whole key: %v", err)
	}
}

// Every sample that spec publishes is read alike as JSON and as YAML, and judged as spec judges it.
func TestSpecSamples(t *testing.T) {
	valid, invalid, err := spec.Samples()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for want, list := range map[bool][]spec.Sample{true: valid, false: invalid} {
		for _, s := range list {
			if s.Subject != "manifest" {
				continue
			}
			n++
			docs, err := Parse(s.Name+".json", s.Instance)
			if err == nil {
				err = Check(docs)
			}
			if (err == nil) != want {
				t.Errorf("%s: %v, want valid %v", s.Name, err, want)
			}
			if !want {
				continue
			}
			again, err := Parse(s.Name+".yaml", Set(docs).YAML())
			if err != nil || Set(again).Hash() != Set(docs).Hash() {
				t.Errorf("%s: as YAML it is another manifest: %v", s.Name, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d samples", n)
	}
}

func TestPlaces(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"unknown key", "a.yaml", node("  relay:\n    lissten: x\n"), "a.yaml:7:5: spec.relay.lissten: unknown key; did you mean listen?"},
		{"ceiling", "a.yaml", peering("p", peer1, "  tier: probation\n  budget:\n    events_in: 751\n"), "a.yaml:8:5: spec.budget.events_in: 751 is above the ceiling of tier probation, 750 a window"},
		{"beyond every tier", "a.yaml", peering("p", peer1, "  budget: {events_in: 48001}\n"), "a.yaml:6:12: spec.budget.events_in: 48001 is above the ceiling of every tier, 48000 a window"},
		{"window", "a.yaml", peering("p", peer1, "  budget: {window: 59}\n"), "a.yaml:6:12: spec.budget.window: minimum: got 59, want 60"},
		{"second document", "a.yaml", node("") + "---\n" + peering("p", peer1, "  tier: king\n"), "a.yaml:12:3: spec.tier: "},
		{"kind that never crosses", "a.yaml", peering("p", peer1, "  ingress: {filter: {kinds: [1, 4]}}\n"), "a.yaml:6:33: spec.ingress.filter.kinds.1: kind 4 never crosses between nodes"},
		{"missing key", "a.yaml", head + "kind: Peering\nmetadata: {name: p}\nspec:\n  tier: member\n", "a.yaml:4:1: spec: missing key: property 'peer'"},
		{"twice", "a.yaml", "kind: A\nkind: B\n", `a.yaml:2:1: mapping key "kind" already defined`},
		{"two nodes", "a.yaml", node("") + "---\n" + strings.Replace(node(""), "here", "there", 1), "a.yaml:8:1: kind: a set has one MeshNode, and MeshNode/here stands in a.yaml:1 already"},
		{"one peer twice", "a.yaml", peering("p", peer1, "") + "---\n" + peering("q", peer1, ""), "a.yaml:11:3: spec.peer: Peering/p is about the same node"},
		{"anchor", "a.yaml", "kind: &k Peering\n", "a.yaml:1:7: kind: anchors, aliases"},
		{"alias", "a.yaml", "a: 1\nkind: *k\n", "a.yaml:2:7: kind: anchors, aliases"},
		{"list", "a.yaml", "- a\n", "a.yaml:1:1: a document is a mapping"},
		{"empty", "a.yaml", "# nothing\n", "a.yaml:1:1: there is no manifest in it"},
		{"broken", "a.yaml", "a: [1\nb: 2\n", "a.yaml:2:1: "},
		{"JSON", "a.json", "{\"kind\":\"Peering\",\n \"kind\":\"x\"}", "a.json:2:2: "},
		{"JSON key", "a.json", `{"apiVersion":"fleetmesh.org/v1alpha1","kind":"Peering","metadata":{"name":"p"},` + "\n" + `"spec":{"peer":"` + peer1 + `","peeer":1}}`, "a.json:2:93: spec.peeer: unknown key; did you mean peer?"},
		{"operator", "a.yaml", node("  identity: {did: " + peer1 + "}\n  operator: {pubkey: " + peer1[10:] + "}\n"), "a.yaml:7:14: spec.operator.pubkey: it is the node's own key"},
		{"class", "a.yaml", strings.Replace(node(""), "edge", "anchor", 1), "a.yaml:5:3: spec.class: an anchor is reached from everywhere"},
		{"deep", "a.yaml", strings.Repeat("[", 100), "a.yaml:1:65: it is nested too deeply"},
		{"deep list", "a.yaml", strings.Repeat("- ", 100) + "x", "a.yaml:"},
	} {
		docs, err := Parse(c.file, []byte(c.text))
		if err == nil {
			err = Check(docs)
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestHashKnowsNoNotation(t *testing.T) {
	a := parse(t, node("  relay: {denyKinds: [4]}\n"), peering("p", peer1, "  tier: member\n"))
	b := parse(t, "# another order\n"+peering("p", peer1, "  tier:   'member'\n"), node("  relay:\n    denyKinds:\n      - 4\n"))
	if a.Hash() != b.Hash() || a.Hash() == "" {
		t.Errorf("%s and %s", a.Hash(), b.Hash())
	}
	back, err := FromDocuments(a.Documents())
	if err != nil || back.Hash() != a.Hash() {
		t.Errorf("over the socket: %v", err)
	}
	if c := parse(t, node("  relay: {denyKinds: [5]}\n")); c.Hash() == a.Hash() {
		t.Error("another set has the same hash")
	}
}

func FuzzParse(f *testing.F) {
	published, err := os.ReadFile("testdata/published.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(published), node("  relay: {denyKinds: [4]}\n"), peering("p", peer1, "  tier: member\n"), `{"kind":"Peering","metadata":{"name":"x"},"spec":{}}{}`,
		"a: |\n  text\n", "? a\n: b\n", "a: !!binary x", "- - - - a", "a: {b: [c, {d: 1e3}]}", "\"\\u00e9\": .nan", "%YAML 1.2\n---\na: b\n...\n", "a: 0x10\nb: 0b1\nc: 1_000"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, asJSON bool) {
		name := "f.yaml"
		if asJSON {
			name = "f.json"
		}
		docs, err := Parse(name, text)
		if err != nil {
			bad, ok := err.(Problems)
			if !ok || len(bad) == 0 {
				t.Fatalf("no problems in %v", err)
			}
			for _, p := range bad {
				if p.Line < 1 || p.Column < 1 || p.Reason == "" {
					t.Fatalf("a problem without a place: %+v", p)
				}
			}
			return
		}
		if Check(docs) != nil {
			return
		}
		RunTests(docs)
		NodeConfig(docs)
		back, err := FromDocuments(Set(docs).Documents())
		if err != nil || Set(back).Hash() != Set(docs).Hash() {
			t.Fatalf("what was right is not read again: %v", err)
		}
		if !json.Valid(docs[0].JSON()) {
			t.Fatal("the canonical form is no JSON")
		}
	})
}
