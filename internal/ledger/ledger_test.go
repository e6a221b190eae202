package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

const t0 = 1787000123

func seed(what string) [32]byte { return sha256.Sum256([]byte("fleetmesh vector " + what)) }

func agent(name string) *identity.KeyAgent {
	a, err := identity.NewKeyAgent(nostr.SecretKey(seed("node " + name)))
	if err != nil {
		panic(err)
	}
	return a
}

// fixed is a source of randomness for tests: always the same octets.
func fixed(name string) *bytes.Reader {
	b := seed("random " + name)
	return bytes.NewReader(b[:])
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func codeIs(t testing.TB, err error, want Code) {
	t.Helper()
	if got := identity.CodeOf(err); got != want {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

func filter(s string) nostr.Filter { return must(nostr.ParseFilter([]byte(s))) }

// grantTo is a sealed member grant from issuer to subject.
func grantTo(issuer, subject string, tier spec.Tier) (*Grant, *nostr.Event) {
	scopes := []Scope{{Push, filter(`{"kinds":[0,1,3,7,10002],"#t":["bristol"]}`)}, {Pull, filter(`{"kinds":[0,1]}`)}}
	g := NewGrant(agent(issuer).PubKey(), agent(subject).PubKey(), tier, scopes, t0)
	e := must(Seal(agent(issuer), g, fixed(issuer+subject)))
	return g, e
}

func note(author string, kind nostr.Kind, tags ...nostr.Tag) *nostr.Event {
	e := &nostr.Event{Kind: kind, CreatedAt: t0, Content: "hello", Tags: tags}
	if err := identity.SignEvent(agent(author), e); err != nil {
		panic(err)
	}
	return must(nostr.ParseEvent(e.JSON()))
}

func TestGrantOpensForItsSubjectAlone(t *testing.T) {
	g, e := grantTo("issuer", "subject", spec.TierMember)
	got, err := Open(agent("subject"), e)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != g.ID || !got.Limits.Equal(Opening(spec.TierMember)) || len(got.Scopes) != 2 || got.Tier != spec.TierMember || got.ReceiptSeconds != 600 {
		t.Fatalf("%+v", got)
	}
	_, err = Open(agent("stranger"), e)
	codeIs(t, err, WrongBlind)
	own, err := OpenOwn(agent("issuer"), agent("subject").PubKey(), e)
	if err != nil || own.Subject != g.Subject {
		t.Fatal(own, err)
	}
	// Both ends compute the same tag; a tag per pair.
	a, b := must(GrantTag(agent("issuer"), g.Subject)), must(GrantTag(agent("subject"), g.Issuer))
	if a != b || a != e.D() || a == must(GrantTag(agent("stranger"), g.Issuer)) {
		t.Fatal(a, b)
	}
}

func TestBlindingIsFresh(t *testing.T) {
	g := NewGrant(agent("issuer").PubKey(), agent("subject").PubKey(), spec.TierMember, nil, t0)
	e1 := must(Seal(agent("issuer"), g, fixed("a")))
	e2 := must(Seal(agent("issuer"), g, fixed("b")))
	c1, c2 := must(ParseFrame(e1)).Commit, must(ParseFrame(e2)).Commit
	if c1 == c2 {
		t.Fatal("the same grant commits alike")
	}
	if _, err := Seal(agent("issuer"), g, bytes.NewReader(nil)); err == nil {
		t.Fatal("sealed without randomness")
	}
}

func TestGrantRules(t *testing.T) {
	for _, c := range []struct {
		name string
		code Code
		fix  func(g *Grant)
	}{
		{"above the ceiling", AboveCeiling, func(g *Grant) { g.Limits[spec.LimitEventsIn] = 3001 }},
		{"revoked with a limit", AboveCeiling, func(g *Grant) { g.Tier = spec.TierRevoked }},
		{"missing", MissingLimit, func(g *Grant) { delete(g.Limits, spec.LimitReq) }},
		{"tier", UnknownTier, func(g *Grant) { g.Tier = "gold" }},
		{"window", BadWindow, func(g *Grant) { g.Window = 59 }},
		{"window", BadWindow, func(g *Grant) { g.Window = 86401 }},
		{"no time", GrantExpired, func(g *Grant) { g.Expiration = g.CreatedAt }},
	} {
		g := NewGrant(agent("issuer").PubKey(), agent("subject").PubKey(), spec.TierMember, nil, t0)
		c.fix(g)
		_, err := Seal(agent("issuer"), g, fixed("x"))
		codeIs(t, err, c.code)
	}
}

func TestBucketNeverExceedsWhoeverInterleaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 20).Draw(t, "limit")
		b := NewBucket(Window{1, 3600}, Limits{spec.LimitReq: limit})
		type spender struct {
			r    Reservation
			most int64
		}
		var open []spender
		var spent, granted int64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "reserve") {
				most := rapid.Int64Range(1, 4).Draw(t, "most")
				r, err := b.Reserve(Counters{spec.CounterReq: most})
				if err == nil {
					open = append(open, spender{r, most})
				}
			} else {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "who")
				s := open[i]
				open = append(open[:i], open[i+1:]...)
				actual := rapid.Int64Range(0, s.most).Draw(t, "actual")
				if err := b.Settle(s.r, Counters{spec.CounterReq: actual}); err != nil {
					t.Fatal(err)
				}
				spent += actual
			}
			granted = spent
			for _, s := range open {
				granted += s.most
			}
			if granted > limit || b.Spent()[spec.CounterReq] != spent || b.Left()[spec.LimitReq] != limit-granted {
				t.Fatalf("limit %d, spent %d, granted %d, left %v", limit, spent, granted, b.Left())
			}
		}
	})
}

