package gateway

import (
	"context"
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Sink takes events whose signatures were found good. A running relay's inbound path is one, so that what is
// synced passes the same policy, and reaches the same subscribers, as what is published. It must be safe for
// concurrent use, and Stored must mean durable. Refused must be for good; whatever may pass later is an error.
type Sink interface {
	Offer(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error)
}

// StoreSink is the plain Sink: a policy, if any, and then the store.
type StoreSink struct {
	Store  store.Store
	Policy policy.Policy    // nil lets everything in
	Source policy.Source    // what the policy is told; zero means policy.FromSync
	Now    func() time.Time // nil means time.Now
}

// Offer implements Sink. What the policy refuses is entered in the store's refused index.
func (s *StoreSink) Offer(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error) {
	now := unixNow(s.Now)
	source := s.Source
	if source == policy.FromClient {
		source = policy.FromSync
	}
	out := make([]store.Outcome, len(events))
	admitted, at := make([]*nostr.Event, 0, len(events)), make([]int, 0, len(events))
	var refusals []store.Refusal
	for i, e := range events {
		if s.Policy != nil {
			req := &policy.Request{Event: e, Source: source, Now: now}
			if no := s.ask(ctx, req); no != nil {
				if no.Prefix == policy.RateLimited || no.Prefix == policy.Error {
					return nil, fmt.Errorf("policy: %s", no)
				}
				out[i] = store.Refused
				refusals = append(refusals, store.Refusal{ID: e.ID, Reason: "policy", At: now})
				continue
			}
		}
		admitted, at = append(admitted, e), append(at, i)
	}
	if len(refusals) > 0 {
		if err := s.Store.Refuse(ctx, refusals); err != nil {
			return nil, fmt.Errorf("record refusals: %w", err)
		}
	}
	if len(admitted) == 0 {
		return out, nil
	}
	got, err := s.Store.Insert(ctx, admitted, now)
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	for k, o := range got {
		out[at[k]] = o
	}
	return out, nil
}

func (s *StoreSink) ask(ctx context.Context, r *policy.Request) *policy.Rejection {
	if c, ok := s.Policy.(policy.Chain); ok {
		if no := c.Precheck(ctx, r); no != nil {
			return no
		}
	}
	return s.Policy.Admit(ctx, r)
}

func unixNow(now func() time.Time) int64 {
	if now == nil {
		return time.Now().Unix()
	}
	return now().Unix()
}

// word names an outcome as it stands in reports and in the refused index.
func word(o store.Outcome) string {
	switch o {
	case store.Stored:
		return "stored"
	case store.Duplicate:
		return "duplicate"
	case store.Superseded:
		return store.ReasonSuperseded
	case store.Deleted:
		return store.ReasonDeleted
	case store.Expired:
		return store.ReasonExpired
	case store.Ephemeral:
		return "ephemeral"
	}
	return "policy"
}
