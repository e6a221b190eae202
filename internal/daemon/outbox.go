package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// outbox holds the newest of each of our own public events, for every relay that we publish to.
type outbox struct {
	mu      sync.Mutex
	events  map[string]*nostr.Event // by kind and d tag
	changed chan struct{}           // closed and made anew at every change
}

func newOutbox() *outbox {
	return &outbox{events: map[string]*nostr.Event{}, changed: make(chan struct{})}
}

func (o *outbox) put(e *nostr.Event) {
	key := nostr.Address{Kind: e.Kind, PubKey: e.PubKey, D: e.D()}.String()
	o.mu.Lock()
	defer o.mu.Unlock()
	if old := o.events[key]; old != nil && old.ID == e.ID {
		return
	}
	o.events[key] = e
	close(o.changed)
	o.changed = make(chan struct{})
}

// stalePulse is how old an ephemeral event may be and still be worth sending.
const stalePulse = time.Minute

// pending returns what is worth sending and was not sent, revocations first, and a channel that is closed when there is more.
func (o *outbox) pending(sent map[nostr.ID]bool, now time.Time) (list []*nostr.Event, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		stale := e.Kind.IsEphemeral() && now.Sub(time.Unix(e.CreatedAt, 0)) > stalePulse
		if !sent[e.ID] && !stale && !e.ExpiredAt(now.Unix()) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *nostr.Event) int {
		if ra, rb := urgent(a), urgent(b); ra != rb {
			return ra - rb
		}
		return int(a.CreatedAt - b.CreatedAt)
	})
	return list, o.changed
}

// urgent puts revocations before everything else.
func urgent(e *nostr.Event) int {
	if e.Kind == spec.KindRevocation {
		return 0
	}
	return 1
}

// publishTo sends what is in the outbox to one relay, now and whenever it changes, until ctx or the connection ends.
func (f *federation) publishTo(ctx context.Context, url string, conn *gateway.Conn) {
	sent := map[nostr.ID]bool{}
	for {
		list, more := f.outbox.pending(sent, time.Now())
		for _, e := range list {
			answer, err := conn.Publish(ctx, e)
			if err != nil {
				return
			}
			sent[e.ID] = true
			if !answer.OK {
				f.n.log.Info("a relay does not take an event of ours", "relay", url, "kind", e.Kind, "says", answer.Reason)
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// putOwn signs an event and publishes it here and at our relays, unless the one that stands says the same and has not run out.
func (f *federation) putOwn(ctx context.Context, e *nostr.Event) error {
	now := time.Now().Unix()
	e.PubKey = f.n.agent.PubKey()
	filter := nostr.Filter{Kinds: []nostr.Kind{e.Kind}, Authors: []nostr.PubKey{e.PubKey}}
	if d := e.D(); d != "" {
		filter.Tags = []nostr.TagFilter{{Letter: 'd', Values: []string{d}}}
	}
	for held, err := range f.n.store.Query(ctx, []nostr.Filter{filter}, store.View{}, 1, now) {
		if err != nil {
			return err
		}
		if held.Content == e.Content && slices.EqualFunc(held.Tags, e.Tags, func(a, b nostr.Tag) bool { return slices.Equal(a, b) }) {
			f.outbox.put(held)
			return nil
		}
		e.CreatedAt = max(e.CreatedAt, held.CreatedAt+1)
	}
	if err := identity.SignEvent(f.n.agent, e); err != nil {
		return err
	}
	if err := f.publish(ctx, e); err != nil {
		return err
	}
	f.outbox.put(e)
	return nil
}
