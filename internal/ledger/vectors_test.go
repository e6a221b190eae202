package ledger

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/cryptotest"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/vectors"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func TestVectors(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1) // ciphertexts that come out alike, so that a vector changes only where its case does
	vectors.Check(t, "ledger", functions, drafts(t))
}

func read[T any](in json.RawMessage) (v T) {
	if err := json.Unmarshal(in, &v); err != nil {
		panic(err)
	}
	return v
}

func refused(err error) (any, string) { return nil, string(identity.CodeOf(err)) }

type object = map[string]any

type closeInput struct {
	Standing   Standing     `json:"standing"`
	Measured   Counters     `json:"measured"`
	Claimed    Counters     `json:"claimed"`
	Structural []Structural `json:"structural"`
	Now        int64        `json:"now"`
}

type chainInput struct {
	Grant    string            `json:"grant"`
	Window   Window            `json:"window"`
	Subject  string            `json:"subject"`
	Receipts []json.RawMessage `json:"receipts"`
	Now      int64             `json:"now"`
}

type grantInput struct {
	Secret string          `json:"secret"`
	Event  json.RawMessage `json:"event"`
}

type envelopeInput struct {
	Self     string          `json:"self"`
	Peer     string          `json:"peer"`
	Scope    string          `json:"push_scope"`
	Grant    string          `json:"grant"`
	Window   int64           `json:"window"`
	Now      int64           `json:"now"`
	Envelope json.RawMessage `json:"envelope"`
}

type voiceInput struct {
	Reporter     string        `json:"reporter"`
	Tier         spec.Tier     `json:"tier"`
	CleanWindows int64         `json:"clean_windows"`
	Evaluated    int64         `json:"evaluated"`
	False        int64         `json:"false"`
	Topic        spec.Topic    `json:"topic"`
	Severity     spec.Severity `json:"severity"`
}

func (v voiceInput) voice() Voice {
	k := must(identity.ParseDID(v.Reporter))
	return Voice{k, v.Tier, v.CleanWindows, Record{v.Evaluated, v.False}, v.Topic, v.Severity}
}

type bucketStep struct {
	Reserve Counters `json:"reserve,omitempty"` // at most so much
	Settle  *int     `json:"settle,omitempty"`  // the reservation of that step
	Actual  Counters `json:"actual,omitempty"`
}

func did(name string) string { return identity.FormatDID(agent(name).PubKey()) }

func keyOf(s string) nostr.PubKey { return must(identity.ParseDID(s)) }

func agentOfHex(s string) *identity.KeyAgent {
	return must(identity.NewKeyAgent(must(nostr.ParseSecretKey(s))))
}

