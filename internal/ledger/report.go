package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// EvidenceType is what an artefact of a report is.
type EvidenceType string

// The artefacts a report may cite. An event may stay a bare reference, being public; the others travel
// whole in the content, because no relay serves them.
const (
	EvidenceReceipt  EvidenceType = "receipt"  // signed by the subject
	EvidenceEnvelope EvidenceType = "envelope" // the subject signed a hop on it
	EvidenceEvent    EvidenceType = "event"    // the subject wrote it; the digest is its id
	EvidenceGrant    EvidenceType = "grant"    // the reporter's grant, laid open with its blinding
	EvidenceSealed   EvidenceType = "sealed"   // a compute claim, for topic compute
)

// Artefact is one piece of evidence: its type, digest and text.
type Artefact struct {
	Type   EvidenceType
	Digest [32]byte
	Text   []byte // JSON; nil for an event that is only referred to
}

// NewArtefact digests a piece of evidence over its canonical form; an event's digest is its id.
func NewArtefact(t EvidenceType, text []byte) (Artefact, error) {
	if t == EvidenceEvent {
		e, err := nostr.ParseEvent(text)
		if err != nil {
			return Artefact{}, fault(BadEvent, err.Error())
		}
		return Artefact{t, e.ID, text}, nil
	}
	canonical, err := spec.Canonical(text)
	if err != nil {
		return Artefact{}, fault(BadJSON, err.Error())
	}
	return Artefact{t, sha256.Sum256(canonical), canonical}, nil
}

// Observed is one measured line of a report. For dup_ratio Measured are the duplicates and Limit the delivered events.
// Published, both counts of the measurement are rounded; the limit is the grant's and is not.
type Observed struct {
	Limit    spec.Limit
	Measured int64
	Allowed  int64
}

// Claimed is one claimed line of a report, rounded when published.
type Claimed struct {
	Limit spec.Limit
	Count int64
}

// Report is an adverse verdict of one node about another, kind 30802.
type Report struct {
	ID         nostr.ID
	Reporter   nostr.PubKey
	Subject    nostr.PubKey
	At         int64
	Outcome    spec.Severity // S1 to S4
	Topic      spec.Topic
	Grant      nostr.ID // that the reporter issued to the subject
	First      int64    // windows, both included
	Last       int64
	Observed   []Observed
	Claimed    []Claimed
	Evidence   []Artefact
	Thread     string // of the complaint exchange, "" if there was no notice
	NoticedAt  int64
	Note       string
	Expiration int64
}

type reportContent struct {
	Note     string                    `json:"note"`
	Evidence map[string]jsontext.Value `json:"evidence"`
}

// Event builds the unsigned report: counts rounded, evidence carried whole.
func (r *Report) Event() (*nostr.Event, error) {
	if r.Outcome < spec.S1 || r.Outcome > spec.S4 {
		return nil, fault(ReportOutcome, r.Outcome.String())
	}
	if len(r.Evidence) == 0 {
		return nil, fault(EvidenceMissing, "a report carries its evidence")
	}
	e := &nostr.Event{PubKey: r.Reporter, CreatedAt: r.At, Kind: spec.KindReport}
	add := func(t ...string) { e.Tags = append(e.Tags, nostr.Tag(t)) }
	itoa := func(n int64) string { return strconv.FormatInt(n, 10) }
	add("d", r.Subject.String())
	add("outcome", r.Outcome.String())
	if r.Topic != "" && r.Topic != spec.TopicTransit {
		add("topic", string(r.Topic))
	}
	add("grant", r.Grant.String())
	add("windows", itoa(r.First), itoa(r.Last))
	for _, o := range r.Observed {
		allowed := o.Allowed
		if o.Limit == spec.LimitDupRatio {
			allowed = RoundFigures(allowed)
		}
		add("observed", string(o.Limit), itoa(RoundFigures(o.Measured)), itoa(allowed))
	}
	for _, c := range r.Claimed {
		add("claimed", string(c.Limit), itoa(RoundFigures(c.Count)))
	}
	content := reportContent{Note: r.Note, Evidence: map[string]jsontext.Value{}}
	for _, a := range r.Evidence {
		digest := hex.EncodeToString(a.Digest[:])
		add("evidence", string(a.Type), digest)
		if a.Text != nil {
			content.Evidence[digest] = a.Text
		}
	}
	if r.Thread != "" {
		add("notice", r.Thread, itoa(r.NoticedAt))
	}
	add("expiration", itoa(r.Expiration))
	text, err := json.Marshal(content, json.Deterministic(true))
	if err != nil {
		return nil, fault(BadJSON, err.Error())
	}
	e.Content = string(text)
	return e, nil
}

