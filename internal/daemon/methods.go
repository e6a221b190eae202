package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// method makes a handler of a function with typed parameters.
func method[P, R any](f func(context.Context, P) (R, error)) control.Handler {
	return control.Shaped[P, none, R](func(ctx context.Context, raw json.RawMessage, _ func(any)) (any, error) {
		var p P
		if err := control.Params(raw, &p); err != nil {
			return nil, err
		}
		return f(ctx, p)
	})
}

type none struct{}

// methods are what the control socket offers.
func (n *node) methods() map[string]control.Handler {
	return n.live.methods(n.pageMethods(map[string]control.Handler{
		"node.status":   method(func(ctx context.Context, _ none) (Status, error) { return n.status(ctx) }),
		"node.health":   method(n.health),
		"node.stop":     method(func(context.Context, none) (none, error) { n.quit(); return none{}, nil }),
		"events.import": method(n.importEvents),
		"events.export": method(func(ctx context.Context, p ExportParams) (ExportPage, error) {
			return exportPage(ctx, n.store, p, time.Now().Unix())
		}),
		"store.fingerprint": method(n.fingerprint),
		"relay.sync":        control.Shaped[SyncParams, SyncStep, SyncStep](n.sync),
		"bridge.sync":       control.Shaped[BridgeParams, bridge.Pass, BridgeSynced](n.bridgeSync),
		"bridge.run":        control.Shaped[BridgeParams, BridgeStep, none](n.bridgeRun),
		"bridge.status":     method(n.bridges.status),
		"did.resolve":       method(n.resolve),
		"node.id":           method(n.identify),
		"node.revoke":       method(n.revoke),
		"keys.reload":       method(func(ctx context.Context, _ none) (none, error) { return none{}, n.fed.reload(ctx) }),
		"invite.create":     method(n.inviteCreate),
		"invite.list":       method(n.inviteList),
		"invite.revoke":     method(n.inviteRevoke),
		"coverage.take":     method(n.coverage),
		"coverage.sample":   method(n.sampleNow),
		"peer.known":        method(n.peerKnown),
		"peer.ask":          method(n.peerAsk),
		"peer.add":          method(n.peerAdd),
		"peer.list":         method(n.peerList),
		"peer.end":          method(n.peerEnd),
		"peer.history":      method(n.peerHistory),
		"peer.windows":      method(n.peerWindows),
		"peer.receipts":     method(n.peerReceipts),
		"left.event":        method(n.left),
		"peer.standing":     method(n.peerStanding),
		"peer.amend":        method(n.peerAmend),
		"report.list":       method(n.reportList),
		"report.withdraw":   method(n.reportWithdraw),
		"node.load":         method(n.carried),
		"why.event":         method(n.why),
		"why.peer":          method(n.whyPeer),
		"net.ping":          method(n.ping),
		"blobs.status":      method(n.blobs.status),
		"blobs.erase":       method(n.blobs.erase),
		"blobs.fetch":       method(n.fetchBlob),
		"blobs.erasures":    method(n.blobs.erasures),
		"blobs.trace":       method(n.trace),
		"net.doctor":        method(n.doctor),
	}))
}

// What the verbs about peers speak of; mesh decides it.
type (
	Peer   = mesh.Peer
	Budget = mesh.Budget
	Want   = mesh.Want
)

// FilterParams carry a NIP-01 filter.
type FilterParams struct {
	Filter json.RawMessage `json:"filter"`
}

func (n *node) fingerprint(ctx context.Context, p FilterParams) (Fingerprint, error) {
	return fingerprintOf(ctx, n.store, p.Filter, time.Now().Unix())
}

// DIDParams name a DID; empty is this node's.
type DIDParams struct {
	DID string `json:"did"`
}

// didHandler serves DID documents at /.well-known/did/nostr/<hex>.json, as did:nostr resolvers look for them.
func (n *node) didHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/.well-known/did/nostr/"), ".json")
		doc, err := n.documentJSON(r.Context(), "did:nostr:"+id)
		if err != nil {
			http.Error(w, "no such DID", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/did+json")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_, _ = w.Write(doc) // a lost client is its own business
	})
}

// PeerParams are those of peer.add.
type PeerParams struct {
	DID    string      `json:"did"`
	Relays []string    `json:"relays,omitempty"` // where its descriptor may be found
	Tier   spec.Tier   `json:"tier,omitempty"`   // what our grant opens at; probation if empty
	Wants  []mesh.Want `json:"wants,omitempty"`

	Invitation string `json:"invitation,omitempty"` // id of one of the other node's
	Shadow     bool   `json:"shadow,omitempty"`     // verdicts about it cost it nothing
	// Budget are the limits that the operator sets, all of them; null leaves what is set, an empty object gives all back to conduct.
	Budget map[spec.Limit]int64 `json:"budget,omitempty"`
}

func (n *node) peerAdd(ctx context.Context, p PeerParams) (none, error) {
	if err := n.permits(&p); err != nil {
		return none{}, err
	}
	return n.beginPeering(ctx, p)
}

