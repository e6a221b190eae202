package manifest

import "strings"

// Effect says what becomes of a changed key.
type Effect string

// The effects.
const (
	Live       Effect = "live"        // it is in force when apply returns; no connection is dropped
	NextWindow Effect = "next-window" // it is taken up when apply returns, and binds from the next accounting window that the peer can know of it
	Restart    Effect = "restart"     // it is written to node.yaml, and in force after the next start
	Refused    Effect = "refused"     // this node cannot do it; nothing of the set is applied
)

// AtOnce says that a change needs no restart.
func (e Effect) AtOnce() bool { return e == Live || e == NextWindow }

// Rule says for a key, and for all below it that no longer rule covers, what becomes of a change.
type Rule struct {
	Key    string `json:"key"`
	Effect Effect `json:"effect"`
	Why    string `json:"why"`
}

// nodeRules is the table for MeshNode. The longest key that covers a changed one decides.
var nodeRules = []Rule{
	{"metadata", Live, "names and labels are for people"},
	{"spec.class", Restart, "the class stands in the descriptor, which is made at start"},
	{"spec.identity", Refused, "keys are made by meshnode key and never come from a file; a manifest may only say which they are"},
	{"spec.operator", Live, "a new descriptor says it, and goes to peers and relays at once"},
	{"spec.endpoints", Live, "a new door is opened and announced in a new descriptor; one that goes takes nothing new, and what came in by it may go on for two minutes"},
	{"spec.relays", Restart, "where the node publishes itself is read at start"},
	{"spec.mediators", Restart, "mediators stand in the descriptor, which is made at start"},
	{"spec.bootstrap", Refused, "the first places to look stand in bootstrap.toml of the node directory"},
	{"spec.proxy", Restart, "the way out is chosen at start"},
	{"spec.relay", Restart, "the face reads it at start"},
	{"spec.relay.limits", Live, "the next message is held to it; nobody is disconnected"},
	{"spec.relay.readOnly", Live, "the next event is held to it"},
	{"spec.relay.minPow", Live, "the next event is held to it"},
	{"spec.relay.allowKinds", Live, "the next event is held to it"},
	{"spec.relay.denyKinds", Live, "the next event is held to it"},
	{"spec.relay.allowPubkeys", Live, "the next event is held to it"},
	{"spec.relay.denyPubkeys", Live, "the next event is held to it"},
	{"spec.storage", Refused, "a store is moved while the node is stopped: meshnode export, then import into the new one"},
	{"spec.storage.maxBytes", Restart, "the quota is read at start"},
	{"spec.attach", Restart, "where the events are is chosen at start"},
	{"spec.page", Restart, "the page reads it at start"},
	{"spec.blobs", Restart, "the blob face reads it at start"},
	{"spec.blobs.path", Refused, "blobs are moved while the node is stopped"},
	{"spec.capacity", Refused, "this node takes its capacity from its load, not from a file"},
	{"spec.retention", Refused, "this node keeps what its quota allows, by spec.storage.maxBytes"},
	{"spec.shards", Live, "they are claimed anew, or withdrawn, at once"},
	{"spec.capabilities", Restart, "capabilities stand in the descriptor, which is made at start"},
	{"spec.pluginIn", Restart, "the plugin is started with the node; a new version of its script is taken up at once"},
	{"spec.pluginOut", Restart, "the plugin is started with the node; a new version of its script is taken up at once"},
	{"spec.federation", Restart, "it is read at start"},
	{"spec.federation.enrolment", Live, "the next stranger is met so"},
	{"spec.federation.descriptorPow", Live, "the next stranger is held to it, and the descriptor is mined anew"},
	{"spec.federation.standing", Live, "the next question is answered so"},
	{"spec.federation.shadow", Live, "the next verdict is held to it"},
	{"spec.federation.grants", Live, "the next new grant is made so; grants that stand are left as conduct has moved them"},
	{"spec.federation.grants.scope", NextWindow, "grants that stand are amended to it"},
	{"spec.tracing", Restart, "the way to the collector is made at start"},
	{"spec.metrics", Live, "the next request is held to it"},
	{"spec.tests", Live, "tests run before every apply"},
}