func TestHundredCallsOnABudgetOfTen(t *testing.T) {
	b := NewBucket(Window{1, 3600}, Limits{spec.LimitReq: 10})
	var held []Reservation
	for range 100 { // all reserve before any settles
		if r, err := b.Reserve(Counters{spec.CounterReq: 1}); err == nil {
			held = append(held, r)
		}
	}
	if len(held) != 10 {
		t.Fatalf("%d let through", len(held))
	}
	if l, ok := b.FirstBound(); !ok || l != spec.LimitReq {
		t.Fatal(l)
	}
	for _, r := range held {
		if err := b.Settle(r, Counters{spec.CounterReq: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if b.Settle(held[0], nil) == nil {
		t.Fatal("settled twice")
	}
	if b.Spent()[spec.CounterReq] != 10 {
		t.Fatal(b.Spent())
	}
}

func TestSettlingMoreThanReservedIsCountedAndSaid(t *testing.T) {
	b := NewBucket(Window{1, 3600}, Limits{spec.LimitReq: 10})
	r := must(b.Reserve(Counters{spec.CounterReq: 1}))
	if b.Settle(r, Counters{spec.CounterReq: 3}) == nil || b.Spent()[spec.CounterReq] != 3 {
		t.Fatal(b.Spent())
	}
}

// window makes counters that use so many events in and nothing else.
func events(n int64) Counters { return Counters{spec.CounterEventsIn: n} }

func full(l Limits) Counters {
	c := Counters{}.Clone()
	for n, v := range l {
		c[spec.C().CounterOf(n)] = v
	}
	return c
}

func TestFullUseReachesTheCeilingInEightWindows(t *testing.T) {
	for _, tier := range []spec.Tier{spec.TierProbation, spec.TierMember, spec.TierTrusted, spec.TierAnchor} {
		s := NewStanding(tier)
		for w := 1; w <= 8; w++ {
			used := full(s.Limits)
			var m Move
			s, m = s.Close(Evaluate(s.Limits, used, used), int64(w)*3600)
			if m.Severity != spec.S0 || m.Cause != "" {
				t.Fatal(w, m)
			}
			at := s.Limits[spec.LimitEventsIn] == spec.C().Ceiling(spec.LimitEventsIn, tier)
			if at != (w == 8) {
				t.Errorf("%s: ceiling reached: %v after %d windows (%d)", tier, at, w, s.Limits[spec.LimitEventsIn])
			}
		}
		if s.Limits[spec.LimitBlobBytes] != 0 {
			t.Error("blobs rose without an operator")
		}
		if s.CleanWindows != 8 {
			t.Error(s.CleanWindows)
		}
	}
}

func TestS2AtAnyTierLandsOnTheProbationCeiling(t *testing.T) {
	for _, tier := range []spec.Tier{spec.TierProbation, spec.TierMember, spec.TierTrusted, spec.TierAnchor} {
		s := Standing{Tier: tier, Limits: Seeded(tier)}
		s, m := s.Close(Evaluate(s.Limits, events(s.Limits[spec.LimitEventsIn]/2), events(0)), 0)
		if m.Severity != spec.S2 || s.Tier != spec.TierProbation || !s.Limits.Equal(Ceilings(spec.TierProbation)) {
			t.Fatalf("%s: %v %+v", tier, m, s)
		}
	}
}

func TestS3IsZeroForADayThenAStranger(t *testing.T) {
	s := Standing{Tier: spec.TierAnchor, Limits: Seeded(spec.TierAnchor), CleanWindows: 500}
	s, m := s.Close(Evaluation{}, 1000, OutsideScope)
	if m.Severity != spec.S3 || s.CleanWindows != 0 || !s.Limits.Equal(Limits{}) || s.Tier != spec.TierProbation {
		t.Fatalf("%v %+v", m, s)
	}
	if got := s.Resume(1000 + 86399); !got.Limits.Equal(Limits{}) {
		t.Fatal("resumed early")
	}
	if got := s.Resume(1000 + 86400); !got.Limits.Equal(Opening(spec.TierProbation)) || got.ZeroUntil != 0 {
		t.Fatalf("%+v", got)
	}
	again, m := s.Close(Evaluate(s.Limits, events(1), events(1)), 5000)
	if m.Severity != spec.S3 || again.ZeroUntil != 5000+86400 {
		t.Fatalf("traffic under a limit of zero: %v %+v", m, again)
	}
}

func TestS4DeletesTheGrant(t *testing.T) {
	s, m := NewStanding(spec.TierAnchor).Close(Evaluation{}, 0, CorruptChain)
	if !m.Delete || s.Tier != spec.TierRevoked || !s.Limits.Equal(Limits{}) {
		t.Fatalf("%v %+v", m, s)
	}
	if s, _ = s.Close(Evaluate(s.Limits, events(0), events(0)), 1<<40); s.Tier != spec.TierRevoked {
		t.Fatal("a revoked peer came back")
	}
}

func TestDecay(t *testing.T) {
	s := Standing{Tier: spec.TierMember, Limits: Seeded(spec.TierMember)}
	// A measured window that carried no bytes out gives a tenth of that limit back, and only of that.
	used := full(s.Limits)
	used[spec.CounterBytesOut] = 0
	got, m := s.Close(Evaluate(s.Limits, used, used), 0)
	if got.Limits[spec.LimitBytesOut] != 241591910 || got.Limits[spec.LimitEventsIn] != 3000 || m.Cause != spec.CauseDisuse {
		t.Fatalf("%v %+v", m, got)
	}
	// Structural limits never decay; an error budget does not waste away.
	if got.Limits[spec.LimitErrors] != 40 || got.Limits[spec.LimitConnRate] != 12 {
		t.Fatalf("%+v", got)
	}
	// Twenty-four idle windows take a tenth of everything, then rest for as long again.
	for w := 1; w <= 49; w++ {
		before := s
		s, m = s.Close(Evaluate(s.Limits, Counters{}, nil), 0)
		if decays := w == 24 || w == 48; m.Amended != decays || (m.Cause == spec.CauseDisuse) != decays {
			t.Fatalf("window %d: %v\n%v\n%v", w, m, before, s)
		}
	}
	if s.Limits[spec.LimitEventsIn] != 2430 || s.Limits[spec.LimitReq] != 600 {
		t.Fatalf("%+v", s)
	}
	for range 24 * 60 {
		s, _ = s.Close(Evaluation{}, 0)
	}
	if !s.Limits.Equal(Opening(spec.TierMember)) {
		t.Fatalf("disuse goes below where a stranger starts: %+v", s)
	}
}

func TestDisuseNeverGoesBelowTheOpening(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyStanding(t)
		s.IdleWindows = rapid.Int64Range(0, 50).Draw(t, "idle")
		var used Counters
		if rapid.Bool().Draw(t, "something") {
			used = Counters{spec.CounterConnOpen: 1}
			s.Limits[spec.LimitConnRate] = max(1, s.Limits[spec.LimitConnRate])
		}
		got, m := s.Close(Evaluate(s.Limits, used.Clone(), used), 0)
		for n, v := range got.Limits {
			if v < s.Limits[n] && v < spec.C().Open(n, s.Tier) {
				t.Fatalf("%v took %s from %d to %d, below the opening", m, n, s.Limits[n], v)
			}
		}
	})
}

func TestUnmeteredWindowGetsTheLeastStep(t *testing.T) {
	s := NewStanding(spec.TierMember)
	got, m := s.Close(Evaluate(s.Limits, nil, nil), 0)
	if got.Limits[spec.LimitEventsIn] != 750+60 || got.CleanWindows != 0 || m.Cause != "" || got.Limits[spec.LimitBlobBytes] != 0 {
		t.Fatalf("%v %+v", m, got)
	}
}

func TestSilence(t *testing.T) {
	l := Opening(spec.TierMember)
	if v := Evaluate(l, events(100), nil); v.Severity != spec.S2 || !v.Silent {
		t.Fatalf("active silence: %+v", v)
	}
	if v := Evaluate(l, Counters{}.Clone(), nil); v.Evaluated {
		t.Fatalf("inactive silence: %+v", v)
	}
	// A goodbye receipt turns absence into numbers.
	if v := Evaluate(l, events(100), events(100)); v.Severity != spec.S0 {
		t.Fatalf("%+v", v)
	}
}

func TestRemedyNeverRaises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyStanding(t)
		for sev := spec.S1; sev <= spec.S4; sev++ {
			got := s.remedy(sev, 0)
			for n, v := range got.Limits.Clamp(got.Tier) {
				if v > s.Limits[n] {
					t.Fatalf("%s raised %s from %d to %d", sev, n, s.Limits[n], v)
				}
			}
			if spec.C().TierRank(got.Tier) > spec.C().TierRank(s.Tier) {
				t.Fatal("a remedy raised the tier")
			}
		}
	})
}

