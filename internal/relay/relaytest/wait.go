package relaytest

import (
	"runtime"
	"testing"
	"time"
)

// AwaitOpen waits until so many connections are open.
func (r *Relay) AwaitOpen(t testing.TB, n int64) {
	t.Helper()
	Await(t, "open connections", func() bool { return r.Metrics().Open == n })
}

// Await yields the processor until something has come about that no channel tells of.
func Await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
