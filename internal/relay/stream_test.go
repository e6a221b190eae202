package relay_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

func notes(n int, kind nostr.Kind) []*nostr.Event {
	out := make([]*nostr.Event, n)
	for i := range out {
		out[i] = relaytest.Event(relaytest.A, relaytest.T0+int64(i), kind, nil, fmt.Sprint(i))
	}
	return out
}

// TestNothingLostNothingTwice opens subscriptions while events stream in: each sees every event
// exactly once, whether it was stored before or came live.
func TestNothingLostNothingTwice(t *testing.T) {
	r := relaytest.Start(t, memory(t))
	const total = 600
	events := notes(total, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		w := r.Dial(t)
		for i := 0; i < total; i += 10 {
			var batch []string
			for _, e := range events[i : i+10] {
				batch = append(batch, string(nostr.AppendPublish(nil, e)))
			}
			w.Send(batch...)
			w.AwaitOK(events[i+9].ID.String())
		}
	})
	for range 8 {
		c := r.Dial(t)
		wg.Go(func() {
			for round := range 6 {
				sub := fmt.Sprint("s", round)
				seen := map[string]int{}
				c.Send(`["REQ","` + sub + `",{"kinds":[1],"limit":5000},{"authors":["` + relaytest.A.PubKey().String() + `"],"limit":5000}]`)
				eose := false
				for len(seen) < total || !eose {
					m := c.Next()
					switch {
					case m.Label() == "EOSE":
						eose = true
					case m.Label() == "EVENT" && m.String(1) == sub:
						id, _ := m[2].(map[string]any)["id"].(string)
						if seen[id]++; seen[id] > 1 {
							t.Errorf("%s came twice", id)
							return
						}
					}
				}
				c.Send(`["CLOSE","` + sub + `"]`)
			}
		})
	}
	wg.Wait()
}

// TestCompleteness walks NIP-67: what EOSE says about the rest.
func TestCompleteness(t *testing.T) {
	r := relaytest.Start(t, memory(t), func(c *relay.Config) { c.Limits.DefaultLimit, c.Limits.MaxLimit = 300, 300 })
	c := r.Dial(t)
	publish(t, r, notes(300, 1)...)
	publish(t, r, notes(301, 2)...)
	var same []*nostr.Event
	for i := range 310 {
		same = append(same, relaytest.Event(relaytest.A, relaytest.T0, 3333, nil, fmt.Sprint(i)))
	}
	publish(t, r, same...)
	for _, tc := range []struct {
		filters []string
		events  int
		hint    string
	}{
		{[]string{`{"kinds":[1]}`}, 300, "finish"},
		{[]string{`{"kinds":[2]}`}, 300, "more"},
		{[]string{`{"kinds":[2],"limit":500}`}, 300, "more"},
		{[]string{`{"kinds":[1],"limit":10}`}, 10, "more"},
		{[]string{`{"kinds":[1],"limit":0}`}, 0, ""},
		{[]string{`{"kinds":[9]}`}, 0, "finish"},
		{[]string{`{"kinds":[]}`}, 0, "finish"},
		{[]string{`{"kinds":[3333]}`}, 310, "finish"},         // the whole second, although over the cap
		{[]string{`{"kinds":[3333],"limit":10}`}, 10, "more"}, // but not over the client's own limit
		{[]string{`{"kinds":[1]}`, `{"kinds":[9]}`}, 300, "finish"},
		{[]string{`{"kinds":[1]}`, `{"kinds":[2]}`}, 600, "more"},
		{[]string{`{"kinds":[1],"limit":1}`, `{"kinds":[1],"limit":2}`}, 2, "more"},
		{[]string{`{"kinds":[1],"limit":1}`, `{"kinds":[1],"limit":300}`}, 300, ""},
	} {
		a := c.Get(tc.filters...)
		got := ""
		if len(a.Hints) > 0 {
			got = strings.Join(a.Hints, ",")
		}
		if len(a.Events) != tc.events || got != tc.hint {
			t.Errorf("%v: %d events, hint %q; want %d, %q", tc.filters, len(a.Events), got, tc.events, tc.hint)
		}
	}
	// A client that follows the hints collects all 301, and asks no second time for 300.
	for kind, want := range map[int][2]int{1: {300, 1}, 2: {301, 2}} {
		seen, asked, until := map[nostr.ID]bool{}, 0, ""
		for {
			a := c.Get(fmt.Sprintf(`{"kinds":[%d]%s}`, kind, until))
			asked++
			for _, e := range a.Events {
				seen[e.ID] = true
				until = fmt.Sprintf(`,"until":%d`, e.CreatedAt)
			}
			if slices.Contains(a.Hints, "finish") {
				break
			}
		}
		if len(seen) != want[0] || asked != want[1] {
			t.Errorf("kind %d: %d events in %d questions, want %v", kind, len(seen), asked, want)
		}
	}
	off := relaytest.Start(t, r.Store, func(c *relay.Config) { c.Off.Hints = true }).Dial(t)
	if a := off.Get(`{"kinds":[9]}`); len(a.Hints) > 0 {
		t.Errorf("hints although switched off: %v", a.Hints)
	}
}