func anyStanding(t *rapid.T) Standing {
	tier := rapid.SampledFrom([]spec.Tier{spec.TierProbation, spec.TierMember, spec.TierTrusted, spec.TierAnchor}).Draw(t, "tier")
	s := Standing{Tier: tier, Limits: Limits{}}
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		s.Limits[n] = rapid.Int64Range(0, spec.C().Ceiling(n, tier)).Draw(t, string(n))
	}
	return s
}

func anyCounters(t *rapid.T, name string, most int64) Counters {
	c := Counters{}
	for _, n := range spec.C().Counters {
		c[n] = rapid.Int64Range(0, most).Draw(t, name+" "+string(n))
	}
	return c
}

func TestNoWindowRaisesATierOrPassesTheCeiling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyStanding(t)
		for w := range rapid.IntRange(1, 30).Draw(t, "windows") {
			rank := spec.C().TierRank(s.Tier)
			measured := anyCounters(t, "measured", 5000)
			claimed := anyCounters(t, "claimed", 5000)
			var v Evaluation
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				v = Evaluate(s.Limits, measured, measured)
			case 1:
				v = Evaluate(s.Limits, measured, claimed)
			case 2:
				v = Evaluate(s.Limits, nil, nil)
			}
			s, _ = s.Close(v, int64(w)*3600)
			if spec.C().TierRank(s.Tier) > rank {
				t.Fatal("a window raised the tier")
			}
			if !s.Limits.Equal(s.Limits.Clamp(s.Tier)) {
				t.Fatalf("%+v is above its ceiling", s)
			}
		}
	})
}

