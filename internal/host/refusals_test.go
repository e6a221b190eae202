package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/blossom"
	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// reach is how one code of the closed list comes about: a message or a frame, and what it is answered with.
type reach struct {
	code spec.Code
	by   func(t *testing.T) string // the code that was answered; of a relay's frames the prefix and a colon, of HTTP the status
	note string                    // instead of by: where docs/spec-notes.md says why nothing answers with it yet
}

var reaches = []reach{
	// peering/1.0: a proposal of a stranger's is declined.
	{code: spec.CodeUnsupportedProtocol, by: proposal(nil, func(d *identity.Descriptor) { d.Protocols = d.Protocols[:1] }, "")},
	{code: spec.CodeCapacityExceeded, by: crowded},
	{code: spec.CodePolicy, by: denounced},
	{code: spec.CodePoWRequired, by: proposal(func(c *mesh.Config) { c.Enrolment, c.PoWBits = mesh.EnrolPoW, 21 }, nil, "")},
	{code: spec.CodeInvitationRequired, by: proposal(func(c *mesh.Config) { c.Enrolment = mesh.EnrolClosed }, nil, "")},
	{code: spec.CodeRevoked, by: revokedKey},
	{code: spec.CodeMalformed, by: proposal(nil, nil, `{"want":7}`)},
	// sync/1.0: a session, or a delivered event, is refused.
	{code: spec.CodeNotGranted, by: delivered(1, func(e *ledger.Envelope) { e.Grant[0] ^= 1 }, nil)},
	{code: spec.CodeOutOfScope, by: delivered(7, nil, nil)},
	{code: spec.CodeExpired, by: delivered(1, nil, nil, "expiration", "1")},
	{code: spec.CodeNever, by: delivered(4, nil, nil)},
	{code: spec.CodeInvalid, by: delivered(1, func(e *ledger.Envelope) { e.Path[0].Sig[0] ^= 1 }, nil)},
	{code: spec.CodeHopLimit, by: delivered(1, func(e *ledger.Envelope) {
		for len(e.Path) < 5 {
			e.Path = append(e.Path, e.Path[0])
		}
	}, nil)},
	{code: spec.CodeDeleted, by: delivered(1, nil, func([]*nostr.Event) store.Outcome { return store.Deleted })},
	{code: spec.CodeBlocked, by: delivered(1, nil, func([]*nostr.Event) store.Outcome { return store.Refused })},
	{code: spec.CodeNoEnvelope, by: emptyDeliver},
	{code: spec.CodeTooMany, by: secondSession},
	{code: spec.CodeOverBudget, by: overBudget},
	// The relay face: a prefix.
	{code: spec.CodeDuplicate, by: frame(nil, func(c *relaytest.Client, e *nostr.Event) string { c.Publish(e); return c.Publish(e).Reason })},
	{code: spec.CodeRateLimited, by: frame(func(c *relay.Config) {
		c.Limits.EventsPerSecond, c.Limits.EventsBurst = 1, 1
		c.Clock = func() time.Time { return time.Unix(relaytest.T0, 0) }
	}, func(c *relaytest.Client, e *nostr.Event) string { c.Publish(e); return c.Publish(e).Reason })},
	{code: spec.CodeAuthRequired, by: frame(nil, func(c *relaytest.Client, _ *nostr.Event) string { return c.Req("s", `{"kinds":[1059]}`).Closed })},
	{code: spec.CodeRestricted, by: frame(nil, func(c *relaytest.Client, _ *nostr.Event) string {
		e := relaytest.Event(relaytest.A, relaytest.T0, 1, []nostr.Tag{{"-"}}, "mine")
		c.Publish(e)
		c.Auth(relaytest.C, relaytest.URL)
		return c.Publish(e).Reason
	})},
	{code: spec.CodePoW, by: frame(func(c *relay.Config) { c.Policy = policy.MinPoW{Bits: 250} }, publish)},
	{code: spec.CodeMute, by: frame(func(c *relay.Config) { c.Policy = says("mute") }, publish)},
	{code: spec.CodeUnsupported, by: frame(func(c *relay.Config) { c.Policy = says("unsupported") }, publish)},
	{code: spec.CodeError, by: frame(func(c *relay.Config) { c.Store = brokenStore{c.Store} }, publish)},
	// HTTP: a status.
	{code: spec.CodeNotFound, by: blob(nil, http.MethodGet, 0)},
	{code: spec.CodeTooLarge, by: blob(func(c *blossom.Config) { c.MaxBlob = 1000 }, http.MethodPut, 1001)},
	{code: spec.CodePaymentRequired, by: blob(func(c *blossom.Config) {
		c.Admit = func(context.Context, *blossom.Request) *blossom.Refusal {
			return &blossom.Refusal{Code: spec.CodePaymentRequired, Payment: http.Header{"X-Lightning": {"lnbc1"}}}
		}
	}, http.MethodPut, 10)},
	// What is asked of another node.
	{code: spec.CodeUnreachable, by: pinged(false)},
	{code: spec.CodeTimeout, by: pinged(true)},

	{code: spec.CodePrice, note: "`PRICE`"},
}

