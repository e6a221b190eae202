package gateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

func inBubble(t *testing.T, f func(t *testing.T, r *fakeRelay)) {
	synctest.Test(t, func(t *testing.T) { f(t, newFakeRelay(t)) })
}

func TestPublish(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		c := r.dialT(t)
		defer c.Close()
		e, bad := event(1, 1, "a"), event(1, 1, "b")
		r.refuse[bad.ID] = "invalid: no"
		a, err := c.Publish(t.Context(), e)
		if err != nil || !a.OK || !a.Final() {
			t.Errorf("%+v, %v", a, err)
		}
		a, err = c.Publish(t.Context(), e)
		if err != nil || !a.OK || Prefix(a.Reason) != "duplicate" {
			t.Errorf("again: %+v, %v", a, err)
		}
		a, err = c.Publish(t.Context(), bad)
		if err != nil || a.OK || !a.Final() {
			t.Errorf("bad: %+v, %v", a, err)
		}
		r.intercept(func(*fakeConn, string) bool { return true })
		if _, err = c.Publish(t.Context(), e); !errors.Is(err, ErrTimeout) {
			t.Errorf("silent relay: %v", err)
		}
		r.intercept(func(c *fakeConn, _ string) bool { _ = c.ws.CloseNow(); return true })
		var lost *LostError
		if _, err = c.Publish(t.Context(), e); !errors.As(err, &lost) {
			t.Errorf("cut: %v", err)
		}
		if _, err = c.Publish(t.Context(), e); !errors.As(err, &lost) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func seqOf(es []*nostr.Event) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		for _, e := range es {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func TestPublishMany(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		c := r.dialT(t)
		defer c.Close()
		es := events(500, "x")
		r.refuse[es[7].ID] = "pow: more"
		fates := map[nostr.ID]Answer{}
		err := c.PublishMany(t.Context(), seqOf(es), 32, func(e *nostr.Event, a Answer) error {
			if _, twice := fates[e.ID]; twice {
				t.Error("two fates")
			}
			fates[e.ID] = a
			return nil
		})
		if err != nil || len(fates) != 500 || fates[es[7].ID].OK || size(t, r.db) != 499 {
			t.Errorf("%v, %d fates", err, len(fates))
		}
		stop := errors.New("stop")
		if err := c.PublishMany(t.Context(), seqOf(es), 8, func(*nostr.Event, Answer) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
		source := func(yield func(*nostr.Event, error) bool) { yield(nil, stop) }
		if err := c.PublishMany(t.Context(), source, 8, func(*nostr.Event, Answer) error { return nil }); !errors.Is(err, stop) {
			t.Error(err)
		}
	})
}

// TestRateIsKept: after the first word about rates the relay never gets more than it took in a second.
func TestRateIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		c := r.dialT(t)
		defer c.Close()
		r.perSec = 5
		n := 0
		start := time.Now()
		err := c.PublishMany(t.Context(), seqOf(events(50, "x")), 1, func(_ *nostr.Event, a Answer) error {
			if !a.OK {
				t.Error(a)
			}
			n++
			return nil
		})
		if err != nil || n != 50 {
			t.Fatal(err, n)
		}
		if r.overLoad != 1 {
			t.Errorf("%d over the rate", r.overLoad)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestSubscribe(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		c := r.dialT(t)
		defer c.Close()
		r.hints = true
		fill(t, r.db, events(3, "x")...)
		s, err := c.Subscribe(t.Context(), nostr.Filter{Kinds: []nostr.Kind{1}})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if d, err := s.Next(t.Context()); err != nil || d.Event == nil {
				t.Fatal(d, err)
			}
		}
		if d, err := s.Next(t.Context()); err != nil || !d.EOSE || len(d.Hints) != 1 || d.Hints[0] != "finish" {
			t.Fatal(d, err)
		}
		r.add(event(2, 5, "other kind"))
		live := event(1, 6, "live")
		r.add(live)
		if d, err := s.Next(t.Context()); err != nil || d.Event == nil || d.Event.ID != live.ID {
			t.Fatal(d, err)
		}
		s.Close()
		s.Close()
		synctest.Wait()
		r.intercept(func(c *fakeConn, _ string) bool { c.send(nostr.AppendClosed(nil, "2", "restricted: no")); return true })
		s, err = c.Subscribe(t.Context(), nostr.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		var closed *ClosedError
		for range 2 {
			if _, err := s.Next(t.Context()); !errors.As(err, &closed) || closed.Reason != "restricted: no" {
				t.Errorf("%v", err)
			}
		}
		r.cutAll()
		s, err = c.Subscribe(t.Context(), nostr.Filter{})
		if err == nil {
			_, err = s.Next(t.Context())
		}
		var lost *LostError
		if !errors.As(err, &lost) {
			t.Errorf("%v", err)
		}
	})
}

