package relay

import (
	"context"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// onCount answers COUNT (NIP-45): a number, or CLOSED.
func (c *conn) onCount(m *nostr.CountMessage) {
	c.r.m.Counts.Add(1)
	no := c.ask(m.QueryID, m.Filters)
	if no == nil && c.r.cfg.Off.Count {
		no = policy.Reject(policy.Unsupported, "COUNT is switched off here")
	}
	if no != nil {
		c.refuseSub("COUNT", m.QueryID, no)
		return
	}
	c.run(&c.queries, func() {
		if !c.r.begin(c.ctx) {
			return
		}
		msg, err := c.count(m)
		c.r.rest()
		switch {
		case err == nil:
			c.send(msg)
		case c.ctx.Err() == nil:
			c.r.log.Error("answer a count", "err", err)
			c.refuseSub("COUNT", m.QueryID, policy.Reject(policy.Error, "the count failed"))
		}
	})
}

func (c *conn) count(m *nostr.CountMessage) ([]byte, error) {
	view := c.r.gate.View(c.readers())
	now := c.r.now().Unix()
	n, err := c.r.cfg.Store.Count(c.ctx, m.Filters, view, now)
	if err != nil {
		return nil, err
	}
	hll, err := c.hll(c.ctx, m.Filters, view, n, now)
	if err != nil {
		return nil, err
	}
	return nostr.AppendCount(nil, m.QueryID, int64(n), hll), nil
}

// hll returns the registers for a filter that has an offset, nil for any other. n is the
// number of events that match.
func (c *conn) hll(ctx context.Context, filters []nostr.Filter, view store.View, n int, now int64) ([]byte, error) {
	if c.r.cfg.Off.HLL || len(filters) != 1 || n > c.r.lim.Load().MaxHLLEvents {
		return nil, nil
	}
	offset, ok := nostr.HLLOffset(filters[0])
	if !ok {
		return nil, nil
	}
	f := filters[0]
	f.Limit = nil
	var h nostr.HLL
	for e, err := range c.r.cfg.Store.Query(ctx, []nostr.Filter{f}, view, 0, now) {
		if err != nil {
			return nil, err
		}
		h.Add(e.PubKey, offset)
	}
	return h[:], nil
}
