package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
	"fleetmesh.org/fleetmesh/spec"
)

// world runs a test under a fake clock, with a relay and an empty local store.
func world(t *testing.T, f func(t *testing.T, r *fakeRelay, local *store.Memory)) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRelay(t)
		f(t, r, store.NewMemory())
	})
}

func mustSync(t *testing.T, r *fakeRelay, local store.Store, o SyncOptions) Report {
	t.Helper()
	rep, err := trySync(t, r, local, o)
	if err != nil {
		t.Fatalf("sync: %v (%s)", err, rep.Summary(Both))
	}
	return rep
}

func trySync(t *testing.T, r *fakeRelay, local store.Store, o SyncOptions) (Report, error) {
	t.Helper()
	if o.Verifier == nil {
		o.Verifier = yesVerifier{}
	}
	l := r.link()
	defer l.Close()
	return Sync(t.Context(), l, local, o)
}

func TestSyncBothWays(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		common := events(700, "common")
		fill(t, r.db, common...)
		fill(t, local, common...)
		fill(t, r.db, events(900, "theirs")...)
		fill(t, local, events(400, "ours")...)
		rep := mustSync(t, r, local, SyncOptions{Direction: Both})
		if rep.New != 900 || rep.Sent != 400 || rep.Bodies != 900 || rep.Method != "negentropy" {
			t.Errorf("%+v", rep)
		}
		sameSets(t, r.db, local)
		before := r.bodies
		rep = mustSync(t, r, local, SyncOptions{Direction: Both})
		if got := rep.Summary(Both); got != "0 new, 0 known-refused\n0 sent" {
			t.Errorf("second pass: %s", got)
		}
		if rep.Bodies != 0 || r.bodies != before || rep.Sessions != 1 {
			t.Errorf("second pass: %d bodies, %d sessions", rep.Bodies, rep.Sessions)
		}
	})
}

func TestSyncOneWay(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, r.db, events(50, "theirs")...)
		fill(t, local, events(30, "ours")...)
		rep := mustSync(t, r, local, SyncOptions{Direction: Push})
		if rep.Sent != 30 || rep.Bodies != 0 || size(t, local) != 30 {
			t.Errorf("push: %+v", rep)
		}
		rep = mustSync(t, r, local, SyncOptions{})
		if rep.New != 50 || rep.Sent != 0 || size(t, local) != 80 {
			t.Errorf("pull: %+v", rep)
		}
	})
}

// TestSyncComesToRest: the peer holds an old version of what we hold, an expired event, and one our policy
// refuses. Nothing changes between three runs.
func TestSyncComesToRest(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		v1, v2 := event(0, 1700000000, "one"), event(0, 1700000100, "two")
		expired := event(1, 1700000000, "old", nostr.Tag{"expiration", "1700000001"})
		unwanted := event(666, 1700000000, "no")
		fill(t, r.db, v1, expired, unwanted)
		fill(t, local, v2)
		r.refuse[v2.ID] = "blocked: not today"
		now := func() time.Time { return time.Unix(1800000000, 0) }
		sink := &StoreSink{Store: local, Policy: policy.Chain{policy.NewKinds(nil, []nostr.Kind{666})}, Now: now}
		dir := t.TempDir()
		for pass := 1; pass <= 3; pass++ {
			peer, err := OpenPeerMemory(dir, fakeURL, now().Unix())
			if err != nil {
				t.Fatal(err)
			}
			rep := mustSync(t, r, local, SyncOptions{Direction: Both, Sink: sink, Peer: peer, Now: now})
			if err := peer.Close(); err != nil {
				t.Fatal(err)
			}
			want := "0 new, 3 known-refused (expired 1, policy 1, superseded 1)\n0 sent, 1 known-refused there (blocked 1)"
			if pass == 1 {
				want = "0 new, 0 known-refused, 3 refused (expired 1, policy 1, superseded 1)\n0 sent, 1 refused there (blocked 1)"
			}
			if got := rep.Summary(Both); got != want {
				t.Errorf("pass %d: %s", pass, got)
			}
		}
		if r.bodies != 3 {
			t.Errorf("%d bodies came", r.bodies)
		}
		if r.offers[v2.ID] != 1 {
			t.Errorf("version 2 was offered %d times", r.offers[v2.ID])
		}
	})
}

