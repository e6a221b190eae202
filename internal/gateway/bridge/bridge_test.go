package bridge_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/internal/gateway/gatewaytest"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
)

// hub makes a bridge whose own end is a relay of the Network.
func hub(n *gatewaytest.Network, t *testing.T, home *gatewaytest.Peer, dir string, change func(*bridge.Options)) *bridge.Bridge {
	t.Helper()
	bell := new(bridge.Bell)
	feed := home.Follow([]nostr.Filter{{}}, 1)
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-feed.Events():
				bell.Ring()
			case <-end:
				return
			}
		}
	}()
	o := bridge.Options{
		Local: bridge.Local{Store: home.DB, Sink: home.Sink(policy.FromStream), Bell: bell, URLs: []string{home.URL}},
		Dir:   dir, HTTP: n.Client(), Verifier: gatewaytest.Yes{},
	}
	if change != nil {
		change(&o)
	}
	b, err := bridge.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		close(end)
		feed.Close()
	})
	return b
}

func apply(t *testing.T, b *bridge.Bridge, text string) []bridge.Change {
	t.Helper()
	c, err := bridge.ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := b.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := gatewaytest.New()
		home, friend, backup, stranger := n.Relay(t, "home"), n.Relay(t, "friend"), n.Relay(t, "backup"), n.Relay(t, "stranger")
		book, err := trail.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer book.Close()
		b := hub(n, t, home, t.TempDir(), func(o *bridge.Options) { o.Trail = book })
		ours, theirs, strange := gatewaytest.Notes(300, "ours"), gatewaytest.Notes(300, "theirs"), gatewaytest.Notes(10, "strange")
		home.Add(t, ours...)
		friend.Add(t, theirs...)
		stranger.Add(t, strange...)
		apply(t, b, `streams {
			friends { dir = "both" urls = [ "ws://friend" ] }
			backup  { dir = "up" filter = { kinds = [1] } urls = [ "ws://backup" ] }
			news    { dir = "down" urls = [ "ws://stranger" ] }
		}`)
		b.Start(t.Context())
		gatewaytest.Rest(time.Minute)
		gatewaytest.All(t, true, home, theirs, "backfill down")
		gatewaytest.All(t, true, friend, ours, "backfill up")
		gatewaytest.All(t, true, backup, append(ours, theirs...), "backfill of the backup")
		gatewaytest.All(t, true, home, strange, "down only")
		gatewaytest.All(t, false, stranger, append(ours, theirs...), "a relay that is not named for writing")

		live, answer, profile := gatewaytest.Note(1, 946684800, "live"), gatewaytest.Note(1, 946684801, "answer"), gatewaytest.Note(0, 946684801, "a profile")
		home.Add(t, live, profile)
		friend.Add(t, answer)
		gatewaytest.Rest(time.Second)
		gatewaytest.All(t, true, friend, []*nostr.Event{live, profile}, "live up")
		gatewaytest.All(t, true, home, []*nostr.Event{answer}, "live down")
		gatewaytest.All(t, true, backup, []*nostr.Event{live, answer}, "live through")
		gatewaytest.All(t, false, backup, []*nostr.Event{profile}, "outside the filter")

		gatewaytest.NoEcho(t, friend, append(theirs, answer))
		gatewaytest.NoEcho(t, stranger, strange)
		if len(stranger.Offers) > 0 {
			t.Errorf("%d events were offered to a relay that is not named for writing", len(stranger.Offers))
		}
		list, _, err := book.Of(live.ID)
		if err != nil || len(list) != 2 || list[0].Road != "bridge" || list[0].To == list[1].To {
			t.Errorf("the book says %+v, %v", list, err)
		}
		for _, s := range b.Status() {
			if !s.Connected || s.LastEventAge < 0 || s.LastEventAge > 70 || s.Disconnects != 0 {
				t.Errorf("%+v", s)
			}
		}
		b.Close()
	})
}

