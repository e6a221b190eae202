package gateway

import (
	"context"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// Subscription is one open REQ.
type Subscription struct {
	c       *Conn
	id      string
	filters []nostr.Filter
	in      chan delivery
	over    chan struct{} // closed by Close
	once    sync.Once
	ended   error // set by Next once a CLOSED was seen
	authed  bool  // authentication was tried
	kept    *delivery
}

type delivery struct {
	event *nostr.Event
	eose  bool
	hints []string
	err   error
}

// Delivery is one thing that a subscription brings: an event, or the end of the stored ones.
type Delivery struct {
	Event *nostr.Event // nil at EOSE; matches a filter of the subscription, its signature is not checked
	EOSE  bool
	Hints []string // with EOSE: "finish" and "more" are those of NIP-67
}

// subscriptionQueue is how many deliveries wait for the reader of a subscription
// before the connection is held up.
const subscriptionQueue = 64

// Subscribe opens a subscription (NIP-01). Close it when done.
func (c *Conn) Subscribe(ctx context.Context, filters ...nostr.Filter) (*Subscription, error) {
	s := &Subscription{c: c, id: c.id(), filters: filters, in: make(chan delivery, subscriptionQueue), over: make(chan struct{})}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Subscription) open(ctx context.Context) error {
	s.c.mu.Lock()
	s.c.subs[s.id] = s
	s.c.mu.Unlock()
	if err := s.c.send(ctx, nostr.AppendReq(nil, s.id, s.filters...)); err != nil {
		s.c.drop(s)
		return err
	}
	return nil
}

// drop takes the subscription out of the table and says whether it was in it.
func (c *Conn) drop(s *Subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subs[s.id] != s {
		return false
	}
	delete(c.subs, s.id)
	return true
}

// deliver hands something to a subscription; it waits while the queue is full.
func (c *Conn) deliver(sub string, d delivery) {
	c.mu.Lock()
	s := c.subs[sub]
	c.mu.Unlock()
	if s == nil || d.event != nil && !s.asked(d.event) {
		c.strays.Add(1)
		return
	}
	select {
	case s.in <- d:
	case <-s.over:
	case <-c.done:
	}
}

func (s *Subscription) asked(e *nostr.Event) bool {
	for i := range s.filters {
		if s.filters[i].Matches(e) {
			return true
		}
	}
	return false
}

func (c *Conn) onClosed(m *nostr.ServerClosed) {
	err := &ClosedError{Reason: m.Reason}
	c.mu.Lock()
	count := c.counts[m.SubID]
	delete(c.counts, m.SubID)
	s := c.subs[m.SubID]
	delete(c.subs, m.SubID)
	c.mu.Unlock()
	switch {
	case count != nil:
		count <- countReply{err: err}
	case s != nil:
		select {
		case s.in <- delivery{err: err}:
		case <-s.over:
		case <-c.done:
		}
	default:
		c.onNeg(m.SubID, negReply{err: &NegError{Reason: m.Reason}})
	}
}

// Next waits for what comes next. It is for one goroutine. A *ClosedError says that the relay ended the
// subscription, a *LostError that the connection is gone. When the relay asks for
// authentication and the options hold a key, Next authenticates and asks again, once.
func (s *Subscription) Next(ctx context.Context) (Delivery, error) {
	if s.ended != nil {
		return Delivery{}, s.ended
	}
	for {
		d, err := s.take(ctx)
		if err != nil {
			return Delivery{}, err
		}
		if d.err == nil {
			return Delivery{Event: d.event, EOSE: d.eose, Hints: d.hints}, nil
		}
		closed, _ := d.err.(*ClosedError)
		if closed == nil || Prefix(closed.Reason) != "auth-required" || s.authed || s.c.opt.Key == nil {
			s.ended = d.err
			return Delivery{}, d.err
		}
		s.authed = true
		if err := s.c.satisfy(ctx); err != nil {
			s.ended = err
			return Delivery{}, err
		}
		if err := s.open(ctx); err != nil {
			return Delivery{}, err
		}
	}
}

// take prefers what has come to the news that the connection is gone.
func (s *Subscription) take(ctx context.Context) (delivery, error) {
	if d := s.kept; d != nil {
		s.kept = nil
		return *d, nil
	}
	select {
	case d := <-s.in:
		return d, nil
	default:
	}
	select {
	case d := <-s.in:
		return d, nil
	case <-ctx.Done():
		return delivery{}, ctx.Err()
	case <-s.c.done:
		select {
		case d := <-s.in:
			return d, nil
		default:
			return delivery{}, s.c.Err()
		}
	}
}

// Close ends the subscription. It does not wait for the relay.
func (s *Subscription) Close() {
	s.once.Do(func() {
		close(s.over)
		if s.c.drop(s) {
			_ = s.c.send(s.c.ctx, nostr.AppendClose(nil, s.id))
		}
	})
}