var functions = map[string]vectors.Function{
	"classify": func(in json.RawMessage) (any, string) {
		v := read[struct{ Limit, Measured, Claimed int64 }](in)
		return object{"severity": ClassifyClaim(v.Limit, v.Measured, v.Claimed), "diverges": divergent(v.Limit, v.Measured, v.Claimed), "floor": DivergenceFloor(v.Limit)}, ""
	},
	"duplicates": func(in json.RawMessage) (any, string) {
		v := read[struct {
			EventsLimit int64 `json:"events_limit"`
			Events      int64
			Duplicates  int64
		}](in)
		return ClassifyDuplicates(v.EventsLimit, v.Events, v.Duplicates), ""
	},
	"evaluate": func(in json.RawMessage) (any, string) {
		v := read[struct {
			Limits            Limits
			Measured, Claimed Counters
		}](in)
		out := Evaluate(v.Limits, v.Measured, v.Claimed)
		binding, _ := out.Binding()
		return object{"evaluation": out, "binding": binding}, ""
	},
	"close": func(in json.RawMessage) (any, string) {
		v := read[closeInput](in)
		s, m := v.Standing.Close(Evaluate(v.Standing.Limits, v.Measured, v.Claimed), v.Now, v.Structural...)
		return object{"standing": s, "move": m}, ""
	},
	"run": func(in json.RawMessage) (any, string) { // the same use, window after window
		v := read[struct {
			Tier    spec.Tier
			Windows int
			Full    bool  // the whole of every limit
			Events  int64 // else so many events
		}](in)
		s := NewStanding(v.Tier)
		var out []int64
		for w := range v.Windows {
			used := events(v.Events)
			if v.Full {
				used = full(s.Limits)
			}
			s, _ = s.Close(Evaluate(s.Limits, used, used), int64(w)*3600)
			out = append(out, s.Limits[spec.LimitEventsIn])
		}
		return out, ""
	},
	"tier": func(in json.RawMessage) (any, string) {
		tier := read[spec.Tier](in)
		return object{"ceiling": Ceilings(tier), "opening": Opening(tier), "seeded": Seeded(tier)}, ""
	},
	"resume": func(in json.RawMessage) (any, string) {
		v := read[struct {
			Standing Standing
			Now      int64
		}](in)
		return v.Standing.Resume(v.Now), ""
	},
	"blind": func(in json.RawMessage) (any, string) {
		v := read[struct{ Secret, Other string }](in)
		x := must(agentOfHex(v.Secret).SharedX(keyOf(v.Other)))
		return object{"shared": hex.EncodeToString(x[:]), "grant": BlindTag(x, spec.C().Blinding.Grant), "job": BlindTag(x, spec.C().Blinding.Job)}, ""
	},
	"commit": func(in json.RawMessage) (any, string) {
		o, err := parseGrantObject(in)
		if err != nil {
			return refused(err)
		}
		g := &Grant{}
		if err := g.readBody(o.tags); err != nil {
			return refused(err)
		}
		c := must(o.canonical())
		sum := Commit(g.Blinding, c)
		return object{"canonical": string(c), "commit": hex.EncodeToString(sum[:])}, ""
	},
	"grant": func(in json.RawMessage) (any, string) {
		v := read[grantInput](in)
		e, err := nostr.ParseEvent(v.Event)
		if err != nil {
			return nil, "unparsable"
		}
		g, err := Open(agentOfHex(v.Secret), e)
		if err != nil {
			return refused(err)
		}
		return object{"id": g.ID.String(), "subject": identity.FormatDID(g.Subject), "tier": g.Tier, "limits": g.Limits, "scopes": len(g.Scopes), "window": g.Window}, ""
	},
	"window": func(in json.RawMessage) (any, string) {
		v := read[struct{ Created, Arrived, Length int64 }](in)
		w := AssignWindow(v.Created, v.Arrived, v.Length)
		return object{"epoch": w.Epoch, "start": w.Start(), "end": w.End(), "grace_end": w.GraceEnd()}, ""
	},
	"chain": func(in json.RawMessage) (any, string) {
		v := read[chainInput](in)
		id, _ := parseHex32(v.Grant)
		c := NewChain(id, v.Window, keyOf(v.Subject))
		for _, text := range v.Receipts {
			r, err := ParseReceipt(text)
			if err != nil {
				return refused(err)
			}
			if err := c.Add(r, v.Now); err != nil {
				return refused(err)
			}
		}
		head := c.Head()
		claim, _ := c.Claim()
		return object{"head": hex.EncodeToString(head[:]), "claim": claim}, ""
	},
	"hop": func(in json.RawMessage) (any, string) {
		v := read[struct {
			Event, Before, Secret string
			At                    int64
		}](in)
		id, _ := parseHex32(v.Event)
		m := HopMessage(id, v.Before, v.At)
		sig := must(agentOfHex(v.Secret).Sign(m))
		return object{"message": hex.EncodeToString(m[:]), "signature": sig.String()}, ""
	},
	"envelope": func(in json.RawMessage) (any, string) {
		v := read[envelopeInput](in)
		e, err := ParseEnvelope(v.Envelope)
		if err != nil {
			return refused(err)
		}
		id, _ := parseHex32(v.Grant)
		g := &Grant{ID: id, Scopes: []Scope{{Push, filter(v.Scope)}}}
		if err := e.Check(Delivery{Self: keyOf(v.Self), Peer: keyOf(v.Peer), Grant: g, Way: Push, Window: Window{v.Window, 3600}, Now: v.Now}); err != nil {
			return refused(err)
		}
		if err := VerifyEnvelope(e); err != nil {
			return refused(err)
		}
		return object{"origin": identity.FormatDID(e.Origin()), "hops": len(e.Path)}, ""
	},
	"report": func(in json.RawMessage) (any, string) {
		v := read[struct {
			Event json.RawMessage
			Now   int64
		}](in)
		e, err := nostr.ParseEvent(v.Event)
		if err != nil {
			return nil, "unparsable"
		}
		r, err := ParseReport(e)
		if err != nil {
			return refused(err)
		}
		j := r.Judge(Known{Now: v.Now})
		return object{"support": j.Support, "code": j.Code}, ""
	},
	"view": func(in json.RawMessage) (any, string) {
		v := read[struct {
			Topic  spec.Topic
			Own    spec.Severity
			Voices []voiceInput
		}](in)
		var voices []Voice
		weights := []string{}
		for _, x := range v.Voices {
			voices = append(voices, x.voice())
			weights = append(weights, x.voice().Weight().RatString())
		}
		return object{"view": View(v.Topic, v.Own, voices), "weights": weights}, ""
	},
	"bucket": func(in json.RawMessage) (any, string) {
		v := read[struct {
			Limits Limits
			Steps  []bucketStep
		}](in)
		b := NewBucket(Window{0, 3600}, v.Limits)
		held := map[int]Reservation{}
		var out []string
		for i, s := range v.Steps {
			if s.Settle != nil {
				out = append(out, map[bool]string{true: "settled", false: "error"}[b.Settle(held[*s.Settle], s.Actual) == nil])
				continue
			}
			r, err := b.Reserve(s.Reserve)
			if err != nil {
				out = append(out, "refused")
				continue
			}
			held[i] = r
			out = append(out, "reserved")
		}
		return object{"results": out, "spent": b.Spent(), "left": b.Left()}, ""
	},
	"round": func(in json.RawMessage) (any, string) { return RoundFigures(read[int64](in)), "" },
	"publish": func(in json.RawMessage) (any, string) {
		v := read[struct {
			Severity                       spec.Severity
			Overruns, Noticed, Window, Now int64
			Reachable                      bool
		}](in)
		p, notice := PublishAfter(v.Severity, v.Overruns, v.Noticed, v.Window, v.Now, v.Reachable)
		return object{"never": p.Never, "at": p.At, "notice": notice}, ""
	},
}

func drafts(t *testing.T) []vectors.Draft {
	return slices.Concat(arithmeticDrafts(), standingDrafts(), grantDrafts(), receiptDrafts(), envelopeDrafts(), reportDrafts(t), trustDrafts(), bucketDrafts())
}

func draft(function, name, about, refuse string, in any) vectors.Draft {
	return vectors.Draft{Name: function + "-" + name, About: about, Layer: "ledger", Function: function, Refuse: refuse, Input: in}
}

