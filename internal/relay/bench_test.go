package relay_test

import (
	"fmt"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

func signed(n int) []*nostr.Event {
	events := make([]*nostr.Event, n)
	text := fmt.Sprintf("%0200d", 0)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := w; i < n; i += 2 {
				events[i] = relaytest.Event(relaytest.A, relaytest.T0+int64(i), 1, []nostr.Tag{{"t", fmt.Sprint(i)}}, text)
			}
		})
	}
	wg.Wait()
	return events
}

// BenchmarkPublish measures EVENT to OK over sockets, the client's half included. Signatures are checked.
func BenchmarkPublish(b *testing.B) {
	for _, clients := range []int{1, 16} {
		for _, window := range []int{1, 100} {
			b.Run(fmt.Sprintf("%dclients/%dinFlight", clients, window), func(b *testing.B) {
				r := relaytest.Start(b, store.NewMemory())
				events := signed(b.N)
				cs := make([]*relaytest.Client, clients)
				for i := range cs {
					cs[i] = r.Dial(b)
				}
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				share := (b.N + clients - 1) / clients
				for i, c := range cs {
					mine := events[min(i*share, b.N):min((i+1)*share, b.N)]
					wg.Go(func() { pump(b, c, mine, window) })
				}
				wg.Wait()
				b.StopTimer()
				m := r.Metrics()
				if m.Stored != int64(b.N) {
					b.Fatalf("%d stored of %d", m.Stored, b.N)
				}
				b.ReportMetric(float64(m.Verified)/float64(m.Groups), "events/group")
			})
		}
	}
}

// pump publishes events with a number of them unanswered.
func pump(b *testing.B, c *relaytest.Client, events []*nostr.Event, window int) {
	var buf []byte
	read := func() {
		for {
			op, p, err := c.ReadFrame()
			if err != nil {
				b.Error(err)
				return
			}
			if op == opText && string(p[:5]) == `["OK"` {
				return
			}
		}
	}
	open := 0
	for _, e := range events {
		buf = relaytest.AppendFrame(buf, true, opText, nostr.AppendPublish(nil, e))
		if open++; open%((window+1)/2) == 0 {
			c.Raw(buf)
			buf = buf[:0]
		}
		for open >= window {
			if len(buf) > 0 {
				c.Raw(buf)
				buf = buf[:0]
			}
			read()
			open--
		}
	}
	if len(buf) > 0 {
		c.Raw(buf)
	}
	for range open {
		read()
	}
}

// BenchmarkDeliver measures one event on its way to many sockets that all want it.
func BenchmarkDeliver(b *testing.B) {
	const subscribers = 200
	r := relaytest.Start(b, store.NewMemory())
	events := signed(b.N)
	var wg sync.WaitGroup
	for range subscribers {
		c := r.Dial(b)
		c.Req("live", `{"kinds":[1],"limit":0}`)
		wg.Go(func() {
			for got := 0; got < b.N; {
				op, _, err := c.ReadFrame()
				if err != nil {
					b.Error(err)
					return
				}
				if op == opText {
					got++
				}
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for lo := 0; lo < b.N; lo += 100 {
		if _, err := r.Sink(policy.FromMesh).Offer(b.Context(), events[lo:min(lo+100, b.N)]); err != nil {
			b.Fatal(err)
		}
	}
	wg.Wait()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*subscribers), "ns/delivery")
}

// BenchmarkReq measures a REQ of 100 stored events to its EOSE, and CLOSE.
func BenchmarkReq(b *testing.B) {
	s := store.NewMemory()
	r := relaytest.Start(b, s)
	if _, err := r.Publish(b.Context(), signed(100), policy.FromImport); err != nil {
		b.Fatal(err)
	}
	c := r.Dial(b)
	frame := relaytest.AppendFrame(nil, true, opText, []byte(`["REQ","s",{"kinds":[1]}]`))
	frame = relaytest.AppendFrame(frame, true, opText, []byte(`["CLOSE","s"]`))
	b.ReportAllocs()
	for b.Loop() {
		c.Raw(frame[:len(frame)-6-len(`["CLOSE","s"]`)])
		for {
			_, p, err := c.ReadFrame()
			if err != nil {
				b.Fatal(err)
			}
			if string(p[:6]) == `["EOSE` {
				break
			}
		}
		c.Raw(frame[len(frame)-6-len(`["CLOSE","s"]`):])
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "events/s")
}
