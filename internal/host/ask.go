package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// question is somebody who waits for the answer in a thread.
type question struct {
	peer   nostr.PubKey
	answer chan *arrival
}

// answered hands an authenticated message to whoever waits for it. Only the peer that was asked can answer, and only once. A problem report
// answers the thread that is its parent.
func (h *Host) answered(a *arrival) bool {
	thread := a.m.Thread()
	if a.m.Type == didcomm.TypeProblemReport {
		thread = a.m.ParentThreadID
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q, ok := h.asked[thread]
	if !ok || a.anonymous || q.peer != a.from {
		return false
	}
	delete(h.asked, thread)
	q.answer <- a
	return true
}

// ProblemError is a problem report that came instead of an answer.
type ProblemError struct{ Problem didcomm.Problem }

func (e *ProblemError) Error() string {
	return fmt.Sprintf("the peer answers with a problem, %s: %s", e.Problem.Code, e.Problem.Text())
}

// errNoAnswer says that a frame went out and nothing came back.
var errNoAnswer = errors.New("the message went out, and no answer came")

// CodeOf is the code of the closed list for an error of Ping or AskStanding: what the other side refused with, TIMEOUT where the message went out and
// nothing came back, UNREACHABLE where it never did.
func CodeOf(err error) spec.Code {
	var said *ProblemError
	var no *Refused
	var here *refusal
	switch {
	case errors.As(err, &no):
		return no.Code
	case errors.As(err, &here):
		return here.code
	case errors.As(err, &said):
		if code, ok := spec.CodeOfProblem(said.Problem.Code); ok {
			return code
		}
		return spec.CodeError
	case errors.Is(err, errNoAnswer):
		return spec.CodeTimeout
	}
	return spec.CodeUnreachable
}

// ask sends a message and waits for the answer in its thread. trace may be nil.
func (h *Host) ask(ctx context.Context, peer nostr.PubKey, m *didcomm.Message, trace *Pong) (*didcomm.Message, error) {
	q := question{peer, make(chan *arrival, 1)}
	o := &outgoing{m: m, created: m.CreatedTime, done: make(chan error, 1), trace: trace}
	h.mu.Lock()
	h.asked[m.ID] = q
	l := h.link(peer)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.asked, m.ID)
		h.mu.Unlock()
	}()
	if lost := l.put(o, true); lost != nil {
		lost.tell(errors.New("the queue for the peer is full"))
	}
	select {
	case err := <-o.done:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("the message did not go out in time: %w", context.Cause(ctx))
	}
	select {
	case a := <-q.answer:
		if a.m.Type != didcomm.TypeProblemReport {
			return a.m, nil
		}
		p, err := didcomm.ParseProblemReport(a.m)
		if err != nil {
			return nil, err
		}
		return nil, &ProblemError{p}
	case <-ctx.Done():
		return nil, errNoAnswer
	case <-h.ctx.Done():
		return nil, h.ctx.Err()
	}
}

// introduce puts our descriptor in front of what we are about to ask, so that a node that does not know us can open it. It proves nothing and
// asks for nothing.
func (h *Host) introduce(peer nostr.PubKey) error {
	d := h.cfg.Descriptor()
	if d == nil {
		return errors.New("this node has no descriptor yet")
	}
	m, err := didcomm.NewPing(newID(), h.self, identity.FormatDID(peer), Now().Unix(), false)
	if err != nil {
		return err
	}
	m.Attachments = []didcomm.Attachment{didcomm.JSONAttachment(attachDescriptor, d.JSON())}
	h.mu.Lock()
	l := h.link(peer)
	h.mu.Unlock()
	o := &outgoing{m: m, anonymous: true, created: m.CreatedTime, done: make(chan error, 1)}
	if lost := l.put(o, true); lost != nil {
		lost.tell(errors.New("the queue for the peer is full"))
	}
	select {
	case err := <-o.done:
		return err
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
}

// introduced takes up the descriptor that a first contact brings: it says whether the stream is the sender's own.
func (h *Host) introduced(a *arrival) {
	if !a.anonymous {
		return
	}
	for i := range a.m.Attachments {
		if a.m.Attachments[i].ID != attachDescriptor {
			continue
		}
		text, err := a.m.Attachments[i].Content()
		if err != nil {
			return
		}
		if e, err := nostr.ParseEvent(text); err == nil && e.PubKey == a.from {
			_, _ = h.learn(e) // what is wrong with it is said when the message is taken
		}
		return
	}
}

// Hint names relays where a node's descriptor may be found.
func (h *Host) Hint(peer nostr.PubKey, relays []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range relays {
		if !slices.Contains(h.hints[peer], r) {
			h.hints[peer] = append(h.hints[peer], r)
			delete(h.sought, peer) // there is somewhere new to look
		}
	}
}

// Pong is what a trust ping found out.
type Pong struct {
	Carrier   string              // scheme of the session that carried it; "mediator" where it went by way of one
	Rung      string              // address of the rung, where we dialled it
	Fresh     bool                // the session was opened for this ping
	RoundTrip time.Duration       // from the ping's leaving to the answer
	Attempts  []transport.Attempt // of the climb that opened the session, in order
}

// answerTime is how long a ping waits for its answer: a session that is open and says nothing for so long is given up for a fresh climb.
const answerTime = 10 * time.Second

// Ping asks a node by trust-ping whether it is there: over the session that there is, or one that is opened for it. Where the open session
// does not answer, it is closed and the ladder is climbed once; so it is where the node turns out to have moved.
func (h *Host) Ping(ctx context.Context, peer nostr.PubKey) (*Pong, error) {
	pong := new(Pong)
	if _, err := h.descriptor(ctx, peer, true); err != nil {
		return pong, err
	}
	h.mu.Lock()
	l := h.link(peer)
	h.mu.Unlock()
	had := l.connected()
	err := h.pingOnce(ctx, peer, pong, had)
	switch {
	case err == nil:
		return pong, nil
	case had && errors.Is(err, errNoAnswer):
		l.close()
	case !h.seekAnew(ctx, peer): // it may have moved
		return pong, err
	}
	return pong, h.pingOnce(ctx, peer, pong, l.connected())
}

func (h *Host) pingOnce(ctx context.Context, peer nostr.PubKey, pong *Pong, had bool) error {
	if !had { // a session that exists is with a node that knows us
		if err := h.introduce(peer); err != nil {
			h.trace(peer, pong)
			return err
		}
	}
	m, err := didcomm.NewPing(newID(), h.self, identity.FormatDID(peer), Now().Unix(), true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	start := Now()
	_, err = h.ask(ctx, peer, m, pong)
	pong.RoundTrip = Now().Sub(start)
	pong.Fresh = !had
	return err
}

// trace fills in what the last climb to a peer met.
func (h *Host) trace(peer nostr.PubKey, pong *Pong) {
	h.mu.Lock()
	l := h.link(peer)
	h.mu.Unlock()
	_ = l.traced(&outgoing{trace: pong}, true, nil)
}

// Features asks a node by discover-features what it offers of a feature type; match may end in "*".
func (h *Host) Features(ctx context.Context, peer nostr.PubKey, queries ...didcomm.Query) ([]didcomm.Feature, error) {
	m, err := didcomm.NewQueries(newID(), h.self, identity.FormatDID(peer), Now().Unix(), queries...)
	if err != nil {
		return nil, err
	}
	answer, err := h.ask(ctx, peer, m, nil)
	if err != nil {
		return nil, err
	}
	return didcomm.ParseDisclose(answer)
}
