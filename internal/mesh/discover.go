package mesh

import (
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// AskPeers is the wish to hear of other nodes from a peer (§ Discovery, "Ask").
type AskPeers struct {
	Peer  nostr.PubKey
	Limit int
}

// ServePeers answers a query with descriptors that the host holds, Limit at most.
type ServePeers struct {
	To     nostr.PubKey
	Thread string
	Limit  int
}

// PeersTold hands over the descriptors that a peer answered with. Nothing in them is verified.
type PeersTold struct {
	From        nostr.PubKey
	Descriptors []json.RawMessage
}

func (AskPeers) input()    {}
func (ServePeers) effect() {}
func (PeersTold) effect()  {}

// maxPeersTold is how many descriptors one answer holds.
const maxPeersTold = 100

type (
	peersQueryBody struct {
		Limit int `json:"limit"`
	}
	// PeersBody is the body of peering/1.0/peers: descriptors as events.
	PeersBody struct {
		Descriptors []json.RawMessage `json:"descriptors"`
	}
)

// A peers-query costs one request and no octets: peering/1.0 itself is never metered.
var peersQueryCost = ledger.Counters{spec.CounterReq: 1}

func (t *turn) askPeers(in AskPeers) {
	p := t.peers[in.Peer]
	if p == nil || p.Stage != active || len(p.Held) == 0 {
		return
	}
	g, w := p.Held.at(t.now, t.now)
	b, known := open(&p.Used, g, w)
	if exceeds(g.Limits, b.spent(), peersQueryCost) != "" || t.owes(p, t.now) {
		return
	}
	b.send(peersQueryCost) // in doubt until the peer says what it counted
	again := b.reopen()
	t.used(p, known && !again)
	p.Asking = t.newID()
	t.do(Send{To: p.Key, Type: spec.MsgPeeringPeersQuery, ID: p.Asking, Body: peersQueryBody{min(max(in.Limit, 1), maxPeersTold)}})
}

func (t *turn) peersAsked(p *peer, in Received) {
	if p == nil || p.Stage != active || len(p.Issued) == 0 {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	g, w := p.Issued.at(in.Created, t.now)
	t.cameBack(p, w, in.Created)
	if p.Stage != active {
		return
	}
	b, known := open(&p.Measured, g, w)
	over := exceeds(p.allowed(w), b.Counters, peersQueryCost)
	t.meter(b, peersQueryCost)
	t.account(p, known)
	var body peersQueryBody
	switch err := json.Unmarshal(in.Body, &body); {
	case over != "":
		t.do(Tell{Peer: p.Key, What: "over-budget", Window: w.Epoch, Code: spec.CodeOverBudget, Detail: string(over)})
	case err != nil:
		t.fault(p, in.Thread, spec.CodeMalformed)
	default:
		t.do(ServePeers{To: p.Key, Thread: in.Thread, Limit: min(max(body.Limit, 1), maxPeersTold)})
	}
}

// peersTold takes an answer that was asked for, once.
func (t *turn) peersTold(p *peer, in Received) {
	if p == nil || p.Asking == "" || in.Thread != p.Asking {
		return
	}
	p.Asking = ""
	var body PeersBody
	if err := json.Unmarshal(in.Body, &body); err != nil {
		t.fault(p, in.Thread, spec.CodeMalformed)
		return
	}
	t.do(PeersTold{From: p.Key, Descriptors: body.Descriptors[:min(len(body.Descriptors), maxPeersTold)]})
}
