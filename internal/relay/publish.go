package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Verdict is what became of one event.
type Verdict struct {
	OK      bool          // the event is welcome: stored, held already, superseded, or passed on
	Reason  string        // as in the OK of NIP-01: "" or "prefix: text"
	Outcome store.Outcome // of the store; zero if it was not asked
}

// offer is one event on its way through the pipeline.
type offer struct {
	policy.Request
	event    *nostr.Event
	size     int
	answer   func(o *offer, v Verdict) // called once, from a goroutine of the pipeline; must not block
	from     *conn                     // nil for an offer from within
	together bool                      // whoever settles it has the answer written
	signed   bool                      // the signature was found good before
	held     bool                      // the store has it from another face: it is only passed on
	ctx      context.Context
}

// ErrDown is returned by Publish once the relay shuts down.
var ErrDown = errors.New("the relay is shut down")

// Publish sends events through the same pipeline as a client's: signature, policy, store,
// fan-out. It returns one Verdict an event, in order, when all are decided; stored means durable. An
// error means that ctx ended or the relay shut down: then some events may have been taken all the same.
func (r *Relay) Publish(ctx context.Context, events []*nostr.Event, source policy.Source) ([]Verdict, error) {
	return r.publish(ctx, events, source, false)
}

func (r *Relay) publish(ctx context.Context, events []*nostr.Event, source policy.Source, signed bool) ([]Verdict, error) {
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return nil, ErrDown
	}
	r.peers.Add(1)
	r.mu.Unlock()
	defer r.peers.Done()
	verdicts := make([]Verdict, len(events))
	var open sync.WaitGroup
	var err error
	for i, e := range events {
		o := &offer{event: e, size: len(e.JSON()), ctx: ctx, signed: signed}
		o.Request = policy.Request{Event: e, Source: source, Now: r.now().Unix()}
		if v, done := r.precheck(o); done {
			verdicts[i] = v
			continue
		}
		open.Add(1)
		o.answer = func(_ *offer, v Verdict) {
			verdicts[i] = v
			open.Done()
		}
		if err = r.submit(ctx, o); err != nil {
			open.Done()
			break
		}
	}
	open.Wait() // the pipeline always answers
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// Announce passes events on to whoever listens that are in the store already, because another process put them there: several relays can be
// faces of one database. They were checked when they came in.
func (r *Relay) Announce(ctx context.Context, events []*nostr.Event) error {
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return ErrDown
	}
	r.peers.Add(1)
	r.mu.Unlock()
	defer r.peers.Done()
	var open sync.WaitGroup
	defer open.Wait() // the pipeline always answers
	for _, e := range events {
		o := &offer{event: e, size: len(e.JSON()), ctx: ctx, signed: true, held: true, answer: func(*offer, Verdict) { open.Done() }}
		open.Add(1)
		if err := r.submit(ctx, o); err != nil {
			open.Done()
			return err
		}
	}
	return nil
}

// Sink takes events that another door has fetched and whose signatures it has checked. What a
// policy refuses for good is entered in the store's refused index, so that it is not fetched again.
type Sink struct {
	r      *Relay
	source policy.Source
}

// Sink returns the relay's inbound path for a source.
func (r *Relay) Sink(source policy.Source) *Sink { return &Sink{r, source} }

// Offer sends events through the pipeline, without a second look at their signatures, and returns one outcome an
// event. After an error the same events may be offered again.
func (s *Sink) Offer(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error) {
	verdicts, err := s.r.publish(ctx, events, s.source, true)
	if err != nil {
		return nil, err
	}
	out := make([]store.Outcome, len(events))
	var refusals []store.Refusal
	for i, v := range verdicts {
		out[i] = v.Outcome
		if v.Outcome != 0 {
			continue
		}
		if p := v.prefix(); p == policy.Error || p == policy.RateLimited {
			return nil, errors.New(v.Reason)
		}
		out[i] = store.Refused
		refusals = append(refusals, store.Refusal{ID: events[i].ID, Reason: "policy", At: s.r.now().Unix()})
	}
	if len(refusals) > 0 {
		if err := s.r.cfg.Store.Refuse(ctx, refusals); err != nil {
			return nil, fmt.Errorf("record refusals: %w", err)
		}
	}
	return out, nil
}

func (v *Verdict) prefix() policy.Prefix {
	p, _, _ := strings.Cut(v.Reason, ":")
	return policy.Prefix(p)
}

// precheck answers what needs no signature check: events that are refused by their looks, and those that we hold.
func (r *Relay) precheck(o *offer) (Verdict, bool) {
	if no := r.policy.Precheck(o.ctx, &o.Request); no != nil {
		return r.refuse(no), true
	}
	if o.event.Kind.IsEphemeral() {
		return Verdict{}, false
	}
	held, err := r.cfg.Store.Has(o.ctx, o.event.ID, o.Now)
	if err == nil && held {
		r.m.Duplicates.Add(1)
		return verdictOf(store.Duplicate), true
	}
	return Verdict{}, false
}

func (r *Relay) refuse(no *policy.Rejection) Verdict {
	r.m.refused(no.Prefix)
	if no.Shadow {
		return Verdict{OK: true}
	}
	return Verdict{Reason: no.String()}
}

// submit hands an offer to the verifier, waiting while too much is under way.
func (r *Relay) submit(ctx context.Context, o *offer) error {
	o.size = min(o.size, r.lim.Load().MaxPendingBytes)
	if err := r.pending.Acquire(ctx, int64(o.size)); err != nil {
		return err
	}
	select {
	case r.incoming <- o:
		return nil
	case <-ctx.Done():
		r.pending.Release(int64(o.size))
		return ctx.Err()
	}
}

// settle answers an offer.
func (r *Relay) settle(o *offer, v Verdict) {
	r.pending.Release(int64(o.size))
	o.answer(o, v)
}

// verdictOf words an outcome of the store.
func verdictOf(out store.Outcome) Verdict {
	v := Verdict{Outcome: out}
	switch out {
	case store.Stored, store.Ephemeral:
		v.OK = true
	case store.Duplicate:
		v.OK, v.Reason = true, "duplicate: already have this event"
	case store.Superseded:
		v.OK, v.Reason = true, "duplicate: have a newer version of this event"
	case store.Deleted:
		v.Reason = "blocked: its author asked for this event to be deleted"
	case store.Expired:
		v.Reason = "invalid: the event has expired"
	case store.Refused:
		v.Reason = "blocked: this event was removed or refused here before"
	default:
		v.Reason = "error: the store gave no answer"
	}
	return v
}

// storeFailure words an error of the store; the operator finds the cause in the log.
func storeFailure(err error) Verdict {
	switch {
	case errors.Is(err, store.ErrFull): // which also makes some stores read-only
		return Verdict{Reason: "error: the store is full"}
	case errors.Is(err, store.ErrReadOnly):
		return Verdict{Reason: "error: the store is read-only at present"}
	}
	return Verdict{Reason: "error: the event could not be stored"}
}
