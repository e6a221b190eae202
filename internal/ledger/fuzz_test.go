package ledger

import (
	"bytes"
	"encoding/json"
	"testing"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func FuzzGrantBody(f *testing.F) {
	g, _ := grantTo("issuer", "subject", spec.TierMember)
	f.Add(must(g.Disclosure()))
	a := NewAuthorGrant(g.Issuer, g.Subject, true, AuthorEntry{Source: OwnSource, Reason: "spam"}, t0, t0+1)
	f.Add(must(a.Disclosure()))
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseGrantObject(body)
		if err != nil {
			return
		}
		canonical, err := o.canonical()
		if err != nil {
			return
		}
		g := &Grant{Window: 3600, CreatedAt: t0, Expiration: t0 + 1}
		if err := g.readBody(o.tags); err != nil {
			if identity.CodeOf(err) == "" {
				t.Fatalf("no code: %v", err)
			}
			return
		}
		fr := &Frame{Window: 3600, CreatedAt: t0, Expiration: t0 + 1, Commit: Commit(g.Blinding, canonical)}
		got, err := fr.Unveil(body)
		if err != nil {
			return
		}
		for n, v := range got.Limits {
			if v > spec.C().Ceiling(n, got.Tier) {
				t.Fatal("a grant above its ceiling passed")
			}
		}
		again := must(got.Disclosure())
		o2 := must(parseGrantObject(again))
		g2 := &Grant{}
		if err := g2.readBody(o2.tags); err != nil || !g2.Limits.Equal(got.Limits) || len(g2.Scopes) != len(got.Scopes) {
			t.Fatalf("written again it reads otherwise: %v", err)
		}
	})
}

func FuzzReceipt(f *testing.F) {
	c := NewChain(seed("grant"), WindowAt(t0, 3600), agent("subject").PubKey())
	f.Add(must(c.Next(agent("subject"), events(5), []nostr.PubKey{agent("origin").PubKey()}, t0)).JSON())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReceipt(b)
		if err != nil {
			return
		}
		want, err := spec.Canonical(b)
		if err != nil {
			t.Fatalf("a receipt without canonical form passed: %s", b)
		}
		if !bytes.Equal(r.JSON(), want) {
			t.Fatalf("%s\n%s", r.JSON(), want)
		}
	})
}

func FuzzEnvelope(f *testing.F) {
	g := &Grant{ID: seed("grant"), Window: 3600}
	f.Add(delivered(g, note("author", 1), "origin", "subject").JSON())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEnvelope(b)
		if err != nil {
			return
		}
		again, err := ParseEnvelope(e.JSON())
		if err != nil || !bytes.Equal(again.JSON(), e.JSON()) {
			t.Fatalf("%v\n%s", err, e.JSON())
		}
		if len(e.Path) == 0 || len(e.Path) > 3 || len(e.Triples()) != len(e.Path) {
			t.Fatal(len(e.Path))
		}
	})
}

// FuzzReport takes tags and content alone: the id is made to fit, since a hash cannot be guessed.
func FuzzReport(f *testing.F) {
	g, e := grantTo("issuer", "subject", spec.TierMember)
	v := Evaluate(g.Limits, events(1000), events(1000))
	r := ReportOn(g, spec.S1, v, g.WindowAt(t0), t0)
	c := NewChain(g.ID, g.WindowAt(t0), g.Subject)
	r.Evidence = []Artefact{must(NewArtefact(EvidenceReceipt, must(c.Next(agent("subject"), events(1000), nil, t0)).JSON())), must(GrantArtefact(e, g))}
	re := must(r.Event())
	f.Add(must(json.Marshal(re.Tags)), re.Content)
	f.Fuzz(func(t *testing.T, tags []byte, content string) {
		ev := &nostr.Event{PubKey: g.Issuer, Kind: spec.KindReport, CreatedAt: t0, Content: content}
		if json.Unmarshal(tags, &ev.Tags) != nil {
			return
		}
		r, err := ParseReport(ev)
		if err != nil {
			return
		}
		j := r.Judge(Known{Now: t0 + 1})
		if j.Support == Supported && r.Outcome == spec.S0 {
			t.Fatal("S0 is never reported")
		}
	})
}

// FuzzFrame takes the public tags of a grant.
func FuzzFrame(f *testing.F) {
	_, e := grantTo("issuer", "subject", spec.TierMember)
	f.Add(must(json.Marshal(e.Tags)), e.Content)
	f.Fuzz(func(t *testing.T, tags []byte, content string) {
		ev := &nostr.Event{PubKey: agent("issuer").PubKey(), Kind: spec.KindGrant, CreatedAt: t0, Content: content}
		if json.Unmarshal(tags, &ev.Tags) != nil {
			return
		}
		if fr, err := ParseFrame(ev); err == nil && (fr.Window < 60 || fr.Window > 86400) {
			t.Fatal(fr.Window)
		}
		_, _ = Open(agent("subject"), ev)
	})
}