// TestAcceptedAndNotKept: a relay that says OK and keeps nothing is not offered the same twice.
func TestAcceptedAndNotKept(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, local, events(5, "ours")...)
		r.intercept(func(c *fakeConn, label string) bool { return false })
		gone := events(5, "ours")
		peer, err := OpenPeerMemory(t.TempDir(), fakeURL, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		// The relay's author deleted them: it answers OK and does not keep them.
		if _, err := r.db.Purge(t.Context(), idsOf(gone), "purged", 1); err != nil {
			t.Fatal(err)
		}
		rep := mustSync(t, r, local, SyncOptions{Direction: Push, Peer: peer})
		if rep.Sent != 5 || rep.NotKept != 5 {
			t.Errorf("%+v", rep)
		}
		rep = mustSync(t, r, local, SyncOptions{Direction: Push, Peer: peer})
		if got := rep.Up(); got != "0 sent, 5 known-refused there (not-kept 5)" {
			t.Errorf("second run: %s", got)
		}
	})
}

func idsOf(es []*nostr.Event) []nostr.ID {
	out := make([]nostr.ID, len(es))
	for i, e := range es {
		out[i] = e.ID
	}
	return out
}

func TestProtectedAndPrivateStay(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		secret := event(1, 1700000000, "mine", nostr.Tag{"-"})
		wrap := event(nostr.KindGiftWrap, 1700000000, "x", nostr.Tag{"p", strings.Repeat("ab", 32)})
		plain := event(1, 1700000000, "yours")
		fill(t, local, secret, wrap, plain)
		rep := mustSync(t, r, local, SyncOptions{Direction: Push, View: store.View{Hide: []nostr.Kind{nostr.KindGiftWrap}}})
		if got := rep.Up(); got != "1 sent, 2 withheld (private 1, protected 1)" {
			t.Errorf("%s", got)
		}
		if size(t, r.db) != 1 {
			t.Error("something leaked")
		}
	})
}

// TestRefusedNegentropy: relays refuse in many words, or say nothing at all.
func TestRefusedNegentropy(t *testing.T) {
	for _, notice := range []string{
		"ERROR: bad msg: negentropy disabled", "unknown message type NEG-OPEN", "invalid: unrecognised command", "",
	} {
		world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
			fill(t, r.db, events(120, "theirs")...)
			fill(t, local, events(40, "ours")...)
			r.noNeg, r.silent, r.pageCap = notice, notice == "", 25
			start := time.Now()
			rep := mustSync(t, r, local, SyncOptions{Direction: Both})
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("%q: took %v", notice, took)
			}
			if rep.Method != "paging" || rep.New != 120 || rep.Sent != 40 || rep.Fallback == "" {
				t.Errorf("%q: %+v", notice, rep)
			}
			sameSets(t, r.db, local)
			rep = mustSync(t, r, local, SyncOptions{Direction: Both})
			if rep.New != 0 || rep.Sent != 0 {
				t.Errorf("%q: second pass: %+v", notice, rep)
			}
			_, err := trySync(t, r, local, SyncOptions{NoPaging: true})
			if ExitCode(err) != spec.ExitRefused {
				t.Errorf("%q: without paging: %v", notice, err)
			}
		})
	}
}

func TestTooBigIsSplit(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, r.db, events(3000, "theirs")...)
		fill(t, local, events(100, "ours")...)
		r.negMax = 500
		now := func() time.Time { return time.Unix(1800000000, 0) }
		rep := mustSync(t, r, local, SyncOptions{Direction: Both, Now: now})
		if rep.New != 3000 || rep.Sent != 100 || rep.Windows > MaxWindows || rep.Method != "negentropy" {
			t.Errorf("%+v", rep)
		}
		t.Logf("%d windows, %d sessions, method %s", rep.Windows, rep.Sessions, rep.Method)
		sameSets(t, r.db, local)
	})
}

// TestTooBigForever: a relay that finds everything too big costs no more than the 64 windows.
func TestTooBigForever(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		es := make([]*nostr.Event, 40)
		for i := range es {
			es[i] = event(1, 1700000000, fmt.Sprint(i)) // all of one second
		}
		fill(t, r.db, es...)
		r.negMax = 10
		rep := mustSync(t, r, local, SyncOptions{})
		if rep.New != 40 || rep.Windows > MaxWindows || rep.Sessions > 2*MaxWindows || r.frames("NEG-OPEN") > 2*MaxWindows {
			t.Errorf("%+v", rep)
		}
		if rep.Method != "negentropy and paging" && rep.Method != "paging" {
			t.Errorf("method %s", rep.Method)
		}
	})
}

