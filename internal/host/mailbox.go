package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/didcomm/mediate"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// mailbox is a leaf's side of mediation: one session with each mediator, over which what waits is picked up and what comes is delivered live.
type mailbox struct {
	h *Host

	mu     sync.Mutex
	inbox  *mediate.Inbox
	wake   chan struct{}                  // closed and made anew when the leaf wakes
	asleep bool                           // nothing is connected
	at     map[nostr.PubKey]bool          // mediators that serve us now
	gone   map[nostr.PubKey]chan struct{} // signalled when the session with a mediator ends
}

// What a leaf remembers of envelopes, and how often it tries to read one.
const (
	inboxSize  = 65536
	inboxTries = 3
)

func newMailbox(h *Host) *mailbox {
	b := &mailbox{h: h, inbox: mediate.NewInbox(inboxSize, inboxTries), wake: make(chan struct{}), gone: map[nostr.PubKey]chan struct{}{}, at: map[nostr.PubKey]bool{}}
	for _, m := range h.cfg.Mediators {
		b.gone[m] = make(chan struct{}, 1)
	}
	return b
}

func (b *mailbox) start() {
	for _, m := range b.h.cfg.Mediators {
		b.h.work.Go(func() { b.attend(m) })
	}
}

func (b *mailbox) parted(peer nostr.PubKey) {
	if ch := b.gone[peer]; ch != nil {
		signal(ch)
	}
}

// Sleep closes the sessions of a leaf with its mediators, as a phone does in a pocket; Wake opens them again. Others are not affected.
func (h *Host) Sleep() {
	b := h.mailbox
	if b == nil {
		return
	}
	b.mu.Lock()
	b.asleep = true
	b.mu.Unlock()
	for _, m := range h.cfg.Mediators {
		h.mu.Lock()
		l := h.link(m)
		h.mu.Unlock()
		l.close()
		b.parted(m)
	}
}

// Wake ends Sleep.
func (h *Host) Wake() {
	b := h.mailbox
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asleep {
		b.asleep = false
		close(b.wake)
		b.wake = make(chan struct{})
	}
}

// awake waits while the leaf sleeps.
func (b *mailbox) awake() bool {
	for {
		b.mu.Lock()
		asleep, wake := b.asleep, b.wake
		b.mu.Unlock()
		if !asleep {
			return b.h.ctx.Err() == nil
		}
		select {
		case <-wake:
		case <-b.h.ctx.Done():
			return false
		}
	}
}

// attend keeps a session with one mediator for as long as the node runs.
func (b *mailbox) attend(mediator nostr.PubKey) {
	backoff := minBackoff
	for b.awake() {
		select {
		case <-b.gone[mediator]:
		default:
		}
		err := b.register(mediator)
		b.served(mediator, err == nil)
		if err == nil {
			backoff = minBackoff
			b.h.cfg.Log.Info("registered with a mediator", "mediator", mediator.String()[:12])
			select {
			case <-b.gone[mediator]:
			case <-b.h.ctx.Done():
				return
			}
			b.served(mediator, false)
			continue
		}
		b.h.cfg.Log.Info("a mediator does not serve us; trying again", "mediator", mediator.String()[:12], "in", backoff, "err", err)
		pause := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-pause.C:
		case <-b.h.ctx.Done():
		}
		pause.Stop()
		backoff = min(2*backoff, maxBackoff)
	}
}

// errDenied says that a mediator does not want us.
var errDenied = errors.New("the mediator declines: it takes peers, and strangers as its enrolment says")

// register asks for mediation, says what we receive for, and turns live delivery on: that brings what waits too.
func (b *mailbox) register(mediator nostr.PubKey) error {
	h := b.h
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout)
	defer cancel()
	if _, err := h.descriptorFrom(ctx, mediator, mediator); err != nil {
		return err
	}
	if err := h.introduce(mediator); err != nil {
		return fmt.Errorf("introduce ourselves: %w", err)
	}
	to, now := identity.FormatDID(mediator), time.Now().Unix()
	grant, err := h.ask(ctx, mediator, didcomm.NewMediateRequest(newID(), h.self, to, now), nil)
	if err != nil {
		return fmt.Errorf("ask for mediation: %w", err)
	}
	if grant.Type == didcomm.TypeMediateDeny {
		return errDenied
	}
	if _, err := didcomm.ParseMediateGrant(grant); err != nil {
		return err
	}
	update, err := didcomm.NewKeylistUpdate(newID(), h.self, to, now, didcomm.KeylistItem{RecipientDID: h.self, Action: didcomm.KeylistAdd})
	if err != nil {
		return err
	}
	if _, err := h.ask(ctx, mediator, update, nil); err != nil {
		return fmt.Errorf("say what we receive for: %w", err)
	}
	live, err := didcomm.NewLiveDeliveryChange(newID(), h.self, to, now, true)
	if err != nil {
		return err
	}
	if _, err := h.ask(ctx, mediator, live, nil); err != nil {
		return fmt.Errorf("turn live delivery on: %w", err)
	}
	return nil
}

// takeDelivery opens what a mediator of ours delivers, and acknowledges what is safe. One that cannot be opened is tried again a few times,
// then set aside: it must not hold up those behind it.
func (h *Host) takeDelivery(a *arrival) {
	if h.mailbox == nil || h.mailbox.gone[a.from] == nil || a.anonymous {
		h.unsupported(a)
		return
	}
	list, err := didcomm.ParseDelivery(a.m)
	if err != nil {
		h.fault(a, spec.CodeMalformed)
		return
	}
	var safe []string
	for _, d := range list {
		if h.mailbox.deliver(d.Envelope) {
			safe = append(safe, d.ID)
		}
	}
	if len(safe) == 0 {
		return
	}
	ack, err := didcomm.NewMessagesReceived(newID(), h.self, identity.FormatDID(a.from), time.Now().Unix(), safe)
	if err != nil {
		h.cfg.Log.Error("acknowledge a delivery", "err", err)
		return
	}
	h.mu.Lock()
	l := h.link(a.from)
	h.mu.Unlock()
	l.push(&outgoing{m: ack, created: ack.CreatedTime, done: make(chan error, 1), live: true})
}

// deliver handles one envelope and reports whether it need not come again. Two mediators may bring the same at once.
func (b *mailbox) deliver(envelope []byte) (safe bool) {
	if envelope == nil {
		return true // unreadable for the mediator's own fault
	}
	b.mu.Lock()
	verdict := b.inbox.Offer(envelope)
	b.mu.Unlock()
	if verdict != mediate.Process {
		return true
	}
	err := b.h.takeFrame(envelope)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil || known(err) {
		b.inbox.Done(envelope)
		return true
	}
	poison := b.inbox.Failed(envelope)
	b.h.cfg.Log.Info("a delivered envelope cannot be used", "envelope", mediate.EnvelopeID(envelope), "set_aside", poison, "err", err)
	return poison
}

func (b *mailbox) served(mediator nostr.PubKey, yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at[mediator] = yes
}

// MyMediators are the mediators of this node, if it is a leaf, and whether each serves it now.
func (h *Host) MyMediators() map[nostr.PubKey]bool {
	out := map[nostr.PubKey]bool{}
	for _, m := range h.cfg.Mediators {
		h.mailbox.mu.Lock()
		out[m] = h.mailbox.at[m]
		h.mailbox.mu.Unlock()
	}
	return out
}
