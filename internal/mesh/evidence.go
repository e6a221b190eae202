package mesh

import (
	"bytes"
	"encoding/json"
	"slices"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// proof is a grant of ours as it was published. It is addressable, so relays soon hold another in its place.
type proof struct {
	Grant nostr.ID
	Event json.RawMessage
}

// proofs are those of the grants that are remembered: a journal record of its own.
type proofs struct {
	Key    nostr.PubKey
	Grants []proof
}

// keepProof remembers a grant as it was published, as long as the grant itself.
func (t *turn) keepProof(p *peer, g *ledger.Grant, e *nostr.Event) {
	if e == nil {
		return
	}
	list := []proof{{g.ID, e.JSON()}}
	for _, x := range p.Proofs {
		if p.Issued.has(x.Grant) && x.Grant != g.ID {
			list = append(list, x)
		}
	}
	p.Proofs = list
	t.persist(proofKey+p.Key.String(), proofs{p.Key, list}, true)
}

// sample is an envelope that the peer delivered in a window: what shows that it was there, should it never claim anything.
type sample struct {
	Window int64
	Text   json.RawMessage
}

// samples are those of the windows that are open.
type samples struct {
	Key  nostr.PubKey
	List []sample
}

// maxSample is the largest envelope that is kept as a sample.
const maxSample = 16 << 10

// keepSample keeps one envelope a window, as long as no receipt came for it.
func (t *turn) keepSample(p *peer, b *book, text json.RawMessage) {
	if len(text) == 0 || len(text) > maxSample || b.Last != nil || slices.ContainsFunc(p.Samples, func(s sample) bool { return s.Window == b.Window.Epoch }) {
		return
	}
	p.Samples = slices.DeleteFunc(p.Samples, func(s sample) bool { return s.Window < p.Settled })
	p.Samples = append(p.Samples, sample{b.Window.Epoch, text})
	t.persist(sampleKey+p.Key.String(), samples{p.Key, p.Samples}, true)
}

// complain opens a complaint about what a window or a structural finding showed. The remedy is the ladder's and does not wait for it; the report says
// what its own evidence says, under the grant that the peer's receipt names.
func (t *turn) complain(p *peer, b *book, v ledger.Evaluation, sev spec.Severity, shown []Exhibit, found []ledger.Structural) {
	c := &Complaint{Thread: t.newID(), Outcome: sev, First: b.Window.Epoch, Last: b.Window.Epoch, At: t.now, Grant: b.Grant, Structural: found}
	if b.Last != nil {
		c.Grant = b.Last.Grant
	}
	if v.Severity == sev && v.Severity > spec.S0 {
		t.numbers(p, b, v, c)
	} else {
		c.Evidence = shown
		if i := slices.IndexFunc(shown, func(x Exhibit) bool { return x.Type == ledger.EvidenceReceipt }); i >= 0 {
			if r, err := ledger.ParseReceipt(shown[i].Text); err == nil {
				c.Grant = r.Grant
			}
		}
	}
	for _, o := range p.Cases.Ours {
		if o.Last == c.Last && o.Grant == c.Grant && o.Outcome >= c.Outcome {
			return // told before: a crash fell between the two records, or the same window showed more of the same
		}
	}
	g := p.grant(c.Grant)
	t.layOpen(p, g, c)
	switch j := c.judge(t.cfg.Self, p.Key, g, t.now); {
	case g == nil:
		c.Stage, c.Why = caseUnproven, "the grant is not remembered any more"
	case j.Support != ledger.Supported:
		c.Stage, c.Why = caseUnproven, "nothing that the peer signed proves it to others: "+j.Detail
	default:
		t.plan(p, g, c)
	}
	p.Cases.Ours = keep(append(p.Cases.Ours, c))
	t.saveCases(p, true)
	if c.Stage == caseUnproven {
		t.do(Tell{Peer: p.Key, What: "complaint-unproven", Window: c.Last, Severity: sev, Detail: c.Why})
	}
}

// numbers takes up the lines that count against the peer, and what it signed about the window: its receipt, or else something that it delivered.
func (t *turn) numbers(p *peer, b *book, v ledger.Evaluation, c *Complaint) {
	var claim ledger.Counters
	if b.Last != nil {
		claim = b.Last.Counters
		c.Evidence = append(c.Evidence, Exhibit{ledger.EvidenceReceipt, b.Last.JSON()})
	} else if i := slices.IndexFunc(p.Samples, func(s sample) bool { return s.Window == b.Window.Epoch }); i >= 0 {
		c.Evidence = append(c.Evidence, Exhibit{ledger.EvidenceEnvelope, p.Samples[i].Text})
	}
	g := p.grant(c.Grant)
	if b.Last == nil { // any grant under whose limits the window is as bad
		for _, other := range p.Issued {
			if g == nil || t.cfg.Ladder.Evaluate(g.Limits, b.Counters, nil).Severity != v.Severity {
				g = other
			}
		}
	}
	if g == nil {
		return
	}
	c.Grant = g.ID
	// A window may be held to the more generous of two grants, and a report shows one of them.
	r := ledger.ReportOn(g, v.Severity, t.cfg.Ladder.Evaluate(g.Limits, b.Counters, claim), b.Window, t.now)
	c.Observed, c.Claimed = r.Observed, r.Claimed
}

// layOpen adds the grant as it was published, with its blinding.
func (t *turn) layOpen(p *peer, g *ledger.Grant, c *Complaint) {
	i := slices.IndexFunc(p.Proofs, func(x proof) bool { return x.Grant == c.Grant })
	if i < 0 || g == nil {
		return
	}
	e, err := nostr.ParseEvent(p.Proofs[i].Event)
	if err != nil {
		return
	}
	if a, err := ledger.GrantArtefact(e, g); err == nil {
		c.Evidence = append(c.Evidence, Exhibit{ledger.EvidenceGrant, a.Text})
	}
}

// plan says when the complaint is told and published.
func (t *turn) plan(p *peer, g *ledger.Grant, c *Complaint) {
	when, notice := ledger.PublishAfter(c.Outcome, p.Stands.Overruns, 0, g.Window, t.now, true)
	c.Notice, c.Noticed = notice, t.now
	switch {
	case when.Never:
		c.Stage, c.Why = caseKept, "a first overrun stays between the two"
	default:
		c.Stage, c.PublishAt = caseWaits, when.At
	}
}

// grant returns a grant of ours by its id, nil if it is not remembered.
func (p *peer) grant(id nostr.ID) *ledger.Grant {
	for _, g := range p.Issued {
		if g.ID == id {
			return g
		}
	}
	return nil
}

// artefacts digests the evidence; what is no evidence is left out.
func (c *Complaint) artefacts() (out []ledger.Artefact) {
	for _, x := range c.Evidence {
		if a, err := ledger.NewArtefact(x.Type, x.Text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// report writes the complaint as a report.
func (c *Complaint) report(self, subject nostr.PubKey, at int64) *ledger.Report {
	r := &ledger.Report{Reporter: self, Subject: subject, At: at, Outcome: c.Outcome, Topic: spec.TopicTransit, Grant: c.Grant, First: c.First, Last: c.Last,
		Observed: c.Observed, Claimed: c.Claimed, Evidence: c.artefacts(), Expiration: at + spec.C().Lifetimes.ReportSeconds, Note: c.note()}
	if c.Notice {
		r.Thread, r.NoticedAt = c.Thread, c.Noticed
	}
	return r
}

func (c *Complaint) note() string {
	var b bytes.Buffer
	for i, f := range c.Structural {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(f))
	}
	return b.String()
}

// judge reads the complaint as a stranger reads the report of it: as it is published, rounded.
func (c *Complaint) judge(self, subject nostr.PubKey, g *ledger.Grant, now int64) ledger.Judgement {
	e, err := c.report(self, subject, now).Event()
	if err != nil {
		return ledger.Judgement{Support: ledger.Unsupported, Code: identity.CodeOf(err), Detail: err.Error()}
	}
	r, err := ledger.ParseReport(e)
	if err != nil {
		return ledger.Judgement{Support: ledger.Unsupported, Code: identity.CodeOf(err), Detail: err.Error()}
	}
	k := ledger.Known{Now: now}
	if g != nil {
		k.Frame = &ledger.Frame{ID: g.ID, Issuer: g.Issuer, CreatedAt: g.CreatedAt, Window: g.Window, Expiration: g.Expiration}
	}
	return r.Judge(k)
}

// judge reads a notice about us as a report that the peer would publish. A receipt that we made is ours whatever it says.
func (n *noticeBody) judge(reporter, self nostr.PubKey, now int64) ledger.Judgement {
	r := &ledger.Report{Reporter: reporter, Subject: self, At: now, Outcome: n.Outcome, Topic: spec.TopicTransit, Grant: n.Grant,
		First: n.Windows[0], Last: n.Windows[1], Expiration: now + 1}
	for i := range spec.C().Limits {
		l := spec.C().Limits[i].Name
		if o, ok := n.Observed[l]; ok {
			r.Observed = append(r.Observed, ledger.Observed{Limit: l, Measured: ledger.RoundFigures(o.Measured), Allowed: o.Limit})
		}
		if v, ok := n.Claimed[l]; ok {
			r.Claimed = append(r.Claimed, ledger.Claimed{Limit: l, Count: v})
		}
	}
	for id, text := range n.Evidence {
		r.Evidence = append(r.Evidence, ledger.Artefact{Type: typeOf(text), Digest: id, Text: text})
	}
	slices.SortFunc(r.Evidence, func(a, b ledger.Artefact) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	return r.Judge(ledger.Known{Now: now})
}

// typeOf tells the artefacts of a notice apart by their members: a notice names none.
func typeOf(text []byte) ledger.EvidenceType {
	var m map[string]json.RawMessage
	if json.Unmarshal(text, &m) != nil {
		return ""
	}
	for _, k := range []struct {
		member string
		is     ledger.EvidenceType
	}{{"opening", ledger.EvidenceGrant}, {"path", ledger.EvidenceEnvelope}, {"seq", ledger.EvidenceReceipt}, {"pubkey", ledger.EvidenceEvent}} {
		if m[k.member] != nil {
			return k.is
		}
	}
	return ""
}

// disputed reports whether a line of a notice says other numbers than our receipt, by more than is noise.
func (n *noticeBody) disputed() bool {
	for l, o := range n.Observed {
		d := max(o.Measured-n.Claimed[l], n.Claimed[l]-o.Measured)
		if spec.C().Divergence.Tolerance.CmpFraction(d, max(o.Measured, ledger.DivergenceFloor(o.Limit))) > 0 {
			return true
		}
	}
	return false
}
