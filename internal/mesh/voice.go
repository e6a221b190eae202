package mesh

import (
	"encoding/json"
	"maps"
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Reports of others are inputs and no verdicts: each weighs what this node grants its reporter (§ Trust weighting). A report is judged once, by the
// host, which has the time to verify signatures; what it came to is kept here, of reporters that this node has granted anything.

// ReportJudged brings somebody's report about a node, verified and judged by its own artefacts.
type ReportJudged struct {
	Report    *ledger.Report
	Judgement ledger.Judgement
}

func (ReportJudged) input() {}

// voice is what a reporter said, and how its reports fared here: a journal record of its own.
type voice struct {
	Key      nostr.PubKey
	Record   ledger.Record
	Findings []*Finding `json:",omitempty"` // one a subject, the newest report of it, in the order of subjects
}

// Finding is one reporter's verdict on a subject as this node reads it.
type Finding struct {
	Reporter nostr.PubKey   `json:"reporter"`
	Subject  nostr.PubKey   `json:"subject"`
	Severity spec.Severity  `json:"severity"`
	Topic    spec.Topic     `json:"topic"`
	Event    nostr.ID       `json:"event"`
	At       int64          `json:"at"`
	Expires  int64          `json:"expires"`
	Support  ledger.Support `json:"support"`
	Detail   string         `json:"detail,omitempty"`
}

// keptFindings is how many subjects of one reporter are remembered.
const keptFindings = 1024

// reportJudged takes note of a report. One that this node has seen, or an older one of the same pair, is no news.
func (t *turn) reportJudged(in ReportJudged) {
	r := in.Report
	if !t.News(r) {
		return
	}
	v := t.voices[r.Reporter]
	if v == nil {
		v = &voice{Key: r.Reporter}
		t.voices[r.Reporter] = v
	}
	i := slices.IndexFunc(v.Findings, func(f *Finding) bool { return f.Subject == r.Subject })
	before := t.view(r.Subject)
	f := &Finding{Reporter: r.Reporter, Subject: r.Subject, Severity: r.Outcome, Topic: r.Topic, Event: r.ID, At: r.At, Expires: r.Expiration,
		Support: in.Judgement.Support, Detail: in.Judgement.Detail}
	if i >= 0 {
		v.Findings[i] = f
	} else {
		v.Findings = append(v.Findings, f)
	}
	v.Record = v.Record.With(in.Judgement)
	v.Findings = slices.DeleteFunc(v.Findings, func(f *Finding) bool { return f.Expires <= t.now })
	if len(v.Findings) > keptFindings {
		v.Findings = v.Findings[1:]
	}
	t.persist(voiceKey+v.Key.String(), v, false)
	t.do(Tell{Peer: r.Reporter, What: "report-" + string(in.Judgement.Support), Window: r.Last, Severity: r.Outcome, Detail: "about " + r.Subject.String()})
	if after := t.view(r.Subject); after > before {
		t.do(Tell{Peer: r.Subject, What: "view-lowered", Severity: after, Detail: "by the reports of others; it opens grants lower and touches none that stands"})
	}
}

// said returns what the reporters say of a subject that this node weighs, each with its weight here.
func (n *Node) said(subject nostr.PubKey, now int64) (out []ledger.Voice) {
	for _, v := range n.voices {
		p := n.peers[v.Key]
		if p == nil || p.Stage != active || v.Key == subject {
			continue // no grant of ours is in force: it weighs nothing
		}
		for _, f := range v.Findings {
			if f.Subject == subject && f.Support == ledger.Supported && f.Expires > now {
				out = append(out, ledger.Voice{Reporter: v.Key, Tier: p.Stands.Tier, CleanWindows: p.Stands.CleanWindows, Record: v.Record, Topic: f.Topic, Severity: f.Severity})
			}
		}
	}
	return out
}

// own is this node's own finding on a subject, S0 where it has none.
func (n *Node) own(subject nostr.PubKey) spec.Severity {
	if p := n.peers[subject]; p != nil {
		return p.Worst
	}
	return spec.S0
}

// view is this node's view of a subject in transit.
func (t *turn) view(subject nostr.PubKey) spec.Severity {
	return ledger.View(spec.TopicTransit, t.own(subject), t.said(subject, t.now))
}

// begins is the standing that a new peering starts with: what the operator vouches for or a stranger gets, lowered by the view. ok is false where
// no grant is issued; a peer that the operator added begins as a stranger does all the same, since a person outranks what others say.
func (t *turn) begins(p *peer) (s ledger.Standing, ok bool) {
	want := ledger.Standing{Tier: spec.TierProbation, Limits: t.opens(spec.TierProbation, ledger.Opening(spec.TierProbation))}
	tier := p.Seed
	if listed, ok := t.listed(p.Key); ok && tier == "" {
		tier = listed
	}
	if tier != "" {
		want = ledger.Standing{Tier: tier, Limits: t.opens(tier, ledger.Seeded(tier))}
	}
	want = p.budgeted(want)
	said, _ := ledger.Threshold(spec.TopicTransit, t.said(p.Key, t.now)) // our own finding has had its remedy
	s, ok = ledger.Start(want, said)
	if !ok && p.Added {
		return p.budgeted(ledger.NewStanding(spec.TierProbation)), true
	}
	return s, ok
}

// Findings lists what others said of nodes and this node read, in the order of reporters.
func (n *Node) Findings() []Finding {
	out := []Finding{}
	for _, k := range slices.SortedFunc(maps.Keys(n.voices), func(a, b nostr.PubKey) int { return slices.Compare(a[:], b[:]) }) {
		for _, f := range n.voices[k].Findings {
			out = append(out, *f)
		}
	}
	return out
}

func (n *Node) restoreVoice(name string, record json.RawMessage) error {
	v := new(voice)
	if err := json.Unmarshal(record, v); err != nil {
		return err
	}
	if v.Key.String() != name {
		return errForeign(v.Key)
	}
	n.voices[v.Key] = v
	return nil
}

// News reports whether a report is worth judging: by a node that this one has granted anything, and not read before.
func (n *Node) News(r *ledger.Report) bool {
	if p := n.peers[r.Reporter]; p == nil || len(p.Issued) == 0 || r.Reporter == n.cfg.Self {
		return false
	}
	v := n.voices[r.Reporter]
	return v == nil || !slices.ContainsFunc(v.Findings, func(f *Finding) bool { return f.Subject == r.Subject && f.At >= r.At })
}
