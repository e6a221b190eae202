package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/eventlog"
	"fleetmesh.org/fleetmesh/nostr"
)

// trust is a Verifier for tests in which signatures do not matter.
type trust struct{}

func (trust) Verify(es []*nostr.Event) []bool {
	out := make([]bool, len(es))
	for i := range out {
		out[i] = true
	}
	return out
}

// unsigned makes n notes without a signature.
func unsigned(_ testing.TB, n int, word string) []*nostr.Event {
	out := make([]*nostr.Event, n)
	for i := range out {
		e := &nostr.Event{PubKey: nostr.PubKey{byte(i)}, CreatedAt: 1700000000 + int64(i/4), Kind: 1, Content: fmt.Sprintf("%s %d", word, i)}
		e.ID = e.ComputeID()
		out[i] = e
	}
	return out
}

// signed makes n signed notes by one key.
func signed(t testing.TB, n int, word string) []*nostr.Event {
	t.Helper()
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]*nostr.Event, n)
	var wg sync.WaitGroup
	const workers = 4
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				e := &nostr.Event{CreatedAt: 1700000000 + int64(i/4), Kind: 1, Content: fmt.Sprintf("%s %d", word, i)}
				if err := e.Sign(key); err != nil {
					panic(err)
				}
				out[i] = e
			}
		})
	}
	wg.Wait()
	return out
}

func insert(t testing.TB, db store.Store, es []*nostr.Event) {
	t.Helper()
	for len(es) > 0 {
		n := min(len(es), 1000)
		if _, err := db.Insert(context.Background(), es[:n], 1800000000); err != nil {
			t.Fatal(err)
		}
		es = es[n:]
	}
}

