package daemon

import (
	"maps"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/control"
)

// about says what each method of the control socket does: a sentence for docs/control.md. A test holds it against what the socket offers.
var about = map[string]string{
	"node.status":       "What the node is and does.",
	"node.health":       "The facts that a monitor judges; it may recount part of the store and ask others for the time.",
	"node.stop":         "Stops the node, which says goodbye to its peers first.",
	"node.id":           "Who the node is: DID, keys, operator, endpoints, descriptor.",
	"node.revoke":       "Retires the node's key for good, naming a successor if there is one.",
	"keys.reload":       "Takes up keys that were rotated in the directory, and publishes them.",
	"events.import":     "Offers events to the store by the path of a client's, trusting their signatures if told to.",
	"events.export":     "A page of the store in the order of arrival.",
	"store.fingerprint": "NIP-77 fingerprint and count of what a filter matches.",
	"relay.sync":        "Reconciles with another relay, telling each step.",
	"bridge.sync":       "One pass of streams with other relays.",
	"bridge.run":        "Streams with other relays, until the caller goes away.",
	"bridge.status":     "How the streams stand.",
	"did.resolve":       "The DID document of this node or another.",
	"invite.create":     "Makes an invitation.",
	"invite.list":       "The invitations, and who used them.",
	"invite.revoke":     "Takes an invitation back.",
	"coverage.sample":   "Asks peers for a handful of what they assert to hold, as the node does by itself every hour.",
	"coverage.take":     "Takes the coverage claims anew.",
	"peer.known":        "The nodes that were heard of, and from where.",
	"peer.ask":          "Asks every active peer which nodes it knows; the answers come into the table of known nodes.",
	"peer.add":          "Proposes a peering, or changes what one syncs.",
	"peer.list":         "Every peering: grants, counters, receipts, verdicts.",
	"peer.end":          "Ends a peering.",
	"peer.history":      "What happened with a peer, or with all, as far as this process remembers.",
	"peer.windows":      "The closed windows of a peering with the arithmetic of each.",
	"peer.receipts":     "The receipts of a peering's windows, both ways, and what their issuers answered.",
	"peer.standing":     "Asks a peer how another node stands with it.",
	"report.list":       "The reports that this node published or read, and what a recount of their evidence says.",
	"report.withdraw":   "Withdraws a report of this node's.",
	"node.load":         "What is carried of the declared capacity, and from where strain came.",
	"peer.amend":        "Changes the tier or limits of our grant to a peer, by the operator's hand.",
	"left.event":        "To whom an event went, by which road and under which grant.",
	"why.event":         "Why an event is here, or is not.",
	"why.peer":          "Why a peer gets what it gets, or what happened in one window of it or of all: arithmetic, receipts, complaints.",
	"net.ping":          "DIDComm trust-ping to another node.",
	"net.doctor":        "Dials every rung to every peer, and the node's own doors.",
	"blobs.status":      "What the blob face holds.",
	"blobs.fetch":       "Fetches a blob from a peer into this node's blob store.",
	"blobs.erase":       "Erases a blob for good.",
	"blobs.erasures":    "What was erased, and why.",
	"blobs.trace":       "Which blobs an event names, and where they are.",
	"relay.info":        "What the relay face tells everybody of itself: the NIP-11 document and its addresses.",
	"page.code":         "Makes a one-time code to sign in to the operator's page with; the one before is void.",
	"page.sessions":     "Who is signed in to the operator's page.",
	"page.end":          "Signs everybody out of the operator's page.",
	"manifest.get":      "What was applied, its hash, what waits and what drifted.",
	"manifest.plan":     "What apply would do, key by key. Changes nothing.",
	"manifest.apply":    "Makes the node what the documents say: all of it, or nothing.",
}

// Method is one method of the control socket, described.
type Method struct {
	Name   string
	About  string
	Params map[string]any // JSON Schema
	Step   map[string]any // of the progress it tells; nil where it tells none
	Result map[string]any
}

// Surface describes every method of the control socket, in order of their names.
func Surface() []Method {
	n := new(node)
	methods := n.methods()
	var out []Method
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		s := control.Describe(methods[name])
		m := Method{Name: name, About: about[name], Params: control.SchemaOf(s.Params, true), Result: control.SchemaOf(s.Result, false)}
		if step := control.SchemaOf(s.Step, false); len(object(step["properties"])) > 0 {
			m.Step = step
		}
		out = append(out, m)
	}
	return out
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// fields lists the names of an object's schema, for a person.
func fields(schema map[string]any) string {
	if items := object(schema["items"]); items != nil {
		return "list of " + fields(items)
	}
	if names := slices.Sorted(maps.Keys(object(schema["properties"]))); len(names) > 0 {
		return "`" + strings.Join(names, "`, `") + "`"
	}
	if t, _ := schema["type"].(string); t != "" && t != "object" {
		return t
	}
	return "—"
}
