package mesh

import (
	"encoding/json"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// granted makes a node with one active peer.
func granted(t *testing.T) (*Node, nostr.PubKey, time.Time) {
	t.Helper()
	self, other := nostr.SecretKey{31: 1}.PubKey(), nostr.SecretKey{31: 2}.PubKey()
	now := time.Unix(1_800_000_000, 0)
	n := New(Config{Self: self, Class: spec.ClassEdge, Enrolment: EnrolInvitation})
	p := &peer{Key: other, Stage: active, Thread: "thread", Added: true, Described: true}
	p.Stands = ledger.NewStanding(spec.TierProbation)
	p.Issued = grants{ledger.NewGrant(self, other, spec.TierProbation, nil, now.Unix()-100_000)}
	p.Held = grants{ledger.NewGrant(other, self, spec.TierProbation, nil, now.Unix()-100_000)}
	n.peers[other] = p
	return n, other, now
}

func TestRevokedKeyIsOverForGood(t *testing.T) {
	n, other, now := granted(t)
	n.threads["s"] = &session{peer: other}
	var zero *ledger.Grant
	for _, eff := range n.Step(now, Revoked{Peer: other, Reason: "key-compromise"}) {
		switch eff := eff.(type) {
		case IssueGrant:
			zero = eff.Grant
		case Send:
			t.Errorf("something was sent to a revoked key: %s", eff.Type)
		}
	}
	if zero == nil || zero.Tier != spec.TierRevoked || zero.Subject != other {
		t.Fatalf("no zero grant: %+v", zero)
	}
	for l, v := range zero.Limits {
		if v != 0 {
			t.Errorf("%s is %d", l, v)
		}
	}
	n.Step(now, GrantIssued{Subject: other, Grant: zero})
	p := n.peers[other]
	if p.Stage != ended || len(p.Issued)+len(p.Held) != 0 || len(n.threads) != 0 {
		t.Errorf("left of it: %+v", p)
	}
	if again := n.Step(now, Revoked{Peer: other}); len(again) > 0 {
		t.Errorf("a second revocation did something: %v", again)
	}
	for _, eff := range n.Step(now, AddPeer{Peer: other}) {
		if _, ok := eff.(Send); ok {
			t.Error("a revoked key was proposed to")
		}
	}
	// It survives a restart, and a proposal of the key is declined.
	record, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	fresh := New(n.cfg)
	if err := fresh.Restore(map[string]json.RawMessage{peerKey + other.String(): record}); err != nil {
		t.Fatal(err)
	}
	if !fresh.peers[other].Revoked {
		t.Error("the revocation was forgotten")
	}
	fresh.peers[other].Described = true
	body, _ := json.Marshal(proposeBody{Protocols: spec.C().Protocol.Required})
	declined := false
	for _, eff := range fresh.Step(now, Received{From: other, Anonymous: true, Type: spec.MsgPeeringPropose, Thread: "t", Created: now.Unix(), Body: body, Invited: true}) {
		if s, ok := eff.(Send); ok {
			b, is := s.Body.(declineBody)
			declined = is && b.Code == spec.CodeRevoked
		}
	}
	if !declined || fresh.peers[other] == nil {
		t.Error("a revoked key was not declined with REVOKED, or was forgotten over it")
	}
}

func TestRevocationOfAStrangerLeavesNothing(t *testing.T) {
	n, _, now := granted(t)
	stranger := nostr.SecretKey{31: 3}.PubKey()
	n.Step(now, Revoked{Peer: stranger})
	n.peers[stranger] = &peer{Key: stranger, Stage: known, Described: true}
	n.Step(now, Revoked{Peer: stranger})
	if n.peers[stranger] != nil {
		t.Error("a stranger's revocation is kept as a peer")
	}
}

func TestPeersQueryCostsOneRequestOnBothSides(t *testing.T) {
	n, other, now := granted(t)
	var asked string
	for _, eff := range n.Step(now, AskPeers{Peer: other, Limit: 5000}) {
		if s, ok := eff.(Send); ok && s.Type == spec.MsgPeeringPeersQuery {
			asked = s.ID
			if s.Body != (peersQueryBody{maxPeersTold}) {
				t.Errorf("asked for %v", s.Body)
			}
		}
	}
	p := n.peers[other]
	if asked == "" || len(p.Used) != 1 || p.Used[0].spent().Of(spec.LimitReq) != 1 {
		t.Fatalf("asking cost %+v", p.Used)
	}
	answer, _ := json.Marshal(PeersBody{Descriptors: []json.RawMessage{json.RawMessage(`{}`)}})
	told := func(thread string) (n2 int) {
		for _, eff := range n.Step(now, Received{From: other, Type: spec.MsgPeeringPeers, Thread: thread, Created: now.Unix(), Body: answer}) {
			if _, ok := eff.(PeersTold); ok {
				n2++
			}
		}
		return n2
	}
	if told("elsewhere") != 0 || told(asked) != 1 || told(asked) != 0 {
		t.Error("an answer counts once, in the thread of its question")
	}
	query := Received{From: other, Type: spec.MsgPeeringPeersQuery, Thread: "q", Created: now.Unix(), Body: json.RawMessage(`{"limit":1000}`)}
	served := 0
	for range int(p.Issued[0].Limits[spec.LimitReq]) + 3 {
		for _, eff := range n.Step(now, query) {
			if s, ok := eff.(ServePeers); ok {
				served++
				if s.Limit != maxPeersTold {
					t.Errorf("served up to %d", s.Limit)
				}
			}
		}
	}
	if int64(served) != p.Issued[0].Limits[spec.LimitReq] {
		t.Errorf("%d queries were answered, the budget is %d", served, p.Issued[0].Limits[spec.LimitReq])
	}
}