func arithmeticDrafts() []vectors.Draft {
	var out []vectors.Draft
	classify := func(name, about string, limit, measured, claimed int64) {
		out = append(out, draft("classify", name, about, "", object{"limit": limit, "measured": measured, "claimed": claimed}))
	}
	classify("below-110", "3,299 of 3,000 is S0.", 3000, 3299, 3299)
	classify("at-110", "A schedule ratio of 1.1 is an overrun of 0.1, and at it is S1.", 3000, 3300, 3300)
	classify("below-200", "5,999 of 3,000 is S1.", 3000, 5999, 5999)
	classify("at-200", "Twice the limit is S2.", 3000, 6000, 6000)
	classify("below-500", "14,999 of 3,000 is S2.", 3000, 14999, 14999)
	classify("at-500", "Five times the limit is S3.", 3000, 15000, 15000)
	classify("lie-at-500", "A lie does not make it cheaper: a misreport is a floor and not a ceiling.", 3000, 15000, 100)
	classify("lie-within", "A misreport within the limit is S2.", 3000, 1000, 100)
	classify("tolerance", "A divergence of exactly a tenth is within tolerance.", 3000, 1000, 900)
	classify("beyond-tolerance", "One more is not.", 3000, 1000, 899)
	classify("over-claim", "Claiming too much diverges like claiming too little.", 3000, 1000, 1101)
	classify("under-floor", "Below five in a hundred of the limit a difference is divided by the floor.", 3000, 15, 0)
	classify("over-floor", "Sixteen of a floor of 150 is above a tenth.", 3000, 16, 0)
	classify("floor-of-one", "The floor is never below one unit: one session unclaimed of a limit of six.", 6, 1, 0)
	classify("zero-limit", "Anything against a limit of zero is an overrun without bound.", 0, 1, 1)
	classify("zero-of-zero", "Nothing against a limit of zero is nothing.", 0, 0, 0)
	classify("large", "Octets of the largest tier do not overflow.", 4294967296, 9007199254740991, 9007199254740991)
	dup := func(name, about string, limit, events, dups int64) {
		out = append(out, draft("duplicates", name, about, "", object{"events_limit": limit, "events": events, "duplicates": dups}))
	}
	dup("seven-in-eight", "Seven duplicates in eight is S3.", 3000, 800, 700)
	dup("at-ceiling", "The ceiling of 0.15 itself is S0.", 3000, 1000, 150)
	dup("at-110", "0.165 is 110 % of the ceiling.", 3000, 1000, 165)
	dup("at-200", "0.3 is twice the ceiling.", 3000, 1000, 300)
	dup("noise", "Below the divergence floor a ratio is noise.", 3000, 149, 149)
	dup("at-floor", "At the floor it is not.", 3000, 150, 150)
	dup("nothing", "Nothing was delivered.", 3000, 0, 0)
	eval := func(name, about string, measured, claimed Counters) {
		out = append(out, draft("evaluate", name, about, "", object{"limits": Opening(spec.TierMember), "measured": measured, "claimed": claimed}))
	}
	eval("drift", "Within every limit, and both agree.", events(700).Clone(), events(700).Clone())
	eval("overrun", "Over one limit, honestly.", events(1000).Clone(), events(1000).Clone())
	eval("worst-line-decides", "A session overrun beside a misreport of octets.", Counters{"conn_open": 14, "bytes_in": 4000000}, Counters{"conn_open": 14, "bytes_in": 1000})
	eval("active-silence", "Traffic and no receipt: an absent claim is the empty claim.", events(400).Clone(), nil)
	eval("inactive-silence", "Nothing measured and no receipt is not evaluated.", Counters{}.Clone(), nil)
	eval("no-meter", "The issuer has no reading of this window.", nil, events(5).Clone())
	eval("counter-of", "conn_rate is priced against conn_open.", Counters{"conn_open": 60}, Counters{"conn_open": 60})
	eval("duplicates", "Duplicates have no claim to diverge from.", Counters{"events_in": 80, "dups_sent": 70}, events(80).Clone())
	for _, w := range []struct {
		name, about              string
		created, arrived, length int64
	}{
		{"own-time", "A message belongs to the window of its created_time.", 496389*3600 - 1, 496389*3600 + 59, 3600},
		{"skew", "More than 60 s off, to that of its arrival.", 496389*3600 - 1, 496389*3600 + 60, 3600},
		{"early", "A sender whose clock runs ahead by a minute keeps its own window.", 496389 * 3600, 496389*3600 - 60, 3600},
		{"short-window", "A window of a minute.", 1787000123, 1787000130, 60},
	} {
		out = append(out, draft("window", w.name, w.about, "", object{"created": w.created, "arrived": w.arrived, "length": w.length}))
	}
	for _, n := range []int64{0, 99, 104, 105, 3312, 2900, 995, 8388608} {
		out = append(out, draft("round", fmt.Sprint(n), "Two significant figures, half up.", "", n))
	}
	for _, tier := range []spec.Tier{spec.TierProbation, spec.TierMember, spec.TierTrusted, spec.TierAnchor, spec.TierRevoked} {
		out = append(out, draft("tier", string(tier), "Ceilings, openings and what a person may seed.", "", tier))
	}
	return out
}

