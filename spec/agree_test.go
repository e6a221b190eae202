package spec_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// The schemas, and the code that reads and writes what they describe, are two
// accounts of one thing. Here each is held against the other.

const moment = 496389 * 3600

func agent(t *testing.T, who string) identity.Agent {
	t.Helper()
	a, err := identity.NewKeyAgent(nostr.SecretKey(sha256.Sum256([]byte("fleetmesh sample " + who))))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// written holds what the product writes to its schemas.
type written struct {
	*testing.T
	issuer, subject identity.Agent
}

func (w written) event(e *nostr.Event, err error) *nostr.Event {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	if e.Sig == (nostr.Sig{}) {
		if err := identity.SignEvent(w.issuer, e); err != nil {
			w.Fatal(err)
		}
	}
	if err := spec.ValidateEvent(e.Kind, e.JSON()); err != nil {
		w.Errorf("%v\n%s", err, e.JSON())
	}
	return e
}

func (w written) object(name string, text []byte) {
	w.Helper()
	if err := spec.ValidateObject(name, text); err != nil {
		w.Errorf("%v\n%s", err, text)
	}
}

func TestWhatIsWrittenFitsItsSchema(t *testing.T) {
	w := written{t, agent(t, "issuer"), agent(t, "subject")}
	keys, err := identity.DeriveKeys(nostr.SecretKey(sha256.Sum256([]byte("fleetmesh sample issuer"))), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []spec.Class{spec.ClassAnchor, spec.ClassEdge, spec.ClassLeaf} {
		d := &identity.Descriptor{Subject: w.issuer.PubKey(), CreatedAt: moment, Class: class, Protocol: spec.ProtocolName, Digest: spec.DigestHex(),
			Agreement: []identity.BoundKey{{Key: keys.Agreement.Public(), Expires: moment + 10}, {Key: keys.Agreement.Public()}},
			Transport: []identity.TransportKey{keys.Transport.Public()}, Protocols: []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync},
			Operator: agent(t, "operator").PubKey(), NIPs: []string{"1", "77"}, Expiration: moment + 86400}
		switch class {
		case spec.ClassAnchor:
			d.Endpoints = []identity.Endpoint{{Scheme: "wss", Address: "wss://relay.example.org", Preference: 40}}
			d.Capabilities = []string{"relay", "mediator"}
		case spec.ClassLeaf:
			d.Mediators = []nostr.PubKey{agent(t, "mediator").PubKey()}
		}
		w.event(d.Event(), nil)
	}
	w.event((&identity.Revocation{Subject: w.issuer.PubKey(), At: moment, Reason: identity.Retired, Successor: w.subject.PubKey()}).Event(), nil)
	w.event((&identity.Heartbeat{Subject: w.issuer.PubKey(), At: moment, Class: spec.ClassAnchor, Endpoints: identity.EndpointsDigest(nil), Load: "0.42"}).Event(), nil)
	w.event((&identity.Coverage{Subject: w.issuer.PubKey(), At: moment, Shard: "harbour", Until: moment, Completeness: identity.Asserted,
		Fingerprint: strings.Repeat("0", 32), Filter: nostr.Filter{Kinds: []nostr.Kind{1}}}).Event(), nil)
	w.event((&identity.Roster{Admin: w.issuer.PubKey(), At: moment, Topic: "ops", Members: []nostr.PubKey{w.subject.PubKey()}}).Event(), nil)
	w.ledger()
}

// ledger writes a grant, what is charged to it, and a report about that.
func (w written) ledger() {
	filter := nostr.Filter{Kinds: []nostr.Kind{1}}
	grant := ledger.NewGrant(w.issuer.PubKey(), w.subject.PubKey(), spec.TierMember, []ledger.Scope{{Direction: ledger.Push, Filter: filter}}, moment)
	envelope := w.event(ledger.Seal(w.issuer, grant, rand.Reader))
	body, err := grant.Disclosure()
	if err != nil {
		w.Fatal(err)
	}
	w.object("grant", body)
	if err := spec.ValidateContent(spec.KindGrant, body); err != nil {
		w.Error(err)
	}
	entry := ledger.NewAuthorGrant(w.issuer.PubKey(), w.subject.PubKey(), true, ledger.AuthorEntry{Source: ledger.OwnSource, Reason: "spam", Retracted: moment}, moment, moment+9)
	w.event(ledger.Seal(w.issuer, entry, rand.Reader))
	if body, err = entry.Disclosure(); err != nil {
		w.Fatal(err)
	}
	w.object("grant", body)

	receipt, err := ledger.NewChain(grant.ID, grant.WindowAt(moment), w.subject.PubKey()).Next(w.subject, ledger.Counters{spec.CounterEventsIn: 1600}, nil, moment+5)
	if err != nil {
		w.Fatal(err)
	}
	w.object("receipt", receipt.JSON())
	for _, typ := range []spec.MessageType{spec.MsgBudgetReceipt, spec.MsgBudgetClose} {
		if err := spec.ValidateMessage(typ, receipt.JSON()); err != nil {
			w.Error(err)
		}
	}
	note := &nostr.Event{Kind: 1, CreatedAt: moment, Content: "Low water at six."}
	if err := identity.SignEvent(w.subject, note); err != nil {
		w.Fatal(err)
	}
	wrapped := &ledger.Envelope{Event: note, Grant: grant.ID, Window: 496389}
	for _, a := range []identity.Agent{w.subject, w.issuer} {
		if err := wrapped.SignHop(a, moment+6); err != nil {
			w.Fatal(err)
		}
	}
	w.object("delivery-envelope", wrapped.JSON())
	w.report(grant, envelope, receipt)
}

func (w written) report(grant *ledger.Grant, envelope *nostr.Event, receipt *ledger.Receipt) {
	window := grant.WindowAt(moment)
	v := ledger.Evaluate(grant.Limits, ledger.Counters{spec.CounterEventsIn: 2000}, receipt.Counters)
	r := ledger.ReportOn(grant, spec.S2, v, window, moment)
	opened, err := ledger.GrantArtefact(envelope, grant)
	if err != nil {
		w.Fatal(err)
	}
	w.object("grant-opening", opened.Text)
	claim, err := ledger.NewArtefact(ledger.EvidenceReceipt, receipt.JSON())
	if err != nil {
		w.Fatal(err)
	}
	r.Evidence, r.Thread, r.NoticedAt, r.Note = []ledger.Artefact{claim, opened}, "6f2b", moment, "Divergence."
	e := w.event(r.Event())
	if err := spec.ValidateContent(spec.KindReport, []byte(e.Content)); err != nil {
		w.Error(err)
	}
}

// reads is what the product makes of a sample's value; ok is false where it has no reader for it.
func reads(s *spec.Sample) (err error, ok bool) {
	text := s.Bytes()
	var e *nostr.Event
	if strings.HasPrefix(s.Subject, "event ") {
		if e, err = nostr.ParseEvent(text); err != nil {
			return err, true
		}
	}
	switch s.Subject {
	case "event 11801":
		_, err = identity.ParseDescriptor(e)
		if err == nil {
			_, err = identity.CheckDescriptor(e, identity.Rules{Now: moment + 1})
		}
	case "event 21801":
		_, err = identity.ParseHeartbeat(e)
	case "event 30801":
		_, err = ledger.ParseFrame(e)
	case "event 30802":
		_, err = ledger.ParseReport(e)
	case "event 30803":
		_, err = identity.ParseCoverage(e)
	case "event 30804":
		_, err = identity.ParseRoster(e)
	case "object receipt", "message " + string(spec.MsgBudgetReceipt), "message " + string(spec.MsgBudgetClose):
		_, err = ledger.ParseReceipt(text)
	case "object delivery-envelope":
		_, err = ledger.ParseEnvelope(text)
	default:
		return nil, false
	}
	return err, true
}

// laxer are the samples that a reader takes although their schema refuses them, because what they break is
// judged elsewhere or means nothing.
var laxer = []string{
	"30801.plaintext",                    // the frame is read before the content is opened
	"30802.content-without-evidence",     // the report is unsupported, and that costs its reporter
	"30802.evidence-kind",                // the same
	"delivery-envelope.hop-without-time", // no signature covers the time that is read instead
	"receipt.minus-zero",                 // reads as zero, and the body that is signed over says zero
}

func TestReadersAgreeWithTheSamples(t *testing.T) {
	valid, invalid, err := spec.Samples()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range valid {
		if err, ok := reads(&s); ok && err != nil {
			t.Errorf("%s fits its schema and its reader refuses it: %v", s.Name, err)
		}
	}
	for _, s := range invalid {
		if err, ok := reads(&s); ok && err == nil && !slices.Contains(laxer, s.Name) {
			t.Errorf("%s does not fit its schema and its reader takes it: %s", s.Name, s.Fails)
		}
	}
}

// Events that the vectors of other layers accept fit their schemas.
func TestVectorsOfOtherLayersFit(t *testing.T) {
	seen := 0
	err := fs.WalkDir(spec.Vectors, "vectors", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".json") {
			return err
		}
		text, err := fs.ReadFile(spec.Vectors, name)
		if err != nil {
			return err
		}
		var v struct {
			Refuse string
			Input  json.RawMessage
		}
		var in struct{ Event, Envelope, Descriptor json.RawMessage }
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		if v.Refuse != "" || json.Unmarshal(v.Input, &in) != nil {
			return nil
		}
		if in.Envelope != nil {
			seen++
			if err := spec.ValidateObject("delivery-envelope", in.Envelope); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, event := range []json.RawMessage{in.Event, in.Descriptor} {
			var e struct{ Kind nostr.Kind }
			if event == nil || json.Unmarshal(event, &e) != nil {
				continue
			}
			seen++
			if err := spec.ValidateEvent(e.Kind, event); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no vector holds an event")
	}
}

// A filter's schema and its parser know the same keys.
func TestFilterSchemaAgreesWithTheParser(t *testing.T) {
	for _, text := range []string{`{}`, `{"ids":[],"authors":[],"kinds":[65535],"since":0,"until":1,"limit":0,"search":"x","#t":["a"],"#Z":[]}`,
		`{"kind":[1]}`, `{"#ab":["x"]}`, `{"kinds":[65536]}`, `{"kinds":["1"]}`, `{"ids":["AB"]}`, `{"since":-1}`, `{"#t":[1]}`, `{"#1":["x"]}`, `[]`} {
		body, _ := json.Marshal(map[string]any{"shard": "x", "mode": "pull", "neg": "61", "filter": json.RawMessage(text)})
		fits := spec.ValidateMessage(spec.MsgSyncOpen, body) == nil
		_, err := nostr.ParseFilter([]byte(text))
		if fits != (err == nil) {
			t.Errorf("filter %s: schema %v, parser %v", text, fits, err)
		}
	}
}

// The canonical form of an event's text is not its NIP-01 serialisation, and need not be; but whatever the
// parser keeps has a canonical form, because evidence is hashed over it.
func TestEventsHaveACanonicalForm(t *testing.T) {
	e := &nostr.Event{Kind: 1, CreatedAt: moment, Content: "a\u2028\x7f<&>\n", Tags: []nostr.Tag{{"t", "é🌊"}}}
	if err := identity.SignEvent(agent(t, "author"), e); err != nil {
		t.Fatal(err)
	}
	c, err := spec.Canonical(e.JSON())
	if err != nil {
		t.Fatal(err)
	}
	back, err := nostr.ParseEvent(c)
	if err != nil || back.ID != e.ID || back.ComputeID() != e.ID {
		t.Errorf("the canonical form reads back as another event: %v", err)
	}
}
