package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/didcomm/mediate"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// mediation is an anchor's service to leaves: package mediate decides, this makes its records durable before anything is answered. It is
// shown neither who sent what it holds nor what that says, and writes neither down.
type mediation struct {
	h      *Host
	offers chan offer

	mu    sync.Mutex // guards what follows
	state *mediate.Mediator
	log   *mediationLog
	down  error // the log is broken: nothing is taken until the next start
}

// offer is a forward on its way into a queue; done is told once it is durable, and may be nil.
type offer struct {
	f    didcomm.Forward
	done chan error
}

const (
	offersAtOnce = 256 // forwards that one write to the log may hold
	expireEvery  = time.Minute
)

// openMediation takes up what this node holds for leaves, and its own mailbox if it is a leaf.
func (h *Host) openMediation() error {
	if len(h.cfg.Mediators) > 0 {
		h.mailbox = newMailbox(h)
	}
	if h.cfg.Mediator == nil {
		return nil
	}
	state := mediate.New(h.self, *h.cfg.Mediator)
	log, err := openMediationLog(filepath.Join(h.cfg.Dir, "mediation"), state)
	if err != nil {
		return err
	}
	h.mediation = &mediation{h: h, offers: make(chan offer, offersAtOnce), state: state, log: log}
	return nil
}

func (h *Host) startMediation() {
	if h.mediation != nil {
		h.work.Go(h.mediation.run)
	}
	if h.mailbox != nil {
		h.mailbox.keep(h.mediators())
	}
}

func (h *Host) closeMediation() error {
	if h.mediation == nil {
		return nil
	}
	h.mediation.mu.Lock()
	defer h.mediation.mu.Unlock()
	return h.mediation.log.Close()
}

// run makes forwards durable, as many together as there are, and drops what got too old.
func (m *mediation) run() {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case o := <-m.offers:
			batch := []offer{o}
			for len(batch) < offersAtOnce && len(m.offers) > 0 {
				batch = append(batch, <-m.offers)
			}
			m.queue(batch)
		case now := <-tick.C:
			m.mu.Lock()
			if err := m.commit(m.state.Expire(now), false); err != nil {
				m.h.cfg.Log.Warn("mediation: drop what is too old", "err", err)
			}
			for _, did := range m.state.Live() { // what was handed out and not acknowledged, its lease being over
				m.push(did)
			}
			m.mu.Unlock()
		case <-m.h.ctx.Done():
			return
		}
	}
}

// commit makes records durable and then applies them. m.mu is held.
func (m *mediation) commit(records []mediate.Record, sync bool) error {
	if len(records) == 0 {
		return nil
	}
	if m.down != nil {
		return m.down
	}
	if err := m.log.Append(records, sync); err != nil {
		// Whether the records reached the disk is unknown: they are not applied, and the next start reads what is really there.
		m.down = err
		m.h.cfg.Log.Error("mediation has stopped: its log cannot be written", "err", err)
		return err
	}
	if err := m.state.Apply(records...); err != nil {
		return err
	}
	return m.log.Compact(m.state)
}

// queue takes a batch of forwards.
func (m *mediation) queue(batch []offer) {
	m.mu.Lock()
	var records []mediate.Record
	verdicts := make([]error, len(batch))
	live := map[string]bool{}
	for i, o := range batch {
		q, err := m.state.Forward(Now(), o.f)
		if err != nil {
			verdicts[i] = err
			m.refused(err)
			continue
		}
		records = append(records, q.Records...)
		if q.Live {
			live[q.Client] = true
		}
	}
	err := m.commit(records, true)
	for did := range live {
		m.push(did)
	}
	m.mu.Unlock()
	for i, o := range batch {
		if o.done != nil {
			o.done <- errors.Join(verdicts[i], err)
		}
	}
}

// refused counts for the operator what was turned away. It names nobody.
func (m *mediation) refused(err error) {
	m.h.cfg.Log.Info("mediation: a forward was refused", "err", err)
}