// TestCuts bridges while connections are cut at random: nothing is lost, and nothing goes back.
func TestCuts(t *testing.T) {
	events, cuts := 2_000, 40
	if os.Getenv("FLEETMESH_FULL") != "" {
		events, cuts = 50_000, 1000
	}
	synctest.Test(t, func(t *testing.T) {
		n := gatewaytest.New()
		home, friend := n.Relay(t, "home"), n.Relay(t, "friend")
		r := rand.New(rand.NewPCG(1, 2))
		n.Fray = func() int { return 1 + r.IntN(60_000) }
		b := hub(n, t, home, t.TempDir(), nil)
		ours, theirs := gatewaytest.Notes(events/2, "ours"), gatewaytest.Notes(events/2, "theirs")
		apply(t, b, `streams { friends { dir = "both" urls = [ "ws://friend" ] } }`)
		b.Start(t.Context())
		left, right := ours, theirs
		for n.CutSoFar() < cuts {
			k := min(len(left), 1+events/cuts)
			home.Add(t, left[:k]...)
			friend.Add(t, right[:k]...)
			left, right = left[k:], right[k:]
			gatewaytest.Rest(time.Second)
		}
		cut := n.Steady()
		n.Cut("")
		home.Add(t, left...)
		friend.Add(t, right...)
		gatewaytest.Rest(10 * time.Minute)
		gatewaytest.All(t, true, home, theirs, "down")
		gatewaytest.All(t, true, friend, ours, "up")
		gatewaytest.NoEcho(t, friend, theirs)
		more := 0
		for _, e := range ours {
			more += friend.Offered(e.ID) - 1
		}
		t.Logf("%d connections cut, %d dials; %d events were offered again because their OK was lost", cut, n.Dials, more)
		b.Close()
	})
}

// TestRate: a relay that takes five events a second, and says so, gets no sixth in any second from then on; one for which the rate is configured gets
// none from the start.
func TestRate(t *testing.T) {
	for _, knob := range []string{"", "eventsPerSecond = 5"} {
		synctest.Test(t, func(t *testing.T) {
			n := gatewaytest.New()
			home, slow := n.Relay(t, "home"), n.Relay(t, "slow")
			slow.PerSec = 5
			b := hub(n, t, home, t.TempDir(), nil)
			ours := gatewaytest.Notes(60, "ours")
			home.Add(t, ours...)
			apply(t, b, `streams { s { dir = "up" urls = [ "ws://slow" ] `+knob+` } }`)
			b.Start(t.Context())
			gatewaytest.Rest(time.Minute)
			n.Cut("") // what was learned outlives the connection
			more := gatewaytest.Notes(40, "more")
			home.Add(t, more...)
			gatewaytest.Rest(2 * time.Minute)
			gatewaytest.All(t, true, slow, append(ours, more...), "all arrive")
			from := time.Time{}
			if knob == "" {
				from = slow.LimitedAt.Add(time.Millisecond) // what was on its way when it first said so
			} else if !slow.LimitedAt.IsZero() {
				t.Error("it had to say so")
			}
			for i := range slow.Times {
				if slow.Times[i].After(from) && i+5 < len(slow.Times) && slow.Times[i+5].Sub(slow.Times[i]) < time.Second {
					t.Errorf("%q: six events within %v", knob, slow.Times[i+5].Sub(slow.Times[i]))
					break
				}
			}
			b.Close()
		})
	}
}

// TestReload changes one stream and leaves the connections of the others alone.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := gatewaytest.New()
		home := n.Relay(t, "home")
		n.Relay(t, "a")
		n.Relay(t, "b")
		c := n.Relay(t, "c")
		b := hub(n, t, home, t.TempDir(), nil)
		apply(t, b, `streams { one { dir = "down" urls = [ "ws://a", "ws://b" ] } }`)
		path := filepath.Join(t.TempDir(), "router.config")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("")
		b.Start(t.Context())
		told := make(chan string, 10)
		go b.Watch(t.Context(), path, time.Second, func(ch []bridge.Change, err error) { told <- fmt.Sprint(ch, err) })
		gatewaytest.Rest(10 * time.Second)
		dials := n.Dials
		write(`streams { one { dir = "down" urls = [ "ws://a" ] } two { dir = "up" urls = [ "ws://c" ] } }`)
		gatewaytest.Rest(10 * time.Second)
		if got := <-told; got != "[{one ws://b/ closed} {two ws://c/ opened}]<nil>" && got != "[{one ws://b/ closed} {two ws://c/ opened}] <nil>" {
			t.Errorf("told %q", got)
		}
		if n.Dials != dials+1 {
			t.Errorf("%d new connections, want 1", n.Dials-dials)
		}
		home.Add(t, gatewaytest.Note(1, 946684800, "to the new one"))
		gatewaytest.Rest(time.Second)
		if len(c.Offers) != 1 {
			t.Errorf("%d events at the new relay", len(c.Offers))
		}
		write(`streams { one { dir = "down" urls = [ "ws://a" ] filtre = {} } }`)
		gatewaytest.Rest(10 * time.Second)
		if got := <-told; !strings.Contains(got, "line 1: unknown key") {
			t.Errorf("told %q", got)
		}
		if len(b.Status()) != 2 || n.Dials != dials+1 {
			t.Errorf("a wrong file changed something: %+v", b.Status())
		}
		b.Close()
	})
}

