package mesh

import (
	"encoding/json"
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// standing/1.0: a peer asks what this node found of somebody. It is metered as a request of the asker's, and declined in one way whatever the
// reason: nobody can tell a node that knows nothing from one that says nothing (§ Trust weighting, Asking).

// StandingPolicy says which questions about others a node answers to its peers.
type StandingPolicy string

// What a node answers. Whether the threshold is met tells less than the node's own finding, which shows that there is a peering.
const (
	StandingNone      StandingPolicy = "none"
	StandingThreshold StandingPolicy = "threshold"
	StandingOwn       StandingPolicy = "own" // both
)

// Modes of a query.
const (
	AskOwn       = "own"
	AskThreshold = "threshold"
)

// QueryBody is the body of standing/1.0/query.
type QueryBody struct {
	Subject nostr.PubKey `json:"subject"`
	Mode    string       `json:"mode"`
	Topic   spec.Topic   `json:"topic,omitempty"`
}

// AnswerBody is the body of standing/1.0/answer: the finding, or only whether the threshold is met.
type AnswerBody struct {
	Severity *spec.Severity `json:"severity,omitempty"`
	Windows  *int64         `json:"windows,omitempty"` // clean ones in a row
	Met      *bool          `json:"met,omitempty"`
	Topic    spec.Topic     `json:"topic"`
}

// AskStanding begins a question to a peer; the answer is Permit with the session's thread, or Withhold. The host sends the query and says
// QueryEnded when it is over.
type AskStanding struct {
	Peer   nostr.PubKey
	Thread string
}

// QueryEnded says that a question is over, on either end.
type QueryEnded struct{ Thread string }

// AnswerStanding sends an answer to a query: within the budget of the asker, else a decline.
type AnswerStanding struct {
	To     nostr.PubKey
	Thread string
	Body   AnswerBody
}

func (AskStanding) input()     {}
func (QueryEnded) input()      {}
func (AnswerStanding) effect() {}

func (t *turn) askStanding(in AskStanding) {
	p := t.peers[in.Peer]
	switch {
	case p == nil || p.Stage != active || len(p.Held) == 0:
		t.do(Withhold{Code: spec.CodeNotGranted})
	case !slices.Contains(p.Protocols, spec.PIURIStanding):
		t.do(Withhold{Code: spec.CodeUnsupportedProtocol})
	default:
		t.threads[in.Thread] = &session{peer: p.Key, ours: true, query: true, heard: t.now}
		t.do(Permit{})
	}
}

func (t *turn) queryEnded(in QueryEnded) {
	s := t.threads[in.Thread]
	if s == nil || !s.query {
		return
	}
	delete(t.threads, in.Thread)
	if p := t.peers[s.peer]; p != nil && s.ours && len(s.flight) > 0 { // an answer that was counted may have been lost
		t.doubt(p, s.heard)
	}
}

// standingMessage meters a message of standing/1.0. Every way out of a query but its answer is the same decline, which costs nothing.
func (t *turn) standingMessage(p *peer, in Received, m *spec.MessageSpec) {
	if m.Name != "query" {
		if s := t.threads[in.Thread]; s == nil || s.peer != p.Key || !s.query || !s.ours {
			t.stray(p, in)
			return
		}
		if window, code := t.meterIn(p, in, m); code == "" {
			t.do(Pass{Window: window})
		}
		if m.Name == "decline" {
			t.threads[in.Thread].flight = nil // nothing more will come, and nothing was lost
		}
		return
	}
	if t.threads[in.Thread] != nil {
		t.stray(p, in)
		return
	}
	_, code := t.meterIn(p, in, m)
	body, ok := AnswerBody{}, false
	if code == "" {
		body, ok = t.answerTo(p, in)
	}
	if !ok {
		t.do(Send{To: p.Key, Type: spec.MsgStandingDecline, ID: t.newID(), Thread: in.Thread, Body: struct{}{}})
		return
	}
	t.threads[in.Thread] = &session{peer: p.Key, query: true}
	t.do(AnswerStanding{To: p.Key, Thread: in.Thread, Body: body})
}

// answerTo says what this node answers; ok is false where it declines.
func (t *turn) answerTo(p *peer, in Received) (a AnswerBody, ok bool) {
	var q QueryBody
	if json.Unmarshal(in.Body, &q) != nil || p.Stage != active {
		return a, false
	}
	if a.Topic = q.Topic; a.Topic == "" {
		a.Topic = spec.TopicTransit
	}
	about := t.peers[q.Subject]
	switch {
	case q.Subject == p.Key || q.Subject == t.cfg.Self:
		return a, false // of itself a node hears by notice, and of us by others
	case q.Mode == AskThreshold && t.cfg.Standing != StandingNone:
		_, met := ledger.Threshold(a.Topic, t.said(q.Subject, t.now))
		a.Met = &met
		return a, true
	case q.Mode == AskOwn && t.cfg.Standing == StandingOwn && a.Topic == spec.TopicTransit && about != nil && !t.shadowed(about) && (len(about.Issued) > 0 || about.Worst > spec.S0) && !t.shadowed(about):
		sev, clean := about.Worst, about.Stands.CleanWindows
		a.Severity, a.Windows = &sev, &clean
		return a, true
	}
	return a, false
}
