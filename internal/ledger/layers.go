package ledger

import (
	"encoding/hex"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Layer is one step of verifying a report: what was looked at, whether it holds, and what was seen.
type Layer struct {
	Name   string `json:"name"`
	Holds  bool   `json:"holds"`
	Code   Code   `json:"code,omitempty"` // of the rule that is broken
	Detail string `json:"detail,omitempty"`
}

// Verify reads a report as published and says layer by layer what holds, from the event alone and what the reader knows. The judgement is
// that of Judge; a report that is none, or that its reporter did not sign, is unsupported.
func Verify(e *nostr.Event, k Known) (r *Report, layers []Layer, j Judgement) {
	add := func(name string, err error, detail string) bool {
		l := Layer{Name: name, Holds: err == nil, Detail: detail}
		if err != nil {
			l.Code, l.Detail = identity.CodeOf(err), err.Error()
		}
		layers = append(layers, l)
		return err == nil
	}
	var sig error
	if !identity.Verify(e.PubKey, e.ID, e.Sig) {
		sig = fault(EventSig, e.ID.String())
	}
	if !add("signature", sig, "by "+identity.FormatDID(e.PubKey)) {
		return nil, layers, Judgement{Unsupported, EventSig, "the reporter did not sign it"}
	}
	r, err := ParseReport(e)
	if err != nil {
		add("form", err, "")
		return nil, layers, Judgement{Unsupported, identity.CodeOf(err), err.Error()}
	}
	add("form", nil, fmt.Sprintf("%s about %s, windows %d to %d", r.Outcome, identity.FormatDID(r.Subject), r.First, r.Last))
	x := &exhibit{frame: k.Frame}
	for _, a := range r.Evidence {
		add(string(a.Type)+" "+hex.EncodeToString(a.Digest[:]), r.admit(x, a, k), x.saw(a.Type))
	}
	j = r.Judge(k)
	whole, err := r.examine(k)
	add("evidence", err, "what the subject signed, under the reporter's grant")
	if err != nil {
		return r, layers, j
	}
	for _, o := range r.Observed {
		add("line "+string(o.Limit), nil, r.line(whole, o))
	}
	add("outcome", r.follows(whole), "the classifier gives "+r.Outcome.String())
	if j.Support == NotJudged {
		add("in force", fault(j.Code, j.Detail), "")
	}
	return r, layers, j
}

// saw says what an artefact turned out to be.
func (x *exhibit) saw(t EvidenceType) string {
	switch {
	case t == EvidenceReceipt && len(x.receipts) > 0:
		rc := x.receipts[len(x.receipts)-1]
		return fmt.Sprintf("signed by the subject: window %d, seq %d", rc.Window, rc.Seq)
	case t == EvidenceEnvelope && len(x.envelopes) > 0:
		return fmt.Sprintf("the subject signed a hop; %d in all", len(x.envelopes[len(x.envelopes)-1].Path))
	case t == EvidenceGrant && x.grant != nil:
		return fmt.Sprintf("the reporter's grant opens its commitment: tier %s, window of %d s", x.grant.Tier, x.grant.Window)
	case t == EvidenceEvent:
		return "an event, signed"
	}
	return ""
}

// line says what the classifier makes of one observed line, over the range that a rounded count stands for.
func (r *Report) line(x *exhibit, o Observed) string {
	var claim *Receipt
	claimed := "nothing"
	if rc, err := r.claimOf(x); err == nil && rc != nil {
		claim, claimed = rc, fmt.Sprint(rc.Counters.Of(o.Limit))
	}
	possible := r.severities(o, claim)
	slices.Sort(possible)
	if o.Limit == spec.LimitDupRatio {
		return fmt.Sprintf("%d duplicates of %d events: %v", o.Measured, o.Allowed, possible)
	}
	return fmt.Sprintf("about %d measured, %s claimed, %d allowed: %v", o.Measured, claimed, o.Allowed, possible)
}