func publish(t *testing.T, r *relaytest.Relay, events ...*nostr.Event) {
	t.Helper()
	verdicts, err := r.Publish(t.Context(), events, policy.FromImport)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range verdicts {
		if !v.OK {
			t.Fatalf("event %d refused: %s", i, v.Reason)
		}
	}
}

// TestPublishWithin takes the same path as a client's EVENT.
func TestPublishWithin(t *testing.T) {
	r := relaytest.Start(t, memory(t), func(c *relay.Config) { c.Policy = policy.NewKinds(nil, []nostr.Kind{4}) })
	c := r.Dial(t)
	c.Req("s", `{"limit":0}`)
	feed := r.Follow([]nostr.Filter{{Kinds: []nostr.Kind{1, 20001}}}, 10)
	good, bad := relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "good"), relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "bad")
	bad.Sig[0] ^= 1
	events := []*nostr.Event{good, bad, relaytest.Event(relaytest.A, relaytest.T0, 4, nil, "unwanted"), good,
		relaytest.Event(relaytest.A, relaytest.T0, 20001, nil, "fleeting")}
	verdicts, err := r.Publish(t.Context(), events, policy.FromSync)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "invalid", "blocked", "duplicate", ""} {
		prefix, _, _ := strings.Cut(verdicts[i].Reason, ":")
		if prefix != want || verdicts[i].OK != (want == "" || want == "duplicate") {
			t.Errorf("verdict %d: %+v, want prefix %q", i, verdicts[i], want)
		}
	}
	var live []string
	for _, m := range c.Settle() {
		live = append(live, m[2].(map[string]any)["content"].(string))
	}
	if !slices.Equal(live, []string{"good", "fleeting"}) {
		t.Errorf("live: %v", live)
	}
	for _, want := range []string{"good", "fleeting"} {
		if e := <-feed.Events(); e.Content != want {
			t.Errorf("feed: %q, want %q", e.Content, want)
		}
	}
	publish(t, r, notes(20, 1)...)
	c.Settle()
	if n := feed.Lost(); n != 10 {
		t.Errorf("lost %d, want 10", n)
	}
	feed.Close()
	feed.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Publish(ctx, notes(1, 7), policy.FromSync); err == nil {
		t.Error("no error from a context that has ended")
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Publish(t.Context(), notes(1, 7), policy.FromSync); err != relay.ErrDown {
		t.Errorf("after shutdown: %v", err)
	}
}

// failing is a store whose Insert fails while fail says so: before it has applied the batch, or after.
type failing struct {
	store.Store
	mu   sync.Mutex
	fail func(events []*nostr.Event) (before, after error)
}

func (f *failing) Insert(ctx context.Context, events []*nostr.Event, now int64) ([]store.Outcome, error) {
	f.mu.Lock()
	before, after := f.fail(events)
	f.mu.Unlock()
	if before != nil {
		return nil, before
	}
	out, err := f.Store.Insert(ctx, events, now)
	if after != nil {
		return nil, after
	}
	return out, err
}

