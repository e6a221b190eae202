package ledger

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func chains(g *Grant) (issuer, subject *Chain) {
	w := g.WindowAt(t0)
	return NewChain(g.ID, w, g.Subject), NewChain(g.ID, w, g.Subject)
}

func TestChainFromBothEnds(t *testing.T) {
	g, _ := grantTo("issuer", "subject", spec.TierMember)
	issuer, subject := chains(g)
	for i := range int64(5) {
		r := must(subject.Next(agent("subject"), events(i*10), []nostr.PubKey{agent("origin").PubKey(), agent("origin").PubKey()}, t0+i))
		if err := subject.Add(r, t0+i); err != nil {
			t.Fatal(err)
		}
		got := must(ParseReceipt(r.JSON()))
		if got.Link() != r.Link() {
			t.Fatal("a receipt changed on its way")
		}
		if err := issuer.Add(got, t0+i); err != nil {
			t.Fatal(err)
		}
		codeIs(t, issuer.Add(got, t0+i), ReceiptStale)
		if issuer.Head() != subject.Head() || got.Seq != i || len(got.ForwardedFor) != 1 {
			t.Fatal(got)
		}
	}
	if c, ok := issuer.Claim(); !ok || c[spec.CounterEventsIn] != 40 {
		t.Fatal(c)
	}
	resumed := ResumeChain(subject.Window, g.Subject, subject.Last())
	r := must(resumed.Next(agent("subject"), events(50), nil, t0+9))
	if err := issuer.Add(r, t0+9); err != nil {
		t.Fatal("after a restart:", err)
	}
}

func TestChainFaults(t *testing.T) {
	g, _ := grantTo("issuer", "subject", spec.TierMember)
	base, _ := chains(g)
	sign := func(r Receipt, who string) *Receipt {
		sig, err := agent(who).Sign(r.Link())
		if err != nil {
			t.Fatal(err)
		}
		r.Sig = sig
		return &r
	}
	first := must(base.Next(agent("subject"), events(10), nil, t0))
	for _, c := range []struct {
		name string
		code Code
		make func() *Receipt
	}{
		{"another signs", ReceiptSig, func() *Receipt { r := *first; r.Seq, r.Prev = 1, first.Link(); return sign(r, "stranger") }},
		{"another grant", ReceiptGrant, func() *Receipt { r := *first; r.Grant[0] ^= 1; return sign(r, "subject") }},
		{"another window", ReceiptWindow, func() *Receipt { r := *first; r.Window++; return sign(r, "subject") }},
		{"a gap", ReceiptGap, func() *Receipt { r := *first; r.Seq = 2; return sign(r, "subject") }},
		{"the future", ReceiptFuture, func() *Receipt { r := *first; r.Seq, r.Prev, r.At = 1, first.Link(), t0+62; return sign(r, "subject") }},
		{"a fork at the head", ReceiptFork, func() *Receipt { r := *first; r.Counters = events(9).Clone(); return sign(r, "subject") }},
		{"a fork behind it", ReceiptFork, func() *Receipt { r := *first; r.Seq = 1; return sign(r, "subject") }},
		{"a counter down", ReceiptRegress, func() *Receipt {
			r := *first
			r.Seq, r.Prev, r.Counters = 1, first.Link(), events(9).Clone()
			return sign(r, "subject")
		}},
	} {
		issuer, _ := chains(g)
		if err := issuer.Add(first, t0); err != nil {
			t.Fatal(err)
		}
		codeIs(t, issuer.Add(c.make(), t0+1), c.code)
		if issuer.Head() != first.Link() {
			t.Fatal(c.name, "moved the head")
		}
	}
	_, err := ResumeChain(base.Window, g.Subject, first).Next(agent("subject"), events(9), nil, t0)
	codeIs(t, err, ReceiptRegress)
}