func TestLyingIsNeverCheaper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 5000).Draw(t, "limit")
		measured := rapid.Int64Range(0, 30000).Draw(t, "measured")
		claimed := rapid.Int64Range(0, 30000).Draw(t, "claimed")
		honest, lying := ClassifyClaim(limit, measured, measured), ClassifyClaim(limit, measured, claimed)
		if lying < honest {
			t.Fatalf("limit %d measured %d: %s honest, %s claiming %d", limit, measured, honest, lying, claimed)
		}
		if more := Classify(limit, measured+rapid.Int64Range(0, 9999).Draw(t, "more")); more < Classify(limit, measured) {
			t.Fatal("more traffic costs less")
		}
		if less := Classify(limit+rapid.Int64Range(0, 9999).Draw(t, "wider"), measured); less > Classify(limit, measured) {
			t.Fatal("a wider limit costs more")
		}
	})
}

func TestEvaluationDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyStanding(t)
		m, c := anyCounters(t, "m", 9000), anyCounters(t, "c", 9000)
		a, b := Evaluate(s.Limits, m, c), Evaluate(s.Limits.Clone(), m.Clone(), c.Clone())
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if !bytes.Equal(x, y) {
			t.Fatal("two evaluations of one window differ")
		}
	})
}

func TestRoundFigures(t *testing.T) {
	for n, want := range map[int64]int64{0: 0, 7: 7, 99: 99, 100: 100, 104: 100, 105: 110, 3312: 3300, 2900: 2900, 995: 1000, 8388608: 8400000} {
		if got := RoundFigures(n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<40).Draw(t, "n")
		r := RoundFigures(n)
		lo, hi := figureRange(r)
		if n < lo || n > hi {
			t.Fatalf("%d is published as %d, whose range is %d to %d", n, r, lo, hi)
		}
		if RoundFigures(lo) != r || RoundFigures(hi) != r || RoundFigures(hi+1) == r || lo > 0 && RoundFigures(lo-1) == r {
			t.Fatalf("range of %d is %d to %d", r, lo, hi)
		}
	})
}

