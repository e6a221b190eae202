package relay

import (
	"context"
	"slices"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// sub is one subscription of a connection. It is in the index before its query starts: what is stored in
// between is held until after the EOSE, and what the query has sent is not sent again.
type sub struct {
	c       *conn
	id      string
	head    []byte // `["EVENT","id",`
	filters []nostr.Filter
	reg     *registration
	values  int // under which it stands in the index
	ctx     context.Context
	cancel  context.CancelFunc
	burst   burst // of its query's goroutine

	// Guarded by the connection's mu.
	dead      bool
	streaming bool // the stored events are not all sent
	held      []parcel
	sent      map[nostr.ID]struct{} // by the query while still in flight to the live stream
	sentUpTo  uint64                // no batch above it can carry one of sent
}

func (c *conn) onReq(m *nostr.ReqMessage) {
	c.r.m.Requests.Add(1)
	if no := c.ask(m.SubID, m.Filters); no != nil {
		c.refuseSub("REQ", m.SubID, no)
		return
	}
	s := &sub{c: c, id: m.SubID, filters: m.Filters, streaming: true}
	s.head = eventHead(m.SubID)
	s.reg = register(s, m.Filters)
	c.dropSub(m.SubID)
	if no := c.addSub(s); no != nil {
		c.refuseSub("REQ", m.SubID, no)
		return
	}
	// What had its OK before the REQ is stored, and new to nobody.
	s.reg.after = c.r.settled.Load()
	c.r.index.add(s.reg)
	c.run(&c.queries, s.query)
}

// eventHead is the beginning of an EVENT message, up to the event.
func eventHead(sub string) []byte {
	b := nostr.AppendEvent(nil, sub, nil)
	return slices.Clip(b[:len(b)-1])
}

func (c *conn) addSub(s *sub) *policy.Rejection {
	n := len(s.reg.entries)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.r.lim.Load().MaxSubscriptions; len(c.subs) >= l {
		return over(policy.Blocked, "maxSubscriptions", l, len(c.subs)+1)
	}
	if l := c.r.lim.Load().MaxWatchedValues; c.watched+n > l {
		return over(policy.Blocked, "maxWatchedValues", l, c.watched+n)
	}
	if l := c.r.lim.Load().MaxWatchedInAll; int(c.r.watched.Add(int64(n))) > l {
		return over(policy.RateLimited, "maxWatchedInAll", l, c.r.watched.Add(-int64(n))+int64(n))
	}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	s.values = n
	c.watched += n
	if c.subs == nil {
		c.subs = make(map[string]*sub)
	}
	c.subs[s.id] = s
	c.r.m.Subscriptions.Add(1)
	return nil
}

// dropSub ends a subscription, if there is one of that id.
func (c *conn) dropSub(id string) { c.drop(id, nil) }

// drop ends the subscription of that id, if it is the one that is meant (nil: any).
func (c *conn) drop(id string, only *sub) bool {
	c.mu.Lock()
	s := c.subs[id]
	if only != nil && s != only {
		s = nil
	}
	if s != nil {
		delete(c.subs, id)
		c.watched -= s.values
		s.kill()
		c.room.Broadcast()
	}
	c.mu.Unlock()
	if s != nil {
		c.r.index.remove(s.reg)
		c.r.m.Subscriptions.Add(-1)
	}
	return s != nil
}

// kill stops everything a subscription does. The caller holds mu.
func (s *sub) kill() {
	s.dead = true
	s.cancel()
	s.c.r.watched.Add(-int64(s.values))
	for i := range s.held {
		s.c.keep(-s.cost(s.held[i].text))
	}
	s.held, s.sent = nil, nil
}

func (s *sub) cost(text []byte) int { return len(s.head) + len(text) + itemCost }

// deliver takes an event of the live stream. The writer is woken when the whole batch is dealt out.
func (s *sub) deliver(p *parcel) {
	c := s.c
	if c.r.gate.Private(p.event.Kind) && !c.r.gate.MayRead(c.readers(), p.event) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.dead || c.closing {
		return
	}
	if s.sent != nil {
		if !s.streaming && p.batch > s.sentUpTo {
			s.sent = nil
		} else if _, again := s.sent[p.event.ID]; again {
			delete(s.sent, p.event.ID)
			return
		}
	}
	if !s.streaming {
		if c.enqueue(outItem{head: s.head, body: p.text}) && !c.touched {
			c.touched = true
			c.r.touched = append(c.r.touched, c)
		}
		return
	}
	n := s.cost(p.text)
	if c.tooMuch(n) {
		return
	}
	c.keep(n)
	s.held = append(s.held, *p)
}

// query sends the stored events, then EOSE, then what was held meanwhile.
func (s *sub) query() {
	if s.ctx.Err() != nil {
		return
	}
	c := s.c
	if !c.r.begin(s.ctx) {
		return
	}
	hints, err := s.stream()
	c.r.rest()
	switch {
	case err != nil && s.ctx.Err() == nil:
		c.r.log.Error("answer a query", "err", err)
		if c.drop(s.id, s) {
			c.r.m.refused(policy.Error)
			c.send(nostr.AppendClosed(nil, s.id, "error: the query failed"))
		}
	case err == nil:
		s.settle(hints)
	}
}

// settle ends the initial answer.
func (s *sub) settle(hints []string) {
	if s.conclude(hints) {
		s.c.writeNow()
	}
}

// conclude queues what is left of the answer.
func (s *sub) conclude(hints []string) bool {
	c := s.c
	now := c.r.now().Unix()
	c.r.flight.mark(s.burst.rows)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.dead || !s.pass() {
		return false
	}
	s.burst = burst{}
	c.enqueue(outItem{head: nostr.AppendEOSE(nil, s.id, hints...)})
	held := s.held
	s.held, s.streaming = nil, false
	s.sentUpTo = c.r.batches.Load()
	for i := range held {
		c.keep(-s.cost(held[i].text))
	}
	for i := range held {
		if !held[i].event.ExpiredAt(now) {
			c.enqueue(outItem{head: s.head, body: held[i].text})
		}
	}
	return true
}

// emit sends the burst, waiting while the client is owed too much. It returns false when there is
// no more need.
func (s *sub) emit() bool {
	c := s.c
	c.r.flight.mark(s.burst.rows)
	if !s.await() {
		return false
	}
	c.mu.Lock()
	ok := !s.dead && !c.closing && s.pass()
	c.nudge()
	c.mu.Unlock()
	s.burst.reset()
	return ok
}

// pass queues the burst. What is held of it is then sent already, and what has yet to come by the live
// stream will be. The caller holds the connection's mu and wakes the writer.
func (s *sub) pass() bool {
	c := s.c
	for i := range s.burst.rows {
		row := &s.burst.rows[i]
		k := -1
		if len(s.held) > 0 {
			k = slices.IndexFunc(s.held, func(h parcel) bool { return h.event.ID == row.id })
		}
		if k >= 0 {
			c.keep(-s.cost(s.held[k].text))
			s.held = slices.Delete(s.held, k, k+1)
		} else if row.flying {
			if s.sent == nil {
				s.sent = make(map[nostr.ID]struct{})
			}
			s.sent[row.id] = struct{}{}
		}
		if !c.enqueue(outItem{head: s.head, body: row.text}) {
			return false
		}
	}
	return true
}

// await waits until the client has taken enough of what it is owed. A query that waits takes up no slot.
func (s *sub) await() bool {
	c := s.c
	c.mu.Lock()
	if c.owed <= c.r.lim.Load().StreamWindow {
		c.mu.Unlock()
		return true
	}
	c.mu.Unlock()
	c.r.rest()
	c.mu.Lock()
	for !s.dead && !c.closing && c.owed > c.r.lim.Load().StreamWindow/2 {
		c.room.Wait()
	}
	c.mu.Unlock()
	// The slot is taken back even if the subscription is over: whoever took it gives it back.
	return c.r.begin(s.ctx) || s.lost()
}

// lost takes the slot that the query will give back, and says that there is no more need.
func (s *sub) lost() bool {
	s.c.r.slots <- struct{}{}
	return false
}