func TestAcknowledge(t *testing.T) {
	g, _ := grantTo("issuer", "subject", spec.TierMember)
	issuer, subject := chains(g)
	r := must(subject.Next(agent("subject"), events(500), nil, t0))
	if err := issuer.Add(r, t0); err != nil {
		t.Fatal(err)
	}
	end := issuer.Window.End()
	for _, c := range []struct {
		measured int64
		closing  bool
		now      int64
		want     AckStatus
	}{{500, false, t0, Accepted}, {500, true, t0, Final}, {500, true, end + 359, Final}, {500, true, end + 360, Accepted}, {700, true, t0, Divergent}, {555, false, t0, Accepted}, {556, false, t0, Divergent}} {
		if got := issuer.Acknowledge(g.Limits, events(c.measured), c.closing, c.now); got.Status != c.want || got.Head != r.Link() {
			t.Errorf("%+v: %s", c, got.Status)
		}
	}
}

func TestReceiptCadence(t *testing.T) {
	g, _ := grantTo("issuer", "subject", spec.TierMember)
	c, _ := chains(g)
	start := c.Window.Start()
	for _, k := range []struct {
		used Counters
		at   int64
		due  bool
	}{{Counters{}, start + 3000, false}, {events(1), start + 599, false}, {events(1), start + 600, true}, {Counters{spec.CounterBytesIn: 1 << 20}, start + 1, true}, {Counters{spec.CounterBytesIn: 1<<20 - 1}, start + 1, false}} {
		if got := g.ReceiptDue(c, k.used, k.at); got != k.due {
			t.Errorf("%+v: %v", k, got)
		}
	}
}

func delivered(g *Grant, e *nostr.Event, hops ...string) *Envelope {
	env := &Envelope{Event: e, Grant: g.ID, Window: g.WindowAt(t0).Epoch}
	for i, h := range hops {
		if err := env.SignHop(agent(h), t0+int64(i)); err != nil {
			panic(err)
		}
	}
	return env
}