// TestStoreFails both ways: not applied, and applied but reported as failed. No OK with true is given for what
// is not known to be stored, nobody is left without an answer, and a second try ends well.
func TestStoreFails(t *testing.T) {
	broken := fmt.Errorf("disk on fire")
	for name, applied := range map[string]bool{"not applied": false, "applied": true} {
		t.Run(name, func(t *testing.T) {
			f := &failing{Store: memory(t), fail: func([]*nostr.Event) (error, error) {
				if applied {
					return nil, broken
				}
				return broken, nil
			}}
			c := relaytest.Start(t, f).Dial(t)
			e := relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "x")
			if ok := c.Publish(e); ok.OK || !strings.HasPrefix(ok.Reason, "error: ") || strings.Contains(ok.Reason, "fire") {
				t.Errorf("OK of a failed write: %+v", ok)
			}
			f.mu.Lock()
			f.fail = func([]*nostr.Event) (error, error) { return nil, nil }
			f.mu.Unlock()
			if ok := c.Publish(e); !ok.OK {
				t.Errorf("the second try: %+v", ok)
			}
		})
	}
	t.Run("one bad apple", func(t *testing.T) {
		f := &failing{Store: memory(t), fail: func(events []*nostr.Event) (error, error) {
			if slices.ContainsFunc(events, func(e *nostr.Event) bool { return e.Content == "5" }) {
				return broken, nil
			}
			return nil, nil
		}}
		r := relaytest.Start(t, f)
		verdicts, err := r.Publish(t.Context(), notes(10, 1), policy.FromImport)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range verdicts {
			if v.OK == (i == 5) {
				t.Errorf("event %d: %+v", i, v)
			}
		}
	})
}

// TestShutdown says goodbye with code 1001 after everything that was read has its answer.
func TestShutdown(t *testing.T) {
	r := relaytest.Start(t, memory(t))
	c := r.Dial(t)
	c.Req("s", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- r.Shutdown(ctx) }()
	if closed := c.AwaitClose(); closed.Code != 1001 {
		t.Errorf("closed with %v", closed)
	}
	_ = c.Conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, status, _ := relaytest.Handshake(t, r.Addr, "/"); status != 503 {
		t.Errorf("a connection after shutdown: status %d", status)
	}
}

// TestShutdownAnswers what is on its way to the store.
func TestShutdownAnswers(t *testing.T) {
	gate := make(chan struct{})
	f := &failing{Store: memory(t), fail: func([]*nostr.Event) (error, error) {
		gate <- struct{}{}
		<-gate
		return nil, nil
	}}
	r := relaytest.Start(t, f)
	c := r.Dial(t)
	e := relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "last")
	c.Send(string(nostr.AppendPublish(nil, e)))
	<-gate // it is being stored
	done := make(chan error)
	go func() { done <- r.Shutdown(t.Context()) }()
	relaytest.Await(t, "the relay to go down", func() bool {
		_, status, _ := relaytest.Handshake(t, r.Addr, "/")
		return status == 503
	})
	close(gate)
	if ok := c.AwaitOK(e.ID.String()); !ok.OK {
		t.Error(ok.Reason)
	}
	if closed := c.AwaitClose(); closed.Code != 1001 {
		t.Errorf("closed with %v", closed)
	}
	_ = c.Conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSubprotocol runs another protocol at the same URL.
func TestSubprotocol(t *testing.T) {
	ended := make(chan error, 1)
	r := relaytest.Start(t, memory(t), func(c *relay.Config) {
		c.Subprotocols = map[string]func(context.Context, relay.Conn){"didcomm/v2": func(ctx context.Context, conn relay.Conn) {
			for {
				msg, err := conn.Read(ctx)
				if err != nil {
					ended <- err
					return
				}
				if err := conn.Write(ctx, append([]byte(conn.Subprotocol()+" "), msg...)); err != nil {
					ended <- err
					return
				}
			}
		}}
	})
	c := relaytest.Dial(t, r.Addr, "/", "Sec-WebSocket-Protocol: other, didcomm/v2")
	big := strings.Repeat("x", 1<<20)
	for _, s := range []string{"one", big, "ü"} {
		c.Send(s)
		if op, p, err := c.ReadFrame(); err != nil || op != opText || string(p) != "didcomm/v2 "+s {
			t.Fatalf("echo: %x %.20q %v", op, p, err)
		}
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("Read did not end with the relay")
	}
	c.AwaitClose()
	nostrOnly := relaytest.Start(t, memory(t))
	relaytest.Dial(t, nostrOnly.Addr, "/", "Sec-WebSocket-Protocol: didcomm/v2").Alive()
}

// TestSubprotocolReadOutlivesItsFunction has the function of a protocol return while half a message is being read, or is about to be: the
// buffers that it is read into must not be given to another connection.
func TestSubprotocolReadOutlivesItsFunction(t *testing.T) {
	ended := make(chan error, 1)
	r := relaytest.Start(t, memory(t), func(c *relay.Config) {
		c.Subprotocols = map[string]func(context.Context, relay.Conn){"didcomm/v2": func(ctx context.Context, conn relay.Conn) {
			if _, err := conn.Read(ctx); err != nil {
				t.Error(err)
			}
			go func() {
				_, err := conn.Read(context.WithoutCancel(ctx))
				ended <- err
			}()
		}}
	})
	for range 50 {
		c := relaytest.Dial(t, r.Addr, "/", "Sec-WebSocket-Protocol: didcomm/v2")
		c.Send(strings.Repeat("x", 1<<18))
		c.Raw([]byte{0x81, 0xff, 0, 0, 0, 0, 0, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7}) // of 262,144 octets the first three
		if err := <-ended; err == nil {
			t.Error("half a message was read")
		}
		c.AwaitClose()
	}
}