// TestEveryRefusalIsReached wants each code of the closed list answered to a real message or frame, and its row to say one thing on every surface.
func TestEveryRefusalIsReached(t *testing.T) {
	prefixes := []string{"duplicate", "pow", "blocked", "rate-limited", "invalid", "restricted", "mute", "error", "unsupported", "auth-required"} // NIP-01, NIP-42
	notes, err := os.ReadFile("../../docs/spec-notes.md")
	if err != nil {
		t.Fatal(err)
	}
	problems := map[string]bool{}
	for _, row := range spec.Refusals() {
		if !slices.Contains(prefixes, row.Prefix) || row.HTTP < 400 || row.HTTP > 599 || row.Exit < 0 || row.Exit > 8 || row.Meaning == "" || problems[row.Problem] {
			t.Errorf("%s: %+v", row.Code, row)
		}
		problems[row.Problem] = true
		if back, ok := spec.CodeOfProblem(row.Problem); !ok || back != row.Code {
			t.Errorf("%s: its problem report stands for %q", row.Code, back)
		}
		at := slices.IndexFunc(reaches, func(r reach) bool { return r.code == row.Code })
		if at < 0 {
			t.Errorf("%s: no test reaches it", row.Code)
			continue
		}
		r := &reaches[at]
		if r.by == nil {
			if !strings.Contains(string(notes), r.note) {
				t.Errorf("%s: docs/spec-notes.md does not say why nothing answers with it", row.Code)
			}
			continue
		}
		t.Run(string(row.Code), func(t *testing.T) {
			switch got := r.by(t); {
			case got == string(row.Code), got == fmt.Sprint(row.HTTP), strings.HasPrefix(got, row.Prefix+": "):
			default:
				t.Errorf("answered with %q", got)
			}
		})
	}
	if len(reaches) != len(spec.Refusals()) {
		t.Errorf("%d ways for %d codes", len(reaches), len(spec.Refusals()))
	}
}

// stranger is who knocks at a mesh node that stands alone.
var stranger = nostr.SecretKey{31: 90}.PubKey()

func alone(change func(*mesh.Config)) *mesh.Node {
	all := []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync, spec.PIURIComplaint, spec.PIURIStanding}
	c := mesh.Config{Self: nostr.SecretKey{31: 91}.PubKey(), Class: spec.ClassEdge, Digest: spec.DigestHex(), Protocols: all, Enrolment: mesh.EnrolOpen, Window: 60, Serve: []json.RawMessage{json.RawMessage(`{}`)}}
	if change != nil {
		change(&c)
	}
	return mesh.New(c)
}

// knock proposes and returns the code of the decline.
func knock(t *testing.T, n *mesh.Node, describe func(*identity.Descriptor), body string) string {
	t.Helper()
	now := time.Unix(1_800_000_000, 0)
	d := &identity.Descriptor{Subject: stranger, Class: spec.ClassEdge, Protocols: []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync, spec.PIURIComplaint, spec.PIURIStanding}, Digest: spec.DigestHex(), Work: 20, Committed: 20}
	if describe != nil {
		describe(d)
	}
	n.Step(now, mesh.Described{Descriptor: d})
	if body == "" {
		text, err := json.Marshal(map[string]any{"class": "edge", "protocol": []string{spec.C().Protocol.Name, spec.DigestHex()}, "protocols": d.Protocols, "want": []any{}, "offer": []any{}, "transports": []any{}})
		if err != nil {
			t.Fatal(err)
		}
		body = string(text)
	}
	for _, eff := range n.Step(now, mesh.Received{From: stranger, Anonymous: true, Type: spec.MsgPeeringPropose, ID: "p", Thread: "p", Created: now.Unix(), Body: json.RawMessage(body)}) {
		if s, ok := eff.(mesh.Send); ok && s.Type == spec.MsgPeeringDecline {
			text, err := json.Marshal(s.Body)
			var answer struct{ Code string }
			if err != nil || json.Unmarshal(text, &answer) != nil || spec.ValidateMessage(s.Type, text) != nil {
				t.Fatalf("a decline %s", text)
			}
			return answer.Code
		}
	}
	return "no decline"
}