// Sender and receiver see the same created_time, so while their clocks are within the skew of each other they
// count a message in the same window, and their counters are equal however messages are ordered or repeated in between.
func TestTwoSidedEqualityOfMetering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.Int64Range(60, 86400).Draw(t, "length")
		skew := rapid.Int64Range(-60, 60).Draw(t, "skew")
		start := rapid.Int64Range(0, 1<<33).Draw(t, "start")
		sent, got := map[int64]Counters{}, map[int64]Counters{}
		count := func(into map[int64]Counters, w Window, c Counters) {
			if into[w.Epoch] == nil {
				into[w.Epoch] = Counters{}.Clone()
			}
			into[w.Epoch].Add(c)
		}
		type message struct {
			created int64
			cost    Counters
		}
		var flight []message
		for range rapid.IntRange(0, 40).Draw(t, "messages") {
			at := start + rapid.Int64Range(0, 3*length).Draw(t, "at")
			m := message{at, Counters{spec.CounterBytesIn: rapid.Int64Range(1, 5000).Draw(t, "octets"), spec.CounterReq: 1}}
			count(sent, AssignWindow(m.created, m.created, length), m.cost)
			flight = append(flight, m)
		}
		for len(flight) > 0 {
			i := rapid.IntRange(0, len(flight)-1).Draw(t, "next")
			m := flight[i]
			flight = append(flight[:i], flight[i+1:]...)
			count(got, AssignWindow(m.created, m.created+skew, length), m.cost)
		}
		if len(sent) != len(got) {
			t.Fatal(sent, got)
		}
		for epoch, c := range sent {
			if !c.Covers(got[epoch]) || !got[epoch].Covers(c) {
				t.Fatalf("window %d: %v sent, %v counted", epoch, c, got[epoch])
			}
		}
	})
}

func TestAssignWindow(t *testing.T) {
	w := WindowAt(t0, 3600)
	edge := w.End()
	for _, c := range []struct{ created, arrived, epoch int64 }{
		{edge - 1, edge + 59, w.Epoch}, {edge - 1, edge + 60, w.Epoch + 1}, {edge, edge - 60, w.Epoch + 1}, {edge, edge - 61, w.Epoch}, {-1, 10, -1},
	} {
		if got := AssignWindow(c.created, c.arrived, 3600); got.Epoch != c.epoch {
			t.Errorf("%v: %d", c, got.Epoch)
		}
	}
	if w.GraceEnd() != w.End()+360 || w.Epoch != 496388 || w.Due(w.GraceEnd()-1) || !w.Due(w.GraceEnd()) {
		t.Fatal(w)
	}
	if short := (Window{1, 60}); short.Due(short.GraceEnd()) || !short.Due(short.End()+60) {
		t.Fatal("a short window waits for the skew too")
	}
}
