package manifest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Check holds a set against the schemas, the constants and itself. Every problem that can be found without a node is found, the first of
// the schema for each document. The error is Problems.
func Check(s Set) error {
	var bad Problems
	seen := map[string]*Object{}
	peers := map[string]*Object{}
	var node *Object
	for _, o := range s {
		if first := seen[o.Ref()]; first != nil {
			bad = append(bad, o.problem("/metadata/name", "%s stands in %s:%d already", o.Ref(), first.File, first.at[""].line))
		}
		seen[o.Ref()] = o
		found := o.check()
		bad = append(bad, found...)
		if len(found) > 0 {
			continue
		}
		switch o.Kind {
		case "MeshNode":
			if node != nil {
				bad = append(bad, o.problem("/kind", "a set has one MeshNode, and %s stands in %s:%d already", node.Ref(), node.File, node.at[""].line))
			}
			node = o
		case "Peering":
			did := text(o.spec()["peer"])
			if first := peers[did]; first != nil {
				bad = append(bad, o.problem("/spec/peer", "%s is about the same node", first.Ref()))
			}
			peers[did] = o
		}
	}
	terms := s.terms()
	for _, o := range s {
		if peers[text(o.spec()["peer"])] != o {
			continue // no Peering, or one that is wrong by itself
		}
		if key, why := terms.contradicts(o, math.MaxInt64); key != "" {
			bad = append(bad, o.problem("/"+strings.ReplaceAll(key, ".", "/"), "%s", why))
		}
	}
	return bad.err()
}

// schema checks one document against the schema of its kind, and finds the places: of every unknown key, and of the first other fault.
func (o *Object) schema() (bad Problems) {
	if shape, err := Schema(o.Kind); err == nil {
		o.unknown(o.value, shape, "", &bad)
	}
	err := spec.ValidateManifest(o.JSON())
	if err == nil {
		return bad
	}
	var e *spec.SchemaError
	switch {
	case !errors.As(err, &e):
		bad = append(bad, o.problem("", "%v", err))
	case strings.HasPrefix(e.Reason, "additional propert") && len(bad) > 0: // told already, key by key
	default:
		bad = append(bad, o.problem(e.Path, "%s", strings.Replace(e.Reason, "missing propert", "missing key: propert", 1)))
	}
	return bad
}

// unknown finds the keys that the schema does not allow, and the ones that were probably meant.
func (o *Object) unknown(v any, shape map[string]any, at string, bad *Problems) {
	items := object(shape["items"])
	for i, x := range list(v) {
		o.unknown(x, items, fmt.Sprintf("%s/%d", at, i), bad)
	}
	properties := object(shape["properties"])
	closed := shape["additionalProperties"] == false && shape["patternProperties"] == nil
	for _, k := range slices.Sorted(maps.Keys(object(v))) {
		below, known := properties[k]
		if known {
			o.unknown(object(v)[k], object(below), under(at, k), bad)
			continue
		}
		if !closed {
			continue
		}
		if near := nearest(k, slices.Sorted(maps.Keys(properties))); near != "" {
			*bad = append(*bad, o.problem(under(at, k), "unknown key; did you mean %s?", near))
		} else {
			*bad = append(*bad, o.problem(under(at, k), "unknown key"))
		}
	}
}

func (o *Object) check() Problems {
	if bad := o.schema(); len(bad) > 0 {
		return bad
	}
	c := &checker{o: o}
	switch o.Kind {
	case "MeshNode":
		c.node()
	case "Peering":
		c.peering()
	case "GrantPolicy":
		c.policy()
	}
	return c.bad
}

// checker gathers what is wrong with one document whose form is right.
type checker struct {
	o   *Object
	bad Problems
}

func (c *checker) say(pointer, format string, args ...any) {
	c.bad = append(c.bad, c.o.problem(pointer, format, args...))
}

