package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// publishWindow is how many events may wait for the relay's answer at a time.
const publishWindow = 100

// offer publishes events to the relay and reads what became of them from its answers. What it refuses for good enters the refused index. An event
// that got no answer, or one that may change, fails the whole: it may be offered again.
func (s *Store) offer(ctx context.Context, events []*nostr.Event, now int64) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(events))
	at := map[nostr.ID]int{}
	for i, e := range events {
		at[e.ID] = i
	}
	held, err := s.held(ctx, events, now, out)
	if err != nil {
		return nil, err
	}
	var refusals []store.Refusal
	var later []error
	err = s.on(ctx, func(ctx context.Context, c *gateway.Conn) error {
		send := func(yield func(*nostr.Event, error) bool) {
			for i, e := range events {
				if out[i] != 0 || held[e.ID] {
					continue
				}
				s.leaves(e.ID) // the live stream may be faster than the answer
				if !yield(e, nil) {
					return
				}
			}
		}
		return c.PublishMany(ctx, send, publishWindow, func(e *nostr.Event, a gateway.Answer) error {
			o, reason := fateOf(e, a)
			switch out[at[e.ID]] = o; {
			case o == 0:
				later = append(later, fmt.Errorf("the attached relay does not take an event now: %s", a.Reason))
			case o == store.Stored:
				s.sent(e)
			case reason != "":
				refusals = append(refusals, store.Refusal{ID: e.ID, Reason: reason, At: now})
			}
			return nil
		})
	})
	if err == nil {
		err = errors.Join(later...)
	}
	if err != nil {
		return nil, fmt.Errorf("publish to the attached relay: %w", err)
	}
	for i, e := range events {
		if out[i] == 0 { // the same event twice in one batch
			out[i] = store.Duplicate
		}
		if out[i] == store.Stored && at[e.ID] != i {
			out[i] = store.Duplicate
		}
	}
	if len(refusals) > 0 {
		if err := s.cfg.Local.Refuse(ctx, refusals); err != nil {
			return nil, fmt.Errorf("record refusals: %w", err)
		}
	}
	return out, nil
}

// held finds out what need not be offered: what the operator purged here, what is expired, and what the relay has. Some relays answer a
// duplicate with a plain yes, so they are asked first.
func (s *Store) held(ctx context.Context, events []*nostr.Event, now int64, out []store.Outcome) (map[nostr.ID]bool, error) {
	var ids []nostr.ID
	for i, e := range events {
		hidden, err := s.hidden(ctx, e.ID)
		switch {
		case err != nil:
			return nil, err
		case hidden:
			out[i] = store.Refused
		case e.ExpiredAt(now):
			out[i] = store.Expired
		case !e.Kind.IsEphemeral():
			ids = append(ids, e.ID)
		}
	}
	got, err := s.fetch(ctx, ids, now)
	if err != nil {
		return nil, err
	}
	held := map[nostr.ID]bool{}
	for _, e := range got {
		if e != nil {
			held[e.ID] = true
			s.seen(e)
		}
	}
	for i, e := range events {
		if out[i] == 0 && held[e.ID] {
			out[i] = store.Duplicate
		}
	}
	return held, nil
}

// leaves notes that an event goes out through us.
func (s *Store) leaves(id nostr.ID) {
	now := time.Now().Unix()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ours[id] = now
	if len(s.ours) > 2*maxBodies {
		for id, at := range s.ours {
			if now-at > oursLife {
				delete(s.ours, id)
			}
		}
	}
}

// sent takes note of an event that the relay took from us.
func (s *Store) sent(e *nostr.Event) {
	s.came(e)
	s.seen(e)
}

// fateOf reads a relay's answer: what became of the event, and the reason under which it enters the refused index, "" for none. The outcome is zero where
// the answer may be another one later. Relays have no common prefix for what they replaced or deleted before; these are the words in use.
func fateOf(e *nostr.Event, a gateway.Answer) (o store.Outcome, reason string) {
	prefix := gateway.Prefix(a.Reason)
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return prefix == w || !a.OK && a.Final() && strings.Contains(a.Reason, w) })
	}
	switch {
	case a.OK && e.Kind.IsEphemeral():
		return store.Ephemeral, ""
	case prefix == "duplicate":
		return store.Duplicate, ""
	case says("replaced", "newer"):
		return store.Superseded, store.ReasonSuperseded
	case says("deleted"):
		return store.Deleted, store.ReasonDeleted
	case says("expired"):
		return store.Expired, store.ReasonExpired
	case a.OK:
		return store.Stored, ""
	case a.Final():
		return store.Refused, "policy"
	}
	return 0, ""
}