// peeringRules is the table for Peering.
var peeringRules = []Rule{
	{"metadata", Live, "names and labels are for people"},
	{"spec.peer", Live, "the peering is proposed or ended at once"},
	{"spec.relays", Live, "the descriptor is looked for there"},
	{"spec.invitation", Live, "it goes with the next proposal"},
	{"spec.tier", NextWindow, "our grant is amended to it at once and binds from its next window"},
	{"spec.shadow", Live, "the next verdict is held to it"},
	{"spec.note", Live, "it is for people"},
	{"spec.tests", Live, "tests run before every apply"},
	{"spec.transport", Refused, "this node has no such transport; without the key it takes the best that both have"},
	{"spec.ingress.filter", Live, "the next session asks for it"},
	{"spec.egress.filter", Live, "the next session asks for it"},
	{"spec.ingress", Refused, "this node has no rate or plugin for one peer: spec.budget bounds what a peer may cause in a window, spec.pluginIn of the MeshNode judges what comes in by whatever door"},
	{"spec.egress", Refused, "this node has no rate or plugin for one peer: bytes_out of spec.budget bounds what a peer is sent in a window, spec.pluginOut of the MeshNode is told to which peer an event goes"},
	{"spec.budget", NextWindow, "our grant is amended to it at once and binds from its next window; conduct lowers it as any grant, and raises it no further"},
	{"spec.budget.window", Refused, "all grants of a node have windows of one length: spec.window of a GrantPolicy, spec.federation.windowSeconds of the MeshNode"},
	{"spec.shards", Live, "it names the shard"},
}

// policyRules is the table for GrantPolicy.
var policyRules = []Rule{
	{"metadata", Live, "names and labels are for people"},
	{"spec.admission", Live, "the next stranger is met so"},
	{"spec.powBits", Live, "the next stranger is held to it, and the descriptor is mined anew"},
	{"spec.window", Restart, "it is of the grants issued after the next start"},
	{"spec.authors", Live, "the next event is held to it"},
	{"spec.tests", Live, "tests run before every apply"},
	{"spec.lifetimeSeconds", Live, "the next grant lives so long"},
	{"spec.receipt", Live, "the next grant asks for receipts at that pace"},
	{"spec.tiers", Live, "the next new grant of the tier opens there; grants that stand are left as conduct has moved them"},
	{"spec.scope", NextWindow, "grants that stand are amended to it, and sessions beyond it are refused"},
	{"spec.nodes", Live, "the next proposal of such a node is met so; a peering with one that is revoked here ends"},
}

// absentRules are for kinds that this node lacks altogether.
func absentRules(kind string) []Rule {
	what := map[string]string{"ComputeProvider": "sells no computing", "InferenceRouter": "routes no inference"}[kind]
	return []Rule{{"spec", Refused, "the manifest is right, but this node " + what + ": apply it where a node does"}, {"metadata", Refused, "this node " + what}}
}

// Rules is the table of a manifest kind.
func Rules(kind string) []Rule {
	switch kind {
	case "MeshNode":
		return nodeRules
	case "Peering":
		return peeringRules
	case "GrantPolicy":
		return policyRules
	}
	return absentRules(kind)
}

// RuleFor finds the rule of a key such as "spec.relay.denyKinds".
func RuleFor(kind, key string) Rule {
	best := Rule{key, Refused, "this node does not know the key"}
	length := -1
	for _, r := range Rules(kind) {
		if (key == r.Key || strings.HasPrefix(key, r.Key+".")) && len(r.Key) > length {
			best, length = r, len(r.Key)
		}
	}
	best.Key = key
	return best
}
