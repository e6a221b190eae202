package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// wanted takes out of the needed ids those that we have by now, that were refused here before, and
// that this run has dealt with.
func (r *syncRun) wanted(ctx context.Context, need []nostr.ID) ([]nostr.ID, error) {
	out := need[:0]
	now := r.now()
	known := map[string]int{}
	for _, id := range need {
		r.mu.Lock()
		done := r.down[id]
		r.mu.Unlock()
		if done {
			continue
		}
		if word, ok := r.Peer.Known(Download, id); ok {
			known[word]++
			r.markDown(id)
			continue
		}
		no, ok, err := r.local.Refusal(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%w: look up a refusal: %w", ErrLocal, err)
		}
		if ok {
			known[no.Reason]++
			r.markDown(id)
			continue
		}
		held, err := r.local.Has(ctx, id, now)
		if err != nil {
			return nil, fmt.Errorf("%w: look up an event: %w", ErrLocal, err)
		}
		if !held {
			out = append(out, id)
		}
	}
	r.count(func(p *Report) { add(p.KnownRefused, known) })
	return out, nil
}

func add(to, from map[string]int) {
	for k, n := range from {
		to[k] += n
	}
}

func (r *syncRun) markDown(id nostr.ID) {
	r.mu.Lock()
	r.down[id] = true
	r.mu.Unlock()
}

