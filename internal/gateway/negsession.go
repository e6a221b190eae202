package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

type negReply struct {
	msg []byte
	err *NegError
}

func (c *Conn) onNeg(sub string, r negReply) {
	c.mu.Lock()
	ch := c.negs[sub]
	if r.err != nil {
		delete(c.negs, sub)
	}
	c.mu.Unlock()
	if ch == nil {
		c.strays.Add(1)
		return
	}
	select {
	case ch <- r:
	default:
		c.strays.Add(1) // a second answer to one message
	}
}

// maxIdleRounds is how many answers may come in a row without a difference in them. An honest relay narrows a
// difference down by a factor of 16 with each, and begins with the next one when it has told that.
const maxIdleRounds = 64

// NegStats tells how a session went.
type NegStats struct {
	Messages int // both ways
	Bytes    int // of the binary messages, both ways
}

// Reconcile runs one NIP-77 session as the client, over the set that the relay selects with f and
// ours. onDiff is called after each answer with ids that the relay lacks (have) and that
// we lack (need), each id once; it returns false to stop early. frameLimit bounds the binary messages; 0
// means no bound. A *NegError is the relay's refusal, also where it refuses with a NOTICE or a CLOSED;
// ErrTimeout means that it did not answer.
func (c *Conn) Reconcile(ctx context.Context, f nostr.Filter, set negentropy.Set, frameLimit int, onDiff func(have, need []nostr.ID) (bool, error)) (NegStats, error) {
	st, err := c.reconcile(ctx, f, set, frameLimit, onDiff)
	var refused *NegError
	if errors.As(err, &refused) && Prefix(refused.Reason) == "auth-required" && c.opt.Key != nil {
		if err := c.satisfy(ctx); err != nil {
			return st, err
		}
		return c.reconcile(ctx, f, set, frameLimit, onDiff)
	}
	return st, err
}

func (c *Conn) reconcile(ctx context.Context, f nostr.Filter, set negentropy.Set, frameLimit int, onDiff func(have, need []nostr.ID) (bool, error)) (st NegStats, err error) {
	id := c.id()
	replies, notices := make(chan negReply, 1), make(chan string, 8)
	c.mu.Lock()
	c.negs[id] = replies
	c.mu.Unlock()
	defer c.listen(notices)()
	defer func() {
		c.mu.Lock()
		_, open := c.negs[id]
		delete(c.negs, id)
		c.mu.Unlock()
		if open && c.Err() == nil {
			_ = c.send(c.ctx, nostr.AppendNegClose(nil, id))
		}
	}()

	client, idle := negentropy.NewClient(set, frameLimit), 0
	msg := client.Initiate()
	frame := nostr.AppendNegOpen(nil, id, f, msg)
	for {
		st.Messages++
		st.Bytes += len(msg)
		if err := c.send(ctx, frame); err != nil {
			return st, err
		}
		if st.Messages > 1 {
			notices = nil // the relay does speak the protocol
		}
		answer, err := c.awaitNeg(ctx, replies, notices)
		if err != nil {
			return st, err
		}
		st.Messages++
		st.Bytes += len(answer)
		next, have, need, err := client.Reconcile(answer)
		if err != nil {
			return st, fmt.Errorf("the relay's answer: %w", err)
		}
		if idle++; idle > maxIdleRounds {
			return st, fmt.Errorf("%w: %d answers in a row told no difference, and asked for more", ErrProtocol, idle)
		}
		if len(have)+len(need) > 0 {
			idle = 0
			on, err := onDiff(have, need)
			if err != nil || !on {
				return st, err
			}
		}
		if next == nil {
			return st, nil
		}
		msg = next
		frame = nostr.AppendNegMsg(nil, id, msg)
	}
}

func (c *Conn) awaitNeg(ctx context.Context, replies <-chan negReply, notices <-chan string) ([]byte, error) {
	t := time.NewTimer(c.opt.ReplyTimeout)
	defer t.Stop()
	for {
		select {
		case r := <-replies:
			if r.err != nil {
				return nil, r.err
			}
			return r.msg, nil
		case text := <-notices:
			if refusesNegentropy(text) {
				return nil, &NegError{Reason: text}
			}
		case <-t.C:
			return nil, ErrTimeout
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.done:
			return nil, c.Err()
		}
	}
}