func TestEnvelope(t *testing.T) {
	g, _ := grantTo("issuer", "subject", spec.TierMember)
	bristol := note("author", 1, nostr.Tag{"t", "bristol"})
	d := Delivery{Self: agent("issuer").PubKey(), Peer: g.Subject, Grant: g, Way: Push, Window: g.WindowAt(t0), Now: t0 + 5}
	env := delivered(g, bristol, "origin", "relayer", "subject")
	got, err := ParseEnvelope(env.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Check(d); err != nil {
		t.Fatal(err)
	}
	if err := VerifyEnvelope(got); err != nil {
		t.Fatal(err)
	}
	if got.Origin() != agent("origin").PubKey() || got.Deliverer() != g.Subject || len(got.Triples()) != 3 {
		t.Fatal(got)
	}
	codeIs(t, env.SignHop(agent("fourth"), t0), HopLimit)
	for _, c := range []struct {
		name string
		code Code
		make func() *Envelope
	}{
		{"last hop is another's", LastHop, func() *Envelope { return delivered(g, bristol, "subject", "relayer") }},
		{"through the receiver", HopLoop, func() *Envelope { return delivered(g, bristol, "issuer", "subject") }},
		{"out of scope", OutOfScope, func() *Envelope { return delivered(g, note("author", 1), "subject") }},
		{"never", NeverCrosses, func() *Envelope { return delivered(g, note("author", 4, nostr.Tag{"t", "bristol"}), "subject") }},
		{"expired", ExpiredEvent, func() *Envelope {
			return delivered(g, note("author", 1, nostr.Tag{"t", "bristol"}, nostr.Tag{"expiration", "1787000124"}), "subject")
		}},
		{"protected", ProtectedHere, func() *Envelope {
			return delivered(g, note("author", 1, nostr.Tag{"t", "bristol"}, nostr.Tag{"-"}), "subject")
		}},
		{"grant", WrongGrant, func() *Envelope { e := delivered(g, bristol, "subject"); e.Grant[0] ^= 1; return e }},
		{"window", WrongWindow, func() *Envelope { e := delivered(g, bristol, "subject"); e.Window++; return e }},
		{"future", HopFuture, func() *Envelope { e := delivered(g, bristol, "subject"); e.Path[0].At = t0 + 66; return e }},
		{"order", HopOrder, func() *Envelope { e := delivered(g, bristol, "origin", "subject"); e.Path[1].At = t0 - 61; return e }},
		{"empty", EmptyPath, func() *Envelope { return &Envelope{Event: bristol, Grant: g.ID} }},
	} {
		t.Run(c.name, func(t *testing.T) { codeIs(t, c.make().Check(d), c.code) })
	}
	moved := delivered(g, bristol, "origin", "subject")
	moved.Path[0].At-- // lifting a hop onto another moment breaks it
	codeIs(t, VerifyEnvelope(moved), HopSignature)
}

func TestVerifyEnvelopesInAGroup(t *testing.T) {
	g := &Grant{ID: seed("grant"), Window: 3600}
	var group []*Envelope
	for i := range 70 { // more than a verifier takes at once
		group = append(group, delivered(g, note("author", 1, nostr.Tag{"t", string(rune('a' + i))}), "origin", "subject"))
	}
	group[3].Path[1].Sig[7] ^= 1
	forged := *group[66].Event
	forged.Sig[0] ^= 1
	group[66].Event = &forged
	for i, err := range VerifyEnvelopes(nostr.NewVerifier(), group) {
		switch i {
		case 3:
			codeIs(t, err, HopSignature)
		case 66:
			codeIs(t, err, EventSig)
		default:
			codeIs(t, err, "")
		}
	}
	if len(VerifyEnvelopes(nostr.NewVerifier(), nil)) != 0 {
		t.Fatal("errors about nothing")
	}
}

// reportOn is a report that its reporter can prove.
func reportOn(t *testing.T, measured, claimed Counters) (*Report, *Grant, *Receipt) {
	g, e := grantTo("issuer", "subject", spec.TierMember)
	_, subject := chains(g)
	rc := must(subject.Next(agent("subject"), claimed, nil, t0))
	v := Evaluate(g.Limits, measured, claimed)
	r := ReportOn(g, v.Severity, v, g.WindowAt(t0), t0+9000)
	r.Evidence = append(r.Evidence, must(NewArtefact(EvidenceReceipt, rc.JSON())), must(GrantArtefact(e, g)))
	r.Thread, r.NoticedAt, r.Note = "thread", t0+4000, "Divergence."
	return r, g, rc
}

func published(t testing.TB, r *Report) *Report {
	e, err := r.Event()
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.SignEvent(agent("issuer"), e); err != nil {
		t.Fatal(err)
	}
	got, err := ParseReport(must(nostr.ParseEvent(e.JSON())))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

var soon = Known{Now: t0 + 9001}

func wantJudgement(t *testing.T, r *Report, k Known, s Support, c Code) {
	t.Helper()
	if j := r.Judge(k); j.Support != s || j.Code != c {
		t.Fatalf("%+v, want %s %s", j, s, c)
	}
}

func TestReportsThatHold(t *testing.T) {
	for _, c := range []struct {
		name              string
		measured, claimed int64
		want              spec.Severity
	}{{"overrun", 1000, 1000, spec.S1}, {"misreport", 700, 100, spec.S2}, {"double", 1500, 1500, spec.S2}, {"abuse", 3750, 3750, spec.S3}, {"abuse and a lie", 3751, 10, spec.S3}, {"edge of rounding", 825, 825, spec.S1}} {
		t.Run(c.name, func(t *testing.T) {
			r, _, _ := reportOn(t, events(c.measured), events(c.claimed))
			if r.Outcome != c.want {
				t.Fatal(r.Outcome)
			}
			wantJudgement(t, published(t, r), soon, Supported, "")
		})
	}
}

func TestEveryHonestReportIsSupported(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		measured, claimed := anyCounters(rt, "m", 4000), anyCounters(rt, "c", 4000)
		claimed[spec.CounterBlobBytes] = 0
		r, _, _ := reportOn(t, measured, claimed)
		if r.Outcome == spec.S0 {
			return
		}
		if j := published(t, r).Judge(soon); j.Support != Supported {
			rt.Fatalf("%+v\n%+v", j, r)
		}
	})
}

