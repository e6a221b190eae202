package mesh

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// ask brings a query of a's to b as its host would, and returns what b's node wants done.
func (w *pair) ask(thread, body string) (answer *AnswerStanding, declined bool) {
	w.t.Helper()
	a, b := w.a(), w.b()
	if got := w.step(a, AskStanding{Peer: b.key, Thread: thread}); len(got) != 1 || got[0] != (Permit{}) {
		w.t.Fatalf("%+v", got)
	}
	w.step(a, Sending{Peer: b.key, Session: thread, Type: spec.MsgStandingQuery, Created: w.now.Unix(), Octets: 600})
	before := len(w.sent)
	for _, eff := range w.step(b, Received{From: a.key, Type: spec.MsgStandingQuery, ID: thread, Thread: thread, Created: w.now.Unix(), Octets: 600, Body: json.RawMessage(body)}) {
		if s, ok := eff.(AnswerStanding); ok {
			answer = &s
		}
	}
	for _, s := range w.sent[before:] {
		declined = declined || s.Type == spec.MsgStandingDecline && fmt.Sprint(s.Body) == "{}"
	}
	if answer == nil {
		w.step(a, QueryEnded{thread})
		return nil, declined
	}
	text, err := json.Marshal(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := spec.ValidateMessage(spec.MsgStandingAnswer, text); err != nil {
		w.t.Errorf("%v\n%s", err, text)
	}
	w.step(b, Sending{Peer: a.key, Session: thread, Type: spec.MsgStandingAnswer, Created: w.now.Unix(), Octets: 500})
	if got := w.step(a, Received{From: b.key, Type: spec.MsgStandingAnswer, ID: "x" + thread, Thread: thread, Created: w.now.Unix(), Octets: 500, Body: text}); len(got) != 1 {
		w.t.Errorf("the answer is not let through: %+v", got)
	}
	w.step(a, QueryEnded{thread})
	w.step(b, QueryEnded{thread})
	return answer, declined
}

func TestStandingIsAnsweredOrDeclinedInOneWay(t *testing.T) {
	third := key(9).PubKey()
	w := newPair(t, func(c *Config) { c.Standing = StandingOwn })
	w.peering()
	w.syncs = nil
	w.b().node.peers[third] = &peer{Key: third, Stage: ended, Worst: spec.S2, Stands: ledger.Standing{CleanWindows: 3}}
	q := func(subject nostr.PubKey, mode string) string {
		return fmt.Sprintf(`{"subject":"%s","mode":"%s"}`, subject, mode)
	}
	a, _ := w.ask("1", q(third, AskOwn))
	if a == nil || *a.Body.Severity != spec.S2 || *a.Body.Windows != 3 {
		t.Errorf("%+v", a)
	}
	if a, _ := w.ask("2", q(third, AskThreshold)); a == nil || *a.Body.Met {
		t.Errorf("%+v", a)
	}
	for i, body := range []string{q(key(10).PubKey(), AskOwn), q(w.a().key, AskThreshold), q(w.b().key, AskOwn),
		fmt.Sprintf(`{"subject":"%s","mode":"own","topic":"compute"}`, third)} {
		if a, declined := w.ask(fmt.Sprint("d", i), body); a != nil || !declined {
			t.Errorf("%s: answered %+v, declined %v", body, a, declined)
		}
	}
	w.b().node.cfg.Standing = StandingNone
	for i, mode := range []string{AskOwn, AskThreshold} {
		if a, declined := w.ask(fmt.Sprint("n", i), q(third, mode)); a != nil || !declined {
			t.Errorf("by policy: answered %+v, declined %v", a, declined)
		}
	}
	w.b().node.peers[w.a().key].Measured[0].Counters[spec.CounterReq] = 1 << 20
	if a, declined := w.ask("over", q(third, AskOwn)); a != nil || !declined {
		t.Errorf("without budget: answered %+v, declined %v", a, declined)
	}
	w.b().node.peers[w.a().key].Measured[0].Counters[spec.CounterReq] = 9
	if n := len(w.a().node.threads) + len(w.b().node.threads); n > 1 { // the sync of the peering
		t.Errorf("%d sessions are left", n)
	}
	w.pass(3 * time.Minute)
	if n, last := w.told("window-closed"); n != 1 || last.Severity != spec.S0 {
		t.Errorf("%d windows, %s: both ends do not count questions alike\n%+v", n, last.Severity, w.b().node.peers[w.a().key].Reported)
	}
}

func TestStandingOfAStrangerIsDeclined(t *testing.T) {
	w := newPair(t)
	w.step(w.b(), Received{From: w.a().key, Type: spec.MsgStandingQuery, ID: "q", Thread: "q", Created: w.now.Unix(), Octets: 600, Body: json.RawMessage(`{}`)})
	if len(w.sent) != 1 || w.sent[0].Type != spec.MsgStandingDecline {
		t.Errorf("%+v", w.sent)
	}
}

// hears lets a node read a report of a peer's that it granted the tier, with a year behind it.
func (e *end) hears(reporter, subject nostr.PubKey, tier spec.Tier, sev spec.Severity, at int64, support ledger.Support) {
	if e.node.peers[reporter] == nil {
		e.node.peers[reporter] = &peer{Key: reporter, Stage: active, Issued: grants{{ID: nostr.ID{1}, Window: 60}}, Stands: ledger.Standing{Tier: tier, Limits: ledger.Seeded(tier), CleanWindows: 200}}
	}
	e.node.Step(time.Unix(at, 0), ReportJudged{Report: &ledger.Report{ID: nostr.ID{byte(at)}, Reporter: reporter, Subject: subject, Outcome: sev, Topic: spec.TopicTransit, At: at, Expiration: at + 86400},
		Judgement: ledger.Judgement{Support: support}})
}

func TestReportsLowerWhatAStrangerStartsWith(t *testing.T) {
	one, two := key(21).PubKey(), key(22).PubKey()
	for _, c := range []struct {
		name string
		tell func(w *pair, b *end)
		code spec.Code // that the proposal is declined with
		low  bool
	}{
		{"nobody speaks", func(*pair, *end) {}, "", false},
		{"an anchor's S3", func(w *pair, b *end) {
			b.hears(one, w.a().key, spec.TierAnchor, spec.S3, w.now.Unix(), ledger.Supported)
		}, spec.CodePolicy, false},
		{"an anchor's S1", func(w *pair, b *end) {
			b.hears(one, w.a().key, spec.TierAnchor, spec.S1, w.now.Unix(), ledger.Supported)
		}, "", true},
		{"one that is refuted", func(w *pair, b *end) {
			b.hears(one, w.a().key, spec.TierAnchor, spec.S3, w.now.Unix(), ledger.Refuted)
		}, "", false},
		{"a trusted one alone", func(w *pair, b *end) {
			b.hears(one, w.a().key, spec.TierTrusted, spec.S3, w.now.Unix(), ledger.Supported)
		}, "", false},
		{"two trusted ones, once about somebody else", func(w *pair, b *end) {
			b.hears(one, w.a().key, spec.TierTrusted, spec.S3, w.now.Unix(), ledger.Supported)
			b.hears(two, one, spec.TierTrusted, spec.S3, w.now.Unix(), ledger.Supported)
		}, "", false},
		{"two trusted ones", func(w *pair, b *end) {
			b.hears(one, w.a().key, spec.TierTrusted, spec.S3, w.now.Unix(), ledger.Supported)
			b.hears(two, w.a().key, spec.TierTrusted, spec.S4, w.now.Unix(), ledger.Supported)
		}, spec.CodePolicy, false},
		{"one that takes it back by a milder one", func(w *pair, b *end) {
			b.hears(one, w.a().key, spec.TierAnchor, spec.S3, w.now.Unix()-10, ledger.Supported)
			b.hears(one, w.a().key, spec.TierAnchor, spec.S1, w.now.Unix(), ledger.Supported)
			b.hears(one, w.a().key, spec.TierAnchor, spec.S4, w.now.Unix()-5, ledger.Supported) // older: no news
		}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newPair(t)
			c.tell(w, w.b())
			if c.low { // a stranger begins below what a milder finding leaves
				w.step(w.b(), AddPeer{Peer: w.a().key, Tier: spec.TierMember})
			}
			w.step(w.a(), AddPeer{Peer: w.b().key})
			w.step(w.a(), Described{Descriptor: descriptor(w.b())})
			_, last := w.told("peering-declined")
			if last.Code != c.code {
				t.Fatalf("declined with %q, want %q", last.Code, c.code)
			}
			if got := w.b().node.peers[w.a().key]; c.low && got.Issued.current().Limits[spec.LimitEventsIn] != ledger.Seeded(spec.TierMember)[spec.LimitEventsIn]/2 {
				t.Errorf("starts with %v", got.Issued.current().Limits)
			}
		})
	}
}

