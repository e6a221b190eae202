package host

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// far is a memory transport on which every frame takes its time, and none waits for another.
type far struct {
	*transport.Memory
	oneWay time.Duration
}

func (f *far) Dial(ctx context.Context, ep transport.Endpoint, peer nostr.PubKey) (transport.Stream, error) {
	s, err := f.Memory.Dial(ctx, ep, peer)
	if err != nil {
		return nil, err
	}
	d := &farStream{Stream: s, in: make(chan late, 1000), out: make(chan late, 1000)}
	d.pumps.Go(func() {
		for l := range d.out {
			<-time.After(time.Until(l.due))
			if s.Send(context.Background(), l.frame) != nil {
				return
			}
		}
	})
	d.pumps.Go(func() {
		defer close(d.in)
		for {
			frame, err := s.Receive(context.Background())
			if err != nil {
				return
			}
			d.in <- late{frame, time.Now().Add(f.oneWay)}
		}
	})
	d.oneWay = f.oneWay
	return d, nil
}

type late struct {
	frame []byte
	due   time.Time
}

type farStream struct {
	transport.Stream
	oneWay  time.Duration
	in, out chan late
	pumps   sync.WaitGroup
	closing sync.Once
}

func (d *farStream) Send(_ context.Context, frame []byte) error {
	d.out <- late{frame, time.Now().Add(d.oneWay)}
	return nil
}

func (d *farStream) Receive(ctx context.Context) ([]byte, error) {
	select {
	case l, ok := <-d.in:
		if !ok {
			return nil, transport.ErrClosed
		}
		<-time.After(time.Until(l.due))
		return l.frame, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *farStream) Close() error {
	err := d.Stream.Close()
	d.closing.Do(func() { close(d.out) })
	return err
}

// pulling has the second of two rigs pull the notes of the first.
func pulling(t *testing.T, rigs []*rig, tier spec.Tier) {
	t.Helper()
	want := []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModePull}}
	for i, w := range [][]mesh.Want{nil, want} {
		if err := rigs[i].host.AddPeer(t.Context(), rigs[1-i].pub, tier, w, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFarAway pulls over a line whose round trip is 100 ms: several wants are under way, so that it costs a few round trips and not one a want.
func TestFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events, batches = 4000, 4000 / wantBatch
		net := &far{Memory: transport.NewMemory("memory"), oneWay: 50 * time.Millisecond}
		var first, last time.Time // of the delivers; the bubble's clock stands while anybody computes
		rigs := fleet(t, net.Memory, 2, func(i int, c *Config) {
			c.Transports = []transport.Transport{net}
			take := c.Take
			c.Take = func(ctx context.Context, list []*nostr.Event) ([]store.Outcome, error) {
				if i == 1 && len(list) > 1 {
					if last = time.Now(); first.IsZero() {
						first = last
					}
				}
				return take(ctx, list)
			}
		})
		defer stopAll(rigs)
		rigs[0].put(events, "far away ")
		pulling(t, rigs, spec.TierAnchor)
		<-time.After(30 * time.Second)
		synctest.Wait()
		wantAll(t, rigs, events)
		honest(t, rigs)
		if took, most := last.Sub(first), batches/wantsInFlight*100*time.Millisecond; took > most {
			t.Errorf("%d delivers took %s, want %s at most", batches, took, most)
		}
	})
}

// TestTakeFails has the node fail to store what was delivered, once, while the next deliver is being checked: the session ends, another begins, and
// nothing is missing or charged to anybody.
func TestTakeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 2500
		var calls, failed atomic.Int64
		rigs := fleet(t, transport.NewMemory("memory"), 2, func(i int, c *Config) {
			take := c.Take
			c.Take = func(ctx context.Context, list []*nostr.Event) ([]store.Outcome, error) {
				if i == 1 && len(list) > 1 && calls.Add(1) == 3 {
					failed.Add(1)
					return nil, errors.New("the disk is full")
				}
				return take(ctx, list)
			}
		})
		defer stopAll(rigs)
		rigs[0].put(events, "of a disk ")
		pulling(t, rigs, spec.TierAnchor)
		<-time.After(10 * time.Minute)
		synctest.Wait()
		if failed.Load() != 1 {
			t.Fatalf("%d failures", failed.Load())
		}
		wantAll(t, rigs, events)
		honest(t, rigs)
		if n, most := calls.Load(), int64(2+events/wantBatch+1+wantsInFlight); n > most {
			t.Errorf("the events were taken in %d delivers, want %d at most: it began anew", n, most)
		}
	})
}