func logStore(t testing.TB) store.Store {
	t.Helper()
	s, err := eventlog.Open(t.TempDir(), eventlog.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func linkTo(t testing.TB, r *relaytest.Relay) *gateway.Link {
	l := gateway.NewLink("ws://"+r.Addr, gateway.Options{})
	t.Cleanup(func() { l.Close() })
	return l
}

func fingerprint(t testing.TB, s store.Store) [16]byte {
	t.Helper()
	fp, err := s.FingerprintRange(context.Background(), nostr.Filter{}, 0, 1<<40, 1800000000)
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

func count(t testing.TB, s store.Store) int {
	t.Helper()
	n, err := s.Count(context.Background(), []nostr.Filter{{}}, store.View{}, 1800000000)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// twoNodes syncs two relays that have so many events in common, and so many each to themselves, is killed on
// the way, and goes on.
func twoNodes(t *testing.T, v nostr.Verifier, signed func(testing.TB, int, string) []*nostr.Event, common, each, kills int) {
	a, b := logStore(t), logStore(t)
	set := func(c *relay.Config) { c.Verifier = v }
	ra, rb := relaytest.Start(t, a, set), relaytest.Start(t, b, set)
	start := time.Now()
	both := signed(t, common, "common")
	insert(t, a, both)
	insert(t, b, both)
	insert(t, a, signed(t, each, "ours"))
	insert(t, b, signed(t, each, "theirs"))
	t.Logf("made %d events in %v", common+2*each, time.Since(start))
	start = time.Now()
	l := linkTo(t, rb)
	o := gateway.SyncOptions{Direction: gateway.Both, Sink: ra.Sink(policy.FromSync), Verifier: v}
	for kill := 1; kill <= kills; kill++ {
		ctx, cancel := context.WithCancel(t.Context())
		o.Progress = func(r gateway.Report) {
			if r.New >= each/(kills+1) && r.Sent >= each/(kills+1) {
				cancel()
			}
		}
		rep, err := gateway.Sync(ctx, l, a, o)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		t.Logf("killed after %v: %s", time.Since(start), rep.Summary(gateway.Both))
	}
	o.Progress = nil
	rep, err := gateway.Sync(t.Context(), l, a, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("done after %v: %+v", time.Since(start), rep)
	if n := count(t, a); n != common+2*each {
		t.Errorf("%d events, want %d", n, common+2*each)
	}
	if fingerprint(t, a) != fingerprint(t, b) {
		t.Error("fingerprints differ")
	}
	for _, d := range []gateway.Direction{gateway.Both, gateway.Pull, gateway.Push} {
		o.Direction = d
		rep, err := gateway.Sync(t.Context(), l, a, o)
		if err != nil || rep.Bodies != 0 || rep.New+rep.Sent != 0 || rep.Sessions != 1 {
			t.Errorf("at rest: %+v, %v", rep, err)
		}
	}
	// And from the other side.
	rep, err = gateway.Sync(t.Context(), linkTo(t, ra), b, gateway.SyncOptions{Direction: gateway.Both})
	if err != nil || rep.Bodies != 0 || rep.New+rep.Sent != 0 {
		t.Errorf("from the other side: %+v, %v", rep, err)
	}
}

func TestTwoRelays(t *testing.T) { twoNodes(t, nostr.NewVerifier(), signed, 1000, 800, 2) }

var raceEnabled bool

func TestTwoRelaysLarge(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("100,000 events in common and 100,000 on either side take a while")
	}
	twoNodes(t, trust{}, unsigned, 100_000, 100_000, 3)
}

// TestSyncReachesSubscribers: what a sync brings in is streamed like what a client publishes.
func TestSyncReachesSubscribers(t *testing.T) {
	ra, rb := relaytest.Start(t, store.NewMemory()), relaytest.Start(t, store.NewMemory())
	es := signed(t, 5, "x")
	insert(t, rb.Store, es)
	c, err := linkTo(t, ra).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sub, err := c.Subscribe(t.Context(), nostr.Filter{Kinds: []nostr.Kind{1}})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := sub.Next(t.Context()); err != nil || !d.EOSE {
		t.Fatal(d, err)
	}
	if _, err := gateway.Sync(t.Context(), linkTo(t, rb), ra.Store, gateway.SyncOptions{Sink: ra.Sink(policy.FromSync)}); err != nil {
		t.Fatal(err)
	}
	for range es {
		if d, err := sub.Next(t.Context()); err != nil || d.Event == nil {
			t.Fatal(d, err)
		}
	}
}

// TestRestAgainstOurRelay: against a true relay, too, what is refused on either side is moved at most once.
func TestRestAgainstOurRelay(t *testing.T) {
	block := func(kinds ...nostr.Kind) relaytest.Option {
		return func(c *relay.Config) { c.Policy = policy.Chain{policy.NewKinds(nil, kinds)} }
	}
	ra := relaytest.Start(t, store.NewMemory(), block(666))
	rb := relaytest.Start(t, store.NewMemory(), block(777))
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	make1 := func(kind nostr.Kind, at int64, content string) *nostr.Event {
		e := &nostr.Event{CreatedAt: at, Kind: kind, Content: content}
		if err := e.Sign(key); err != nil {
			t.Fatal(err)
		}
		return e
	}
	insert(t, rb.Store, []*nostr.Event{make1(0, 1700000000, "1"), make1(666, 1700000000, "x"), make1(1, 1700000000, "t")})
	insert(t, ra.Store, []*nostr.Event{make1(0, 1700000100, "2"), make1(777, 1700000000, "y"), make1(1, 1700000001, "o")})
	dir := filepath.Join(t.TempDir(), "peers")
	for pass := 1; pass <= 3; pass++ {
		peer, err := gateway.OpenPeerMemory(dir, "ws://"+rb.Addr, time.Now().Unix())
		if err != nil {
			t.Fatal(err)
		}
		rep, err := gateway.Sync(t.Context(), linkTo(t, rb), ra.Store, gateway.SyncOptions{
			Direction: gateway.Both, Sink: ra.Sink(policy.FromSync), Peer: peer,
		})
		if err != nil {
			t.Fatal(err)
		}
		peer.Close()
		t.Logf("pass %d: %q", pass, rep.Summary(gateway.Both))
		switch {
		case pass == 1 && (rep.New != 1 || rep.Sent != 2 || rep.SentRefused["blocked"]+rep.SentRefused["restricted"] != 1):
			t.Errorf("pass 1: %+v", rep)
		case pass > 1 && (rep.Bodies != 0 || rep.Sent != 0 || len(rep.SentRefused) != 0 || rep.KnownRefused["policy"] != 1):
			t.Errorf("pass %d: %+v", pass, rep)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// TestWindowsAgainstOurRelay: a relay of small means is synced in windows.
func TestWindowsAgainstOurRelay(t *testing.T) {
	rb := relaytest.Start(t, store.NewMemory(), func(c *relay.Config) {
		c.Limits.MaxNegRecords, c.Limits.MaxLimit, c.Limits.DefaultLimit = 200, 50, 50
	})
	insert(t, rb.Store, signed(t, 1500, "theirs"))
	local := store.NewMemory()
	rep, err := gateway.Sync(t.Context(), linkTo(t, rb), local, gateway.SyncOptions{})
	if err != nil || rep.New != 1500 || rep.Windows > gateway.MaxWindows {
		t.Errorf("%+v, %v", rep, err)
	}
	t.Logf("%d windows, %s", rep.Windows, rep.Method)
	off := relaytest.Start(t, rb.Store, func(c *relay.Config) {
		c.Off.Negentropy, c.Limits.MaxLimit, c.Limits.DefaultLimit = true, 50, 50
	})
	again := store.NewMemory()
	rep, err = gateway.Sync(t.Context(), linkTo(t, off), again, gateway.SyncOptions{})
	if err != nil || rep.New != 1500 || rep.Method != "paging" {
		t.Errorf("%+v, %v", rep, err)
	}
	t.Logf("fallback: %s", rep.Fallback)
}

// TestRateOfOurRelay: a push into a relay that limits the rate gets through.
func TestRateOfOurRelay(t *testing.T) {
	rb := relaytest.Start(t, store.NewMemory(), func(c *relay.Config) {
		c.Limits.EventsPerSecond, c.Limits.EventsBurst = 200, 200
	})
	local := store.NewMemory()
	insert(t, local, signed(t, 600, "ours"))
	start := time.Now()
	rep, err := gateway.Sync(t.Context(), linkTo(t, rb), local, gateway.SyncOptions{Direction: gateway.Push})
	if err != nil || rep.Sent != 600 {
		t.Errorf("%+v, %v", rep, err)
	}
	t.Logf("600 events at 200 a second: %v", time.Since(start))
}
