package manifest

import (
	"encoding/json"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// TestResult is the outcome of one of a manifest's own tests.
type TestResult struct {
	Object string `json:"object"`
	Name   string `json:"name"`
	Want   string `json:"want"` // allow or deny
	Got    string `json:"got"`
	Why    string `json:"why"` // the rule that decided
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// Passed says whether the manifest does what its test expects.
func (r *TestResult) Passed() bool { return r.Got == r.Want }

// RunTests runs the tests that stand in the manifests of a set that Check found right. They ask the declared rules alone, no node.
func RunTests(s Set) []TestResult {
	out := []TestResult{}
	for _, o := range s {
		for i, v := range list(o.spec()["tests"]) {
			t := object(v)
			pos := o.at[fmt.Sprintf("/spec/tests/%d", i)]
			r := TestResult{Object: o.Ref(), Name: text(t["name"]), Want: text(t["expect"]), Got: "allow", File: o.File, Line: pos.line, Column: pos.column}
			var ok bool
			switch o.Kind {
			case "Peering":
				ok, r.Why = o.crosses(t)
			case "MeshNode":
				ok, r.Why = o.admits(t)
			case "GrantPolicy":
				ok, r.Why = o.welcomes(text(t["subject"]))
			}
			if !ok {
				r.Got = "deny"
			}
			out = append(out, r)
		}
	}
	return out
}

// Failed are the tests that failed, as problems at their lines.
func Failed(results []TestResult) error {
	var bad Problems
	for _, r := range results {
		if !r.Passed() {
			bad = append(bad, &Problem{r.File, max(1, r.Line), max(1, r.Column), r.Object, fmt.Sprintf("test %q wants %s, and the manifest says %s: %s", r.Name, r.Want, r.Got, r.Why)})
		}
	}
	return bad.err()
}

// testEvent makes an event of the part that a test gives. What is left out is zero.
func testEvent(v any) (*nostr.Event, error) {
	var part struct {
		ID      string      `json:"id"`
		PubKey  string      `json:"pubkey"`
		Created int64       `json:"created_at"`
		Kind    *int64      `json:"kind"`
		Tags    []nostr.Tag `json:"tags"`
		Content string      `json:"content"`
		Sig     string      `json:"sig"`
	}
	if err := json.Unmarshal(canonical(v), &part); err != nil {
		return nil, fmt.Errorf("it is no event, or part of one: %w", err)
	}
	if part.Kind == nil || *part.Kind < 0 || *part.Kind > 65535 {
		return nil, fmt.Errorf("an event to test with needs a kind, 0 to 65535")
	}
	e := &nostr.Event{CreatedAt: part.Created, Kind: nostr.Kind(*part.Kind), Tags: part.Tags, Content: part.Content}
	var err error
	if part.ID != "" {
		if e.ID, err = nostr.ParseID(part.ID); err != nil {
			return nil, err
		}
	}
	if part.PubKey != "" {
		if e.PubKey, err = nostr.ParsePubKey(part.PubKey); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// crosses says whether an event, or all that a filter can match, crosses a peering in a direction.
func (o *Object) crosses(t map[string]any) (bool, string) {
	way := text(t["direction"])
	if way == "" {
		way = "ingress"
	}
	side, declared := o.spec()[way]
	if !declared {
		return false, "spec." + way + " is not declared, so nothing crosses"
	}
	filter := object(object(side)["filter"])
	if f := t["filter"]; f != nil {
		if key := beyond(filter, object(f)); key != "" {
			return false, fmt.Sprintf("the filter asks for more than spec.%s.filter has, in %s", way, key)
		}
		return true, "spec." + way + ".filter covers it"
	}
	e, err := testEvent(t["event"])
	if err != nil {
		return false, err.Error()
	}
	if spec.C().Boundary.Never(e.Kind) {
		return false, fmt.Sprintf("kind %d never crosses between nodes", e.Kind)
	}
	f, err := nostr.ParseFilter(canonical(orEmpty(filter)))
	if err != nil {
		return false, err.Error()
	}
	if !f.Matches(e) {
		return false, "spec." + way + ".filter does not match it"
	}
	return true, "spec." + way + ".filter matches it"
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// beyond names a key by which inner can match what outer does not, "" if outer covers inner.
func beyond(outer, inner map[string]any) string {
	keys := make([]string, 0, len(outer))
	for k := range outer {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		out, in := outer[k], inner[k]
		if in == nil && k != "limit" {
			return k
		}
		a, _ := whole(out)
		b, _ := whole(in)
		switch {
		case k == "since" && b < a, k == "until" && b > a, k == "search" && !equal(out, in):
			return k
		}
		for _, x := range list(in) {
			if !slices.ContainsFunc(list(out), func(y any) bool { return equal(x, y) }) {
				return k
			}
		}
	}
	return ""
}

// admits says whether the relay face takes an event from a client.
func (o *Object) admits(t map[string]any) (bool, string) {
	e, err := testEvent(t["event"])
	if err != nil {
		return false, err.Error()
	}
	relay := object(o.spec()["relay"])
	if relay["readOnly"] == true {
		return false, "spec.relay.readOnly"
	}
	for _, rule := range []struct {
		key  string
		want bool // what a hit means
		hit  func(any) bool
	}{
		{"denyKinds", false, func(v any) bool { k, _ := whole(v); return nostr.Kind(k) == e.Kind }},
		{"allowKinds", true, func(v any) bool { k, _ := whole(v); return nostr.Kind(k) == e.Kind }},
		{"denyPubkeys", false, func(v any) bool { k, err := nostr.ParsePubKey(text(v)); return err == nil && k == e.PubKey }},
		{"allowPubkeys", true, func(v any) bool { k, err := nostr.ParsePubKey(text(v)); return err == nil && k == e.PubKey }},
	} {
		l := list(relay[rule.key])
		if len(l) > 0 && slices.ContainsFunc(l, rule.hit) != rule.want {
			return false, "spec.relay." + rule.key
		}
	}
	if bits, _ := whole(relay["minPow"]); bits > 0 && e.ID != (nostr.ID{}) && int64(nostr.PoWDifficulty(e.ID)) < bits {
		return false, "spec.relay.minPow"
	}
	return true, "no rule of spec.relay refuses it"
}

// welcomes says whether a node or an author is let in.
func (o *Object) welcomes(subject string) (bool, string) {
	s := o.spec()
	for _, which := range []string{"nodes", "authors"} {
		for _, v := range list(s[which]) {
			e := object(v)
			if bareKey(e["subject"]) == bareKey(subject) {
				return text(e["tier"]) != "revoked", fmt.Sprintf("spec.%s lists it as %s", which, text(e["tier"]))
			}
		}
	}
	switch a := text(s["admission"]); a {
	case "invitation", "closed":
		return false, "it is listed nowhere and spec.admission is " + a
	}
	return true, "it is listed nowhere, and strangers may come"
}
