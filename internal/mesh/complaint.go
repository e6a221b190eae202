package mesh

import (
	"encoding/json"
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// complaint/1.0: a finding is told to the peer before anybody else hears of it. S1 and S2 are published a window after the notice left, the first
// S1 never; S3 and S4 at once (§ Window arithmetic). What is published is what a reader finds supported by the artefacts alone: a node judges
// its own report first, since an unsupported one would cost it its voice.

// WithdrawComplaint is the operator's wish to take a complaint back, and the report with it if it is published.
type WithdrawComplaint struct {
	Peer   nostr.PubKey
	Thread string // "": every one that stands
	Note   string
}

// ReportPublished answers PublishReport. Event is zero where it could not be published now.
type ReportPublished struct {
	Subject nostr.PubKey
	Thread  string
	Event   nostr.ID
}

// PublishReport signs and publishes a report (kind 30802) and what it projects, and answers with ReportPublished.
type PublishReport struct {
	Subject nostr.PubKey
	Thread  string
	Report  *ledger.Report
}

// RetractReport deletes a report of ours that was published.
type RetractReport struct {
	Subject nostr.PubKey
	Event   nostr.ID
}

func (WithdrawComplaint) input() {}
func (ReportPublished) input()   {}
func (PublishReport) effect()    {}
func (RetractReport) effect()    {}

// caseStage is how far a complaint has come.
type caseStage string

const (
	caseWaits      caseStage = "noticed"    // to be published when the notice has stood for a window
	casePublishing caseStage = "publishing" // it is being published
	casePublished  caseStage = "published"
	caseKept       caseStage = "kept"     // it stays between the two: a first overrun, or a graver report stands
	caseUnproven   caseStage = "unproven" // what is held does not prove it to others
	caseWithdrawn  caseStage = "withdrawn"
)

// Complaint is a finding of ours about a peer, and what became of it.
type Complaint struct {
	Thread     string              `json:"thread"`
	Stage      caseStage           `json:"stage"`
	Outcome    spec.Severity       `json:"outcome"`
	Structural []ledger.Structural `json:"structural,omitempty"`
	Grant      nostr.ID            `json:"grant"`
	First      int64               `json:"first_window"`
	Last       int64               `json:"last_window"`
	Observed   []ledger.Observed   `json:"observed,omitempty"`
	Claimed    []ledger.Claimed    `json:"claimed,omitempty"`
	Evidence   []Exhibit           `json:"evidence,omitempty"`
	At         int64               `json:"at"`
	Notice     bool                `json:"notice,omitempty"` // the peer is told
	Noticed    int64               `json:"noticed_at,omitempty"`
	PublishAt  int64               `json:"publish_at,omitempty"`
	Published  int64               `json:"published_at,omitempty"`
	Event      nostr.ID            `json:"event"`
	Answer     string              `json:"answer,omitempty"`          // accept or contest; "": silence so far
	Answered   json.RawMessage     `json:"answer_evidence,omitempty"` // what the peer brought against it
	Why        string              `json:"why,omitempty"`             // why nothing is published

	told    bool  // in this life: the outbox keeps a notice, but a crash may fall before it
	retryAt int64 // when it is published again, 0: at once
}

// Exhibit is an artefact of a report before it is digested.
type Exhibit struct {
	Type ledger.EvidenceType `json:"type"`
	Text json.RawMessage     `json:"text"`
}

// Accusation is a complaint of a peer's about us.
type Accusation struct {
	Thread    string         `json:"thread"`
	Outcome   string         `json:"outcome,omitempty"`
	Grant     nostr.ID       `json:"grant"`
	First     int64          `json:"first_window"`
	Last      int64          `json:"last_window"`
	At        int64          `json:"at"`
	Support   ledger.Support `json:"support"` // what our own reading of it says
	Detail    string         `json:"detail,omitempty"`
	Answer    string         `json:"answer"`
	Withdrawn bool           `json:"withdrawn,omitempty"`
}

// docket is what there is of complaints between us and a peer: a journal record of its own.
type docket struct {
	Key    nostr.PubKey
	Ours   []*Complaint  `json:",omitempty"` // oldest first
	Theirs []*Accusation `json:",omitempty"`
}

// keptCases is how many complaints of each side are remembered.
const keptCases = 16

// Answers to a notice.
const (
	answerAccept  = "accept"
	answerContest = "contest"
)

// Bodies of complaint/1.0 (spec/schema/message/complaint-1.0.json).
type (
	noticeBody struct {
		Grant    nostr.ID                     `json:"grant"`
		Windows  [2]int64                     `json:"windows"`
		Observed map[spec.Limit]noticeLine    `json:"observed"`
		Claimed  map[spec.Limit]int64         `json:"claimed"`
		Evidence map[nostr.ID]json.RawMessage `json:"evidence"`
		Outcome  spec.Severity                `json:"outcome"`
		Note     string                       `json:"note,omitempty"`
	}
	noticeLine struct {
		Measured int64 `json:"measured"`
		Limit    int64 `json:"limit"`
	}
	responseBody struct {
		Answer   string                       `json:"answer"`
		Evidence map[nostr.ID]json.RawMessage `json:"evidence"`
		Note     string                       `json:"note,omitempty"`
	}
	withdrawnBody struct {
		Note string `json:"note,omitempty"`
	}
)

// maxContest is how many octets of a peer's evidence against a complaint are kept.
const maxContest = 64 << 10

// republishSeconds is how long after a report could not be published it is tried again.
const republishSeconds = 600

// saveCases persists the complaints with a peer. It is made durable by the peer's own record, which follows.
func (t *turn) saveCases(p *peer, lazy bool) {
	p.Cases.Key = p.Key
	t.persist(caseKey+p.Key.String(), &p.Cases, lazy)
}

// pursue does what is due about complaints: notices that did not leave, reports whose time has come.
func (t *turn) pursue(p *peer) {
	for _, c := range p.Cases.Ours {
		if p.tells(c) {
			t.notify(p, c)
		}
		switch {
		case c.Stage == caseWaits && c.PublishAt <= t.now:
			t.publish(p, c)
		case c.Stage == casePublishing && c.retryAt <= t.now:
			t.publishing(p, c)
		}
	}
}

// caseDue is the next second at which complaints about a peer need attention, 0 if none.
func (p *peer) caseDue() (at int64) {
	for _, c := range p.Cases.Ours {
		due := int64(0)
		switch {
		case c.Stage == caseWaits:
			due = c.PublishAt
		case c.Stage == casePublishing:
			due = max(c.retryAt, 1)
		}
		if p.tells(c) {
			due = 1
		}
		if due > 0 && (at == 0 || due < at) {
			at = due
		}
	}
	return at
}

// tells reports whether the notice of a complaint is to be sent now. A peer that does not speak the protocol hears none; a window is waited all the same.
func (p *peer) tells(c *Complaint) bool {
	return c.Notice && !c.told && c.Answer == "" && c.Stage != caseWithdrawn && slices.Contains(p.Protocols, spec.PIURIComplaint)
}

// notify sends the notice, under the id that it always has: a peer that got it before takes it for a copy.
func (t *turn) notify(p *peer, c *Complaint) {
	c.told = true
	body := noticeBody{Grant: c.Grant, Windows: [2]int64{c.First, c.Last}, Observed: map[spec.Limit]noticeLine{}, Claimed: map[spec.Limit]int64{},
		Evidence: map[nostr.ID]json.RawMessage{}, Outcome: c.Outcome}
	for _, o := range c.Observed {
		if o.Limit == spec.LimitDupRatio { // which the notice has no line for
			body.Note = "too many duplicates"
			continue
		}
		body.Observed[o.Limit] = noticeLine{o.Measured, o.Allowed}
	}
	for _, l := range c.Claimed {
		body.Claimed[l.Limit] = l.Count
	}
	for _, f := range c.Structural {
		body.Note = string(f)
	}
	for _, a := range c.artefacts() {
		body.Evidence[a.Digest] = a.Text
	}
	t.do(Send{To: p.Key, Type: spec.MsgComplaintNotice, ID: c.Thread, Body: body, Durable: true})
	t.do(Tell{Peer: p.Key, What: "complaint-noticed", Window: c.Last, Severity: c.Outcome, Detail: "thread " + c.Thread})
}

// publish makes a report of a complaint whose notice has stood, unless a graver one stands already.
func (t *turn) publish(p *peer, c *Complaint) {
	if o := p.reported(t.now); o != nil && o.Outcome > c.Outcome {
		c.Stage, c.Why = caseKept, "a report of "+o.Outcome.String()+" stands"
		t.saveCases(p, false)
		return
	}
	c.Stage = casePublishing
	c.Published = t.now
	for _, o := range p.Cases.Ours {
		if o != c && o.Published > 0 {
			c.Published = max(c.Published, o.Published+1) // it replaces the one before it
		}
	}
	t.saveCases(p, false)
	t.publishing(p, c)
}

func (t *turn) publishing(p *peer, c *Complaint) {
	c.retryAt = t.now + republishSeconds // until the host has answered
	t.do(PublishReport{Subject: p.Key, Thread: c.Thread, Report: c.report(t.cfg.Self, p.Key, c.Published)})
}

// reported returns the gravest report about a peer that stands, nil if there is none.
func (p *peer) reported(now int64) (worst *Complaint) {
	for _, c := range p.Cases.Ours {
		if c.Stage == casePublished && now < c.Published+spec.C().Lifetimes.ReportSeconds && (worst == nil || c.Outcome >= worst.Outcome) {
			worst = c
		}
	}
	return worst
}

// reportPublished notes what the host did.
func (t *turn) reportPublished(in ReportPublished) {
	p := t.peers[in.Subject]
	if p == nil {
		return
	}
	c := p.complaint(in.Thread)
	if c == nil || c.Stage != casePublishing {
		return
	}
	if in.Event == (nostr.ID{}) {
		t.do(Tell{Peer: p.Key, What: "report-delayed", Window: c.Last, Severity: c.Outcome})
		return
	}
	c.Stage, c.Event, c.retryAt = casePublished, in.Event, 0
	t.saveCases(p, false)
	t.do(Tell{Peer: p.Key, What: "report-published", Window: c.Last, Severity: c.Outcome, Detail: in.Event.String()})
}

func (p *peer) complaint(thread string) *Complaint {
	for _, c := range p.Cases.Ours {
		if c.Thread == thread {
			return c
		}
	}
	return nil
}

// response takes what the peer says to a notice. It changes no finding: an issuer prices a window on the last receipt that it
// received, and one that is written after the notice knows what was measured. It is kept for the operator, who may withdraw.
func (t *turn) response(p *peer, in Received) {
	if p == nil {
		return
	}
	var body responseBody
	if err := json.Unmarshal(in.Body, &body); err != nil {
		t.fault(p, in.Thread, spec.CodeMalformed)
		return
	}
	c := p.complaint(in.Thread)
	if c == nil || c.Answer != "" {
		return
	}
	c.Answer = body.Answer
	if evidence, err := json.Marshal(body.Evidence); err == nil && len(body.Evidence) > 0 && len(evidence) <= maxContest {
		c.Answered = evidence
	}
	t.saveCases(p, false)
	t.do(Tell{Peer: p.Key, What: "complaint-" + body.Answer + "ed", Window: c.Last, Severity: c.Outcome, Detail: body.Note})
}

// withdraw takes complaints back. What they cost stays: a tier is given by a person.
func (t *turn) withdraw(in WithdrawComplaint) {
	p := t.peers[in.Peer]
	if p == nil {
		return
	}
	for _, c := range p.Cases.Ours {
		if in.Thread != "" && c.Thread != in.Thread || c.Stage == caseWithdrawn {
			continue
		}
		was := c.Stage
		c.Stage, c.Why = caseWithdrawn, in.Note
		t.saveCases(p, false)
		if was == casePublished {
			t.do(RetractReport{Subject: p.Key, Event: c.Event})
		}
		if c.told && slices.Contains(p.Protocols, spec.PIURIComplaint) {
			t.do(Send{To: p.Key, Type: spec.MsgComplaintWithdrawn, ID: t.newID(), Thread: c.Thread, Body: withdrawnBody{in.Note}, Durable: true})
		}
		t.do(Tell{Peer: p.Key, What: "complaint-withdrawn", Window: c.Last, Severity: c.Outcome, Detail: in.Note})
	}
}

// noticed answers a complaint about us. It is read as a report is: an overrun that we said ourselves is accepted. Anything else is contested, with our last
// receipt of the window where we still have one: what we claimed is what we counted, so a measurement that differs from it is the issuer's word alone.
func (t *turn) noticed(p *peer, in Received) {
	if p == nil || len(p.Held) == 0 && p.Stage != ended {
		return // of somebody who never granted us anything
	}
	var body noticeBody
	if err := json.Unmarshal(in.Body, &body); err != nil || body.Windows[0] > body.Windows[1] {
		t.fault(p, in.Thread, spec.CodeMalformed)
		return
	}
	a := p.accusation(in.Thread)
	if a == nil {
		a = &Accusation{Thread: in.Thread, Grant: body.Grant, First: body.Windows[0], Last: body.Windows[1], At: t.now}
		if body.Outcome > spec.S0 {
			a.Outcome = body.Outcome.String()
		}
		j := body.judge(p.Key, t.cfg.Self, t.now)
		a.Support, a.Detail, a.Answer = j.Support, j.Detail, answerContest
		if j.Support == ledger.Supported && !body.disputed() {
			a.Answer = answerAccept
		}
		p.Cases.Theirs = keep(append(p.Cases.Theirs, a))
		t.saveCases(p, false)
		t.do(Tell{Peer: p.Key, What: "complaint-received", Window: a.Last, Severity: body.Outcome, Detail: a.Answer})
	}
	answer := responseBody{Answer: a.Answer, Evidence: map[nostr.ID]json.RawMessage{}}
	if b := lookup(p.Used, a.Last); a.Answer == answerContest && b != nil && b.Last != nil {
		if x, err := ledger.NewArtefact(ledger.EvidenceReceipt, b.Last.JSON()); err == nil {
			answer.Evidence[x.Digest] = x.Text
		}
	}
	t.do(Send{To: p.Key, Type: spec.MsgComplaintResponse, ID: t.newID(), Thread: in.Thread, Body: answer, Durable: true})
}

func (p *peer) accusation(thread string) *Accusation {
	for _, a := range p.Cases.Theirs {
		if a.Thread == thread {
			return a
		}
	}
	return nil
}

// withdrawn notes that a peer took its complaint back.
func (t *turn) withdrawn(p *peer, in Received) {
	if p == nil {
		return
	}
	if a := p.accusation(in.Thread); a != nil && !a.Withdrawn {
		a.Withdrawn = true
		t.saveCases(p, false)
		t.do(Tell{Peer: p.Key, What: "complaint-taken-back", Window: a.Last})
	}
}

// keep drops the oldest beyond what is remembered.
func keep[T any](list []T) []T { return list[max(0, len(list)-keptCases):] }

// Cases tells of the complaints with a peer: ours about it, and its about us, oldest first.
func (n *Node) Cases(peer nostr.PubKey) (ours []Complaint, theirs []Accusation) {
	ours, theirs = []Complaint{}, []Accusation{}
	p := n.peers[peer]
	if p == nil {
		return ours, theirs
	}
	for _, c := range p.Cases.Ours {
		ours = append(ours, *c)
	}
	for _, a := range p.Cases.Theirs {
		theirs = append(theirs, *a)
	}
	return ours, theirs
}