func (c *checker) node() {
	s := c.o.spec()
	c.class(s)
	if op := text(object(s["operator"])["pubkey"]); op != "" && "did:nostr:"+op == text(object(s["identity"])["did"]) {
		c.say("/spec/operator/pubkey", "it is the node's own key: an operator has a key of their own, by which nodes of one hand are told apart")
	}
	for i, h := range list(s["shards"]) {
		at, h := fmt.Sprintf("/spec/shards/%d", i), object(h)
		c.filter(at+"/filter", h["filter"])
		since, _ := whole(h["since"])
		if until, ok := whole(h["until"]); ok && until > 0 && since > until {
			c.say(at+"/since", "since %d lies after until %d", since, until)
		}
	}
	for i, l := range list(s["listen"]) {
		c.hostPort(fmt.Sprintf("/spec/listen/%d", i), text(l))
	}
	relay := object(s["relay"])
	if l, ok := relay["listen"]; ok {
		c.hostPort("/spec/relay/listen", text(l))
	}
	for i, p := range list(relay["trustedProxies"]) {
		if _, err := netip.ParsePrefix(text(p)); err != nil {
			c.say(fmt.Sprintf("/spec/relay/trustedProxies/%d", i), "%q is no prefix such as 10.0.0.0/8", text(p))
		}
	}
	for _, key := range []string{"allowPubkeys", "denyPubkeys"} {
		for i, k := range list(relay[key]) {
			if _, err := nostr.ParsePubKey(text(k)); err != nil {
				c.say(fmt.Sprintf("/spec/relay/%s/%d", key, i), "%v", err)
			}
		}
	}
	c.terms("/spec/federation/grants", object(object(s["federation"])["grants"]))
	if a, f := object(s["admission"]), object(s["federation"]); len(a) > 0 && f["enrolment"] != nil {
		c.say("/spec/admission", "spec.federation.enrolment says it already: keep one of the two")
	}
}

func (c *checker) class(s map[string]any) {
	wss := len(list(object(s["relay"])["publicUrls"])) > 0
	for _, e := range list(s["endpoints"]) {
		wss = wss || text(object(e)["transport"]) == "wss"
	}
	switch text(s["class"]) {
	case "anchor":
		if !wss {
			c.say("/spec/class", "an anchor is reached from everywhere: spec.endpoints or spec.relay.publicUrls needs a wss address")
		}
	case "leaf":
		if len(list(s["endpoints"]))+len(list(s["shards"])) > 0 {
			c.say("/spec/class", "a leaf has neither endpoints nor shards")
		}
		if len(list(s["mediators"]))+len(list(s["relays"])) == 0 {
			c.say("/spec/class", "a leaf is reached through anchors: name them in spec.mediators, or relays in spec.relays where they can be found")
		}
	}
}

func (c *checker) hostPort(at, s string) {
	if _, _, err := net.SplitHostPort(s); err != nil {
		c.say(at, "%q is no host:port such as 127.0.0.1:7777", s)
	}
}

// filter holds a filter to NIP-01 and to what may cross between nodes.
func (c *checker) filter(at string, v any) {
	if v == nil {
		return
	}
	f, err := nostr.ParseFilter(canonical(v))
	if err != nil {
		c.say(at, "%v", err)
		return
	}
	if f.MatchesNothing() {
		c.say(at, "it matches nothing: a list is empty, or since lies after until")
	}
	for i, k := range list(object(v)["kinds"]) {
		if n, ok := whole(k); ok && spec.C().Boundary.Never(nostr.Kind(n)) {
			c.say(fmt.Sprintf("%s/kinds/%d", at, i), "kind %d never crosses between nodes", n)
		}
	}
}

// limits holds limits to the ceilings of a tier.
func (c *checker) limits(at string, v any, tier spec.Tier, whose string) {
	limits := object(v)
	for _, row := range spec.C().Limits {
		n, ok := whole(limits[string(row.Name)])
		if top := row.Ceiling[tier]; ok && n > top {
			c.say(under(at, string(row.Name)), "%d is above the ceiling of %s, %d a window", n, whose, top)
		}
	}
	if w, ok := whole(limits["window"]); ok {
		c.window(at+"/window", w)
	}
}