// beginPeering is peerAdd, whatever the operator's terms for grants say: manifests were held to them when they were planned.
func (n *node) beginPeering(ctx context.Context, p PeerParams) (none, error) {
	key, err := ParseNode(p.DID)
	if err != nil {
		return none{}, control.BadParams("%v", err)
	}
	if key == n.agent.PubKey() {
		return none{}, control.BadParams("%s is this node itself", p.DID)
	}
	if p.Tier != "" && spec.C().TierRank(p.Tier) < 0 {
		return none{}, control.BadParams("tier %q is none of probation, member, trusted, anchor", p.Tier)
	}
	if err := checkBudget(p.Budget, p.Tier); err != nil {
		return none{}, err
	}
	for _, w := range p.Wants {
		if _, err := nostr.ParseFilter(w.Filter); err != nil {
			return none{}, control.BadParams("the filter of shard %q: %v", w.Shard, err)
		}
		if !slices.Contains([]string{mesh.ModePull, mesh.ModePush, mesh.ModeBoth}, w.Mode) {
			return none{}, control.BadParams("the mode of shard %q is %q, want pull, push or both", w.Shard, w.Mode)
		}
	}
	for _, r := range p.Relays {
		if u, err := url.Parse(r); err != nil || (u.Scheme != "ws" && u.Scheme != "wss") || u.Host == "" {
			return none{}, control.BadParams("the relay is %q, want a URL such as wss://relay.example.org", r)
		}
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return none{}, err
	}
	if n.fed.known.revoked(key) {
		return none{}, fmt.Errorf("%s was revoked by its holder", p.DID)
	}
	return none{}, h.AddInvited(ctx, mesh.AddPeer{Peer: key, Tier: p.Tier, Wants: p.Wants, Invitation: p.Invitation, Shadow: p.Shadow, Budget: p.Budget}, p.Relays)
}

// peerKnown is the table of nodes that this one has heard of.
func (n *node) peerKnown(_ context.Context, _ none) ([]KnownNode, error) {
	list := n.fed.known.list(time.Now().Unix())
	h := n.fed.running()
	if h == nil {
		return list, nil
	}
	standing := map[string]bool{}
	for _, p := range h.Peers() {
		standing[identity.FormatDID(p.Key)] = p.Stage == "active"
	}
	for i := range list {
		list[i].Peer = standing[list[i].DID]
	}
	return list, nil
}

// Asked says how many peers were asked which nodes they know. Their answers come later, into the table.
type Asked struct {
	Peers int `json:"peers"`
}

func (n *node) peerAsk(ctx context.Context, _ none) (Asked, error) {
	if _, err := n.fed.get(ctx); err != nil {
		return Asked{}, err
	}
	return Asked{n.fed.askPeers()}, nil
}

func (n *node) peerList(ctx context.Context, _ none) ([]mesh.Peer, error) {
	h, err := n.fed.get(ctx)
	if err != nil {
		return nil, err
	}
	return h.Peers(), nil
}

// PeerEndParams are those of peer.end.
type PeerEndParams struct {
	DID    string `json:"did"`
	Reason string `json:"reason"`
}

func (n *node) peerEnd(ctx context.Context, p PeerEndParams) (none, error) {
	return none{}, n.endPeering(ctx, p, true)
}

// endPeering is peerEnd; one that is not there is an error where a person named it, and nothing to do for manifests.
func (n *node) endPeering(ctx context.Context, p PeerEndParams, named bool) error {
	key, err := ParseNode(p.DID)
	if err != nil {
		return control.BadParams("%v", err)
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return err
	}
	if named && !slices.ContainsFunc(h.Peers(), func(q mesh.Peer) bool { return q.Key == key }) {
		return control.Refuse(string(spec.CodePolicy), "%s is no peer of this node: see meshnode peer list", p.DID)
	}
	h.EndPeer(key, p.Reason)
	return nil
}

// Happened is one thing that mesh told of.
type Happened struct {
	At       int64     `json:"at"`
	Peer     string    `json:"peer"`
	What     string    `json:"what"`
	Window   int64     `json:"window,omitempty"`
	Severity string    `json:"severity,omitempty"`
	Code     spec.Code `json:"code,omitempty"`
	Detail   string    `json:"detail,omitempty"`
}

func (n *node) peerHistory(ctx context.Context, p DIDParams) ([]Happened, error) {
	var key nostr.PubKey
	if p.DID != "" {
		var err error
		if key, err = ParseNode(p.DID); err != nil {
			return nil, control.BadParams("%v", err)
		}
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return nil, err
	}
	list, _ := h.History(key)
	out := []Happened{}
	for _, e := range list {
		w := Happened{At: e.At.Unix(), Peer: identity.FormatDID(e.Tell.Peer), What: e.Tell.What, Window: e.Tell.Window, Code: e.Tell.Code, Detail: e.Tell.Detail}
		if judged(e.Tell.What) {
			w.Severity = e.Tell.Severity.String()
		}
		out = append(out, w)
	}
	return out, nil
}
