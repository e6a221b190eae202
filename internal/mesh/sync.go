package mesh

import (
	"bytes"
	"encoding/json"
	"fmt"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Bodies of sync/1.0 (spec/schema/message/sync-1.0.json). Neg is a negentropy message in hex, as NIP-77 writes it.
type (
	// OpenBody begins a session and brings the first negentropy message.
	OpenBody struct {
		Shard  string          `json:"shard"`
		Filter json.RawMessage `json:"filter"`
		Since  int64           `json:"since,omitempty"`
		Until  int64           `json:"until,omitempty"`
		Mode   string          `json:"mode"`
		Neg    string          `json:"neg"`
	}
	// FrameBody is a further negentropy message.
	FrameBody struct {
		Neg string `json:"neg"`
	}
	// WantBody asks for events by id.
	WantBody struct {
		IDs []string `json:"ids"`
	}
	// DeliverBody counts the delivery envelopes that are attached, one an event.
	DeliverBody struct {
		Count int `json:"count"`
	}
	// DeliveredBody says what became of a deliver's events.
	DeliveredBody struct {
		Stored    int          `json:"stored"`
		Duplicate int          `json:"duplicate"`
		Refused   []RefusedRef `json:"refused"`
	}
	// RefusedRef names a delivered event that was not taken, and why.
	RefusedRef struct {
		ID   string    `json:"id"`
		Code spec.Code `json:"code"`
	}
	// DoneBody ends a session: how many events the initiator had for the other, and needed of it.
	DoneBody struct {
		Have int64 `json:"have"`
		Need int64 `json:"need"`
	}
	// RefuseBody ends or refuses a session.
	RefuseBody struct {
		Code spec.Code `json:"code"`
	}
)

// Modes of an interest contract (§ Replication).
const (
	ModePull = "pull"
	ModePush = "push"
	ModeBoth = "both"
)

// How long a sync rests: after it ended, and after the peer was busy with one of its own. One that the way broke is taken up at once, and
// where the way breaks again, ever later. A live session that lasted for resyncSeconds has shown that the way holds.
const (
	resyncSeconds = 300
	busySeconds   = 15
)

// session is a sync under way.
type session struct {
	peer  nostr.PubKey
	ours  bool // we began it
	shard string
	want  int   // index in the peer's Wants, of one that we began
	asked Want  // and what it was begun for
	left  bool  // it is ended because that is wanted no more
	live  bool  // reconciled: what is new goes over it, and it is no longer under way
	since int64 // when it went live
	heard int64 // of one that we began: when the other end last showed that it was there
	query bool  // a question of standing/1.0, and no sync

	flight []inFlight // what we sent and got no answer to, oldest first
}

// inFlight is a message of ours that may have arrived or not.
type inFlight struct {
	typ    spec.MessageType
	window int64
	cost   ledger.Counters
}

// startIfActive begins the syncs that the operator wants and that are not live, once the peering stands.
func (t *turn) startIfActive(p *peer) {
	if p.Stage != active || len(p.Wants) == 0 || p.Stands.ZeroUntil > t.now {
		return
	}
	i, ok := t.nextWant(p)
	if !ok {
		p.NextSync, p.Waiting = 0, false
		return
	}
	if t.underWay(p) != nil || t.owes(p, t.now) {
		p.NextSync, p.Waiting = t.now+busySeconds, true
		return
	}
	p.Waiting = false
	want := p.Wants[i]
	p.NextWant = i + 1
	thread := t.newID()
	t.threads[thread] = &session{peer: p.Key, ours: true, shard: want.Shard, want: i, asked: want, heard: t.now}
	for _, b := range p.Used {
		b.Ahead = nil // what the last session or a crash left unseen will not be seen any more: it must not hide what this one brings
	}
	p.NextSync = 0
	t.do(StartSync{Peer: p.Key, Session: thread, Want: want})
}

// nextWant returns the next interest that has no live session, from NextWant on.
func (t *turn) nextWant(p *peer) (int, bool) {
	live := map[int]bool{}
	for _, s := range t.threads {
		if s.peer == p.Key && s.ours && s.live {
			live[s.want] = true
		}
	}
	for k := range p.Wants {
		if i := (p.NextWant + k) % len(p.Wants); !live[i] {
			return i, true
		}
	}
	return 0, false
}

// underWay returns a session with the peer that reconciles, nil if there is none. There is one at a time, whoever began it: two at once would
// send the same events twice, and honest nodes would count each other's duplicates.
func (t *turn) underWay(p *peer) *session {
	var found *session
	var first string // should there be two, it is the same one in every run
	for thread, s := range t.threads {
		if s.peer == p.Key && !s.live && !s.query && (found == nil || thread < first) {
			found, first = s, thread
		}
	}
	return found
}

// syncMessage meters a message of sync/1.0 and lets it through or not.
func (t *turn) syncMessage(p *peer, in Received, m *spec.MessageSpec) {
	if s := t.threads[in.Thread]; in.Type != spec.MsgSyncOpen && s == nil || s != nil && s.query {
		t.stray(p, in)
		return
	}
	window, code := t.meterIn(p, in, m)
	if code != "" {
		t.do(Withhold{Code: code})
		return
	}
	if in.Type == spec.MsgSyncOpen {
		t.opened(p, in)
		return
	}
	s := t.threads[in.Thread]
	if s == nil || s.peer != p.Key {
		t.do(Withhold{Code: spec.CodeNotGranted})
		return
	}
	t.do(Pass{Window: window})
}

// stray refuses a message of a session that is over, or that a restart forgot. It is not metered: nobody can tell any more who began the session
// and whose grant it belongs to. A peer that keeps at it is at fault.
func (t *turn) stray(p *peer, in Received) {
	t.do(Withhold{Code: spec.CodeNotGranted})
	w := ledger.WindowAt(t.now, t.cfg.Window)
	if p.StrayWindow != w.Epoch {
		p.StrayWindow, p.Strays = w.Epoch, 0
	}
	if p.Strays++; p.Strays > straysAllowed {
		t.fault(p, in.Thread, spec.CodeNotGranted)
	}
}

// straysAllowed is how many strays of a window are passed over: far more than an honest peer has on its way when a session ends.
const straysAllowed = 64

// opened accepts a session whose filter the grant's scope covers, or refuses it.
func (t *turn) opened(p *peer, in Received) {
	var body OpenBody
	refuse := func(code spec.Code) {
		t.do(Send{To: p.Key, Type: spec.MsgSyncRefuse, ID: t.newID(), Thread: in.Thread, Body: RefuseBody{code}})
		t.do(Tell{Peer: p.Key, What: "sync-refused", Code: code})
	}
	if err := json.Unmarshal(in.Body, &body); err != nil {
		refuse(spec.CodeMalformed)
		return
	}
	f, err := nostr.ParseFilter(body.Filter)
	if err != nil || (body.Mode != ModePull && body.Mode != ModePush && body.Mode != ModeBoth) {
		refuse(spec.CodeMalformed)
		return
	}
	if t.threads[in.Thread] != nil {
		refuse(spec.CodeMalformed)
		return
	}
	if s := t.underWay(p); s != nil && (!s.ours || bytes.Compare(t.cfg.Self[:], p.Key[:]) < 0) {
		refuse(spec.CodeTooMany) // where both begin at once, the session of the lower key stands
		return
	}
	scopes := p.Issued.current().Scopes
	if body.Mode != ModePush && !covers(scopes, ledger.Pull, &f) || body.Mode != ModePull && !covers(scopes, ledger.Push, &f) {
		refuse(spec.CodeOutOfScope)
		return
	}
	t.threads[in.Thread] = &session{peer: p.Key, shard: body.Shard}
	t.do(ServeSync{Peer: p.Key, Session: in.Thread, Open: body})
}

// syncLive lets the next sync begin: this one has reconciled.
func (t *turn) syncLive(in SyncLive) {
	s, p := t.threads[in.Session], t.peers[in.Peer]
	if s == nil || p == nil || s.peer != in.Peer || s.live {
		return
	}
	s.live, s.since = true, t.now
	if s.ours {
		p.Live++
	}
	t.leaveUnwanted(p) // it may have been begun for what is wanted no more
	t.do(Tell{Peer: p.Key, What: "sync-live", Detail: syncDetail(s, SyncEnded{Have: in.Have, Need: in.Need})})
	if s.ours || p.Waiting {
		t.startIfActive(p) // the other interests, or ours that waited for this one
	}
}

// syncEnded closes the books of a session and plans the next.
func (t *turn) syncEnded(in SyncEnded) {
	s := t.threads[in.Session]
	p := t.peers[in.Peer]
	if s == nil || p == nil || s.peer != in.Peer {
		return
	}
	delete(t.threads, in.Session)
	if s.ours && s.live {
		p.Live--
	}
	t.do(Tell{Peer: p.Key, What: "sync-ended", Code: in.Code, Detail: syncDetail(s, in)})
	switch {
	case !s.ours:
		if p.Waiting && t.underWay(p) == nil {
			t.startIfActive(p) // ours waited for this one
		}
	case s.live:
		t.renew(p, s, in.Code)
	case in.Code == spec.CodeError: // the way broke
		p.NextWant = s.want
		t.retrySync(p, s)
	case in.Code == spec.CodeTooMany || in.Code != "" && t.owes(p, t.now):
		p.NextWant = s.want
		p.NextSync, p.Waiting = t.now+busySeconds, true
	case p.NextWant%max(1, len(p.Wants)) != 0 && in.Code == "":
		t.startIfActive(p)
	default:
		p.NextSync = t.now + resyncSeconds
	}
}

// renew plans the reconciliation that closes the gap after a live session of ours: at once where both ends were there to end it.
func (t *turn) renew(p *peer, s *session, code spec.Code) {
	p.NextWant = s.want
	if t.now-s.since >= resyncSeconds {
		p.Breaks = 0
	}
	switch {
	case code == "" && (s.left || t.now-s.since >= busySeconds):
		t.startIfActive(p)
	case code == spec.CodeOverBudget:
		p.NextSync = t.now + resyncSeconds
	default:
		t.retrySync(p, s)
	}
}

// retrySync takes a sync up again that the way broke. What was on its way may have been counted or not, so the other end is asked first: a node
// that comes back for more with an open account would be held to it.
func (t *turn) retrySync(p *peer, s *session) {
	p.NextSync = t.now + min(int64(1)<<min(p.Breaks, 10), resyncSeconds)
	p.Breaks++
	t.doubt(p, s.heard)
}

func syncDetail(s *session, in SyncEnded) string {
	side := "served"
	if s.ours {
		side = "began"
	}
	return fmt.Sprintf("%s shard %q: %d delivered, %d taken", side, s.shard, in.Have, in.Need)
}
