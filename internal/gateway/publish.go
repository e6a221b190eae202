package gateway

import (
	"context"
	"iter"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Answer is a relay's OK to an event.
type Answer struct {
	OK     bool
	Reason string // with its machine-readable prefix, if there is one
}

// Final says whether the answer is the last word: the event is held, or offering it again is no
// use (NIP-01: invalid, blocked, duplicate, pow; NIP-42: restricted).
func (a Answer) Final() bool { return a.OK || finalRefusal(a.Reason) }

type answered struct {
	id string
	Answer
}

func (c *Conn) onOK(m *nostr.ServerOK) {
	c.mu.Lock()
	waiting := c.pubs[m.ID]
	delete(c.pubs, m.ID)
	c.mu.Unlock()
	if len(waiting) == 0 {
		c.strays.Add(1)
	}
	for _, ch := range waiting {
		ch <- answered{m.ID, Answer{m.OK, m.Reason}} // has room for all that its owner has in flight
	}
}

func (c *Conn) expect(id string, ch chan<- answered) {
	c.mu.Lock()
	c.pubs[id] = append(c.pubs[id], ch)
	c.mu.Unlock()
}

func (c *Conn) forget(id string, ch chan<- answered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.pubs[id][:0]
	for _, other := range c.pubs[id] {
		if other != ch {
			rest = append(rest, other)
		}
	}
	if len(rest) == 0 {
		delete(c.pubs, id)
		return
	}
	c.pubs[id] = rest
}

// roundTrip sends a frame and waits for the OK that names the event.
func (c *Conn) roundTrip(ctx context.Context, e *nostr.Event, frame []byte) (Answer, error) {
	ch := make(chan answered, 1)
	id := e.ID.String()
	c.expect(id, ch)
	defer c.forget(id, ch)
	if err := c.send(ctx, frame); err != nil {
		return Answer{}, err
	}
	t := time.NewTimer(c.opt.ReplyTimeout)
	defer t.Stop()
	select {
	case a := <-ch:
		return a.Answer, nil
	case <-t.C:
		return Answer{}, ErrTimeout
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	case <-c.done:
		select { // the answer may have come before the end
		case a := <-ch:
			return a.Answer, nil
		default:
		}
		return Answer{}, c.Err()
	}
}

// Publish sends one event and returns the relay's answer. Where that asks for authentication and
// the options hold a key, it authenticates and sends the event once more. An error means that no answer came;
// the relay may hold the event all the same.
func (c *Conn) Publish(ctx context.Context, e *nostr.Event) (Answer, error) {
	frame := nostr.AppendPublish(nil, e)
	a, err := c.roundTrip(ctx, e, frame)
	if err != nil || a.OK || Prefix(a.Reason) != "auth-required" || c.opt.Key == nil {
		return a, err
	}
	if err := c.satisfy(ctx); err != nil {
		return a, err
	}
	return c.roundTrip(ctx, e, frame)
}

// maxAttempts is how often an event is offered to a relay that limits the rate.
const maxAttempts = 8

// PublishMany sends events with up to window of them unanswered, and calls fate once for each with
// the relay's answer, in no particular order. "rate-limited:" is obeyed: everything waits for as long as the
// relay asks (else 1 s, doubling up to a minute), then goes on at the rate that the relay took before, which a Link remembers for an hour. An
// event that is limited 8 times, or that cannot be authenticated for, gets that answer as its fate.
// PublishMany ends when all events have had theirs, or with the first error: of fate, of the events,
// of ctx, or of the connection. Events without a fate then may or may not be held by the relay.
func (c *Conn) PublishMany(ctx context.Context, events iter.Seq2[*nostr.Event, error], window int, fate func(*nostr.Event, Answer) error) error {
	next, stop := iter.Pull2(events)
	defer stop()
	p := &publisher{
		c: c, fate: fate, next: next, window: max(window, 1),
		flying: map[string]*flight{}, pace: c.pace,
	}
	p.answers = make(chan answered, p.window)
	defer func() {
		for id := range p.flying {
			c.forget(id, p.answers)
		}
	}()
	return p.run(ctx)
}

type flight struct {
	e        *nostr.Event
	attempts int
}

type publisher struct {
	c       *Conn
	fate    func(*nostr.Event, Answer) error
	next    func() (*nostr.Event, error, bool)
	window  int
	flying  map[string]*flight
	answers chan answered
	again   []*flight // to be offered once more
	drained bool
	pace    *pacer
}

func (p *publisher) run(ctx context.Context) error {
	quiet, gate := time.NewTimer(p.c.opt.ReplyTimeout), time.NewTimer(time.Hour)
	defer quiet.Stop()
	defer gate.Stop()
	for {
		if err := p.fill(ctx); err != nil {
			return err
		}
		if p.drained && len(p.flying) == 0 && len(p.again) == 0 {
			return nil
		}
		var open <-chan time.Time // when the pace lets the next one go
		if len(p.flying) < p.window && (len(p.again) > 0 || !p.drained) {
			gate.Reset(p.pace.wait(time.Now()))
			open = gate.C
		}
		if len(p.flying) > 0 {
			quiet.Reset(p.c.opt.ReplyTimeout)
		} else {
			quiet.Stop()
		}
		select {
		case a := <-p.answers:
			if err := p.settle(ctx, a); err != nil {
				return err
			}
		case <-open:
		case <-quiet.C:
			return ErrTimeout
		case <-ctx.Done():
			return ctx.Err()
		case <-p.c.done:
			return p.drain(ctx)
		}
	}
}

// drain takes the answers that came before the connection ended.
func (p *publisher) drain(ctx context.Context) error {
	for {
		select {
		case a := <-p.answers:
			if f := p.flying[a.id]; f != nil && a.Final() {
				delete(p.flying, a.id)
				if err := p.fate(f.e, a.Answer); err != nil {
					return err
				}
			}
		default:
			return p.c.Err()
		}
	}
}

// fill sends as much as window and pace allow.
func (p *publisher) fill(ctx context.Context) error {
	for len(p.flying) < p.window && p.pace.wait(time.Now()) <= 0 {
		f, err := p.pull()
		if f == nil || err != nil {
			return err
		}
		id := f.e.ID.String()
		if p.flying[id] != nil {
			continue // offered twice by the caller: one answer serves both
		}
		if !p.pace.take(time.Now()) { // another publisher was quicker
			p.again = append(p.again, f)
			return nil
		}
		f.attempts++
		p.flying[id] = f
		p.c.expect(id, p.answers)
		if err := p.c.send(ctx, nostr.AppendPublish(nil, f.e)); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) pull() (*flight, error) {
	if n := len(p.again); n > 0 {
		f := p.again[0]
		p.again = p.again[1:]
		return f, nil
	}
	if p.drained {
		return nil, nil
	}
	e, err, ok := p.next()
	if !ok {
		p.drained = true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &flight{e: e}, nil
}

func (p *publisher) settle(ctx context.Context, a answered) error {
	f := p.flying[a.id]
	if f == nil {
		return nil
	}
	delete(p.flying, a.id)
	now := time.Now()
	switch prefix := Prefix(a.Reason); {
	case a.OK:
		p.pace.accepted(now)
	case prefix == "rate-limited" && f.attempts < maxAttempts:
		p.pace.limited(now, askedDelay(a.Reason))
		p.again = append(p.again, f)
		return nil
	case prefix == "auth-required" && p.c.opt.Key != nil && f.attempts == 1:
		if err := p.c.satisfy(ctx); err != nil {
			return err
		}
		p.again = append(p.again, f)
		return nil
	}
	return p.fate(f.e, a.Answer)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