func standingDrafts() []vectors.Draft {
	var out []vectors.Draft
	add := func(name, about string, in closeInput) {
		in.Standing.Limits = in.Standing.Limits.Clone()
		out = append(out, draft("close", name, about, "", in))
	}
	member := Standing{Tier: spec.TierMember, Limits: Seeded(spec.TierMember), CleanWindows: 200}
	open := NewStanding(spec.TierMember)
	u := func(c Counters) Counters { return c.Clone() }
	add("grow-full", "A full window adds a tenth of the ceiling.", closeInput{Standing: open, Measured: u(events(750)), Claimed: u(events(750))})
	add("grow-half", "A half window adds half of that, rounded down once.", closeInput{Standing: open, Measured: u(events(375)), Claimed: u(events(375))})
	add("grow-least", "Almost nothing adds a fiftieth of the ceiling.", closeInput{Standing: open, Measured: u(events(1)), Claimed: u(events(1))})
	add("grow-unmetered", "Without a measurement the least step, and no streak.", closeInput{Standing: open})
	add("unused-at-opening", "A limit that carried nothing and stands at its opening stays.", closeInput{Standing: open, Measured: u(Counters{"req": 1}), Claimed: u(Counters{"req": 1})})
	add("unused-above", "Above its opening it gives a tenth back.", closeInput{Standing: member, Measured: u(Counters{"req": 1}), Claimed: u(Counters{"req": 1})})
	near := Standing{Tier: spec.TierMember, Limits: Opening(spec.TierMember)}
	near.Limits[spec.LimitEventsIn] = 760
	add("unused-just-above", "A tenth would go below the opening: the opening it is.", closeInput{Standing: near, Measured: u(Counters{"req": 1}), Claimed: u(Counters{"req": 1})})
	add("clamp", "Growth stops at the ceiling.", closeInput{Standing: member, Measured: u(events(3000)), Claimed: u(events(3000))})
	idle := member
	idle.IdleWindows = 22
	add("idle-23", "Twenty-three idle windows change nothing.", closeInput{Standing: idle, Measured: u(nil)})
	idle.IdleWindows = 23
	add("idle-24", "The twenty-fourth decays the whole grant once.", closeInput{Standing: idle, Measured: u(nil)})
	idle.IdleWindows = 47
	add("idle-48", "And so does the forty-eighth.", closeInput{Standing: idle, Measured: u(nil)})
	add("s1", "S1 halves, not below the probation ceiling.", closeInput{Standing: member, Measured: u(events(3300)), Claimed: u(events(3300)), Now: 1000})
	for _, tier := range []spec.Tier{spec.TierProbation, spec.TierMember, spec.TierTrusted, spec.TierAnchor} {
		s := Standing{Tier: tier, Limits: Seeded(tier)}
		n := s.Limits[spec.LimitEventsIn]
		add("s2-"+string(tier), "S2 at any tier lands on the probation ceiling.", closeInput{Standing: s, Measured: u(events(n)), Claimed: u(events(n / 2)), Now: 1000})
	}
	young := NewStanding(spec.TierProbation)
	add("s2-never-raises", "A remedy never raises: where a limit is below the floor already it stays.", closeInput{Standing: young, Measured: u(events(187)), Claimed: u(events(0)), Now: 1000})
	add("s3", "Five times a limit: zero for a day.", closeInput{Standing: member, Measured: u(events(15000)), Claimed: u(events(15000)), Now: 1000})
	add("s3-structural", "Traffic outside the scope, in a window within every limit.", closeInput{Standing: member, Measured: u(events(10)), Claimed: u(events(10)), Structural: []Structural{OutsideScope}, Now: 1000})
	add("s4", "A receipt fork: revoked, and the grant is deleted.", closeInput{Standing: member, Measured: u(events(10)), Claimed: u(events(10)), Structural: []Structural{CorruptChain}, Now: 1000})
	suspended := Standing{Tier: spec.TierProbation, Limits: Limits{}.Clamp(spec.TierProbation), ZeroUntil: 90000}
	out = append(out, draft("resume", "early", "A second too early.", "", object{"standing": suspended, "now": 89999}))
	out = append(out, draft("resume", "due", "Then it begins again as a stranger does.", "", object{"standing": suspended, "now": 90000}))
	out = append(out, draft("run", "full-member", "A peering that carries its full limit reaches the ceiling in eight windows.", "", object{"tier": "member", "windows": 9, "full": true}))
	out = append(out, draft("run", "full-anchor", "At every tier.", "", object{"tier": "anchor", "windows": 9, "full": true}))
	out = append(out, draft("run", "quiet-member", "One that carries one event a window takes thirty-eight.", "", object{"tier": "member", "windows": 40, "events": 1}))
	for _, p := range []struct {
		name, about       string
		sev               spec.Severity
		overruns, noticed int64
		reachable         bool
	}{
		{"first-s1", "The first overrun is noticed and never published.", spec.S1, 1, 0, true},
		{"second-s1", "The second is, one window after the notice.", spec.S1, 2, 5000, true},
		{"s2-unnoticed", "No notice yet: it is due.", spec.S2, 0, 0, true},
		{"s2-noticed", "One window after the notice.", spec.S2, 0, 5000, true},
		{"s3", "At once.", spec.S3, 0, 0, true},
		{"s4", "At once.", spec.S4, 0, 0, false},
	} {
		out = append(out, draft("publish", p.name, p.about, "", object{"severity": p.sev, "overruns": p.overruns, "noticed": p.noticed, "window": 3600, "now": 9000, "reachable": p.reachable}))
	}
	return out
}

func secretHex(name string) string { s := seed("node " + name); return hex.EncodeToString(s[:]) }

func grantDrafts() []vectors.Draft {
	var out []vectors.Draft
	out = append(out, draft("blind", "issuer", "The pair's tag from the issuer's side.", "", object{"secret": secretHex("issuer"), "other": did("subject")}))
	out = append(out, draft("blind", "subject", "The same from the subject's.", "", object{"secret": secretHex("subject"), "other": did("issuer")}))
	g, e := grantTo("issuer", "subject", spec.TierMember)
	body := must(g.Disclosure())
	out = append(out, draft("commit", "member", "The commitment over the object without its blinding tag.", "", json.RawMessage(body)))
	add := func(name, about string, code Code, who string, e *nostr.Event) {
		out = append(out, draft("grant", name, about, string(code), grantInput{secretHex(who), e.JSON()}))
	}
	add("member", "A grant opens for its subject.", "", "subject", e)
	add("stranger", "The tag is not the stranger's.", WrongBlind, "stranger", e)
	other := resigned(e, func(e *nostr.Event) { e.Tags[1][1] = fmt.Sprintf("%064x", 7) })
	add("commitment", "The content does not open the public commitment.", BadCommit, "subject", other)
	add("epoch", "The epoch is the clock and not a counter.", BadEpoch, "subject", resigned(e, func(e *nostr.Event) { e.Tags[4][1] = "496389" }))
	add("window", "A window of 59 s.", BadWindow, "subject", resigned(e, func(e *nostr.Event) { e.Tags[3][1] = "59" }))
	add("scheme", "A scheme of another version.", BadScheme, "subject", resigned(e, func(e *nostr.Event) { e.Tags[2][1] = "sha256-blind/2" }))
	add("content", "Content that does not decrypt.", NotForMe, "subject", resigned(e, func(e *nostr.Event) { e.Content = mangled(e.Content) }))
	for _, b := range []struct {
		name, about string
		code        Code
		fix         func(tags [][]string) [][]string
	}{
		{"above-ceiling", "3,001 events at a tier that allows 3,000.", AboveCeiling, replaceTag("limit", "events_in", "3001")},
		{"missing-limit", "A node grant states every limit.", MissingLimit, replaceTag("limit", "errors")},
		{"unknown-limit", "A limit that nothing counts.", UnknownLimit, appendTag("limit", "sub_max", "9")},
		{"repeated-limit", "A limit twice.", identity.DuplicateTag, appendTag("limit", "req", "600")},
		{"schedule", "A schedule of the issuer's own.", BadSchedule, replaceTag("schedule", "1.1", "S2")},
		{"scope", "A scope that is no filter.", BadScope, appendTag("scope", "push", `{"kind":[1]}`)},
		{"direction", "A direction nobody defined.", BadScope, appendTag("scope", "both", `{}`)},
		{"settlement", "Settlement is reserved.", BadSettlement, replaceTag("settlement", "bolt11")},
		{"dup-ratio", "The ratio is the same for everybody.", BadField, replaceTag("limit", "dup_ratio", "0.25")},
		{"other-subject", "The content names a third party.", NotForMe, replaceTag("subject", agent("stranger").PubKey().String(), "node")},
		{"tier", "A tier nobody defined.", UnknownTier, replaceTag("tier", "gold")},
	} {
		add(b.name, b.about, b.code, "subject", regranted(e, body, b.fix))
	}
	return out
}