func TestFalseReportsCostAVoice(t *testing.T) {
	w := newPair(t)
	liar, victim := key(21).PubKey(), key(30).PubKey()
	b := w.b()
	b.hears(liar, victim, spec.TierAnchor, spec.S2, w.now.Unix(), ledger.Supported)
	turn := &turn{Node: b.node, now: w.now.Unix()}
	if got := turn.view(victim); got != spec.S2 {
		t.Fatalf("view %s", got)
	}
	b.hears(liar, key(31).PubKey(), spec.TierAnchor, spec.S2, w.now.Unix(), ledger.Unsupported)
	if got := turn.view(victim); got != spec.S0 {
		t.Errorf("view %s after one false report in two", got)
	}
	b.node.Step(w.now, ReportJudged{Report: &ledger.Report{Reporter: key(40).PubKey(), Subject: victim, Outcome: spec.S4, At: w.now.Unix(), Expiration: w.now.Unix() + 9}})
	if len(b.node.voices) != 1 {
		t.Error("a stranger's report is remembered")
	}
	records := map[string]json.RawMessage{}
	for _, eff := range b.node.Step(w.now, ReportJudged{Report: &ledger.Report{Reporter: liar, Subject: key(32).PubKey(), Outcome: spec.S4, At: w.now.Unix(), Expiration: w.now.Unix() + 9}}) {
		if p, ok := eff.(Persist); ok {
			records[p.Key] = p.Record
		}
	}
	again := New(b.cfg)
	if err := again.Restore(records); err != nil || len(again.Findings()) != 3 {
		t.Errorf("%v, %+v", err, again.Findings())
	}
}