func TestAuthOnDemand(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		r.authKey = true
		fill(t, r.db, events(3, "x")...)
		key, err := nostr.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		opt := r.options()
		opt.Key = &key
		for _, do := range []func(c *Conn) error{
			func(c *Conn) error { _, err := c.QueryAll(t.Context(), nostr.Filter{}); return err },
			func(c *Conn) error {
				a, err := c.Publish(t.Context(), event(1, 1, "p"))
				if !a.OK {
					t.Error(a)
				}
				return err
			},
			func(c *Conn) error { return c.Auth(t.Context(), key) },
		} {
			c, err := Dial(t.Context(), fakeURL, opt)
			if err != nil {
				t.Fatal(err)
			}
			if err := do(c); err != nil {
				t.Error(err)
			}
			if err := c.Auth(t.Context(), key); err != nil { // the second time there is nothing to do
				t.Error(err)
			}
			c.Close()
		}
		if r.frames("AUTH") != 3 {
			t.Errorf("%d AUTHs", r.frames("AUTH"))
		}
		r.authKey = false
		c := r.dialT(t)
		defer c.Close()
		if err := c.Auth(t.Context(), key); !errors.Is(err, ErrAuthRequired) {
			t.Errorf("without a challenge: %v", err)
		}
	})
}

// TestQueryIsComplete: with caps, ties and hints of every sort, no event is missed.
func TestQueryIsComplete(t *testing.T) {
	for _, tc := range []struct {
		n, perSecond, pageCap int
		hints                 bool
		maxReqs               int
	}{
		{301, 1, 300, true, 2}, {300, 1, 300, true, 1}, {300, 1, 300, false, 4}, {301, 1, 300, false, 4},
		{1000, 7, 10, true, 2000}, {1000, 7, 10, false, 2000}, {50, 50, 0, false, 4}, {1700, 3, 0, true, 10}, {0, 1, 0, false, 1},
	} {
		name := fmt.Sprintf("%d by %d capped at %d, hints %v", tc.n, tc.perSecond, tc.pageCap, tc.hints)
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *fakeRelay) {
				es := make([]*nostr.Event, tc.n)
				for i := range es {
					es[i] = event(1, 1000+int64(i/tc.perSecond), fmt.Sprint(i))
				}
				fill(t, r.db, es...)
				r.pageCap, r.hints = tc.pageCap, tc.hints
				c := r.dialT(t)
				defer c.Close()
				got, err := c.QueryAll(t.Context(), nostr.Filter{Kinds: []nostr.Kind{1}})
				if err != nil || len(got) != tc.n {
					t.Errorf("%d events, %v", len(got), err)
				}
				seen := map[nostr.ID]bool{}
				for _, e := range got {
					if seen[e.ID] {
						t.Fatal("twice")
					}
					seen[e.ID] = true
				}
				if r.frames("REQ") > tc.maxReqs {
					t.Errorf("%d REQs", r.frames("REQ"))
				}
			})
		})
	}
}

func TestQueryLimitAndTies(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		es := make([]*nostr.Event, 200)
		for i := range es {
			es[i] = event(1, 1000, fmt.Sprint(i)) // one second
		}
		fill(t, r.db, es...)
		c := r.dialT(t)
		defer c.Close()
		five, many := 5, 150
		r.pageCap = 120
		if got, err := c.QueryAll(t.Context(), nostr.Filter{Limit: &five}); err != nil || len(got) != 5 {
			t.Errorf("%d, %v", len(got), err)
		}
		r.pageCap = 0
		if got, err := c.QueryAll(t.Context(), nostr.Filter{Limit: &many}); err != nil || len(got) != 150 {
			t.Errorf("%d, %v", len(got), err)
		}
		r.pageCap, r.hints = 120, true
		got, err := c.QueryAll(t.Context(), nostr.Filter{})
		if !errors.Is(err, ErrIncomplete) || len(got) != 120 {
			t.Errorf("a second that does not fit: %d, %v", len(got), err)
		}
		empty := nostr.Filter{Kinds: []nostr.Kind{}}
		before := r.frames("REQ")
		if got, err := c.QueryAll(t.Context(), empty); err != nil || len(got) != 0 || r.frames("REQ") != before {
			t.Errorf("empty list: %d, %v", len(got), err)
		}
	})
}

func TestCount(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		fill(t, r.db, events(9, "x")...)
		c := r.dialT(t)
		defer c.Close()
		if n, err := c.Count(t.Context(), nostr.Filter{}); err != nil || n.Count != 9 {
			t.Error(n, err)
		}
		r.intercept(func(c *fakeConn, _ string) bool { c.send(nostr.AppendClosed(nil, "2", "unsupported: no")); return true })
		var closed *ClosedError
		if _, err := c.Count(t.Context(), nostr.Filter{}); !errors.As(err, &closed) {
			t.Error(err)
		}
	})
}