// regranted encrypts a changed body and commits to it, as a hostile issuer would.
func regranted(e *nostr.Event, body []byte, fix func([][]string) [][]string) *nostr.Event {
	o := must(parseGrantObject(body))
	o.tags = fix(o.tags)
	text := must(spec.Canonical(object{"tags": o.tags}))
	o2 := must(parseGrantObject(text))
	blinding, _ := parseHex32(o.tags[slices.IndexFunc(o.tags, func(t []string) bool { return t[0] == "blinding" })][1])
	key := must(conversationKey(must(agent("issuer").SharedX(agent("subject").PubKey()))))
	commit := Commit(blinding, must(o2.canonical()))
	return resigned(e, func(e *nostr.Event) {
		e.Content = must(nostr.Encrypt(string(text), key))
		e.Tags[1][1] = hex.EncodeToString(commit[:])
	})
}

func resigned(e *nostr.Event, fix func(*nostr.Event)) *nostr.Event {
	c := &nostr.Event{Kind: e.Kind, CreatedAt: e.CreatedAt, Content: e.Content}
	for _, t := range e.Tags {
		c.Tags = append(c.Tags, slices.Clone(t))
	}
	fix(c)
	if err := identity.SignEvent(agent("issuer"), c); err != nil {
		panic(err)
	}
	return c
}