func TestAnOperatorAmends(t *testing.T) {
	w := newPair(t)
	w.peering()
	b, a := w.b(), w.a().key
	w.step(b, Amend{Peer: a, Limits: ledger.Limits{spec.LimitEventsIn: 50}})
	if _, last := w.told("amended"); last.Detail == "" {
		t.Fatalf("%+v", w.tells)
	}
	for range 5 {
		w.talk(20)
		w.pass(5 * time.Minute)
	}
	if got := b.node.peers[a].Issued.current().Limits[spec.LimitEventsIn]; got != 50 {
		t.Errorf("the operator's limit became %d", got)
	}
	w.step(b, Amend{Peer: a, Tier: spec.TierTrusted, Free: []spec.Limit{spec.LimitEventsIn}})
	g := b.node.peers[a].Issued.current()
	if g.Tier != spec.TierTrusted || g.Limits[spec.LimitEventsIn] != spec.C().Ceiling(spec.LimitEventsIn, spec.TierTrusted) {
		t.Errorf("%s %v", g.Tier, g.Limits)
	}
	causes := 0
	for _, s := range w.sent {
		if body, ok := s.Body.(amendBody); ok && body.Cause == spec.CauseOperator {
			causes++
		}
	}
	if causes != 2 {
		t.Errorf("%d amends of the operator's were told", causes)
	}
}

