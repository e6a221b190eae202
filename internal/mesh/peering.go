package mesh

import (
	"encoding/json"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// stage is how far a peering has come.
type stage string

const (
	known    stage = "known"    // we want it, and do not know the peer's descriptor yet
	asked    stage = "asked"    // we proposed
	granting stage = "granting" // the peer proposed and our grant is on its way
	active   stage = "active"   // each has granted the other
	refused  stage = "refused"  // the peer declined
	ended    stage = "ended"
)

// Want is an interest: a shard, its filter, and which way events go. A shard's filter is a NIP-01 filter.
type Want struct {
	Shard  string          `json:"shard"`
	Filter json.RawMessage `json:"filter"`
	Mode   string          `json:"mode"` // pull, push or both, seen from the node that wants
	Since  int64           `json:"since,omitempty"`
	Until  int64           `json:"until,omitempty"`
}

// Bodies of peering/1.0 (spec/schema/message/peering-1.0.json).
type (
	proposeBody struct {
		Class      spec.Class       `json:"class"`
		Protocol   [2]string        `json:"protocol"`
		Protocols  []string         `json:"protocols"`
		Want       []Want           `json:"want"`
		Offer      []any            `json:"offer"`
		Transports []string         `json:"transports"`
		BudgetSelf map[string]int64 `json:"budget_self,omitempty"`
		PoW        *powBody         `json:"pow,omitempty"`
		Invitation string           `json:"invitation,omitempty"`
	}
	powBody struct {
		Bits  int    `json:"bits"`
		Event string `json:"event"`
	}
	acceptBody struct {
		Grants []string `json:"grants"`
	}
	declineBody struct {
		Code spec.Code `json:"code"`
		Note string    `json:"note,omitempty"`
	}
	amendBody struct {
		Grant string     `json:"grant"`
		Cause spec.Cause `json:"cause"`
	}
	endBody struct {
		Reason string `json:"reason,omitempty"`
	}
)

// addPeer begins a peering, or takes up new wishes about one.
func (t *turn) addPeer(in AddPeer) {
	p := t.peers[in.Peer]
	if p == nil {
		p = &peer{Key: in.Peer, Stage: known}
		t.peers[in.Peer] = p
	}
	if p.Revoked {
		t.do(Tell{Peer: p.Key, What: "peering-impossible", Code: spec.CodeRevoked, Detail: "the key was revoked by its holder"})
		return
	}
	p.Added = true
	if in.Invitation != "" {
		p.Invitation = in.Invitation
	}
	if in.Tier != "" && in.Tier != p.Seed {
		p.Seed = in.Tier
		if p.Stands.Limits != nil && p.Stands.Tier != spec.TierRevoked { // a person may move any tier
			p.Stands.Tier, p.Stands.Limits, p.Stands.ZeroUntil, p.Cause = in.Tier, t.opens(in.Tier, ledger.Seeded(in.Tier)), 0, spec.CauseOperator
			p.Stands = p.budgeted(p.Stands)
		}
	}
	if in.Budget != nil {
		t.budget(p, in.Budget)
	}
	p.Wants, p.InShadow = in.Wants, in.Shadow
	t.leaveUnwanted(p)
	t.leaveShadow(p)
	if p.Stage == ended || p.Stage == refused {
		p.Stage = known
	}
	t.save(p, false)
	if p.Stage == known && p.Described {
		t.propose(p)
	}
	t.refresh(p)
	t.startIfActive(p)
}

// described takes note of a live descriptor, and proposes where the operator waits for it.
func (t *turn) described(in Described) {
	d := in.Descriptor
	p := t.peers[d.Subject]
	if p == nil {
		t.forgetStrangers()
		p = &peer{Key: d.Subject, Stage: known}
		t.peers[d.Subject] = p
	}
	p.Described, p.Class, p.Work = true, d.Class, min(d.Work, d.Committed)
	p.Protocols = d.Protocols
	p.DigestDiffers = d.Digest != t.cfg.Digest
	if p.Added && p.Stage == known {
		t.propose(p)
	}
}

// maxStrangers is how many nodes are remembered that said who they are and nothing more. Keys are free.
const maxStrangers = 1024

// forgetStrangers drops all of them when there are so many: a proposal brings the sender's descriptor again.
func (t *turn) forgetStrangers() {
	var list []nostr.PubKey
	for key, p := range t.peers {
		if p.Stage == known && !p.Added && !p.Revoked && len(p.Issued)+len(p.Held) == 0 && p.Stands.Limits == nil {
			list = append(list, key)
		}
	}
	if len(list) < maxStrangers {
		return
	}
	for _, key := range list {
		delete(t.peers, key)
	}
}

func (t *turn) propose(p *peer) {
	if lacks := t.lacking(p.Protocols); lacks != "" {
		p.Stage = refused
		t.save(p, false)
		t.do(Tell{Peer: p.Key, What: "peering-impossible", Code: spec.CodeUnsupportedProtocol, Detail: "the peer does not speak " + lacks})
		return
	}
	p.Stage, p.Thread, p.Tries = asked, t.newID(), 0
	t.save(p, false)
	t.sendProposal(p, p.Thread)
	t.tell(p, "proposed", "thread %s", p.Thread)
}

func (t *turn) sendProposal(p *peer, id string) {
	t.later(p)
	t.do(Send{To: p.Key, Type: spec.MsgPeeringPropose, ID: id, Thread: p.Thread, First: true, Body: proposeBody{
		Class: t.cfg.Class, Protocol: [2]string{spec.C().Protocol.Name, t.cfg.Digest}, Protocols: t.cfg.Protocols,
		Want: nonNil(p.Wants), Offer: []any{}, Transports: []string{"wss"}, BudgetSelf: map[string]int64{"window": t.cfg.Window},
		PoW: &powBody{Bits: t.cfg.PoWBits, Event: t.cfg.Descriptor.String()}, Invitation: p.Invitation,
	}})
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// lacking returns the first required protocol that the list has in no compatible version, "" if it has them all
// (§ Governance: same major, minor at or above ours).
func (t *turn) lacking(protocols []string) string {
	for _, need := range spec.C().Protocol.Required {
		if !slices.ContainsFunc(protocols, func(has string) bool { return identity.VersionAtLeast(has, need) }) {
			return need
		}
	}
	return ""
}

// proposed answers a proposal with a grant or a decline. The proposal is anonymous: the answer goes, sealed, to the key that it claims to be
// from, so a forger learns nothing and gains nothing.
func (t *turn) proposed(in Received) {
	p := t.peers[in.From]
	if p == nil || !p.Described {
		t.do(Withhold{Code: spec.CodeMalformed}) // the host brings the descriptor before the proposal
		return
	}
	var body proposeBody
	if err := json.Unmarshal(in.Body, &body); err != nil {
		t.decline(p, in, spec.CodeMalformed, "the body cannot be read")
		return
	}
	if code, note := t.welcome(p, &body, in.Invited); code != "" {
		t.decline(p, in, code, note)
		return
	}
	p.PeerWants = body.Want
	if _, ok := t.begins(p); !ok && p.Stands.Limits == nil {
		t.decline(p, in, spec.CodePolicy, "") // what others found weighs enough
		return
	}
	if p.Stage == asked && t.cfg.Self.String() < p.Key.String() {
		return // both proposed at once: the proposal of the lower key stands, so that there is one thread
	}
	if in.Thread == p.Thread && len(p.Issued) > 0 && p.Stage != ended && p.Stage != refused {
		t.sendAccept(p) // the proposal came again: so does the answer
		return
	}
	p.Stage, p.Thread, p.Tries = granting, in.Thread, 0
	t.save(p, false)
	t.issue(p)
}

func (t *turn) decline(p *peer, in Received, code spec.Code, note string) {
	t.do(Send{To: in.From, Type: spec.MsgPeeringDecline, ID: t.newID(), Thread: in.Thread, Body: declineBody{code, note}})
	t.do(Tell{Peer: p.Key, What: "declined", Code: code, Detail: note})
	if !p.Added && len(p.Issued) == 0 && p.Stands.Limits == nil && p.Worst == spec.S0 {
		delete(t.peers, p.Key) // a stranger leaves nothing behind
	}
}

// welcome says why a proposal is declined, or "".
func (t *turn) welcome(p *peer, body *proposeBody, invited bool) (spec.Code, string) {
	if lacks := t.lacking(body.Protocols); lacks != "" {
		return spec.CodeUnsupportedProtocol, "needs " + lacks
	}
	for _, w := range body.Want {
		if _, err := nostr.ParseFilter(w.Filter); err != nil {
			return spec.CodeMalformed, fmt.Sprintf("the filter of shard %q: %v", w.Shard, err)
		}
	}
	if p.Worst == spec.S4 {
		return spec.CodeRevoked, "this key is revoked here"
	}
	if t.sheds(strain.RefusePeerings) && p.Stands.Limits == nil {
		return spec.CodeCapacityExceeded, "this node is near what its operator declared; ask later"
	}
	if tier, ok := t.listed(p.Key); ok && tier == spec.TierRevoked {
		return spec.CodePolicy, "" // the operator said so
	} else if ok || p.Added || invited {
		return "", ""
	}
	switch t.cfg.Enrolment {
	case EnrolOpen:
		return "", ""
	case EnrolPoW:
		if p.Work < t.cfg.PoWBits {
			return spec.CodePoWRequired, fmt.Sprintf("the descriptor carries %d bits of work, %d are asked for", p.Work, t.cfg.PoWBits)
		}
		return "", ""
	}
	return spec.CodeInvitationRequired, "this node peers with those that its operator adds"
}

// issue opens our grant to the peer: at its tier's opening, in scope of what is served and what we want of it.
func (t *turn) issue(p *peer) {
	if p.Stands.Limits == nil {
		p.Stands, _ = t.begins(p)
	}
	t.write(p)
}

// write asks the host to publish the peer's present standing as a grant.
func (t *turn) write(p *peer) {
	p.Issuing = true
	t.do(IssueGrant{Subject: p.Key, Grant: t.grant(p)})
}

// refresh publishes the grant anew where the peer's standing is no longer what it says, or its lifetime runs out. The remedy of a finding is
// in force at once. Everything else waits until the peer has shown that it knows of the last change, so that
// it is never held to a limit it can not know of.
func (t *turn) refresh(p *peer) {
	g := p.Issued.current()
	if g == nil || p.Issuing || p.Stage != active {
		return
	}
	same := g.Tier == p.Stands.Tier && sameScopes(g.Scopes, t.scopes(p)) && g.Limits.Equal(t.target(p)) && g.Expiration-t.now > min(renewSeconds, (g.Expiration-g.CreatedAt)/4)
	if same || p.Cause != spec.CauseRemedy && !p.knowsCurrent() {
		return
	}
	if p.Cause == "" && !g.Limits.Equal(t.target(p)) && t.sheds(strain.AmendDown) {
		p.Cause = spec.CauseCapacity
	}
	t.write(p)
}

func sameScopes(a, b []ledger.Scope) bool { return slices.Equal(scopeLines(a), scopeLines(b)) }

// scopeLines writes scopes so that they can be compared.
func scopeLines(scopes []ledger.Scope) (lines []string) {
	for _, s := range scopes {
		lines = append(lines, string(s.Filter.AppendJSON([]byte(s.Direction+" "))))
	}
	return lines
}

// renewSeconds is how long before its end a grant is published anew, if it lives four times as long.
const renewSeconds = 7 * 86400

// knows notes that the peer holds a grant of ours.
func (t *turn) knows(p *peer, id nostr.ID) {
	i := slices.IndexFunc(p.Terms, func(k term) bool { return k.Grant == id })
	if i < 0 || p.Terms[i].Known > 0 {
		return
	}
	p.Terms[i].Known = t.now
	t.persist(peerKey+p.Key.String(), p, true)
	if i == 0 && p.Stage == active {
		p.RetryAt = 0
	}
}

// later plans the next time that something unanswered is said again.
func (t *turn) later(p *peer) {
	p.RetryAt = t.now + min(int64(retrySeconds)<<min(p.Tries, 8), retryMost)
	p.Tries++
}

// repeat says again what the peer has not answered: a proposal, an acceptance, an amended grant.
func (t *turn) repeat(p *peer) {
	g := p.Issued.current()
	waits := p.Stage == asked || p.Stage == granting || p.Stage == active && g != nil && !p.knowsCurrent()
	if !waits {
		p.RetryAt = 0
		return
	}
	if p.RetryAt > t.now {
		return
	}
	switch {
	case p.Stage == asked:
		t.sendProposal(p, t.newID())
	case g == nil && !p.Issuing:
		t.later(p)
		t.issue(p)
	case g != nil:
		t.sendAccept(p)
	}
}

// sendAccept tells the peer our grant, and which of its own we hold.
func (t *turn) sendAccept(p *peer) {
	t.later(p)
	id := p.Issued.current().ID
	t.do(Send{To: p.Key, Type: spec.MsgPeeringAccept, ID: t.newID(), Thread: p.Thread, Grants: []nostr.ID{id}, Body: p.acceptance()})
}

func (p *peer) acceptance() acceptBody {
	body := acceptBody{Grants: []string{p.Issued.current().ID.String()}}
	if held := p.Held.current(); held != nil {
		body.Grants = append(body.Grants, held.ID.String())
	}
	return body
}

// grant writes the peer's present standing as a grant, later than the one before it, so that the peer takes it for the newer.
func (t *turn) grant(p *peer) *ledger.Grant {
	at := t.now
	if g := p.Issued.current(); g != nil {
		at = max(at, g.CreatedAt+1)
	}
	g := ledger.NewGrant(t.cfg.Self, p.Key, p.Stands.Tier, t.scopes(p), at)
	g.Window = t.cfg.Window
	g.Limits = t.target(p)
	k := &t.cfg.Terms
	if k.LifetimeSeconds > 0 {
		g.Expiration = at + k.LifetimeSeconds
	}
	if k.ReceiptSeconds > 0 {
		g.ReceiptSeconds = k.ReceiptSeconds
	}
	if k.ReceiptBytes > 0 {
		g.ReceiptBytes = k.ReceiptBytes
	}
	return g
}

// scopes says what the peer may push to us, which is what we asked of it, and what it may pull from us.
func (t *turn) scopes(p *peer) (s []ledger.Scope) {
	for _, w := range p.Wants {
		if f, err := nostr.ParseFilter(w.Filter); err == nil && t.pushed(&w, &f) {
			s = append(s, ledger.Scope{Direction: ledger.Push, Filter: f})
		}
	}
	for _, raw := range t.cfg.Serve {
		if f, err := nostr.ParseFilter(raw); err == nil {
			s = append(s, ledger.Scope{Direction: ledger.Pull, Filter: f})
		}
	}
	return s
}

// grantIssued makes an issued grant the one in force, and tells the peer.
func (t *turn) grantIssued(in GrantIssued) {
	p := t.peers[in.Subject]
	if p == nil || p.Revoked {
		return // the zero grant of a key that was revoked is for the public record
	}
	p.Issued, p.Issuing = p.Issued.push(in.Grant), false
	t.keepProof(p, in.Grant, in.Event)
	id := in.Grant.ID
	cause := p.Cause
	p.Cause, p.Tries = "", 0
	p.Terms = append([]term{{Grant: id, Remedy: cause == spec.CauseRemedy}}, p.Terms[:min(len(p.Terms), len(p.Issued)-1)]...)
	if p.Stage == granting && len(p.Held) > 0 {
		p.Stage = active
	}
	t.save(p, false)
	if cause != "" {
		t.later(p)
		t.do(Send{To: p.Key, Type: spec.MsgPeeringAmend, ID: t.newID(), Thread: p.Thread, Grants: []nostr.ID{id}, Durable: true, Body: amendBody{id.String(), cause}})
	} else {
		t.sendAccept(p)
	}
	t.tell(p, "granted", "grant %s, tier %s", id, in.Grant.Tier)
	t.startIfActive(p)
}

// grantSeen takes a grant that the peer issued to us.
func (t *turn) grantSeen(in GrantSeen) {
	p := t.peers[in.Issuer]
	if p == nil || (p.Stage != asked && p.Stage != granting && p.Stage != active) {
		return // nobody asked for it
	}
	if held := p.Held.current(); held != nil && in.Grant.CreatedAt <= held.CreatedAt {
		return // held already, or older than what is held
	}
	p.Held = p.Held.push(in.Grant)
	t.save(p, false)
	t.tell(p, "grant-held", "grant %s, tier %s", in.Grant.ID, in.Grant.Tier)
}

// accepted answers the peer's grant with ours, or completes the peering. An acceptance that does not name our grant shows that the peer
// lacks it; one that names it counts on any thread, since proposals that crossed each other may leave the ends on two: the lower stands.
func (t *turn) accepted(p *peer, in Received) {
	if p == nil || len(p.Held) == 0 || p.Stage == ended {
		return
	}
	var body acceptBody
	if err := json.Unmarshal(in.Body, &body); err != nil {
		if in.Thread == p.Thread {
			t.fault(p, in.Thread, spec.CodeMalformed)
		}
		return
	}
	g := p.Issued.current()
	mine := g != nil && slices.Contains(body.Grants, g.ID.String())
	if !mine && in.Thread != p.Thread {
		return
	}
	if mine {
		p.Thread = min(p.Thread, in.Thread)
		t.knows(p, g.ID)
	}
	switch {
	case p.Stage == asked:
		p.Stage, p.Tries = granting, 0
		t.save(p, false)
		t.issue(p)
		return
	case len(p.Issued) > 0 && p.Stage != active:
		p.Stage = active
		t.save(p, false)
		t.startIfActive(p)
	case p.Stage == active:
		t.save(p, false)
	}
	if slices.Contains(body.Grants, p.Held.current().ID.String()) { // it tells a grant, and wants to hear that it is known
		t.acknowledge(p, mine)
	}
	t.refresh(p)
}

// acknowledge tells the peer which grant of its own we hold; and ours too, where it lacks it. An acceptance that names none of its sender's grants
// is not answered.
func (t *turn) acknowledge(p *peer, knowsOurs bool) {
	if !knowsOurs && len(p.Issued) > 0 {
		t.do(Send{To: p.Key, Type: spec.MsgPeeringAccept, ID: t.newID(), Thread: p.Thread, Grants: []nostr.ID{p.Issued.current().ID}, Body: p.acceptance()})
		return
	}
	t.do(Send{To: p.Key, Type: spec.MsgPeeringAccept, ID: t.newID(), Thread: p.Thread, Body: acceptBody{Grants: []string{p.Held.current().ID.String()}}})
}

func (t *turn) declined(p *peer, in Received) {
	if p == nil || p.Stage != asked || in.Thread != p.Thread {
		return
	}
	var body declineBody
	_ = json.Unmarshal(in.Body, &body) // a decline that cannot be read is a decline
	p.Stage = refused
	t.save(p, false)
	t.do(Tell{Peer: p.Key, What: "peering-declined", Code: body.Code, Detail: body.Note})
}

func (t *turn) amended(p *peer, in Received) {
	if p == nil || len(p.Held) == 0 {
		return
	}
	var body amendBody
	if err := json.Unmarshal(in.Body, &body); err != nil {
		t.fault(p, in.Thread, spec.CodeMalformed)
		return
	}
	t.tell(p, "amended", "grant %s, cause %s", body.Grant, body.Cause)
	t.acknowledge(p, true)
}

func (t *turn) endPeer(in EndPeer) {
	p := t.peers[in.Peer]
	if p == nil || p.Stage == ended {
		return
	}
	t.closeWindow(p)
	t.finish(p, in.Reason)
	t.do(Send{To: p.Key, Type: spec.MsgPeeringEnd, ID: t.newID(), Thread: p.Thread, Durable: true, Body: endBody{in.Reason}})
}

func (t *turn) ended(p *peer, in Received) {
	if p == nil || p.Stage == ended {
		return
	}
	var body endBody
	_ = json.Unmarshal(in.Body, &body) // an end that cannot be read is an end
	t.finish(p, body.Reason)
}

func (t *turn) finish(p *peer, reason string) {
	p.Stage, p.Added = ended, false
	p.Issued, p.Held, p.Terms = nil, nil, nil
	t.save(p, false)
	t.tell(p, "ended", "%s", reason)
}