func proposal(change func(*mesh.Config), describe func(*identity.Descriptor), body string) func(*testing.T) string {
	return func(t *testing.T) string { return knock(t, alone(change), describe, body) }
}

func revokedKey(t *testing.T) string {
	n := alone(nil)
	n.Step(time.Unix(1_800_000_000, 0), mesh.AddPeer{Peer: stranger})
	n.Step(time.Unix(1_800_000_000, 0), mesh.Revoked{Peer: stranger, Reason: "key-compromise"})
	return knock(t, n, nil, "")
}

// crowded takes nodes near what their operators declared: one request in a window.
func crowded(t *testing.T) (code string) {
	synctest.Test(t, func(t *testing.T) {
		rigs := partners(t, func(i int, c *Config) {
			c.Mesh.Capacity = strain.Counts{spec.CounterReq: 1}
			c.Mesh.Enrolment = mesh.EnrolOpen
		})
		defer stopAll(rigs)
		for _, r := range rigs { // whichever was asked
			r.host.mu.Lock()
			if got := knock(t, r.host.node, nil, ""); got != "no decline" {
				code = got
			}
			r.host.mu.Unlock()
		}
	})
	return code
}

// denounced is a stranger of whom a peer that has stood well for a year reported, with evidence that holds.
func denounced(t *testing.T) (code string) {
	synctest.Test(t, func(t *testing.T) {
		a, b := peered(t)
		defer a.stop()
		defer b.stop()
		b.host.mu.Lock()
		defer b.host.mu.Unlock()
		records := b.host.journal.Records()
		key := "peer/" + a.pub.String()
		var record map[string]json.RawMessage
		if err := json.Unmarshal(records[key], &record); err != nil {
			t.Fatal(err)
		}
		stands, err := json.Marshal(ledger.Standing{Tier: spec.TierAnchor, Limits: ledger.Seeded(spec.TierAnchor), CleanWindows: 9000})
		if err != nil {
			t.Fatal(err)
		}
		record["Stands"] = stands
		if records[key], err = json.Marshal(record); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(records, func(k string, _ json.RawMessage) bool { return k != key })
		n := alone(nil)
		if err := n.Restore(records); err != nil {
			t.Fatal(err)
		}
		now := int64(1_800_000_000)
		n.Step(time.Unix(now, 0), mesh.ReportJudged{Report: &ledger.Report{ID: nostr.ID{1}, Reporter: a.pub, Subject: stranger, Outcome: spec.S3, Topic: spec.TopicTransit, At: now, Expiration: now + 86400},
			Judgement: ledger.Judgement{Support: ledger.Supported}})
		code = knock(t, n, nil, "")
	})
	return code
}

