package gateway

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// offers takes out of the ids that the relay lacks those it has refused before, and
// notes those it accepted in this run and yet lacks.
func (r *syncRun) offers(have []nostr.ID) []nostr.ID {
	out := have[:0]
	known := map[string]int{}
	lost := 0
	var facts []PeerFact
	now := r.now()
	r.mu.Lock()
	if r.pushNo != nil {
		r.mu.Unlock()
		return nil
	}
	for _, id := range have {
		switch r.up[id] {
		case 0:
			if word, ok := r.Peer.Known(Upload, id); ok {
				r.up[id] = refused
				known[word]++
				continue
			}
			out = append(out, id)
		case accepted:
			r.up[id] = notKept
			lost++
			facts = append(facts, PeerFact{Upload, id, "not-kept", now})
		}
	}
	r.mu.Unlock()
	r.factsUp(facts)
	r.count(func(p *Report) {
		add(p.KnownNo, known)
		p.NotKept += lost
	})
	return out
}

func (r *syncRun) factsUp(facts []PeerFact) {
	if err := r.Peer.Remember(facts...); err != nil {
		r.Log.Warn("what a relay refused is not remembered: it will be offered again", "relay", r.link.URL(), "error", err)
	}
}

// errStopOffers ends an upload that cannot go on; the download may.
var errStopOffers = errors.New("no further offers")

// offer uploads events by their ids, many on their way at once.
func (r *syncRun) offer(ctx context.Context, conn *Conn, ids []nostr.ID) error {
	var facts []PeerFact
	flush := func() {
		r.factsUp(facts)
		facts = facts[:0]
	}
	defer flush()
	defer r.count(func(*Report) {}) // for the answers since the last report
	err := conn.PublishMany(ctx, r.bodies(ctx, ids), r.Window, func(e *nostr.Event, a Answer) error {
		if f, ok := r.note(e.ID, a); ok {
			if facts = append(facts, f); len(facts) >= 64 {
				flush()
			}
		}
		if r.Offered != nil && (a.OK || Prefix(a.Reason) == "duplicate") {
			r.Offered(e, a)
		}
		if !a.OK && Prefix(a.Reason) == "auth-required" {
			r.stopOffers(refusal(a.Reason))
			return errStopOffers
		}
		return nil
	})
	switch {
	case errors.Is(err, errStopOffers):
		return nil
	case errors.Is(err, ErrAuthRequired):
		r.stopOffers(err)
		return nil
	}
	return err
}

func (r *syncRun) stopOffers(why error) {
	r.mu.Lock()
	r.pushNo = why
	r.mu.Unlock()
}

// outBatch is how many events are asked about together before they are offered.
const outBatch = 32

// bodies reads the events to upload, and leaves out what must not go.
func (r *syncRun) bodies(ctx context.Context, ids []nostr.ID) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		for len(ids) > 0 {
			n := min(len(ids), outBatch)
			list, err := r.read(ctx, ids[:n])
			if err != nil {
				yield(nil, err)
				return
			}
			ids = ids[n:]
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// read gets events from the store, without those that must not go.
func (r *syncRun) read(ctx context.Context, ids []nostr.ID) (out []*nostr.Event, err error) {
	for _, id := range ids {
		e, err := r.local.Get(ctx, id, r.now())
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted or expired meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("%w: read an event: %w", ErrLocal, err)
		}
		switch {
		case e.Protected():
			r.withhold(id, "protected")
		case !r.View.Allows(e):
			r.withhold(id, "private")
		default:
			out = append(out, e)
		}
	}
	if r.Out == nil || len(out) == 0 {
		return out, nil
	}
	pass := make([]*nostr.Event, 0, len(out))
	for i, s := range r.Out(ctx, out) {
		if s.Word != "" {
			r.withhold(out[i].ID, s.Word)
			continue
		}
		pass = append(pass, out[i])
	}
	return pass, nil
}

func (r *syncRun) withhold(id nostr.ID, why string) {
	r.mu.Lock()
	r.up[id] = skipped
	r.mu.Unlock()
	r.count(func(p *Report) { p.Withheld[why]++ })
}

// progressEvery is how many answers to uploads make a progress report.
const progressEvery = 16

// note counts an answer and returns the fact to remember, if it is for good.
func (r *syncRun) note(id nostr.ID, a Answer) (PeerFact, bool) {
	prefix := Prefix(a.Reason)
	f := failed
	switch {
	case prefix == "duplicate" && (!a.OK || r.blind):
		f = refused // it has the event, or a better one
	case a.OK: // the next session shows whether it is so
		f = accepted
	case a.Final():
		f = refused
	}
	if prefix == "" {
		prefix = "no-reason"
	}
	r.mu.Lock()
	r.up[id] = f
	switch p := &r.report; {
	case prefix == "duplicate":
		p.Held++
	case a.OK:
		p.Sent++
	case f == refused:
		p.SentRefused[prefix]++
	default:
		p.SentFailed[prefix]++
	}
	if r.answers++; r.answers%progressEvery == 0 {
		r.tell()
	}
	r.mu.Unlock()
	return PeerFact{Upload, id, prefix, r.now()}, f == refused
}