// TestWraps: gift wraps go to relays that their recipients name, in the order of arrival, and those that came back-dated while nobody listened go too.
func TestWraps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := gatewaytest.New()
		home, mailbox, other := n.Relay(t, "home"), n.Relay(t, "mailbox"), n.Relay(t, "other")
		dir := t.TempDir()
		alice := nostr.PubKey{7}
		list := gatewaytest.Note(10050, 946684800, "", nostr.Tag{"relay", "ws://mailbox"})
		list.PubKey = alice
		list.ID = list.ComputeID()
		home.Add(t, list)
		config := `streams { s { dir = "up" urls = [ "ws://mailbox", "ws://other" ] } }`
		wrap := func(at int64, text string) *nostr.Event {
			return gatewaytest.Note(1059, at, text, nostr.Tag{"p", alice.String()})
		}
		run := func(add ...*nostr.Event) {
			b := hub(n, t, home, dir, nil)
			apply(t, b, config)
			b.Start(t.Context())
			gatewaytest.Rest(time.Minute)
			home.Add(t, add...)
			gatewaytest.Rest(time.Minute)
			b.Close()
		}
		live := wrap(946684800, "live")
		run(live)
		late := wrap(946684800-48*3600, "back-dated by two days, stored after the cursor")
		toNobody := gatewaytest.Note(1059, 946684800, "to somebody else", nostr.Tag{"p", nostr.PubKey{8}.String()})
		home.Add(t, late, toNobody)
		run()
		gatewaytest.All(t, true, mailbox, []*nostr.Event{live, late}, "a named relay")
		gatewaytest.All(t, false, mailbox, []*nostr.Event{toNobody}, "not the recipient's relay")
		gatewaytest.All(t, false, other, []*nostr.Event{live, late, toNobody}, "a relay that is not named")
		if mailbox.Offered(live.ID) != 1 || mailbox.Offered(late.ID) != 1 || len(other.Offers) != 1 {
			t.Errorf("offered %d and %d times, %d at the other", mailbox.Offered(live.ID), mailbox.Offered(late.ID), len(other.Offers))
		}
	})
}

// TestOnce closes the gaps in one pass, and names what it cannot do.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := gatewaytest.New()
		home, friend := n.Relay(t, "home"), n.Relay(t, "friend")
		ours, theirs := gatewaytest.Notes(50, "ours"), gatewaytest.Notes(60, "theirs")
		home.Add(t, ours...)
		friend.Add(t, theirs...)
		config := `streams { s { dir = "both" urls = [ "ws://friend", "ws://nowhere" ] } }`
		b := hub(n, t, home, t.TempDir(), nil)
		apply(t, b, config)
		passes, err := b.Sync(t.Context(), func(bridge.Pass) {})
		if !errors.Is(err, gateway.ErrUnreachable) || len(passes) != 2 || passes[0].Report.New != 60 || passes[0].Report.Sent != 50 || passes[1].Exit == 0 {
			t.Errorf("%+v, %v", passes, err)
		}
		b.Close()
		b = hub(n, t, home, t.TempDir(), func(o *bridge.Options) { o.Only = []string{"ws://elsewhere"} })
		c, err := bridge.ParseConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Apply(c); !errors.Is(err, gateway.ErrUsage) || !strings.Contains(err.Error(), "ws://friend/") {
			t.Errorf("a relay that the file does not name: %v", err)
		}
		b.Close()
	})
}
