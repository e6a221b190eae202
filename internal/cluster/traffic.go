package cluster

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// batchEvents is how many events go to a node at once where nothing slows the traffic.
const batchEvents = 100

// authors is by how many keys the events are signed.
const authors = 100

// line is one event as events.import takes it.
type line struct {
	No   int    `json:"no"`
	Text string `json:"text"`
}

type importParams struct {
	Lines []line `json:"lines"`
}

type imported struct {
	Lines     int      `json:"lines"`
	Stored    int      `json:"stored"`
	Duplicate int      `json:"duplicate"`
	Obsolete  int      `json:"obsolete"`
	Refused   int      `json:"refused"`
	Invalid   int      `json:"invalid"`
	Examples  []string `json:"examples"`
}

// traffic puts all events in at nodes drawn at random. An event counts once a node has acknowledged it; what a killed node did not answer
// for is put in again somewhere.
func (c *Cluster) traffic(ctx context.Context) error {
	c.mu.Lock()
	c.began = time.Now()
	c.since = c.began.Unix()
	c.mu.Unlock()
	for done := 0; done < c.cfg.Events; {
		n := min(batchEvents, c.cfg.Events-done)
		if c.cfg.For > 0 { // so many as are due by now
			n = min(n, int(float64(c.cfg.Events)*min(1, time.Since(c.began).Seconds()/c.cfg.For.Seconds()))-done)
			if n <= 0 {
				if !pause(ctx, 100*time.Millisecond) {
					return ctx.Err()
				}
				continue
			}
		}
		events, err := c.makeEvents(done, n)
		if err != nil {
			return err
		}
		if err := c.put(ctx, events); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// makeEvents signs the next n events.
func (c *Cluster) makeEvents(from, n int) ([]*nostr.Event, error) {
	out := make([]*nostr.Event, n)
	for i := range out {
		var key nostr.SecretKey
		binary.BigEndian.PutUint64(key[8:], c.cfg.Seed|1) // of this run and worth nothing
		binary.BigEndian.PutUint64(key[24:], uint64((from+i)%authors)+1)
		e := &nostr.Event{CreatedAt: time.Now().Unix(), Kind: 1, Content: fmt.Sprintf("event %d of run %x", from+i, c.cfg.Seed), Tags: []nostr.Tag{{"t", "cluster"}}}
		if err := e.Sign(key); err != nil {
			return nil, fmt.Errorf("sign an event: %w", err)
		}
		out[i] = e
	}
	return out, nil
}

// put gives events to nodes drawn at random until one has taken them.
func (c *Cluster) put(ctx context.Context, events []*nostr.Event) error {
	var p importParams
	for i, e := range events {
		p.Lines = append(p.Lines, line{i + 1, string(e.JSON())})
	}
	for {
		n := c.nodes[c.rand.IntN(len(c.nodes))]
		var got imported
		err := errDown
		if n.up() {
			err = n.call(ctx, "events.import", p, &got)
		}
		switch {
		case err == nil && got.Stored+got.Duplicate == len(events):
			c.mu.Lock()
			for _, e := range events {
				c.sum.Add(&e.ID)
			}
			c.count += len(events)
			c.mu.Unlock()
			return nil
		case err == nil:
			return fmt.Errorf("node %d took %d of %d events: %v", n.n, got.Stored+got.Duplicate, len(events), got.Examples)
		case n.up() && ctx.Err() == nil && !c.troubled():
			return err
		}
		if !pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// troubled says whether nodes are made to fail in this run, so that a failed call proves nothing.
func (c *Cluster) troubled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.KillEvery > 0 || c.faults.Kills > 0
}

func hexOf(b [16]byte) string { return hex.EncodeToString(b[:]) }