func mangled(s string) string {
	b := []byte(s)
	if i := len(b) / 2; b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

// replaceTag replaces the first tag that has the same name and, where there are two values, the same
// first one; with a single value more than the name it drops a limit or sets a plain tag.
func replaceTag(t ...string) func([][]string) [][]string {
	return func(tags [][]string) [][]string {
		i := slices.IndexFunc(tags, func(u []string) bool {
			return u[0] == t[0] && (t[0] != "limit" && t[0] != "schedule" || u[1] == t[1])
		})
		if t[0] == "limit" && len(t) == 2 {
			return slices.Delete(slices.Clone(tags), i, i+1)
		}
		out := slices.Clone(tags)
		out[i] = t
		return out
	}
}

func appendTag(t ...string) func([][]string) [][]string {
	return func(tags [][]string) [][]string { return append(slices.Clone(tags), t) }
}

func receiptDrafts() []vectors.Draft {
	var out []vectors.Draft
	var id nostr.ID = seed("grant")
	w := WindowAt(t0, 3600)
	sub := agent("subject")
	c := NewChain(id, w, sub.PubKey())
	var good []*Receipt
	for i := range int64(3) {
		r := must(c.Next(sub, Counters{"req": i + 1, "events_in": i * 100, "bytes_in": i * 4000}, []nostr.PubKey{agent("origin").PubKey()}, t0+i*600))
		if err := c.Add(r, t0+i*600); err != nil {
			panic(err)
		}
		good = append(good, r)
	}
	add := func(name, about string, code Code, receipts ...*Receipt) {
		in := chainInput{Grant: id.String(), Window: w, Subject: did("subject"), Now: t0 + 1200}
		for _, r := range receipts {
			in.Receipts = append(in.Receipts, r.JSON())
		}
		out = append(out, draft("chain", name, about, string(code), in))
	}
	alter := func(r *Receipt, who string, fix func(*Receipt)) *Receipt {
		x := *r
		x.Counters = r.Counters.Clone()
		fix(&x)
		x.Sig = must(agent(who).Sign(x.Link()))
		return &x
	}
	add("three", "Three receipts; the head is the link of the last.", "", good...)
	add("empty", "No receipt, no claim, a head of zeros.", "")
	add("gap", "The second has not arrived.", ReceiptGap, good[0], good[2])
	add("again", "The same receipt twice is no news.", ReceiptStale, good[0], good[1], good[0])
	add("fork", "Two signed receipts claim one place.", ReceiptFork, good[0], alter(good[0], "subject", func(r *Receipt) { r.Counters["req"] = 0 }))
	add("fork-behind", "A receipt whose prev is not the head.", ReceiptFork, good[0], alter(good[1], "subject", func(r *Receipt) { r.Prev[0] ^= 1 }))
	add("first-prev", "The first has a prev of zeros.", ReceiptFork, alter(good[0], "subject", func(r *Receipt) { r.Prev[0] = 1 }))
	add("regress", "A counter went down.", ReceiptRegress, good[0], alter(good[1], "subject", func(r *Receipt) { r.Counters["req"] = 0 }))
	add("signature", "Signed by another key.", ReceiptSig, alter(good[0], "stranger", func(*Receipt) {}))
	add("grant", "For another grant.", ReceiptGrant, alter(good[0], "subject", func(r *Receipt) { r.Grant[0] ^= 1 }))
	add("window", "For another window.", ReceiptWindow, alter(good[0], "subject", func(r *Receipt) { r.Window++ }))
	add("future", "Dated 61 s ahead of the reader.", ReceiptFuture, alter(good[0], "subject", func(r *Receipt) { r.At = t0 + 1261 }))
	raw := func(name, about string, code Code, fix func(m object)) {
		m := read[object](good[0].JSON())
		fix(m)
		in := chainInput{Grant: id.String(), Window: w, Subject: did("subject"), Now: t0, Receipts: []json.RawMessage{must(json.Marshal(m))}}
		out = append(out, draft("chain", name, about, string(code), in))
	}
	raw("missing-counter", "Every counter is stated.", BadField, func(m object) { delete(m["counters"].(object), "errors") })
	raw("negative-counter", "No counter is negative.", BadField, func(m object) { m["counters"].(object)["req"] = -1 })
	raw("fraction", "Counters are integers.", BadJSON, func(m object) { m["counters"].(object)["req"] = 1.5 })
	raw("unknown-field", "A receipt has exactly its fields.", BadJSON, func(m object) { m["memo"] = "x" })
	raw("upper-case", "Hex is lower case.", BadField, func(m object) { m["prev"] = "ABCD000000000000000000000000000000000000000000000000000000000000" })
	return out
}

func envelopeDrafts() []vectors.Draft {
	var out []vectors.Draft
	bristol := note("author", 1, nostr.Tag{"t", "bristol"})
	out = append(out, draft("hop", "first", "The first hop has an empty hop before it.", "", object{"event": bristol.ID.String(), "before": "", "at": t0, "secret": secretHex("origin")}))
	out = append(out, draft("hop", "second", "The second names the first as written.", "", object{"event": bristol.ID.String(), "before": did("origin"), "at": t0 + 1, "secret": secretHex("subject")}))
	g := &Grant{ID: seed("grant"), Window: 3600}
	base := envelopeInput{Self: did("issuer"), Peer: did("subject"), Scope: `{"kinds":[0,1],"#t":["bristol"]}`, Grant: g.ID.String(), Window: WindowAt(t0, 3600).Epoch, Now: t0 + 5}
	add := func(name, about string, code Code, e *Envelope) {
		in := base
		in.Envelope = e.JSON()
		out = append(out, draft("envelope", name, about, string(code), in))
	}
	change := func(fix func(e *Envelope), hops ...string) *Envelope {
		e := delivered(g, bristol, hops...)
		fix(e)
		return e
	}
	add("two-hops", "Two hops, both signed.", "", delivered(g, bristol, "origin", "subject"))
	add("three-hops", "Three are the most.", "", delivered(g, bristol, "origin", "relayer", "subject"))
	four := delivered(g, bristol, "origin", "relayer", "second")
	four.Path = append(four.Path, delivered(g, bristol, "subject").Path...)
	add("four-hops", "Four are refused.", HopLimit, four)
	add("no-hop", "An event without provenance is not stored.", EmptyPath, &Envelope{Event: bristol, Grant: g.ID, Window: base.Window})
	add("hop-signature", "A hop lifted onto another moment.", HopSignature, change(func(e *Envelope) { e.Path[0].At-- }, "origin", "subject"))
	add("hop-swapped", "A path put together from two.", HopSignature, change(func(e *Envelope) { e.Path[0] = delivered(g, bristol, "relayer").Path[0] }, "origin", "subject"))
	add("last-hop", "The last hop is not who delivers.", LastHop, delivered(g, bristol, "subject", "relayer"))
	add("loop", "Through the receiver itself.", HopLoop, delivered(g, bristol, "issuer", "subject"))
	add("grant", "Charged to another grant.", WrongGrant, change(func(e *Envelope) { e.Grant[0] ^= 1 }, "subject"))
	add("window", "Charged to another window.", WrongWindow, change(func(e *Envelope) { e.Window++ }, "subject"))
	add("scope", "Outside the interest: S3.", OutOfScope, delivered(g, note("author", 1), "subject"))
	add("never", "A kind that crosses nowhere.", NeverCrosses, delivered(g, note("author", 24133, nostr.Tag{"t", "bristol"}), "subject"))
	add("expired", "Past its NIP-40 time.", ExpiredEvent, delivered(g, note("author", 1, nostr.Tag{"t", "bristol"}, nostr.Tag{"expiration", "1787000124"}), "subject"))
	add("protected", "Only its author may publish it.", ProtectedHere, delivered(g, note("author", 1, nostr.Tag{"t", "bristol"}, nostr.Tag{"-"}), "subject"))
	forged := note("author", 1, nostr.Tag{"t", "bristol"})
	forged.Sig[9] ^= 1
	forged = must(nostr.ParseEvent((&nostr.Event{ID: forged.ID, PubKey: forged.PubKey, CreatedAt: forged.CreatedAt, Kind: forged.Kind, Tags: forged.Tags, Content: forged.Content, Sig: forged.Sig}).JSON()))
	add("event-signature", "The event itself is forged.", EventSig, delivered(g, forged, "subject"))
	return out
}

func reportDrafts(t *testing.T) []vectors.Draft {
	var out []vectors.Draft
	add := func(name, about string, r *Report, now int64) {
		e := must(r.Event())
		if err := identity.SignEvent(agent("issuer"), e); err != nil {
			t.Fatal(err)
		}
		out = append(out, draft("report", name, about, "", object{"event": json.RawMessage(e.JSON()), "now": now}))
	}
	make := func(measured, claimed int64, fix func(r *Report)) *Report {
		r, _, _ := reportOn(t, events(measured), events(claimed))
		if fix != nil {
			fix(r)
		}
		return r
	}
	add("overrun", "S1: the subject's own receipt says so.", make(1000, 1000, nil), soon.Now)
	add("misreport", "S2: measured against the signed claim.", make(700, 100, nil), soon.Now)
	add("lie-and-abuse", "S3 in spite of the lie.", make(5000, 10, nil), soon.Now)
	add("rounded", "825 is published as 830, and the outcome still follows.", make(825, 825, nil), soon.Now)
	add("too-much", "Evidence for S1 that is published as S3.", make(1000, 1000, func(r *Report) { r.Outcome = spec.S3 }), soon.Now)
	add("own-limits", "Limits that the disclosed grant does not state.", make(1000, 1000, func(r *Report) { r.Observed[0].Allowed = 10 }), soon.Now)
	add("own-claims", "Claims that no receipt makes.", make(1000, 1000, func(r *Report) { r.Claimed[0].Count = 5 }), soon.Now)
	add("without-receipt", "Nothing that the subject signed.", make(1000, 1000, func(r *Report) { r.Evidence = r.Evidence[1:] }), soon.Now)
	add("without-grant", "The reporter's grant is not laid open and not held.", make(1000, 1000, func(r *Report) { r.Evidence = r.Evidence[:1] }), soon.Now)
	add("hash", "An artefact that is not what its digest says.", make(1000, 1000, func(r *Report) { r.Evidence[0].Text, r.Evidence[1].Text = r.Evidence[1].Text, r.Evidence[0].Text }), soon.Now)
	add("expired", "Past its time it is not judged.", make(1000, 1000, nil), t0+9000+2592000)
	addShown(t, func(name, about string, r *Report) { add(name, about, r, soon.Now) })
	return out
}

// addShown adds the reports that rest on what the subject delivered or published: silence, structural findings, and a hole in a shard.
func addShown(t *testing.T, add func(name, about string, r *Report)) {
	g, e := grantTo("issuer", "subject", spec.TierMember)
	opened := must(GrantArtefact(e, g))
	bristol, other := note("author", 1, nostr.Tag{"t", "bristol"}), note("author", 1)
	envelope := func(x *Envelope) Artefact { return must(NewArtefact(EvidenceEnvelope, x.JSON())) }
	event := func(x *nostr.Event) Artefact { return must(NewArtefact(EvidenceEvent, x.JSON())) }

	silent := func(name, about string, evidence ...Artefact) {
		r := ReportOn(g, spec.S2, Evaluate(g.Limits, events(100), nil), g.WindowAt(t0), t0+9000)
		r.Evidence = append(evidence, opened)
		add("silence"+name, about, r)
	}
	here, late := delivered(g, bristol, "origin", "subject"), &Envelope{Event: bristol, Grant: g.ID, Window: g.WindowAt(t0).Epoch}
	if err := late.SignHop(agent("subject"), t0+9000); err != nil {
		t.Fatal(err)
	}
	silent("", "S2: the subject signed a hop in the window and no receipt.", envelope(here))
	silent("-elsewhen", "It delivered, in another window.", envelope(late))
	silent("-absent", "It published something, and delivered nothing: of a node that nobody heard no silence can be told.", event(note("subject", 1)))
	again := *late
	again.Path = append(slices.Clone(late.Path), Hop{agent("subject").PubKey(), t0, late.Path[0].Sig})
	silent("-second-hop", "A hop of another window, and one of this window that it did not sign.", envelope(&again))
	before := *here
	before.Path = slices.Clone(here.Path)
	before.Path[0].Sig[5] ^= 1
	silent("-hop-before", "The hop before its own does not hold: whoever verifies would not have passed it on.", envelope(&before))
	shut := ReportOn(g, spec.S2, Evaluate(g.Limits, events(100), nil), g.WindowAt(t0), t0+9000)
	shut.Evidence, shut.Claimed = []Artefact{envelope(here), opened}, []Claimed{{spec.LimitEventsIn, 5}}
	add("silence-that-claims", "A claim without a receipt.", shut)

	found := func(name, about string, sev spec.Severity, evidence ...Artefact) {
		r := ReportOn(g, sev, Evaluation{}, g.WindowAt(t0), t0+9000)
		r.Evidence = append(evidence, opened)
		add(name, about, r)
	}
	found("outside-scope", "S3: it delivered what the grant does not cover.", spec.S3, envelope(delivered(g, other, "origin", "subject")))
	found("inside-scope", "What the grant covers is no offence.", spec.S3, envelope(here))
	found("outside-scope-foreign", "Somebody else delivered it.", spec.S3, envelope(delivered(g, other, "origin")))
	found("outside-scope-own", "S3: an event of its own, of a kind that it writes for others.", spec.S3, event(note("subject", 30023)))
	found("own-record", "What a node publishes of itself lies at many relays and was delivered to nobody.", spec.S3, event(note("subject", 10002)))
	deep := func(kind nostr.Kind) *Envelope {
		x := delivered(g, note("author", kind, nostr.Tag{"t", "bristol"}), "origin", "relayer", "second")
		h := Hop{Node: agent("subject").PubKey(), At: t0 + 3}
		h.Sig = must(agent("subject").Sign(HopMessage(x.Event.ID, did("second"), h.At)))
		x.Path = append(x.Path, h)
		return x
	}
	found("hop-limit", "S3: a fourth hop, twice.", spec.S3, envelope(deep(1)), envelope(deep(0)))
	found("hop-limit-once", "One is a mistake.", spec.S3, envelope(deep(1)))
	longer := deep(1)
	longer.Path = append(longer.Path, longer.Path[0])
	found("hop-limit-twice-the-same", "The same one in two forms is still one.", spec.S3, envelope(deep(1)), envelope(longer))
	stretch := func(kind nostr.Kind) *Envelope {
		x := delivered(g, note("author", kind, nostr.Tag{"t", "bristol"}), "subject", "origin", "relayer")
		x.Path = append(x.Path, Hop{agent("second").PubKey(), t0 + 3, x.Path[0].Sig})
		return x
	}
	found("hop-limit-of-others", "Its hop is the first: what followed is not its work.", spec.S3, envelope(stretch(1)), envelope(stretch(0)))
	_, chain := chains(g)
	fork := func(n int64) Artefact {
		return must(NewArtefact(EvidenceReceipt, must(chain.Next(agent("subject"), events(n), nil, t0)).JSON()))
	}
	found("fork", "S4: two receipts that it signed for one place of the chain.", spec.S4, fork(5), fork(6))
	found("one-receipt", "One receipt forks nothing.", spec.S4, fork(5))

	claim := func(fix func(c *identity.Coverage)) Artefact {
		c := &identity.Coverage{Subject: agent("subject").PubKey(), At: t0, Shard: "notes", Filter: nostr.Filter{Kinds: []nostr.Kind{1}}, Completeness: identity.Asserted,
			Fingerprint: "00112233445566778899aabbccddeeff", FingerprintAt: other.CreatedAt + 1, Count: 7}
		if fix != nil {
			fix(c)
		}
		x := c.Event()
		if err := identity.SignEvent(agent("subject"), x); err != nil {
			t.Fatal(err)
		}
		return event(must(nostr.ParseEvent(x.JSON())))
	}
	found("hole", "S2: an event that lies in a shard that it asserts to hold, and is older than the fingerprint.", spec.S2, claim(nil), event(other))
	found("hole-best-effort", "Who claims best effort is held to nothing.", spec.S2, claim(func(c *identity.Coverage) { c.Completeness = identity.BestEffort }), event(other))
	found("hole-elsewhere", "The shard's filter does not cover the event.", spec.S2, claim(nil), event(note("author", 7)))
	found("hole-later", "The event is younger than the fingerprint.", spec.S2, claim(func(c *identity.Coverage) { c.FingerprintAt = other.CreatedAt - 1 }), event(other))
	found("hole-before", "The shard begins after the event.", spec.S2, claim(func(c *identity.Coverage) { c.Since = other.CreatedAt + 1 }), event(other))
	found("hole-after", "The shard ends before the event.", spec.S2, claim(func(c *identity.Coverage) { c.Until = other.CreatedAt - 1 }), event(other))
	found("hole-no-event", "A claim alone is no hole.", spec.S2, claim(nil))
	found("hole-no-claim", "An event alone shows nothing about the subject.", spec.S2, event(other))
	found("hole-graver", "A hole is an S2 and no more.", spec.S3, claim(nil), event(other))
}

func trustDrafts() []vectors.Draft {
	var out []vectors.Draft
	v := func(name string, tier spec.Tier, sev spec.Severity) voiceInput {
		return voiceInput{Reporter: did(name), Tier: tier, CleanWindows: 168, Topic: spec.TopicTransit, Severity: sev}
	}
	add := func(name, about string, own spec.Severity, voices ...voiceInput) {
		if voices == nil {
			voices = []voiceInput{}
		}
		out = append(out, draft("view", name, about, "", object{"topic": "transit", "own": own, "voices": voices}))
	}
	young, liar, compute := v("a", spec.TierAnchor, spec.S3), v("a", spec.TierAnchor, spec.S3), v("a", spec.TierAnchor, spec.S3)
	young.CleanWindows, liar.Evaluated, liar.False, compute.Topic = 84, 4, 1, spec.TopicCompute
	add("nobody", "Nobody speaks.", spec.S0)
	add("one-anchor", "One anchor is enough.", spec.S0, v("a", spec.TierAnchor, spec.S3))
	add("two-trusted", "Two trusted, at the lower of their findings.", spec.S0, v("a", spec.TierTrusted, spec.S3), v("b", spec.TierTrusted, spec.S1))
	add("three-members", "Three members are not enough.", spec.S0, v("a", spec.TierMember, spec.S2), v("b", spec.TierMember, spec.S2), v("c", spec.TierMember, spec.S2))
	add("four-members", "Four are.", spec.S0, v("a", spec.TierMember, spec.S2), v("b", spec.TierMember, spec.S2), v("c", spec.TierMember, spec.S2), v("d", spec.TierMember, spec.S2))
	add("strangers", "Strangers weigh nothing.", spec.S0, v("a", spec.TierProbation, spec.S4), v("b", spec.TierProbation, spec.S4))
	add("one-key-twice", "A reporter speaks once.", spec.S0, v("a", spec.TierTrusted, spec.S2), v("a", spec.TierTrusted, spec.S2))
	older := young
	older.CleanWindows = 167
	add("one-key-twice-heavier", "Of two voices of one key the weightier counts, and not both.", spec.S0, young, older)
	add("young", "Half a week is half the weight.", spec.S0, young)
	add("false-reports", "One false report in four costs a quarter.", spec.S0, liar)
	add("other-topic", "A finding of compute moves nothing in transit.", spec.S0, compute)
	add("own-is-worse", "Others never talk a finding down.", spec.S4, v("a", spec.TierAnchor, spec.S1))
	return out
}

func bucketDrafts() []vectors.Draft {
	one := Counters{"req": 1}
	var steps []bucketStep
	for range 100 {
		steps = append(steps, bucketStep{Reserve: one})
	}
	zero, two := 0, 2
	limits := Limits{"req": 10}
	return []vectors.Draft{
		draft("bucket", "hundred-of-ten", "A hundred reservations on a budget of ten: exactly ten.", "", object{"limits": limits, "steps": steps}),
		draft("bucket", "settle-gives-back", "What was not spent can be spent again.", "", object{"limits": limits, "steps": []bucketStep{
			{Reserve: Counters{"req": 8}}, {Reserve: Counters{"req": 3}}, {Reserve: Counters{"req": 2}},
			{Settle: &zero, Actual: one}, {Reserve: Counters{"req": 7}}, {Settle: &two, Actual: Counters{"req": 2}}, {Settle: &two}, {Reserve: one}}}),
		draft("bucket", "whole-or-nothing", "One limit without room refuses the whole.", "", object{"limits": Limits{"req": 10, "bytes_in": 100}, "steps": []bucketStep{
			{Reserve: Counters{"req": 1, "bytes_in": 101}}, {Reserve: Counters{"req": 10, "bytes_in": 100}}}}),
	}
}