// TestGarbage: a relay that talks nonsense harms nobody but itself.
func TestGarbage(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		c := r.dialT(t)
		defer c.Close()
		fill(t, r.db, events(3, "x")...)
		nonsense := []string{
			``, `[]`, `{}`, `["EVENT"]`, `["EVENT","1",{}]`, `["EOSE","99"]`, `["EOSE"]`, `["OK","zz",true,""]`, `["OK"]`, `["CLOSED","77","x"]`,
			`["COUNT","5",{"count":-1}]`, `["COUNT","1",{"count":"x"}]`, `["NEG-MSG","1","zz"]`, `["NEG-MSG","1","61"]`, `["NEG-ERR","1"]`, `["AUTH"]`, `["NOTICE","x"]`,
			`["WHAT","1"]`, `[[[[[[[[`, "\x00\xff",
		}
		r.intercept(func(fc *fakeConn, _ string) bool {
			for range 200 {
				for _, s := range nonsense {
					fc.send([]byte(s))
				}
			}
			return false
		})
		if got, err := c.QueryAll(t.Context(), nostr.Filter{}); err != nil || len(got) != 3 {
			t.Errorf("%d, %v", len(got), err)
		}
		if n, err := c.Count(t.Context(), nostr.Filter{}); err != nil || n.Count != 3 {
			t.Error(n, err)
		}
		if c.Strays() < 1000 {
			t.Errorf("%d strays", c.Strays())
		}
	})
}

// TestHalfOpenIsNoticed: a peer that is gone without a word is found out by pings.
func TestHalfOpenIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		c := r.dialT(t)
		block := make(chan struct{})
		r.intercept(func(*fakeConn, string) bool { <-block; return true })
		s, err := c.Subscribe(t.Context(), nostr.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = s.Next(t.Context())
		var lost *LostError
		if !errors.As(err, &lost) || time.Since(start) > 2*time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		close(block)
	})
}

// TestIdleIsNotDead: a quiet subscription lives for a day.
func TestIdleIsNotDead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		c := r.dialT(t)
		defer c.Close()
		s, err := c.Subscribe(t.Context(), nostr.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := s.Next(t.Context()); err != nil || !d.EOSE {
			t.Fatal(d, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestDeadRelayIsDialledSeldom: fifty users of one Link make at most six dials in a minute.
func TestDeadRelayIsDialledSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, r *fakeRelay) {
		r.dead = true
		l := r.link()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan struct{})
		for range 50 {
			go func() {
				for ctx.Err() == nil {
					_, _ = l.Conn(ctx)
				}
				done <- struct{}{}
			}()
		}
		for range 50 {
			<-done
		}
		if n := l.Dials(); n > 6 || n < 4 {
			t.Errorf("%d dials", n)
		}
	})
	for fails := 1; fails < 100; fails++ {
		for _, chance := range []float64{0, 0.5, 0.999} {
			if d := backoff(fails, chance); d < minDelay || d > maxDelay*3/2 {
				t.Errorf("%d failures: %v", fails, d)
			}
		}
	}
}

func TestAskedDelay(t *testing.T) {
	for reason, want := range map[string]time.Duration{
		"rate-limited: try again in 5 s":          5 * time.Second,
		"rate-limited: retry after 250ms":         250 * time.Millisecond,
		"rate-limited: wait 2 minutes":            maxDelay,
		"rate-limited: wait 1.5 seconds":          1500 * time.Millisecond,
		"rate-limited: 5 events per hour is much": 0,
		"rate-limited:":                           0,
		"rate-limited: 1e309 s":                   0,
	} {
		if got := askedDelay(reason); got != want {
			t.Errorf("%q: %v", reason, got)
		}
	}
}

func TestPrefix(t *testing.T) {
	for reason, want := range map[string]string{
		"invalid: x": "invalid", "auth-required: y": "auth-required", "no prefix": "", "Bad: x": "", ": x": "", "": "",
		"ERROR: bad msg": "", "two words: x": "",
	} {
		if got := Prefix(reason); got != want {
			t.Errorf("%q: %q", reason, got)
		}
	}
}

func FuzzReason(f *testing.F) {
	f.Add("rate-limited: try again in 5 s")
	f.Add("blocked: this query is too big")
	f.Add("1e999999999 s 5m 3ms")
	f.Fuzz(func(t *testing.T, reason string) {
		if d := askedDelay(reason); d < 0 || d > maxDelay {
			t.Errorf("%v", d)
		}
		if p := Prefix(reason); len(p) > 20 {
			t.Errorf("%q", p)
		}
		_ = refusesNegentropy(reason)
		_ = (&NegError{Reason: reason}).TooBig()
	})
}
