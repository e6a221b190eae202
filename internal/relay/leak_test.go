package relay_test

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
)

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("file descriptors are counted on Linux only")
	}
	return len(entries)
}

// TestDroppedSockets drops 1,000 connections without a word, in the middle of subscriptions and
// queries, and comes back to as many goroutines and file descriptors as before.
func TestDroppedSockets(t *testing.T) {
	r := relaytest.Start(t, memory(t))
	w := r.Dial(t)
	for i := range 50 {
		w.MustPublish(relaytest.Event(relaytest.A, relaytest.T0+int64(i), 1, nil, "stored"))
	}
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for i := range 100 {
				c := r.Dial(t)
				c.Send(`["REQ","a",{}]`, `["REQ","b",{"kinds":[1]}]`, `["NEG-OPEN","n",{},"6100000200"]`, `["COUNT","c",{}]`)
				if i%2 == 0 {
					c.AwaitAnswer("b")
				}
				if i%3 == 0 {
					c.Raw([]byte{0x81, 0xfe}) // half a frame
				}
				_ = c.Conn.Close()
			}
		})
	}
	wg.Wait()
	r.AwaitOpen(t, 1)
	relaytest.Await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	relaytest.Await(t, "descriptors to be closed", func() bool { return descriptors(t) <= fds })
	m := r.Metrics()
	if m.Subscriptions != 0 || m.NegSessions != 0 || m.Owed != 0 || m.Watched != 0 {
		t.Errorf("left behind: %d subscriptions, %d sessions, %d octets, %d values", m.Subscriptions, m.NegSessions, m.Owed, m.Watched)
	}
	w.Alive()
}

// TestIdleMemory reports what an idle connection costs, the client's half left out as far as possible.
func TestIdleMemory(t *testing.T) {
	r := relaytest.Start(t, memory(t))
	const n = 500
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	clients := make([]*relaytest.Client, n)
	for i := range clients {
		clients[i] = r.Dial(t)
		clients[i].Req("s", fmt.Sprintf(`{"kinds":[%d]}`, i))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := int64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse) / n
	t.Logf("idle connection with one subscription, client included: %d bytes of heap and stack", per)
	if per > 64<<10 {
		t.Errorf("an idle connection costs %d bytes", per)
	}
	runtime.KeepAlive(clients)
}