func TestReportsThatDoNotHold(t *testing.T) {
	base := func() *Report { r, _, _ := reportOn(t, events(1000), events(1000)); return r }
	for _, c := range []struct {
		name string
		s    Support
		code Code
		fix  func(r *Report)
	}{
		{"claims more than follows", Refuted, DoesNotFollow, func(r *Report) { r.Outcome = spec.S3 }},
		{"claims less than follows", Refuted, DoesNotFollow, func(r *Report) { r.Observed[0].Measured = 1500 }},
		{"limits of its own making", Refuted, GrantMismatch, func(r *Report) { r.Observed[0].Allowed = 10 }},
		{"claims that no receipt makes", Refuted, ClaimMismatch, func(r *Report) { r.Claimed[0].Count = 5 }},
		{"evidence left out", Unsupported, EvidenceMissing, func(r *Report) { r.Evidence[0].Text = nil }},
		{"evidence that is another's", Unsupported, EvidenceHash, func(r *Report) { r.Evidence[0].Digest[0] ^= 1 }},
		{"nothing that the subject signed", Unsupported, EvidenceUnsigned, func(r *Report) { r.Evidence = r.Evidence[1:] }},
		{"no grant", Unsupported, EvidenceMissing, func(r *Report) { r.Evidence = r.Evidence[:1] }},
		{"another window", Unsupported, EvidenceForeign, func(r *Report) { r.First++; r.Last++ }},
		{"expired", NotJudged, ReportExpired, func(r *Report) { r.Expiration = t0 }},
		{"of compute", NotJudged, "", func(r *Report) { r.Topic = spec.TopicCompute }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := base()
			c.fix(r)
			wantJudgement(t, published(t, r), soon, c.s, c.code)
		})
	}
	t.Run("a receipt that the reporter made up", func(t *testing.T) {
		r, g, _ := reportOn(t, events(1000), events(1000))
		_, subject := chains(g)
		fake := must(subject.Next(agent("issuer"), events(1), nil, t0))
		r.Evidence[0] = must(NewArtefact(EvidenceReceipt, fake.JSON()))
		wantJudgement(t, published(t, r), soon, Unsupported, EvidenceUnsigned)
	})
}

func TestStructuralReports(t *testing.T) {
	g, e := grantTo("issuer", "subject", spec.TierMember)
	_, chain := chains(g)
	a := must(chain.Next(agent("subject"), events(5), nil, t0))
	b := must(chain.Next(agent("subject"), events(6), nil, t0))
	draft := func(sev spec.Severity, evidence ...Artefact) *Report {
		r := ReportOn(g, sev, Evaluation{}, g.WindowAt(t0), t0+9000)
		r.Evidence = append(evidence, must(GrantArtefact(e, g)))
		return r
	}
	fork := []Artefact{must(NewArtefact(EvidenceReceipt, a.JSON())), must(NewArtefact(EvidenceReceipt, b.JSON()))}
	wantJudgement(t, published(t, draft(spec.S4, fork...)), soon, Supported, "")
	wantJudgement(t, published(t, draft(spec.S4, fork[0])), soon, Refuted, DoesNotFollow)

	outside := must(NewArtefact(EvidenceEnvelope, delivered(g, note("author", 1), "origin", "subject").JSON()))
	inside := must(NewArtefact(EvidenceEnvelope, delivered(g, note("author", 1, nostr.Tag{"t", "bristol"}), "subject").JSON()))
	foreign := must(NewArtefact(EvidenceEnvelope, delivered(g, note("author", 1), "origin").JSON()))
	wantJudgement(t, published(t, draft(spec.S3, outside)), soon, Supported, "")
	wantJudgement(t, published(t, draft(spec.S3, inside)), soon, Refuted, DoesNotFollow)
	wantJudgement(t, published(t, draft(spec.S3, foreign)), soon, Unsupported, EvidenceUnsigned)

	own := note("subject", 30023)
	bare := Artefact{Type: EvidenceEvent, Digest: own.ID}
	held := Known{Now: soon.Now, Event: func(id nostr.ID) *nostr.Event { return own }}
	wantJudgement(t, published(t, draft(spec.S3, bare)), held, Supported, "")
	wantJudgement(t, published(t, draft(spec.S3, bare)), soon, Unsupported, EvidenceMissing)

	// Silence: the subject signed a hop, so it was there, and sent no receipt.
	silent := ReportOn(g, spec.S2, Evaluate(g.Limits, events(100), nil), g.WindowAt(t0), t0+9000)
	silent.Evidence = []Artefact{inside, must(GrantArtefact(e, g))}
	wantJudgement(t, published(t, silent), soon, Supported, "")

	// Of a node that nobody heard in these windows no silence can be told.
	absent := *silent
	absent.Evidence = []Artefact{must(NewArtefact(EvidenceEvent, note("subject", 1).JSON())), must(GrantArtefact(e, g))}
	wantJudgement(t, published(t, &absent), soon, Refuted, DoesNotFollow)

	// A hole in a shard that the subject asserts: its claim, and an event of somebody else's that lies in it.
	hole := note("author", 1)
	claim := (&identity.Coverage{Subject: agent("subject").PubKey(), At: t0, Shard: "notes", Filter: nostr.Filter{Kinds: []nostr.Kind{1}}, Completeness: identity.Asserted,
		Fingerprint: strings.Repeat("0", 32), FingerprintAt: hole.CreatedAt + 1}).Event()
	if err := identity.SignEvent(agent("subject"), claim); err != nil {
		t.Fatal(err)
	}
	witness := must(NewArtefact(EvidenceEvent, hole.JSON()))
	wantJudgement(t, published(t, draft(spec.S2, must(NewArtefact(EvidenceEvent, claim.JSON())), witness)), soon, Supported, "")
	wantJudgement(t, published(t, draft(spec.S2, must(NewArtefact(EvidenceEvent, claim.JSON())), must(NewArtefact(EvidenceEvent, note("author", 7).JSON())))), soon, Unsupported, EvidenceUnsigned)
	wantJudgement(t, published(t, draft(spec.S2, witness)), soon, Unsupported, EvidenceUnsigned)

	// Seven duplicates in eight.
	dup := ReportOn(g, spec.S3, Evaluate(g.Limits, Counters{spec.CounterEventsIn: 80, spec.CounterDupsSent: 70}, events(80)), g.WindowAt(t0), t0+9000)
	dup.Evidence = []Artefact{must(NewArtefact(EvidenceReceipt, must(chain.Next(agent("subject"), events(80), nil, t0)).JSON())), must(GrantArtefact(e, g))}
	wantJudgement(t, published(t, dup), soon, Supported, "")
}

