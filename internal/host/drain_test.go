package host

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// A door that is closed takes nothing new; what came in by it goes on until it ends by itself, or the time that it is given is over.
func TestServeDraining(t *testing.T) {
	for name, linger := range map[string]time.Duration{"until they leave": time.Hour, "until their time is over": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := &Host{ctx: ctx}
			ep := transport.Endpoint{Scheme: "unix", Address: filepath.Join(t.TempDir(), "s")}
			l, err := transport.Unix{}.Listen(ctx, ep)
			if err != nil {
				t.Fatal(err)
			}
			over, all := make(chan struct{}), &drained{open: map[transport.Stream]bool{}}
			go func() {
				defer close(over)
				h.serveDraining(l, linger, all)
			}()
			var streams []transport.Stream
			for range 3 {
				s, err := transport.Unix{}.Dial(ctx, ep, nostr.PubKey{})
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, s)
			}
			for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
				all.mu.Lock()
				n := len(all.open)
				all.mu.Unlock()
				if n == len(streams) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d streams came in", n)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := (transport.Unix{}).Dial(ctx, ep, nostr.PubKey{}); err == nil {
				t.Error("the door still takes streams")
			}
			if linger == time.Hour {
				select {
				case <-over:
					t.Fatal("it did not wait for those who were there")
				case <-time.After(50 * time.Millisecond):
				}
				for _, s := range streams {
					s.Close()
				}
			} else { // the other end sees that its stream was ended
				for _, s := range streams {
					_, err := s.Receive(ctx)
					if err == nil {
						t.Error("a stream brings a frame")
					}
				}
			}
			select {
			case <-over:
			case <-time.After(20 * time.Second):
				t.Fatal("it does not end")
			}
		})
	}
}