// TestLiveSearch delivers to a search only what the search finds (NIP-50).
func TestLiveSearch(t *testing.T) {
	c := relaytest.Start(t, memory(t)).Dial(t)
	c.Req("s", `{"search":"apple language:en"}`)
	for _, s := range []string{"an apple", "a pear", "Apple!"} {
		c.MustPublish(relaytest.Event(relaytest.A, relaytest.T0, 1, nil, s))
	}
	var live []string
	for _, m := range c.Settle() {
		live = append(live, m[2].(map[string]any)["content"].(string))
	}
	if !slices.Equal(live, []string{"an apple", "Apple!"}) {
		t.Errorf("live: %q", live)
	}
	off := relaytest.Start(t, memory(t), func(c *relay.Config) { c.Off.Search = true }).Dial(t)
	if a := off.Req("s", `{"search":"apple"}`); !strings.HasPrefix(a.Closed, "unsupported: ") {
		t.Errorf("switched off: %+v", a)
	}
}

// TestStalledQueriesLeaveTheirSlots lets more clients stall than there are slots for queries; the others
// are answered all the same, and the stalled ones when they read again.
func TestStalledQueriesLeaveTheirSlots(t *testing.T) {
	r := relaytest.Start(t, memory(t), func(c *relay.Config) {
		c.Limits.MaxQueries, c.Limits.StreamWindow, c.Limits.MaxLimit = 1, 2000, 1<<30
	})
	text := strings.Repeat("x", 50_000)
	var big []*nostr.Event
	for i := range 200 {
		big = append(big, relaytest.Event(relaytest.A, relaytest.T0+int64(i), 1, nil, text))
	}
	publish(t, r, big...)
	var stalled []*relaytest.Client
	for range 4 {
		c := r.Dial(t)
		c.Alive()
		c.Send(`["REQ","all",{"kinds":[1],"limit":1000}]`)
		stalled = append(stalled, c)
	}
	c := r.Dial(t)
	for range 10 {
		c.Alive()
	}
	_ = stalled[0].Conn.Close()
	for _, s := range stalled[1:] {
		if a := s.AwaitAnswer("all"); len(a.Events) != len(big) {
			t.Errorf("a client that had stalled got %d events, want %d", len(a.Events), len(big))
		}
	}
	c.Alive()
}

// TestHeldEventsDoNotBlockTheirQuery streams stored events while more live ones than fit the window arrive.
func TestHeldEventsDoNotBlockTheirQuery(t *testing.T) {
	gate := make(chan struct{})
	s := &slow{Store: memory(t), gate: gate}
	r := relaytest.Start(t, s, func(c *relay.Config) { c.Limits.StreamWindow = 1000 })
	publish(t, r, notes(10, 1)...)
	c := r.Dial(t)
	c.Send(`["REQ","s",{"kinds":[1]}]`)
	<-gate // the query has begun
	publish(t, r, notes(60, 1)[10:]...)
	r.Dial(t).Settle() // the live events are dealt out, and held
	close(gate)
	a := c.AwaitAnswer("s")
	live := 0
	for _, m := range c.Settle() {
		if m.Label() == "EVENT" {
			live++
		}
	}
	if !a.EOSE || len(a.Events)+live != 60 {
		t.Errorf("%d stored and %d live, want 60 in all", len(a.Events), live)
	}
}

// slow is a store whose first query of kind 1 says that it has begun, and waits.
type slow struct {
	store.Store
	gate chan struct{}
	once sync.Once
}

func (s *slow) Query(ctx context.Context, f []nostr.Filter, v store.View, limit int, now int64) iter.Seq2[*nostr.Event, error] {
	answer := s.Store.Query(ctx, f, v, limit, now)
	return func(yield func(*nostr.Event, error) bool) {
		first := len(f[0].Kinds) == 1 && f[0].Kinds[0] == 1
		answer(func(e *nostr.Event, err error) bool {
			if first {
				s.once.Do(func() {
					s.gate <- struct{}{}
					<-s.gate
				})
			}
			return yield(e, err)
		})
	}
}