func TestPublication(t *testing.T) {
	for _, c := range []struct {
		sev       spec.Severity
		overruns  int64
		noticed   int64
		reachable bool
		never     bool
		at        int64
		notice    bool
	}{
		{spec.S0, 0, 0, true, true, 0, false},
		{spec.S1, 1, 0, true, true, 0, true},
		{spec.S1, 2, 0, true, false, 100 + 3600, true},
		{spec.S1, 2, 50, true, false, 50 + 3600, false},
		{spec.S2, 0, 50, true, false, 50 + 3600, false},
		{spec.S2, 0, 0, false, false, 100 + 3600, false},
		{spec.S3, 0, 0, true, false, 100, false},
		{spec.S4, 0, 0, true, false, 100, false},
	} {
		p, notice := PublishAfter(c.sev, c.overruns, c.noticed, 3600, 100, c.reachable)
		if p.Never != c.never || p.At != c.at || notice != c.notice {
			t.Errorf("%+v: %+v %v", c, p, notice)
		}
	}
}

func voice(name string, tier spec.Tier, sev spec.Severity) Voice {
	return Voice{Reporter: agent(name).PubKey(), Tier: tier, CleanWindows: 168, Topic: spec.TopicTransit, Severity: sev}
}

func TestView(t *testing.T) {
	swarm := []Voice{}
	for i := range 500 {
		v := voice("x", spec.TierProbation, spec.S4)
		v.Reporter[0], v.Reporter[1] = byte(i), byte(i>>8)
		swarm = append(swarm, v)
	}
	young := voice("a", spec.TierAnchor, spec.S3)
	young.CleanWindows = 167
	liar := voice("a", spec.TierAnchor, spec.S3)
	liar.Record = Record{Evaluated: 10, False: 1}
	other := voice("a", spec.TierAnchor, spec.S3)
	other.Topic = spec.TopicCompute
	for _, c := range []struct {
		name   string
		own    spec.Severity
		voices []Voice
		want   spec.Severity
	}{
		{"nobody", spec.S0, nil, spec.S0},
		{"own alone", spec.S2, nil, spec.S2},
		{"one anchor", spec.S0, []Voice{voice("a", spec.TierAnchor, spec.S3)}, spec.S3},
		{"one trusted", spec.S0, []Voice{voice("a", spec.TierTrusted, spec.S3)}, spec.S0},
		{"two trusted, the lower finding", spec.S0, []Voice{voice("a", spec.TierTrusted, spec.S3), voice("b", spec.TierTrusted, spec.S1)}, spec.S1},
		{"four members", spec.S0, []Voice{voice("a", spec.TierMember, spec.S2), voice("b", spec.TierMember, spec.S2), voice("c", spec.TierMember, spec.S2), voice("d", spec.TierMember, spec.S2)}, spec.S2},
		{"three members", spec.S0, []Voice{voice("a", spec.TierMember, spec.S2), voice("b", spec.TierMember, spec.S2), voice("c", spec.TierMember, spec.S2)}, spec.S0},
		{"one key twice", spec.S0, []Voice{voice("a", spec.TierTrusted, spec.S2), voice("a", spec.TierTrusted, spec.S2)}, spec.S0},
		{"five hundred strangers", spec.S0, swarm, spec.S0},
		{"a week less an hour", spec.S0, []Voice{young}, spec.S0},
		{"one false report in ten", spec.S0, []Voice{liar}, spec.S0},
		{"of compute", spec.S0, []Voice{other}, spec.S0},
		{"own is worse", spec.S4, []Voice{voice("a", spec.TierAnchor, spec.S1)}, spec.S4},
	} {
		if got := View(spec.TopicTransit, c.own, c.voices); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := View(spec.TopicCompute, spec.S0, []Voice{other}); got != spec.S3 {
		t.Error(got)
	}
	if young.Weight().Cmp(big.NewRat(167, 168)) != 0 || liar.Weight().Cmp(big.NewRat(9, 10)) != 0 {
		t.Error(young.Weight(), liar.Weight())
	}
}

func TestViewLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var voices []Voice
		for i := range rapid.IntRange(0, 8).Draw(t, "voices") {
			v := voice("x", rapid.SampledFrom([]spec.Tier{spec.TierProbation, spec.TierMember, spec.TierTrusted, spec.TierAnchor, spec.TierRevoked}).Draw(t, "tier"), spec.Severity(rapid.IntRange(0, 4).Draw(t, "sev")))
			v.Reporter[0] = byte(i)
			v.CleanWindows = rapid.Int64Range(0, 300).Draw(t, "age")
			v.Record.Evaluated = rapid.Int64Range(0, 20).Draw(t, "evaluated")
			v.Record.False = rapid.Int64Range(0, v.Record.Evaluated).Draw(t, "false")
			voices = append(voices, v)
		}
		own := spec.Severity(rapid.IntRange(0, 4).Draw(t, "own"))
		view := View(spec.TopicTransit, own, voices)
		if view < own {
			t.Fatal("others talked a finding down")
		}
		shuffled := slices.Clone(voices)
		slices.Reverse(shuffled)
		if View(spec.TopicTransit, own, shuffled) != view {
			t.Fatal("the order of reports matters")
		}
		if more := View(spec.TopicTransit, own, append(shuffled, voice("late", spec.TierMember, spec.S1))); more < view {
			t.Fatal("one more report helps the subject")
		}
		want := anyStanding(t)
		want.Limits = want.Limits.Clamp(want.Tier)
		start, _ := Start(want, view)
		for n, v := range start.Limits {
			if v > want.Limits[n] {
				t.Fatal("a view raised a limit")
			}
		}
		if spec.C().TierRank(start.Tier) > spec.C().TierRank(want.Tier) {
			t.Fatal("a view raised a tier")
		}
	})
}