// partners are two rigs that sync kinds 1 and 4 both ways.
func partners(t *testing.T, change func(int, *Config)) []*rig {
	t.Helper()
	rigs := fleet(t, transport.NewMemory("memory"), 2, change)
	want := []mesh.Want{{Shard: "all", Filter: json.RawMessage(`{"kinds":[1,4]}`), Mode: mesh.ModeBoth}}
	for i := range rigs {
		if err := rigs[i].host.AddPeer(t.Context(), rigs[1-i].pub, spec.TierMember, want, nil); err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(30 * time.Second)
	synctest.Wait()
	return rigs
}

// inSession runs act with two rigs in a live session and returns the code with which the second refused an event of the first's, or the session.
func inSession(act func(t *testing.T, rigs []*rig) *nostr.Event, change func(int, *Config)) func(*testing.T) string {
	return func(t *testing.T) (code string) {
		synctest.Test(t, func(t *testing.T) {
			got := &fates{code: map[string]spec.Code{}}
			rigs := partners(t, func(i int, c *Config) {
				if i == 0 {
					c.observe = got.see
				}
				if change != nil {
					change(i, c)
				}
			})
			defer stopAll(rigs)
			if e := act(t, rigs); e != nil {
				code = string(got.of(e))
			} else if len(got.end) > 0 {
				code = string(got.end[0])
			}
		})
		return code
	}
}

func delivered(kind nostr.Kind, bend func(*ledger.Envelope), fate func([]*nostr.Event) store.Outcome, tag ...string) func(*testing.T) string {
	return inSession(func(t *testing.T, rigs []*rig) *nostr.Event {
		var tags []nostr.Tag
		if len(tag) > 0 {
			tags = append(tags, nostr.Tag(tag))
		}
		e := note(t, kind, "delivered", tags...)
		rigs[0].forge(t, e, bend)
		return e
	}, func(i int, c *Config) {
		if i == 1 && fate != nil {
			c.Take = func(_ context.Context, list []*nostr.Event) ([]store.Outcome, error) {
				out := make([]store.Outcome, len(list))
				for k := range out {
					out[k] = fate(list)
				}
				return out, nil
			}
		}
	})
}

func emptyDeliver(t *testing.T) string {
	return inSession(func(t *testing.T, rigs []*rig) *nostr.Event {
		if err := rigs[0].liveSession().send(spec.MsgSyncDeliver, mesh.DeliverBody{Count: 1}, time.Now().Unix(), nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Second)
		return nil
	}, nil)(t)
}

// secondSession opens two at once.
func secondSession(t *testing.T) (code string) {
	synctest.Test(t, func(t *testing.T) {
		rigs := partners(t, nil)
		defer stopAll(rigs)
		h := rigs[1].host
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, thread := range []string{"one", "two"} {
			now := time.Now()
			for _, eff := range h.node.Step(now, mesh.Received{From: rigs[0].pub, Type: spec.MsgSyncOpen, ID: thread, Thread: thread, Created: now.Unix(), Octets: 900, Body: json.RawMessage(`{"shard":"all","filter":{"kinds":[1]},"mode":"pull","neg":"61"}`)}) {
				if s, ok := eff.(mesh.Send); ok && s.Type == spec.MsgSyncRefuse {
					code = string(s.Body.(mesh.RefuseBody).Code)
				}
			}
		}
	})
	return code
}

// overBudget asks for a blob at a tier that has no octets for blobs.
func overBudget(t *testing.T) (code string) {
	synctest.Test(t, func(t *testing.T) {
		a, b := peered(t)
		defer a.stop()
		defer b.stop()
		for _, eff := range b.host.step(mesh.BlobAsked{Peer: a.pub, Created: time.Now().Unix(), Octets: 1 << 40}) {
			if no, ok := eff.(mesh.Withhold); ok {
				code = string(no.Code)
			}
		}
	})
	return code
}

func pinged(silent bool) func(*testing.T) string {
	return func(t *testing.T) (code string) {
		synctest.Test(t, func(t *testing.T) {
			rigs := partners(t, func(i int, c *Config) {
				if i == 1 && silent {
					c.observe = func(a *arrival) {
						if a.m.Type == didcomm.TypePing {
							<-time.After(2 * time.Minute) // it takes everything, and answers nothing
						}
					}
				}
			})
			defer rigs[0].stop()
			if silent {
				defer rigs[1].stop()
			} else {
				rigs[1].door.Close()
				rigs[1].stop()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := rigs[0].host.Ping(ctx, rigs[1].pub)
			if err == nil {
				t.Fatal("it answers")
			}
			code = string(CodeOf(err))
			if silent {
				<-time.After(3 * time.Minute)
			}
		})
		return code
	}
}

// says is a policy that refuses everything with a prefix, as a plugin may.
type says string

func (s says) Admit(context.Context, *policy.Request) *policy.Rejection {
	return policy.Reject(policy.Prefix(s), "a plugin says so")
}

// brokenStore fails to take events.
type brokenStore struct{ store.Store }

func (brokenStore) Insert(context.Context, []*nostr.Event, int64) ([]store.Outcome, error) {
	return nil, errors.New("the disk is gone")
}

func publish(c *relaytest.Client, e *nostr.Event) string { return c.Publish(e).Reason }

func frame(change func(*relay.Config), act func(*relaytest.Client, *nostr.Event) string) func(*testing.T) string {
	return func(t *testing.T) string {
		var options []relaytest.Option
		if change != nil {
			options = append(options, change)
		}
		return act(relaytest.Start(t, store.NewMemory(), options...).Dial(t), relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "hello"))
	}
}

func blob(change func(*blossom.Config), method string, size int) func(*testing.T) string {
	return func(t *testing.T) string {
		c := blossom.Config{Store: blossom.NewMemory(0)}
		if change != nil {
			change(&c)
		}
		s, err := blossom.New(c)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(s)
		defer srv.Close()
		path := "/" + strings.Repeat("ab", 32)
		if method == http.MethodPut {
			path = "/upload"
		}
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().Unix()
		token := relaytest.Event(relaytest.A, now, 24242, []nostr.Tag{{"t", "upload"}, {"expiration", fmt.Sprint(now + 60)}, {"x", fmt.Sprintf("%x", sha256.Sum256(bytes.Repeat([]byte("x"), size)))}}, "upload")
		if method == http.MethodPut {
			req.Header.Set("Authorization", "Nostr "+base64.URLEncoding.EncodeToString(token.JSON()))
		}
		req.Header.Set("X-SHA-256", token.Tags[2][1])
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return fmt.Sprint(resp.StatusCode)
	}
}