// offer queues a forward and waits until it is durable.
func (m *mediation) offer(ctx context.Context, f didcomm.Forward) error {
	if m == nil {
		return errors.New("this node is no mediator")
	}
	o := offer{f, make(chan error, 1)}
	select {
	case m.offers <- o:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// push hands a live client what it has not been handed yet. m.mu is held.
func (m *mediation) push(did string) {
	for {
		r, ok, err := m.state.LiveDelivery(Now(), newID(), did)
		if err != nil || !ok {
			return
		}
		if err := m.commit(r.Records, false); err != nil {
			return
		}
		m.answer(did, r.Message)
	}
}

// answer sends on the client's live session and nowhere else: what belongs to a session must not go into a queue.
func (m *mediation) answer(did string, msg *didcomm.Message) {
	key, err := identity.ParseDID(did)
	if err != nil || msg == nil {
		return
	}
	m.h.mu.Lock()
	l := m.h.link(key)
	m.h.mu.Unlock()
	l.push(&outgoing{m: msg, created: msg.CreatedTime, done: make(chan error, 1), live: true})
}

// holds reports whether somebody is our client.
func (m *mediation) holds(did string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Registered(did)
}

// Held is how much a mediator holds, for all clients together.
type Held struct {
	Clients int   `json:"clients"`
	Live    int   `json:"live"` // connected and taking what comes
	Octets  int64 `json:"octets"`
	Broken  bool  `json:"broken,omitempty"` // the log cannot be written: nothing is taken before a restart
}

// Held tells what this node holds for leaves; nil if it does not mediate.
func (h *Host) Held() *Held {
	m := h.mediation
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Held{Clients: m.state.Clients(), Live: len(m.state.Live()), Octets: m.state.Bytes(), Broken: m.down != nil}
}

// parted ends what belonged to a peer's session.
func (h *Host) parted(peer nostr.PubKey) {
	h.cut(peer)
	if h.mediation != nil {
		h.mediation.mu.Lock()
		h.mediation.state.Disconnected(identity.FormatDID(peer))
		h.mediation.mu.Unlock()
	}
	if h.mailbox != nil {
		h.mailbox.parted(peer)
	}
}

// takeMediation answers a client's message.
func (h *Host) takeMediation(a *arrival) {
	m := h.mediation
	switch {
	case a.anonymous, m == nil && h.mailbox != nil && h.mailbox.of(a.from) != nil:
		return // nobody's, or an answer of our mediator's that nobody waits for, such as the status after an acknowledgement
	case m == nil:
		h.unsupported(a)
		return
	}
	did := identity.FormatDID(a.from)
	admit := a.m.Type == didcomm.TypeMediateRequest && h.admits(a.from)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.m.Type == didcomm.TypeMediateRequest {
		m.state.Connected(did)
	}
	r, err := m.state.Handle(Now(), newID(), a.m, admit, a.carrier != "https" && a.carrier != "giftwrap")
	if err != nil {
		var no *mediate.Refusal
		h.cfg.Log.Info("mediation: a request was refused", "type", a.m.Type, "err", err)
		code := spec.CodeMalformed
		if errors.As(err, &no) {
			code = spec.CodeNotGranted
		}
		h.problemTo(a, code)
		return
	}
	sync := a.m.Type == didcomm.TypeMediateRequest || a.m.Type == didcomm.TypeKeylistUpdate
	if err := m.commit(r.Records, sync); err != nil {
		return // not answered: the client asks again
	}
	for _, rec := range r.Records {
		if rec.Op == mediate.OpRegister {
			h.cfg.Log.Info("mediation: a client is registered", "client", a.from.String()[:12])
		}
	}
	m.answer(did, r.Message)
	m.push(did)
}

// admits says whether a node would be taken as a client: a peer always, a stranger as the enrolment says.
func (h *Host) admits(key nostr.PubKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.peers[key]
	if d == nil || h.revoked[key] {
		return false
	}
	for _, p := range h.node.Peers(Now()) {
		if p.Key == key && p.Stage == "active" {
			return true
		}
	}
	switch h.cfg.Mesh.Enrolment {
	case mesh.EnrolOpen:
		return true
	case mesh.EnrolPoW:
		return d.Committed >= h.cfg.Mesh.PoWBits && d.Work >= h.cfg.Mesh.PoWBits
	}
	return false
}

// takeForward queues an envelope for a client of ours, or passes one on that a client sends out. l is whose stream it came on, nil for nobody's;
// nothing of that is kept.
func (h *Host) takeForward(a *arrival, l *link) {
	if h.mediation == nil {
		h.cfg.Log.Info("a forward came, and this node is no mediator")
		return
	}
	f, err := didcomm.ParseForward(a.m)
	if err != nil {
		h.cfg.Log.Info("mediation: a forward cannot be read", "err", err)
		return
	}
	next := didcomm.DIDOf(f.Next)
	if l == nil || h.mediation.holds(next) || !h.mediation.holds(identity.FormatDID(l.peer)) {
		select {
		case h.mediation.offers <- offer{f: f}:
		case <-h.ctx.Done():
		}
		return
	}
	if key, err := identity.ParseDID(next); err == nil {
		h.passOn(key, f)
	}
}

// passOnLife is how long an envelope that a client sends out is tried; it is not kept on disk.
const passOnLife = 10 * time.Minute

// maxPassedOn bounds the nodes that clients send to at a time: each is looked for, and dialled.
const maxPassedOn = 256

// passOn sends a client's envelope to the node that it is for, on a stream that is used for nothing else.
func (h *Host) passOn(to nostr.PubKey, f didcomm.Forward) {
	if to == h.selfKey {
		h.work.Go(func() { _ = h.takeFrame(f.Envelope) })
		return
	}
	until := Now().Add(passOnLife).Unix()
	if f.ExpiresTime != 0 {
		until = min(until, f.ExpiresTime)
	}
	h.mu.Lock()
	l := h.relays[to]
	if l == nil && len(h.relays) >= maxPassedOn {
		h.mu.Unlock()
		h.cfg.Log.Warn("mediation: clients send to too many nodes at a time; an envelope is let go")
		return
	}
	if l == nil {
		l = h.newLink(to)
		l.relay = true
		h.relays[to] = l
	}
	h.mu.Unlock()
	l.push(&outgoing{frame: f.Envelope, until: until})
}

// takeFrame opens and handles a sealed frame that came in an envelope.
func (h *Host) takeFrame(frame []byte) error {
	a, err := h.open(frame)
	if err != nil {
		return err
	}
	if a.m.Type == didcomm.TypeForward {
		return fmt.Errorf("a forward inside a delivery")
	}
	h.take(a)
	return nil
}