func TestProjection(t *testing.T) {
	r, _, _ := reportOn(t, events(700), events(100))
	e := Project(r, "wss://relay.example.org")
	want := map[string]string{"d": "wss://relay.example.org", "k": "web", "rank": "25", "a": "30802:" + r.Reporter.String() + ":" + r.Subject.String()}
	for name, v := range want {
		for got := range e.TagValues(name) {
			if got != v {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	if Rank(spec.S0) != 100 || Rank(spec.S1) != 50 || Rank(spec.S3) != 0 || Rank(spec.S4) != 0 {
		t.Error("ranks")
	}
}

func TestAuthorEntries(t *testing.T) {
	entry := func(issuer string, block bool, at int64, fix func(*AuthorEntry)) *Grant {
		a := AuthorEntry{Source: OwnSource, Reason: "spam"}
		if fix != nil {
			fix(&a)
		}
		g := NewAuthorGrant(agent(issuer).PubKey(), agent("author").PubKey(), block, a, at, at+1000)
		e := must(Seal(agent(issuer), g, fixed(issuer)))
		got := must(Open(agent("author"), e)) // whom it is about can read why
		if *got.Author != a {
			t.Fatalf("%+v", got.Author)
		}
		return got
	}
	derived := func(a *AuthorEntry) { a.Source, a.Derived = "list of another", true }
	retracted := func(a *AuthorEntry) { a.Retracted = t0 + 5 }
	now := int64(t0 + 10)
	for _, c := range []struct {
		name           string
		entries        []*Grant
		allow, blocked bool
	}{
		{"none", nil, false, false},
		{"blocked", []*Grant{entry("a", true, t0, nil)}, false, true},
		{"allowed", []*Grant{entry("a", false, t0, nil)}, true, false},
		{"block outweighs", []*Grant{entry("a", false, t0, nil), entry("b", true, t0, nil)}, false, true},
		{"derived supports nothing", []*Grant{entry("a", true, t0, derived)}, false, false},
		{"retracted", []*Grant{entry("a", true, t0, retracted)}, false, false},
		{"latest of one issuer", []*Grant{entry("a", true, t0, nil), entry("a", false, t0+1, nil)}, true, false},
		{"expired", []*Grant{entry("a", true, t0-2000, nil)}, false, false},
	} {
		if v := Judge(c.entries, now); v.Allowed != c.allow || v.Blocked != c.blocked {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	_, err := Seal(agent("a"), NewAuthorGrant(agent("a").PubKey(), agent("author").PubKey(), true, AuthorEntry{Source: OwnSource}, t0, t0+1), fixed("x"))
	codeIs(t, err, NoReason)
}

func TestSwapEntriesKeepsTheOldListWhenTheNewOneShrank(t *testing.T) {
	list := func(from, to int, retracted int64) (out []*Grant) {
		for i := from; i < to; i++ {
			var author nostr.PubKey
			author[0] = byte(i)
			out = append(out, NewAuthorGrant(agent("a").PubKey(), author, false, AuthorEntry{Source: OwnSource, Reason: "known", Retracted: retracted}, t0, t0+1000))
		}
		return out
	}
	old := list(0, 100, 0)
	for _, c := range []struct {
		name    string
		fetched []*Grant
		swapped bool
		covered int64
	}{
		{"throttled", list(0, 30, 0), false, 30},
		{"nothing came", nil, false, 0},
		{"at the share", list(0, 90, 0), true, 90},
		{"below it", list(0, 89, 0), false, 89},
		{"grown", list(0, 200, 0), true, 100},
		{"taken back on purpose", append(list(0, 50, t0), list(50, 100, 0)...), true, 100},
		{"as long, of others", list(100, 200, 0), false, 0},
	} {
		use, covered, of := SwapEntries(old, c.fetched, spec.R(9, 10), t0+1)
		if (len(use) == len(c.fetched) && (len(use) == 0 || use[0] == c.fetched[0])) != c.swapped || covered != c.covered || of != 100 {
			t.Errorf("%s: %d of %d, %d entries in use", c.name, covered, of, len(use))
		}
	}
	if use, _, _ := SwapEntries(nil, old, spec.R(1, 1), t0); len(use) != 100 {
		t.Error("the first list is taken")
	}
	if use, _, of := SwapEntries(old, nil, spec.R(1, 1), t0+1000); len(use) != 0 || of != 0 {
		t.Error("a list that expired holds nobody")
	}
}

func TestDiagnostics(t *testing.T) {
	var d Diagnostics
	l := Opening(spec.TierMember)
	d.Window(Evaluate(l, events(750), events(750)))
	d.Window(Evaluate(l, events(10), events(10)))
	d.Window(Evaluation{})
	e := d.Event(agent("issuer").PubKey(), t0)
	text, _ := json.Marshal(e.Tags)
	want := `[["metric","grant_binding","events_in:1"],["metric","divergence_hist","s0:2","s1:0","s2:0","s3:0"],["metric","blob_ceiling_raised","false"],["sample_window","86400"],["expiration","1787086523"]]`
	if string(text) != want {
		t.Error(string(text))
	}
}
