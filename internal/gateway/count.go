package gateway

import (
	"context"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// CountResult is a relay's answer to COUNT (NIP-45).
type CountResult struct {
	Count       int64
	Approximate bool
	HLL         *nostr.HLL // nil if the relay sent none
}

type countReply struct {
	m   *nostr.ServerCount
	err error
}

func (c *Conn) onCount(m *nostr.ServerCount) {
	c.mu.Lock()
	ch := c.counts[m.QueryID]
	delete(c.counts, m.QueryID)
	c.mu.Unlock()
	if ch == nil {
		c.strays.Add(1)
		return
	}
	ch <- countReply{m: m}
}

// Count asks how many events match any of the filters (NIP-45). A *ClosedError is a refusal.
func (c *Conn) Count(ctx context.Context, filters ...nostr.Filter) (CountResult, error) {
	r, err := c.count(ctx, filters)
	if closed, ok := err.(*ClosedError); ok && Prefix(closed.Reason) == "auth-required" && c.opt.Key != nil {
		if err := c.satisfy(ctx); err != nil {
			return r, err
		}
		return c.count(ctx, filters)
	}
	return r, err
}

func (c *Conn) count(ctx context.Context, filters []nostr.Filter) (CountResult, error) {
	id, ch := c.id(), make(chan countReply, 1)
	c.mu.Lock()
	c.counts[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.counts, id)
		c.mu.Unlock()
	}()
	if err := c.send(ctx, nostr.AppendCountRequest(nil, id, filters...)); err != nil {
		return CountResult{}, err
	}
	t := time.NewTimer(c.opt.ReplyTimeout)
	defer t.Stop()
	select {
	case r := <-ch:
		if r.err != nil {
			return CountResult{}, r.err
		}
		out := CountResult{Count: r.m.Count, Approximate: r.m.Approximate}
		if len(r.m.HLL) == len(nostr.HLL{}) {
			h := nostr.HLL(r.m.HLL)
			out.HLL = &h
		}
		return out, nil
	case <-t.C:
		return CountResult{}, ErrTimeout
	case <-ctx.Done():
		return CountResult{}, ctx.Err()
	case <-c.done:
		return CountResult{}, c.Err()
	}
}