func (c *checker) window(at string, w int64) {
	if k := spec.C().Window; w < k.MinSeconds || w > k.MaxSeconds {
		c.say(at, "a window of %d s: it may be %d to %d", w, k.MinSeconds, k.MaxSeconds)
	}
}

func (c *checker) peering() {
	s := c.o.spec()
	for _, way := range []string{"ingress", "egress"} {
		c.filter("/spec/"+way+"/filter", object(s[way])["filter"])
	}
	tier, whose := spec.Tier(text(s["tier"])), ""
	switch {
	case tier == "revoked":
		c.say("/spec/tier", "a revoked node is no peer: remove the Peering, or list it under spec.nodes of a GrantPolicy")
		return
	case tier == "":
		// Without a tier the peer has what it earned; what no tier allows is wrong in any case.
		tier = spec.C().Tiers[len(spec.C().Tiers)-1].Name
		whose = "every tier"
	default:
		whose = "tier " + string(tier)
	}
	c.limits("/spec/budget", s["budget"], tier, whose)
	for i, t := range list(s["tests"]) {
		at := fmt.Sprintf("/spec/tests/%d", i)
		c.event(at+"/event", object(t)["event"])
		if f := object(t)["filter"]; f != nil {
			if _, err := nostr.ParseFilter(canonical(f)); err != nil {
				c.say(at+"/filter", "%v", err)
			}
		}
	}
}

func (c *checker) event(at string, v any) {
	if v == nil {
		return
	}
	if _, err := testEvent(v); err != nil {
		c.say(at, "%v", err)
	}
}

func (c *checker) policy() {
	s := c.o.spec()
	if w, ok := whole(s["window"]); ok {
		c.window("/spec/window", w)
	}
	c.terms("/spec", s)
	c.once("/spec/authors", list(s["authors"]))
}

// leastLifetime is how long a grant has to live, so that it is renewed in time by a peer that is away for a night.
const leastLifetime = 86400

// terms holds what is said about grants to what a grant may say.
func (c *checker) terms(at string, s map[string]any) {
	if n, ok := whole(s["lifetimeSeconds"]); ok && (n > spec.C().Lifetimes.GrantSeconds || n < leastLifetime) {
		c.say(at+"/lifetimeSeconds", "a grant of %d s: it may live %d to %d", n, leastLifetime, spec.C().Lifetimes.GrantSeconds)
	}
	for _, key := range []string{"seconds", "bytes"} {
		if n, ok := whole(object(s["receipt"])[key]); ok && n < 1 {
			c.say(at+"/receipt/"+key, "a receipt every %d: want 1 or more", n)
		}
	}
	for _, t := range spec.C().Tiers {
		if limits, ok := object(s["tiers"])[string(t.Name)]; ok {
			c.limits(at+"/tiers/"+string(t.Name), limits, t.Name, "tier "+string(t.Name))
		}
	}
	scope := object(s["scope"])
	c.filter(at+"/scope/push", scope["push"])
	c.filter(at+"/scope/pull", scope["pull"])
	c.once(at+"/nodes", list(s["nodes"]))
}

// once finds keys that stand in a list twice.
func (c *checker) once(at string, entries []any) {
	seen := map[string]bool{}
	for i, e := range entries {
		k := bareKey(object(e)["subject"])
		if seen[k] {
			c.say(fmt.Sprintf("%s/%d/subject", at, i), "the key stands here twice")
		}
		seen[k] = true
	}
}

// nearest is the known key that a wrong one was probably meant to be, "" if none is near.
func nearest(wrong string, keys []string) (best string) {
	least := 3
	for _, k := range keys {
		if strings.EqualFold(k, wrong) {
			return k
		}
		if d := distance(wrong, k); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(diag+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