// TestCutInTheMiddle: the connection goes again and again, at every kind of moment, and what was
// settled stays settled.
func TestCutInTheMiddle(t *testing.T) {
	for _, label := range []string{"NEG-OPEN", "NEG-MSG", "REQ", "EVENT", "CLOSE"} {
		world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
			fill(t, r.db, events(1500, "theirs")...)
			fill(t, local, events(500, "ours")...)
			fill(t, r.db, events(1500, "common")...)
			fill(t, local, events(1500, "common")...)
			seen, cuts := 0, 0
			r.intercept(func(c *fakeConn, l string) bool {
				if l != label || cuts >= 3 {
					return false
				}
				if seen++; seen%3 == 1 {
					cuts++
					_ = c.ws.CloseNow()
					return true
				}
				return false
			})
			rep := mustSync(t, r, local, SyncOptions{Direction: Both})
			if cuts == 0 {
				t.Errorf("%s: nothing was cut", label)
			}
			if rep.Reconnects != cuts {
				t.Errorf("%s: %d cuts, %d reconnects", label, cuts, rep.Reconnects)
			}
			if rep.New != 1500 {
				t.Errorf("%s: %d new", label, rep.New)
			}
			sameSets(t, r.db, local)
			t.Logf("%s: %d cuts, %d bodies, %d offers", label, cuts, rep.Bodies, r.frames("EVENT"))
			if rep.Bodies > 1500+cuts*fetchers*200 {
				t.Errorf("%s: %d bodies for 1500 events", label, rep.Bodies)
			}
		})
	}
}

// TestKilledInTheMiddle: a run is called off at many moments; a new one goes on where it stopped.
func TestKilledInTheMiddle(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, r.db, events(2000, "theirs")...)
		fill(t, local, events(600, "ours")...)
		total := 0
		for kill := 1; kill <= 10; kill++ {
			ctx, cancel := context.WithCancel(t.Context())
			had := size(t, local)
			l := r.link()
			rep, err := Sync(ctx, l, local, SyncOptions{Direction: Both, Batch: 50, Window: 10, Verifier: yesVerifier{}, Progress: func(p Report) {
				if p.New >= 100 && p.Sent >= 30 {
					cancel()
				}
			}})
			cancel()
			l.Close()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if size(t, local) < had+rep.New {
				t.Fatal("what was reported is not there")
			}
			total += rep.New
		}
		rep := mustSync(t, r, local, SyncOptions{Direction: Both})
		sameSets(t, r.db, local)
		if total+rep.New != 2000 || size(t, local) != 2600 {
			t.Errorf("%d in ten killed runs and %d in the last, %d in all", total, rep.New, size(t, local))
		}
	})
}

// slowSink is a destination much slower than its source.
type slowSink struct {
	StoreSink
	fail atomic.Int32 // the call to fail; 0 for none
}

func (s *slowSink) Offer(ctx context.Context, es []*nostr.Event) ([]store.Outcome, error) {
	if err := pause(ctx, nil, 100*time.Millisecond*time.Duration(len(es))); err != nil {
		return nil, err
	}
	if s.fail.Add(-1) == 0 {
		return nil, errors.New("disk on fire")
	}
	return s.StoreSink.Offer(ctx, es)
}

func TestSlowDestinationLosesNothing(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, r.db, events(2500, "theirs")...)
		rep := mustSync(t, r, local, SyncOptions{Sink: &slowSink{StoreSink: StoreSink{Store: local}}})
		if rep.New != 2500 || rep.Reconnects != 0 {
			t.Errorf("%+v", rep)
		}
		sameSets(t, r.db, local)
	})
}