// ReportOn drafts the report of an evaluated window, its observed and claimed lines being those that
// count against the subject.
func ReportOn(g *Grant, sev spec.Severity, v Evaluation, w Window, at int64) *Report {
	r := &Report{Reporter: g.Issuer, Subject: g.Subject, At: at, Outcome: sev, Topic: spec.TopicTransit, Grant: g.ID,
		First: w.Epoch, Last: w.Epoch, Expiration: at + spec.C().Lifetimes.ReportSeconds}
	for _, l := range v.Lines {
		if l.Severity == spec.S0 {
			continue
		}
		r.Observed = append(r.Observed, Observed{l.Limit, l.Measured, l.Allowed})
		if l.Limit != spec.LimitDupRatio && !v.Silent {
			r.Claimed = append(r.Claimed, Claimed{l.Limit, l.Claimed})
		}
	}
	return r
}

// ParseReport reads a report, whose signature is the caller's to verify. The evidence is attached to
// its digests but not judged: that is Judgement's work.
func ParseReport(e *nostr.Event) (*Report, error) {
	if e.Kind != spec.KindReport {
		return nil, fault(identity.WrongKind, strconv.Itoa(int(e.Kind)))
	}
	r := &Report{ID: e.ID, Reporter: e.PubKey, At: e.CreatedAt, Topic: spec.TopicTransit}
	var content reportContent
	if err := decodeStrict([]byte(e.Content), &content); err != nil {
		return nil, fault(BadJSON, "content: "+err.Error())
	}
	r.Note = content.Note
	seen := map[string]bool{}
	for _, t := range e.Tags {
		if len(t) < 2 {
			continue
		}
		if slices.Contains([]string{"d", "outcome", "topic", "grant", "windows", "notice", "expiration"}, t[0]) {
			if seen[t[0]] {
				return nil, fault(identity.DuplicateTag, t[0])
			}
			seen[t[0]] = true
		}
		if err := r.readTag(t, content.Evidence); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"d", "outcome", "grant", "windows", "expiration"} {
		if !seen[name] {
			return nil, fault(BadField, name+" is missing")
		}
	}
	if r.Subject == r.Reporter {
		return nil, fault(ReportSelf, "")
	}
	return r, nil
}

func (r *Report) readTag(t nostr.Tag, evidence map[string]jsontext.Value) (err error) {
	value := func(i int) string {
		if i < len(t) {
			return t[i]
		}
		return ""
	}
	switch t[0] {
	case "d":
		k, ok := parseHex32(t[1])
		if r.Subject = k; !ok {
			return fault(BadSubject, t[1])
		}
	case "outcome":
		if r.Outcome, err = spec.ParseSeverity(t[1]); err != nil || r.Outcome == spec.S0 {
			return fault(ReportOutcome, t[1])
		}
	case "topic":
		r.Topic = spec.Topic(t[1])
		if !slices.Contains(spec.C().Trust.Topics, r.Topic) {
			return fault(BadField, "topic")
		}
	case "grant":
		id, ok := parseHex32(t[1])
		if r.Grant = id; !ok {
			return fault(BadField, "grant")
		}
	case "windows":
		var err2 error
		r.First, err = parseCount(t[1])
		r.Last, err2 = parseCount(value(2))
		if err != nil || err2 != nil || r.First > r.Last {
			return fault(BadField, "windows")
		}
	case "observed":
		return r.readObserved(t[1], value(2), value(3))
	case "claimed":
		c := Claimed{Limit: spec.Limit(t[1])}
		if c.Count, err = parseCount(value(2)); err != nil {
			return err
		}
		r.Claimed = append(r.Claimed, c)
	case "evidence":
		d, ok := parseHex32(value(2))
		if !ok {
			return fault(BadField, "evidence")
		}
		r.Evidence = append(r.Evidence, Artefact{EvidenceType(t[1]), d, bytes.Clone(evidence[value(2)])})
	case "notice":
		r.Thread = t[1]
		r.NoticedAt, err = parseCount(value(2))
	case "expiration":
		r.Expiration, err = parseCount(t[1])
	}
	return err
}

func (r *Report) readObserved(limit, measured, allowed string) error {
	o := Observed{Limit: spec.Limit(limit)}
	if _, ok := spec.C().Limit(o.Limit); !ok && o.Limit != spec.LimitDupRatio {
		return fault(UnknownLimit, limit)
	}
	var err error
	if o.Measured, err = parseCount(measured); err != nil {
		return err
	}
	if o.Allowed, err = parseCount(allowed); err != nil {
		return err
	}
	for _, other := range r.Observed {
		if other.Limit == o.Limit {
			return fault(identity.DuplicateTag, "observed "+limit)
		}
	}
	r.Observed = append(r.Observed, o)
	return nil
}
