package ledger

import (
	"crypto/sha256"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Support is how a report stands with one reader, who decides alone, from data it holds.
type Support string

// What a reader makes of a report. Unsupported and refuted ones count against the reporter; one that was not judged
// does not count at all.
const (
	Supported   Support = "supported"
	Unsupported Support = "unsupported" // evidence does not resolve, or the subject did not sign it
	Refuted     Support = "refuted"     // evidence verifies and does not say what the report says
	NotJudged   Support = "not-judged"  // expired, or of a topic that others judge
)

// Judgement is a reader's verdict and the reason for it.
type Judgement struct {
	Support Support
	Code    Code // "" when supported
	Detail  string
}

// Known is what a reader holds beside the report itself.
type Known struct {
	Now   int64
	Frame *Frame                         // the reporter's grant as published, nil if it is not held
	Event func(id nostr.ID) *nostr.Event // public events by id, nil result if not held; may be nil
}

// GrantArtefact lays a grant open: the event as published and the object it commits to, so that a reader
// needs nothing that a relay may have replaced since.
func GrantArtefact(e *nostr.Event, g *Grant) (Artefact, error) {
	body, err := g.Disclosure()
	if err != nil {
		return Artefact{}, err
	}
	text, err := json.Marshal(grantEvidence{Event: e.JSON(), Opening: body})
	if err != nil {
		return Artefact{}, fault(BadJSON, err.Error())
	}
	return NewArtefact(EvidenceGrant, text)
}

type grantEvidence struct {
	Event   jsontext.Value `json:"event"`
	Opening jsontext.Value `json:"opening"`
}

// exhibit is the evidence of a report, verified.
type exhibit struct {
	grant     *Grant // disclosed, nil if not
	frame     *Frame
	receipts  []*Receipt
	envelopes []*Envelope
	events    []*nostr.Event
	witnesses []*nostr.Event // by others: what a shard that the subject asserts must hold
}

// Judge checks a report as a reader does: does every artefact resolve, did the subject sign it, and does the
// outcome follow when the classifier is run again? The report's own signature was verified before.
func (r *Report) Judge(k Known) Judgement {
	switch {
	case k.Now >= r.Expiration:
		return Judgement{NotJudged, ReportExpired, ""}
	case r.Topic != spec.TopicTransit:
		return Judgement{NotJudged, "", "topic " + string(r.Topic)}
	}
	x, err := r.examine(k)
	if err != nil {
		return Judgement{Unsupported, identity.CodeOf(err), err.Error()}
	}
	if err := r.follows(x); err != nil {
		return Judgement{Refuted, identity.CodeOf(err), err.Error()}
	}
	return Judgement{Support: Supported}
}

// examine verifies the artefacts. Its errors make a report unsupported.
func (r *Report) examine(k Known) (*exhibit, error) {
	x := &exhibit{frame: k.Frame}
	for _, a := range r.Evidence {
		if err := r.admit(x, a, k); err != nil {
			return nil, err
		}
	}
	switch {
	case x.frame == nil:
		return nil, fault(EvidenceMissing, "the reporter's grant")
	case x.frame.Issuer != r.Reporter || x.frame.ID != r.Grant:
		return nil, fault(EvidenceForeign, "the grant is not the reporter's")
	case x.grant != nil && x.grant.Subject != r.Subject:
		return nil, fault(EvidenceForeign, "the grant is another subject's")
	case len(x.receipts)+len(x.envelopes)+len(x.events) == 0:
		return nil, fault(EvidenceUnsigned, "nothing that the subject signed")
	}
	for _, w := range x.witnesses {
		if !x.asserts(w) {
			return nil, fault(EvidenceUnsigned, "event")
		}
	}
	return x, nil
}

// asserts reports whether a claim of the subject's says that it holds an event of somebody else's.
func (x *exhibit) asserts(w *nostr.Event) bool {
	return slices.ContainsFunc(x.events, func(e *nostr.Event) bool {
		c, err := identity.ParseCoverage(e)
		return err == nil && c.Completeness == identity.Asserted && c.Filter.Matches(w) && w.CreatedAt >= c.Since &&
			(c.Until == 0 || w.CreatedAt <= c.Until) && w.CreatedAt <= c.FingerprintAt
	})
}

func (r *Report) admit(x *exhibit, a Artefact, k Known) error {
	if a.Type == EvidenceEvent {
		return r.admitEvent(x, a, k)
	}
	if a.Text == nil {
		return fault(EvidenceMissing, string(a.Type))
	}
	canonical, err := spec.Canonical(a.Text)
	if err != nil || sha256.Sum256(canonical) != a.Digest {
		return fault(EvidenceHash, string(a.Type))
	}
	switch a.Type {
	case EvidenceReceipt:
		rc, err := ParseReceipt(a.Text)
		switch {
		case err != nil:
			return err
		case !rc.Triple(r.Subject).Holds():
			return fault(EvidenceUnsigned, "receipt")
		case rc.Grant != r.Grant || rc.Window < r.First || rc.Window > r.Last:
			return fault(EvidenceForeign, "receipt")
		}
		x.receipts = append(x.receipts, rc)
	case EvidenceEnvelope:
		env, err := ParseEnvelope(a.Text)
		if err != nil && identity.CodeOf(err) != HopLimit {
			return err
		}
		if !signedBy(env, r.Subject) {
			return fault(EvidenceUnsigned, "envelope")
		}
		x.envelopes = append(x.envelopes, env)
	case EvidenceGrant:
		return r.admitGrant(x, a)
	default:
		return fault(EvidenceMissing, "unknown type "+string(a.Type))
	}
	return nil
}

// signedBy reports whether a node signed a hop of an envelope, once, and every hop before it holds. What follows its hop is not its work: whoever holds the
// envelope could have added that.
func signedBy(env *Envelope, node nostr.PubKey) bool {
	i := hopOf(env, node)
	if i < 0 || slices.ContainsFunc(env.Path[i+1:], func(h Hop) bool { return h.Node == node }) {
		return false
	}
	return !slices.ContainsFunc(env.Triples()[:i+1], func(t Triple) bool { return !t.Holds() })
}

// hopOf is the place of a node's hop in an envelope, -1 if it has none.
func hopOf(env *Envelope, node nostr.PubKey) int {
	return slices.IndexFunc(env.Path, func(h Hop) bool { return h.Node == node })
}

func (r *Report) admitEvent(x *exhibit, a Artefact, k Known) error {
	var e *nostr.Event
	if a.Text != nil {
		var err error
		if e, err = nostr.ParseEvent(a.Text); err != nil {
			return fault(BadEvent, err.Error())
		}
	} else if k.Event != nil {
		e = k.Event(a.Digest)
	}
	switch {
	case e == nil:
		return fault(EvidenceMissing, "event")
	case e.ID != a.Digest:
		return fault(EvidenceHash, "event")
	case !identity.Verify(e.PubKey, e.ID, e.Sig):
		return fault(EvidenceUnsigned, "event")
	case e.PubKey != r.Subject:
		x.witnesses = append(x.witnesses, e)
		return nil
	}
	x.events = append(x.events, e)
	return nil
}

func (r *Report) admitGrant(x *exhibit, a Artefact) error {
	var w grantEvidence
	if err := decodeStrict(a.Text, &w); err != nil {
		return fault(BadJSON, "grant")
	}
	e, err := nostr.ParseEvent(w.Event)
	if err != nil {
		return fault(BadEvent, err.Error())
	}
	if e.ID != r.Grant || e.PubKey != r.Reporter || !identity.Verify(e.PubKey, e.ID, e.Sig) {
		return fault(EvidenceForeign, "grant")
	}
	f, err := ParseFrame(e)
	if err != nil {
		return err
	}
	g, err := f.Unveil(w.Opening)
	if err != nil {
		return err
	}
	x.frame, x.grant = f, g
	return nil
}

// follows runs the classifier over the exhibit. Its errors refute a report.
func (r *Report) follows(x *exhibit) error {
	if x.grant != nil {
		for _, o := range r.Observed {
			if o.Limit != spec.LimitDupRatio && x.grant.Limits[o.Limit] != o.Allowed {
				return fault(GrantMismatch, string(o.Limit))
			}
		}
	}
	for _, s := range x.structural(r.Subject) {
		if s.Price() == r.Outcome {
			return nil
		}
	}
	if len(r.Observed) == 0 {
		return fault(DoesNotFollow, "nothing observed and nothing structural")
	}
	claim, err := r.claimOf(x)
	if err != nil {
		return err
	}
	if !r.reachable(x, claim) {
		return fault(DoesNotFollow, r.Outcome.String())
	}
	return nil
}

// claimOf finds the receipt that the report's claimed lines speak of, nil for a report of silence.
func (r *Report) claimOf(x *exhibit) (*Receipt, error) {
	if len(x.receipts) == 0 {
		switch {
		case len(r.Claimed) > 0:
			return nil, fault(ClaimMismatch, "claims without a receipt")
		case !r.wasThere(x):
			return nil, fault(DoesNotFollow, "silence, and nothing that the subject delivered in these windows")
		}
		return nil, nil
	}
	for _, rc := range x.receipts {
		fits := true
		for _, c := range r.Claimed {
			fits = fits && RoundFigures(rc.Counters.Of(c.Limit)) == RoundFigures(c.Count)
		}
		if fits {
			return rc, nil
		}
	}
	return nil, fault(ClaimMismatch, "no receipt says so")
}

// wasThere reports whether the subject signed a hop in the windows of the report: of a node that nobody heard no silence can be told.
func (r *Report) wasThere(x *exhibit) bool {
	skew := spec.C().Window.SkewSeconds
	from, until := Window{r.First, x.frame.Window}.Start()-skew, Window{r.Last, x.frame.Window}.End()+skew
	for _, e := range x.envelopes {
		if slices.ContainsFunc(e.Path, func(h Hop) bool { return h.Node == r.Subject && h.At >= from && h.At < until }) {
			return true
		}
	}
	return false
}

// structural are the findings that the artefacts show by themselves.
func (x *exhibit) structural(subject nostr.PubKey) []Structural {
	var out []Structural
	for i, a := range x.receipts {
		for _, b := range x.receipts[i+1:] {
			if corrupt(a, b) || corrupt(b, a) {
				out = append(out, CorruptChain)
			}
		}
	}
	deep := map[[32]byte]bool{} // hops: one envelope can be shown in many forms
	for _, e := range x.envelopes {
		if i := hopOf(e, subject); i >= spec.C().Forwarding.MaxHops { // its own hop was one too many
			deep[e.Triples()[i].Digest] = true
		}
		if spec.C().Boundary.Never(e.Event.Kind) || x.grant != nil && !InScope(x.grant.Scopes, Push, e.Event) {
			out = append(out, OutsideScope)
		}
	}
	if len(deep) > 1 { // the offence is to keep at it
		out = append(out, HopLimitAbuse)
	}
	var desc, beat []*nostr.Event
	for _, e := range x.events {
		switch {
		case e.Kind == spec.KindDescriptor:
			desc = append(desc, e)
		case e.Kind == spec.KindHeartbeat:
			beat = append(beat, e)
		case e.Kind == spec.KindCoverage:
			if len(x.witnesses) > 0 { // each lies in an asserted shard
				out = append(out, SelfMisreport)
			}
		case x.grant != nil && !publicRecord(e.Kind) && !InScope(x.grant.Scopes, Push, e):
			out = append(out, OutsideScope)
		}
	}
	for _, d := range desc {
		for _, b := range beat {
			if contradicts(d, b) {
				out = append(out, SelfMisreport)
			}
		}
	}
	return out
}

// publicRecord reports whether a node writes events of a kind about itself, for everybody: such an event lies at many relays, and shows nothing of what
// its node delivered to whom.
func publicRecord(k nostr.Kind) bool {
	if _, ours := spec.LookupKind(k); ours {
		return true
	}
	switch k {
	case nostr.KindDeletion, nostr.KindRelayList, spec.KindDMRelays, spec.KindRelayStatus, spec.KindRelayScore:
		return true
	}
	return false
}

// corrupt reports whether two receipts that one key signed cannot stand in one chain.
func corrupt(a, b *Receipt) bool {
	switch {
	case a.Window != b.Window || a.Grant != b.Grant:
		return false
	case a.Seq == b.Seq:
		return a.Link() != b.Link()
	case a.Seq < b.Seq && !b.Counters.Covers(a.Counters):
		return true
	}
	return b.Seq == a.Seq+1 && b.Prev != a.Link()
}

// contradicts reports whether a heartbeat names another class than the descriptor that was live at its time.
func contradicts(descriptor, heartbeat *nostr.Event) bool {
	d, err := identity.ParseDescriptor(descriptor)
	if err != nil || heartbeat.CreatedAt < d.CreatedAt || !d.LiveAt(heartbeat.CreatedAt) {
		return false
	}
	h, err := identity.ParseHeartbeat(heartbeat)
	if err != nil {
		return identity.CodeOf(err) == identity.LeafHeartbeat
	}
	return identity.CodeOf(h.Against(d)) == identity.ClassMismatch
}

// reachable reports whether the outcome is what the classifier gives for some measurement that is published
// as the report says: published counts are rounded, so each stands for a small range.
func (r *Report) reachable(x *exhibit, claim *Receipt) bool {
	hit := false
	for _, o := range r.Observed {
		possible := r.severities(o, claim)
		if !slices.ContainsFunc(possible, func(s spec.Severity) bool { return s <= r.Outcome }) {
			return false // this line alone is worse than the report says
		}
		hit = hit || slices.Contains(possible, r.Outcome)
	}
	return hit
}

// severities are the outcomes of one line over the range of measurements that it stands for. The classifier
// changes only at a handful of points, so trying those, and the ends, is trying all.
func (r *Report) severities(o Observed, claim *Receipt) []spec.Severity {
	lo, hi := figureRange(o.Measured)
	if o.Limit == spec.LimitDupRatio {
		eLo, eHi := figureRange(o.Allowed)
		var out []spec.Severity
		for s := ClassifyDuplicates(0, eHi, lo); s <= ClassifyDuplicates(0, eLo, hi); s++ {
			out = append(out, s)
		}
		return out
	}
	var claimed int64
	if claim != nil {
		claimed = claim.Counters.Of(o.Limit)
	}
	points := []int64{lo, hi, o.Measured, claimed}
	for _, s := range spec.C().Schedule {
		points = append(points, s.Ratio.Floor(o.Allowed), s.Ratio.Floor(o.Allowed)+1)
	}
	t, floor := spec.C().Divergence.Tolerance, DivergenceFloor(o.Allowed)
	for _, p := range []int64{
		spec.R(t.Den, t.Den-t.Num).Floor(claimed), // above the claim, divided by the measurement
		spec.R(t.Den, t.Den+t.Num).Floor(claimed), // below it
		claimed + t.Floor(floor), claimed - t.Floor(floor),
	} {
		points = append(points, p-1, p, p+1)
	}
	var out []spec.Severity
	for _, p := range points {
		if p >= lo && p <= hi {
			if s := ClassifyClaim(o.Allowed, p, claimed); !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}