// TestSinkFails: the local store fails, once before and once after it has kept the events. The next run settles it.
func TestSinkFails(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, r.db, events(900, "theirs")...)
		slow := &slowSink{StoreSink: StoreSink{Store: local}}
		slow.fail.Store(2)
		_, err := trySync(t, r, local, SyncOptions{Sink: slow})
		if ExitCode(err) != ExitLocal {
			t.Errorf("error %v", err)
		}
		kept := sinkFunc(func(ctx context.Context, es []*nostr.Event) ([]store.Outcome, error) {
			fill(t, local, es...)
			return nil, errors.New("kept, and yet failed")
		})
		_, err = trySync(t, r, local, SyncOptions{Sink: kept})
		if ExitCode(err) != ExitLocal {
			t.Errorf("error %v", err)
		}
		mustSync(t, r, local, SyncOptions{})
		sameSets(t, r.db, local)
	})
}

type sinkFunc func(ctx context.Context, es []*nostr.Event) ([]store.Outcome, error)

func (f sinkFunc) Offer(ctx context.Context, es []*nostr.Event) ([]store.Outcome, error) {
	return f(ctx, es)
}

// TestBadServing: what a relay serves under an id is checked, remembered against the relay alone, and not
// fetched again.
func TestBadServing(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		good, forged := event(1, 1700000000, "good"), event(1, 1700000001, "forged")
		hidden := event(1, 1700000002, "hidden")
		key, err := nostr.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := good.Sign(key); err != nil {
			t.Fatal(err)
		}
		fill(t, r.db, good, forged, hidden)
		r.hide[hidden.ID] = true
		r.ghosts = []negentropy.Item{{Time: 1700000000, ID: nostr.ID{1, 2, 3}}}
		peer, err := OpenPeerMemory(t.TempDir(), fakeURL, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		o := SyncOptions{Verifier: nostr.NewVerifier(), Peer: peer}
		rep := mustSync(t, r, local, o)
		if got := rep.Down(); got != "1 new, 0 known-refused, 1 unusable (bad-signature 1), 2 not served" {
			t.Error(got)
		}
		rep = mustSync(t, r, local, o)
		if got := rep.Down(); got != "0 new, 1 known-refused (bad-signature 1), 2 not served" || rep.Bodies != 0 {
			t.Errorf("%s, %d bodies", got, rep.Bodies)
		}
		if _, ok, _ := local.Refusal(t.Context(), forged.ID); ok {
			t.Error("a forger could keep the true event out")
		}
	})
}

func TestSyncAuth(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, r.db, events(10, "theirs")...)
		fill(t, local, events(10, "ours")...)
		r.authKey = true
		_, err := trySync(t, r, local, SyncOptions{Direction: Both})
		if ExitCode(err) != spec.ExitCredential {
			t.Errorf("without a key: %v", err)
		}
		key, err := nostr.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		opt := r.options()
		opt.Key = &key
		l := NewLink(fakeURL, opt)
		defer l.Close()
		rep, err := Sync(t.Context(), l, local, SyncOptions{Direction: Both, Verifier: yesVerifier{}})
		if err != nil || rep.New != 10 || rep.Sent != 10 || rep.Method != "negentropy" {
			t.Errorf("with a key: %v, %+v", err, rep)
		}
	})
}

// TestBlindPush: a relay that takes events but lets nobody read is offered each event once.
func TestBlindPush(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		es := events(30, "ours")
		fill(t, local, es...)
		fill(t, r.db, es[:10]...)
		r.intercept(func(c *fakeConn, label string) bool {
			switch label {
			case "NEG-OPEN":
				c.send(nostr.AppendNegErr(nil, "1", "unsupported: no"))
				return true
			case "REQ":
				c.send(nostr.AppendClosed(nil, "2", "restricted: no"))
				return true
			}
			return false
		})
		peer, err := OpenPeerMemory(t.TempDir(), fakeURL, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		if _, err := trySync(t, r, local, SyncOptions{Direction: Both, Peer: peer}); ExitCode(err) != spec.ExitRefused {
			t.Errorf("both ways: %v", err)
		}
		rep := mustSync(t, r, local, SyncOptions{Direction: Push, Peer: peer})
		if got := rep.Up(); got != "20 sent, 10 held already" {
			t.Error(got)
		}
		for range 2 {
			rep = mustSync(t, r, local, SyncOptions{Direction: Push, Peer: peer})
		}
		if got := rep.Up(); got != "0 sent, 30 known-refused there (duplicate 30)" {
			t.Error(got)
		}
	})
}