// transfer fetches and offers at the same time. The first error of either stops both.
func (r *syncRun) transfer(ctx context.Context, conn *Conn, have, need []nostr.ID) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	start := func(job func() error) {
		wg.Go(func() {
			if err := job(); err != nil {
				cancel(err)
			}
		})
	}
	if len(have) > 0 {
		start(func() error { return r.offer(ctx, conn, have) })
	}
	batches := make(chan []nostr.ID)
	if len(need) > 0 {
		start(func() error {
			defer close(batches)
			for len(need) > 0 {
				n := min(len(need), r.Batch)
				select {
				case batches <- need[:n]:
				case <-ctx.Done():
					return nil
				}
				need = need[n:]
			}
			return nil
		})
		for range fetchers {
			start(func() error {
				for ids := range batches {
					if err := r.fetch(ctx, conn, ids); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

// handInBytes is how much of one answer, in octets, is kept before it is handed in.
const handInBytes = 4 << 20

// fetch gets events by their ids and hands them in. A relay may cap its answer: what is missing is asked for again as
// long as something comes.
func (r *syncRun) fetch(ctx context.Context, conn *Conn, ids []nostr.ID) error {
	missing := ids
	for len(missing) > 0 {
		limit := len(missing)
		left := make(map[nostr.ID]struct{}, limit)
		for _, id := range missing {
			left[id] = struct{}{}
		}
		var got []*nostr.Event
		var herr error
		size := 0
		_, err := conn.collect(ctx, []nostr.Filter{{IDs: missing, Limit: &limit}}, func(e *nostr.Event) bool {
			if _, ok := left[e.ID]; ok { // each once, however often it comes
				delete(left, e.ID)
				got = append(got, e)
				size += len(e.JSON())
			}
			if size > handInBytes {
				herr = r.handIn(ctx, got)
				got, size = nil, 0
			}
			return herr == nil && len(left) > 0
		})
		if herr == nil {
			herr = r.handIn(ctx, got)
		}
		if herr != nil {
			return herr
		}
		var closed *ClosedError
		switch {
		case errors.As(err, &closed) && Prefix(closed.Reason) == "invalid" && len(missing) > 1:
			// Perhaps too many ids for it.
			if err := r.fetch(ctx, conn, missing[:len(missing)/2]); err != nil {
				return err
			}
			missing = missing[len(missing)/2:]
			continue
		case errors.As(err, &closed):
			return refusal(closed.Reason)
		case err != nil:
			return err
		}
		rest := missing[:0:0]
		for _, id := range missing {
			if _, ok := left[id]; ok {
				rest = append(rest, id)
			}
		}
		if len(rest) == len(missing) {
			break // nothing came
		}
		missing = rest
	}
	for _, id := range missing {
		r.markDown(id)
	}
	if len(missing) > 0 {
		r.count(func(p *Report) { p.Unavailable += len(missing) })
	}
	return nil
}

// refusal turns a relay's reason into the error that a sync ends with.
func refusal(reason string) error {
	closed := &ClosedError{Reason: reason}
	switch Prefix(reason) {
	case "auth-required":
		return fmt.Errorf("%w: %w", ErrAuthRequired, closed)
	case "rate-limited":
		return fmt.Errorf("%w: %w", ErrLimited, closed)
	}
	return fmt.Errorf("%w: %w", ErrRefused, closed)
}

// handIn verifies events and offers them to the sink. All of them are settled when it returns nil.
func (r *syncRun) handIn(ctx context.Context, events []*nostr.Event) error {
	if len(events) == 0 {
		return nil
	}
	// What has come is worth keeping even if the rest of the run is being called off.
	ctx = context.WithoutCancel(ctx)
	now := r.now()
	good := make([]*nostr.Event, 0, len(events))
	var facts []PeerFact
	unusable := map[string]int{}
	for i, ok := range r.Verifier.Verify(events) {
		e, word := events[i], ""
		switch {
		case !ok:
			word = "bad-signature"
		case !r.Filter.Matches(e):
			word = "outside-filter"
		default:
			good = append(good, e)
			continue
		}
		// The id may stand for a good event elsewhere: this is a fact about the relay alone.
		unusable[word]++
		facts = append(facts, PeerFact{Download, e.ID, word, now})
	}
	good = r.admit(ctx, good, func(e *nostr.Event, s Stop) {
		unusable[s.Word]++
		if s.Again {
			r.markDown(e.ID)
			return
		}
		facts = append(facts, PeerFact{Download, e.ID, s.Word, now})
	})
	if err := r.Peer.Remember(facts...); err != nil {
		r.Log.Warn("what a relay served badly is not remembered", "relay", r.link.URL(), "error", err)
	}
	var outcomes []store.Outcome
	if len(good) > 0 {
		var err error
		if outcomes, err = r.Sink.Offer(ctx, good); err != nil {
			return fmt.Errorf("%w: hand in events: %w", ErrLocal, err)
		}
		if err := r.remember(ctx, good, outcomes, now); err != nil {
			return err
		}
	}
	for _, f := range facts {
		r.markDown(f.ID)
	}
	for i, o := range outcomes {
		if o != store.Stored { // those are seen to be held
			r.markDown(good[i].ID)
		}
	}
	r.count(func(p *Report) {
		p.Bodies += len(events)
		add(p.Unusable, unusable)
		for _, o := range outcomes {
			switch o {
			case store.Stored:
				p.New++
			case store.Duplicate:
			default:
				p.Refused[word(o)]++
			}
		}
	})
	return nil
}

// admit returns the events that the caller's In lets pass, and tells of the others.
func (r *syncRun) admit(ctx context.Context, events []*nostr.Event, stopped func(*nostr.Event, Stop)) []*nostr.Event {
	if r.In == nil || len(events) == 0 {
		return events
	}
	pass := events[:0]
	for i, s := range r.In(ctx, events) {
		if s.Word == "" {
			pass = append(pass, events[i])
			continue
		}
		stopped(events[i], s)
	}
	return pass
}

// remember makes sure that what was not kept is known as refused, so that it is not fetched again. The store
// does so itself for what its rules decide.
func (r *syncRun) remember(ctx context.Context, events []*nostr.Event, outcomes []store.Outcome, now int64) error {
	var out []store.Refusal
	for i, o := range outcomes {
		if o == store.Stored || o == store.Duplicate {
			continue
		}
		_, known, err := r.local.Refusal(ctx, events[i].ID)
		if err != nil {
			return fmt.Errorf("%w: look up a refusal: %w", ErrLocal, err)
		}
		if !known {
			out = append(out, store.Refusal{ID: events[i].ID, Reason: word(o), At: now})
		}
	}
	if len(out) == 0 {
		return nil
	}
	if err := r.local.Refuse(ctx, out); err != nil {
		return fmt.Errorf("%w: record refusals: %w", ErrLocal, err)
	}
	return nil
}