func TestCapacityShedsAndReleases(t *testing.T) {
	w := newPair(t, func(c *Config) { c.Capacity = strain.Counts{spec.CounterEventsIn: 100} })
	w.peering()
	w.syncs = nil
	b, a := w.b(), w.a().key
	use := func(n int64) {
		g, win := b.node.peers[a].Issued.at(w.now.Unix(), w.now.Unix())
		turn := &turn{Node: b.node, now: w.now.Unix()}
		bk, _ := open(&b.node.peers[a].Measured, g, win)
		turn.meter(bk, ledger.Counters{spec.CounterEventsIn: n})
		for _, eff := range turn.effects {
			switch eff := eff.(type) {
			case Persist:
				b.journal[eff.Key] = eff.Record
			case Tell:
				w.tells = append(w.tells, eff)
			case IssueGrant:
				sealed, err := ledger.Seal(b.agent, eff.Grant, zero{})
				if err != nil {
					t.Fatal(err)
				}
				b.grants[sealed.ID] = eff.Grant
				w.step(b, GrantIssued{Subject: a, Grant: eff.Grant, Event: sealed})
			}
		}
	}
	use(76)
	if got := b.node.Capacity().Rungs; len(got) != 1 || got[0] != strain.RefusePeerings {
		t.Fatalf("%v", got)
	}
	w.step(b, Described{Descriptor: &identity.Descriptor{Subject: key(9).PubKey(), Class: spec.ClassEdge, Protocols: protocols(), Digest: spec.DigestHex()}})
	before := len(w.sent)
	w.nodes[key(9).PubKey()] = &end{key: key(9).PubKey(), node: New(b.cfg), journal: map[string]json.RawMessage{}}
	w.step(b, Received{From: key(9).PubKey(), Anonymous: true, Type: spec.MsgPeeringPropose, ID: "p", Thread: "p", Created: w.now.Unix(), Body: json.RawMessage(fmt.Sprintf(`{"class":"edge","protocol":["x","y"],"protocols":["%s","%s"],"want":[],"offer":[],"transports":[]}`, spec.PIURIPeering, spec.PIURIBudget))})
	if d, ok := w.sent[before].Body.(declineBody); !ok || d.Code != spec.CodeCapacityExceeded {
		t.Errorf("%+v", w.sent[before])
	}
	delete(w.nodes, key(9).PubKey())
	held := b.node.peers[a].Issued.current().Limits[spec.LimitEventsIn]
	use(20)
	if got := b.node.peers[a].Issued.current().Limits[spec.LimitEventsIn]; got >= held {
		t.Errorf("amend_down left %d of %d", got, held)
	}
	if got := b.node.peers[a].Stands.Limits[spec.LimitEventsIn]; got != held {
		t.Errorf("a shed moved the standing from %d to %d", held, got)
	}
	use(5)
	if len(b.node.Capacity().Rungs) != 4 {
		t.Errorf("%v", b.node.Capacity().Rungs)
	}
	w.restart(b)
	if len(b.node.Capacity().Rungs) != 4 {
		t.Errorf("after a restart %v", b.node.Capacity().Rungs)
	}
	w.pass(4 * time.Minute)
	if got := b.node.Capacity().Rungs; len(got) != 0 {
		t.Errorf("two windows later %v", got)
	}
	if got := b.node.peers[a].Issued.current().Limits[spec.LimitEventsIn]; got < held {
		t.Errorf("%d of %d given back", got, held)
	}
	if p := w.a().node.Peers(w.now)[0]; p.Worst != "S0" {
		t.Errorf("the other end took it for a finding: %s", p.Worst)
	}
}

type zero struct{}

func (zero) Read(b []byte) (int, error) { return len(b), nil }

func TestStressIsKept(t *testing.T) {
	w := newPair(t)
	w.peering()
	for range 12 {
		w.step(w.b(), Stressed{Side: strain.Peer, Name: "a", Peer: w.a().key})
	}
	w.restart(w.b())
	if on, ok := w.b().node.Stress().Dependence(); !ok || on.Name != "a" {
		t.Errorf("%v %v", on, ok)
	}
}