func TestSyncErrors(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		bad := NewLink("mailto:relay", r.options())
		if _, err := Sync(t.Context(), bad, local, SyncOptions{}); ExitCode(err) != spec.ExitUsage {
			t.Errorf("bad url: %v", err)
		}
		if _, err := trySync(t, r, local, SyncOptions{Filter: nostr.Filter{Search: "x"}}); ExitCode(err) != spec.ExitUsage {
			t.Errorf("search: %v", err)
		}
		r.dead = true
		start := time.Now()
		if _, err := trySync(t, r, local, SyncOptions{}); ExitCode(err) != spec.ExitUnreachable || time.Since(start) > 10*time.Second {
			t.Errorf("dead relay: %v after %v", err, time.Since(start))
		}
		r.dead = false
		r.intercept(func(c *fakeConn, label string) bool {
			if label == "NEG-OPEN" {
				c.send(nostr.AppendNegMsg(nil, "1", []byte{0x61, 0xff}))
			}
			return true
		})
		if _, err := trySync(t, r, local, SyncOptions{}); ExitCode(err) != spec.ExitInvalid {
			t.Errorf("nonsense: %v", err)
		}
		r.intercept(func(c *fakeConn, label string) bool { _ = c.ws.CloseNow(); return true })
		if _, err := trySync(t, r, local, SyncOptions{}); ExitCode(err) != spec.ExitUnreachable {
			t.Errorf("flapping relay: %v", err)
		}
		if err := local.Close(); err != nil {
			t.Fatal(err)
		}
		r.intercept(nil)
		if _, err := trySync(t, r, local, SyncOptions{}); ExitCode(err) != ExitLocal {
			t.Errorf("closed store: %v", err)
		}
	})
}

func TestUploadObeysTheRate(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, local, events(60, "ours")...)
		r.perSec = 5
		rep := mustSync(t, r, local, SyncOptions{Direction: Push, Window: 10})
		if rep.Sent != 60 {
			t.Errorf("%+v", rep)
		}
		// The first window is on its way before the relay says a word about rates.
		if r.overLoad > 10 {
			t.Errorf("%d events came over the rate", r.overLoad)
		}
	})
}

func TestExitCodesAreDistinct(t *testing.T) {
	seen := map[int]bool{}
	for _, row := range ExitCodes {
		if seen[row.Code] || row.Meaning == "" {
			t.Errorf("code %d", row.Code)
		}
		seen[row.Code] = true
	}
	if ExitCode(ErrPartial) != ExitPartial || ExitCode(fmt.Errorf("x: %w", ErrLimited)) != spec.ExitRetry || ExitCode(errors.New("x")) != spec.ExitFailure {
		t.Error("codes")
	}
}

func TestSinkRecordsRefusals(t *testing.T) {
	local := store.NewMemory()
	s := &StoreSink{Store: local, Policy: policy.NewKinds(nil, []nostr.Kind{666})}
	no, yes := event(666, 1700000000, "no"), event(1, 1700000000, "yes")
	out, err := s.Offer(t.Context(), []*nostr.Event{no, yes})
	if err != nil || out[0] != store.Refused || out[1] != store.Stored {
		t.Fatal(out, err)
	}
	if ref, ok, err := local.Refusal(t.Context(), no.ID); err != nil || !ok || ref.Reason != "policy" {
		t.Error(ref, ok, err)
	}
	limited := policy.Func(func(context.Context, *policy.Request) *policy.Rejection {
		return policy.Reject(policy.RateLimited, "later")
	})
	s.Policy = limited
	if _, err := s.Offer(t.Context(), []*nostr.Event{event(1, 1700000000, "later")}); err == nil || bytes.Contains([]byte(err.Error()), []byte("later\"")) {
		t.Error("what may pass later was refused for good")
	}
}

// TestSyncEndlessAnswers: a relay that answers for ever without telling a difference is left.
func TestSyncEndlessAnswers(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		fill(t, local, events(40, "ours")...)
		r.endless = true
		rep, err := trySync(t, r, local, SyncOptions{Direction: Both})
		if ExitCode(err) != spec.ExitInvalid || rep.Messages > 3*maxIdleRounds {
			t.Errorf("after %d messages: %v, status %d", rep.Messages, err, ExitCode(err))
		}
	})
}
