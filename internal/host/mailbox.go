package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	wake   chan struct{} // closed and made anew when the leaf wakes
	asleep bool          // nothing is connected
	at     map[nostr.PubKey]*attendance
}

// attendance is how we stand with one mediator.
type attendance struct {
	ctx    context.Context
	cancel context.CancelFunc
	gone   chan struct{} // signalled when the session ends
	state  Served
}

// Served says whether a mediator holds our messages and delivers them live.
type Served struct {
	Now    bool
	Denied bool      // it said that it does not want us
	Since  time.Time // for how long it has been so
}

// What a leaf remembers of envelopes, and how often it tries to read one.
const (
	inboxSize  = 65536
	inboxTries = 3
)

func newMailbox(h *Host) *mailbox {
	return &mailbox{h: h, inbox: mediate.NewInbox(inboxSize, inboxTries), wake: make(chan struct{}), at: map[nostr.PubKey]*attendance{}}
}

// keep attends the given mediators and lets go of others.
func (b *mailbox) keep(list []nostr.PubKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for m, a := range b.at {
		if !slices.Contains(list, m) {
			a.cancel()
			delete(b.at, m)
		}
	}
	for _, m := range list {
		if b.at[m] == nil {
			a := &attendance{gone: make(chan struct{}, 1), state: Served{Since: Now()}}
			a.ctx, a.cancel = context.WithCancel(b.h.ctx)
			b.at[m] = a
			b.h.work.Go(func() { b.attend(m, a) })
		}
	}
}

// of returns how we stand with a mediator, nil if it is none of ours.
func (b *mailbox) of(peer nostr.PubKey) *attendance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at[peer]
}

func (b *mailbox) parted(peer nostr.PubKey) {
	if a := b.of(peer); a != nil {
		signal(a.gone)
	}
}

// mediators are those of this node, if it is a leaf.
func (h *Host) mediators() []nostr.PubKey { return *h.mine.Load() }

// SetMediators gives a leaf other mediators. It is for those that have some already, and want at least one.
func (h *Host) SetMediators(list []nostr.PubKey) {
	if h.mailbox == nil || len(list) == 0 {
		return
	}
	list = slices.Clone(list)
	h.mine.Store(&list)
	h.mailbox.keep(list)
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
	for _, m := range h.mediators() {
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
func (b *mailbox) awake(ctx context.Context) bool {
	for {
		b.mu.Lock()
		asleep, wake := b.asleep, b.wake
		b.mu.Unlock()
		if !asleep {
			return ctx.Err() == nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return false
		}
	}
}

// attend keeps a session with one mediator for as long as it is one of ours.
func (b *mailbox) attend(mediator nostr.PubKey, a *attendance) {
	backoff := minBackoff
	for b.awake(a.ctx) {
		select {
		case <-a.gone:
		default:
		}
		err := b.register(a.ctx, mediator)
		b.served(a, err)
		if err == nil {
			backoff = minBackoff
			b.h.cfg.Log.Info("registered with a mediator", "mediator", mediator.String()[:12])
			select {
			case <-a.gone:
			case <-a.ctx.Done():
				return
			}
			b.served(a, errAsleep)
			continue
		}
		b.h.cfg.Log.Info("a mediator does not serve us; trying again", "mediator", mediator.String()[:12], "in", backoff, "err", err)
		pause := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-pause.C:
		case <-a.ctx.Done():
		}
		pause.Stop()
		backoff = min(2*backoff, maxBackoff)
	}
}

// errDenied says that a mediator does not want us.
var errDenied = errors.New("the mediator declines: it takes peers, and strangers as its enrolment says")

// register asks for mediation, says what we receive for, and turns live delivery on: that brings what waits too.
func (b *mailbox) register(ctx context.Context, mediator nostr.PubKey) error {
	h := b.h
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if _, err := h.descriptorFrom(ctx, mediator, mediator); err != nil {
		return err
	}
	if err := h.introduce(mediator); err != nil {
		return fmt.Errorf("introduce ourselves: %w", err)
	}
	to, now := identity.FormatDID(mediator), Now().Unix()
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
	if h.mailbox == nil || h.mailbox.of(a.from) == nil || a.anonymous {
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
	ack, err := didcomm.NewMessagesReceived(newID(), h.self, identity.FormatDID(a.from), Now().Unix(), safe)
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

// served takes note of how we stand with a mediator now.
func (b *mailbox) served(a *attendance, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := err == nil; now != a.state.Now {
		a.state.Now, a.state.Since = now, Now()
	}
	a.state.Denied = errors.Is(err, errDenied)
}

// MyMediators are the mediators of this node, if it is a leaf, and how it stands with each.
func (h *Host) MyMediators() map[nostr.PubKey]Served {
	out := map[nostr.PubKey]Served{}
	if h.mailbox == nil {
		return out
	}
	h.mailbox.mu.Lock()
	defer h.mailbox.mu.Unlock()
	for m, a := range h.mailbox.at {
		out[m] = a.state
	}
	return out
}
