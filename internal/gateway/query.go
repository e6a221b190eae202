package gateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// pageLimit is the limit asked for with each page. Relays cap it as they like.
const pageLimit = 500

// tieLimit is the limit asked for when one second holds more than a page.
const tieLimit = 5000

// ErrIncomplete says that the relay did not let all stored events through: one second
// holds more events than it gives in one answer.
var ErrIncomplete = errors.New("the relay holds more events of one second than it gives out")

// hint is what an EOSE says about completeness (NIP-67).
type hint uint8

const (
	noHint hint = iota
	finish
	more
)

// Query yields the stored events that match any of the filters, each once: filter after filter, newest
// first within one. It pages by until where the relay caps its answers, so that it
// misses nothing, also where events share a second; a filter's Limit ends it
// earlier. Signatures are not checked. The error, after which nothing comes, is ErrIncomplete,
// a *ClosedError, a *LostError, ErrTimeout or that of ctx.
func (c *Conn) Query(ctx context.Context, filters ...nostr.Filter) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		seen := map[nostr.ID]struct{}{}
		incomplete := false
		for _, f := range filters {
			p := pager{c: c, f: f, seen: seen, yield: yield}
			err := p.run(ctx)
			if errors.Is(err, ErrIncomplete) {
				incomplete = true
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if p.stopped {
				return
			}
		}
		if incomplete {
			yield(nil, ErrIncomplete)
		}
	}
}

// QueryAll collects a Query. Events that came before an error are returned with it.
func (c *Conn) QueryAll(ctx context.Context, filters ...nostr.Filter) ([]*nostr.Event, error) {
	var out []*nostr.Event
	for e, err := range c.Query(ctx, filters...) {
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
	return out, nil
}

// pager walks one filter's answers from the newest to the oldest.
type pager struct {
	c       *Conn
	f       nostr.Filter
	seen    map[nostr.ID]struct{}
	yield   func(*nostr.Event, error) bool
	stopped bool // by yield
	left    int  // of the filter's own limit; -1 for none
	lacking bool
}

func (p *pager) run(ctx context.Context) error {
	p.left = -1
	if p.f.Limit != nil {
		p.left = *p.f.Limit
	}
	if p.f.MatchesNothing() || p.left == 0 {
		return nil
	}
	until := p.f.Until
	for {
		page, h, err := p.page(ctx, p.f.Since, until, pageLimit)
		if err != nil || p.stopped {
			return err
		}
		if h == finish || page.got == 0 || p.left == 0 || p.f.Search != "" || p.f.IDs != nil && page.got >= len(p.f.IDs) {
			break
		}
		oldest := page.oldest
		if page.fresh > 0 || until == nil || oldest < *until {
			until = &oldest // the same second once more: some of it may have been cut off
			continue
		}
		if h == more || page.got >= largePage {
			if err := p.wholeSecond(ctx, oldest); err != nil || p.stopped {
				return err
			}
		}
		if oldest == 0 || p.f.Since != nil && oldest <= *p.f.Since {
			break
		}
		oldest--
		until = &oldest
	}
	if p.lacking {
		return ErrIncomplete
	}
	return nil
}

// largePage is a number of events in one second from which on a relay's cap may have hidden others.
const largePage = 100

// wholeSecond asks for all of one second, and notes when there is more than the relay gives.
func (p *pager) wholeSecond(ctx context.Context, second int64) error {
	page, h, err := p.page(ctx, &second, &second, tieLimit)
	if h == more || page.got >= tieLimit {
		p.lacking = true
	}
	return err
}

type page struct {
	got, fresh int
	oldest     int64
}

func (p *pager) page(ctx context.Context, since, until *int64, limit int) (page, hint, error) {
	f := p.f
	f.Since, f.Until = since, until
	if p.left >= 0 && len(p.seen) == 0 {
		limit = min(limit, p.left) // later pages repeat what is known, so they may need more
	}
	f.Limit = &limit
	var out page
	h, err := p.c.collect(ctx, []nostr.Filter{f}, func(e *nostr.Event) bool {
		if out.got == 0 || e.CreatedAt < out.oldest {
			out.oldest = e.CreatedAt
		}
		out.got++
		if _, ok := p.seen[e.ID]; ok || p.left == 0 {
			return true
		}
		p.seen[e.ID] = struct{}{}
		out.fresh++
		if p.left > 0 {
			p.left--
		}
		p.stopped = !p.yield(e, nil)
		return !p.stopped
	})
	return out, h, err
}

// collect runs one REQ up to its EOSE and closes it. It obeys "rate-limited:" a few times. take returns
// false to stop early.
func (c *Conn) collect(ctx context.Context, filters []nostr.Filter, take func(*nostr.Event) bool) (hint, error) {
	delay := minDelay
	for attempt := 1; ; attempt++ {
		h, err := c.collectOnce(ctx, filters, take)
		var closed *ClosedError
		if !errors.As(err, &closed) || Prefix(closed.Reason) != "rate-limited" || attempt == maxAttempts {
			return h, err
		}
		if err := pause(ctx, c.done, max(delay, askedDelay(closed.Reason))); err != nil {
			return noHint, err
		}
		delay = min(2*delay, maxDelay)
	}
}

func (c *Conn) collectOnce(ctx context.Context, filters []nostr.Filter, take func(*nostr.Event) bool) (hint, error) {
	s, err := c.Subscribe(ctx, filters...)
	if err != nil {
		return noHint, err
	}
	defer s.Close()
	for {
		d, err := s.nextWithin(ctx, c.opt.ReplyTimeout)
		switch {
		case err != nil:
			return noHint, err
		case d.EOSE && slices.Contains(d.Hints, "finish"):
			return finish, nil
		case d.EOSE && slices.Contains(d.Hints, "more"):
			return more, nil
		case d.EOSE:
			return noHint, nil
		case !take(d.Event):
			return noHint, nil
		}
	}
}

// nextWithin is Next with ErrTimeout when the relay falls silent.
func (s *Subscription) nextWithin(ctx context.Context, d time.Duration) (Delivery, error) {
	tctx, cancel := context.WithTimeoutCause(ctx, d, ErrTimeout)
	defer cancel()
	out, err := s.Next(tctx)
	if err != nil && ctx.Err() == nil && tctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return out, fmt.Errorf("wait for stored events: %w", ErrTimeout)
	}
	return out, err
}

// pause waits, unless ctx or the connection ends first.
func pause(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil // whoever uses the connection next learns why
	}
}
