package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// engines are the store engines that a node has.
var engines = []string{"eventlog", "lmdb", "sqlite", "postgres"}

// NodeConfig turns the MeshNode of a set, and what its GrantPolicies say about the face and strangers, into the configuration that a node
// directory holds as node.yaml: aliases are written out, defaults filled in, and what is empty left out. refused
// names the keys that this node has no use for. The result is a MeshNode manifest again.
func NodeConfig(s Set) (config map[string]any, refused []Change) {
	o := s.Node()
	if o == nil {
		return nil, nil
	}
	in := object(clone(o.value["spec"]))
	for _, key := range []string{"identity", "capacity", "retention", "bootstrap"} {
		if v, ok := in[key]; ok && key != "identity" {
			refused = append(refused, refusal(o, "spec."+key, v))
		}
		delete(in, key)
	}
	for i, e := range list(in["endpoints"]) {
		if t, ok := object(e)["ticket"]; ok {
			refused = append(refused, Change{Object: o.Ref(), Key: fmt.Sprintf("spec.endpoints.%d.ticket", i), Action: Create, Effect: Refused, To: t,
				Why: "this node dials addresses: it has no transport that takes a ticket"})
		}
	}
	relay, fed, storage := part(in, "relay"), part(in, "federation"), part(in, "storage")
	if l := list(in["listen"]); len(l) > 0 && relay["listen"] == nil {
		relay["listen"] = l[0]
		for i := range l[1:] {
			refused = append(refused, Change{Object: o.Ref(), Key: fmt.Sprintf("spec.listen.%d", i+1), Action: Create, Effect: Refused, To: l[i+1], Why: "the face listens on one address; put a proxy in front for more"})
		}
	}
	delete(in, "listen")
	if d, ok := in["description"]; ok && relay["description"] == nil {
		relay["description"] = d
	}
	delete(in, "description")
	admission(fed, object(in["admission"]))
	delete(in, "admission")
	delete(in, "tests")
	for _, p := range s {
		if p.Kind == "GrantPolicy" {
			grantPolicy(fed, relay, p.spec())
		}
	}
	fill(relay, "listen", "127.0.0.1:7777")
	fill(relay, "name", o.Name)
	fill(storage, "engine", "eventlog")
	if text(storage["engine"]) != "postgres" {
		fill(storage, "path", "store")
	}
	fill(fed, "enrolment", "closed")
	if e := text(storage["engine"]); !slices.Contains(engines, e) {
		refused = append(refused, Change{Object: o.Ref(), Key: "spec.storage.engine", Action: Create, Effect: Refused, To: e, Why: "this node has the engines " + strings.Join(engines, ", ")})
	}
	meta := map[string]any{"name": o.Name}
	if l := object(object(o.value["metadata"])["labels"]); len(l) > 0 {
		meta["labels"] = l
	}
	return object(prune(map[string]any{"apiVersion": o.value["apiVersion"], "kind": "MeshNode", "metadata": meta, "spec": in})), refused
}

func refusal(o *Object, key string, to any) Change {
	return Change{Object: o.Ref(), Key: key, Action: Create, Effect: Refused, To: to, Why: RuleFor(o.Kind, key).Why}
}

func part(in map[string]any, key string) map[string]any {
	m := object(in[key])
	if m == nil {
		m = map[string]any{}
		in[key] = m
	}
	return m
}

func fill(m map[string]any, key string, v any) {
	if old, ok := m[key]; !ok || old == "" {
		m[key] = v
	}
}

func admission(fed, a map[string]any) {
	if len(a) == 0 {
		return
	}
	bits, hasBits := whole(a["powBits"])
	switch {
	case a["invitationOnly"] == true:
		fed["enrolment"] = "invitation"
	case hasBits && bits > 0:
		fed["enrolment"] = "pow"
	case a["open"] == true:
		fed["enrolment"] = "open"
	}
	if hasBits && bits > 0 {
		fed["descriptorPow"] = bits
	}
}

// grantPolicy writes what a GrantPolicy says into the node's configuration.
func grantPolicy(fed, relay, p map[string]any) {
	if a := text(p["admission"]); a != "" {
		fed["enrolment"] = map[string]string{"open": "open", "proof-of-work": "pow", "invitation": "invitation", "closed": "closed"}[a]
	}
	if bits, ok := whole(p["powBits"]); ok && bits > 0 {
		fed["descriptorPow"] = bits
	}
	if w, ok := whole(p["window"]); ok {
		fed["windowSeconds"] = w
	}
	grantTerms(fed, p)
	deny := slices.Clone(list(relay["denyPubkeys"]))
	for _, v := range list(p["authors"]) {
		e := object(v)
		if text(e["tier"]) == "revoked" && !slices.Contains(deny, e["subject"]) {
			deny = append(deny, e["subject"])
		}
	}
	if len(deny) > 0 {
		relay["denyPubkeys"] = deny
	}
}

// Normal is the normal form of a node.yaml: what NodeConfig makes of it.
func Normal(nodeYAML []byte) (map[string]any, error) {
	docs, err := Parse("node.yaml", nodeYAML)
	if err != nil {
		return nil, err
	}
	config, _ := NodeConfig(docs)
	if config == nil {
		return nil, fmt.Errorf("node.yaml holds no MeshNode")
	}
	return config, nil
}

// ConfigYAML writes a configuration as node.yaml.
func ConfigYAML(config map[string]any) []byte {
	o := &Object{Kind: "MeshNode", value: config}
	return append([]byte("# A fleetmesh node. Every key is explained in docs/configuration.md.\n"), Set{o}.YAML()...)
}

// prune drops what is empty, null, zero or false: it means the default.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if m := object(x); k == "tiers" && len(m) > 0 {
				out[k] = m // a limit of zero is meant there
				continue
			}
			if p := prune(x); p != nil {
				out[k] = p
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		return v // the members of a list are values, not options: kind 0 is a kind
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	case nil:
		return nil
	default:
		if n, ok := whole(v); ok && n == 0 {
			return nil
		}
	}
	return v
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = clone(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = clone(x)
		}
		return out
	}
	return v
}

// flatten lists the leaves of a value by dotted key; a list is a leaf.
func flatten(v any, key string, into map[string]any) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		into[key] = v
		return into
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		at := k
		if key != "" {
			at = key + "." + k
		}
		flatten(m[k], at, into)
	}
	return into
}
