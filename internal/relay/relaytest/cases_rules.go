package relaytest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

func init() {
	cases["23"] = case23
	cases["27"] = case27
	cases["29"] = case29
	cases["31"] = case31
	cases["37"] = case37
	cases["49"] = case49
}

// Case 23: a tie between replaceable events, by the socket and by the doors of import and sync.
func case23(t *testing.T, newStore NewStore) {
	one := Event(A, T0, 10002, []nostr.Tag{{"r", "wss://a.test/"}}, "")
	two := Event(A, T0, 10002, []nostr.Tag{{"r", "wss://b.test/"}}, "")
	old := Event(A, T0-1, 10002, nil, "")
	want(t, "first id", one.ID.String(), "754c3da23dd8d858685e10ba613968fefd60607abf5150a07c1f56dfd44d37d6")
	want(t, "second id", two.ID.String(), "55364c78e515eb9074d7a45dc15af149fe934a80afbd7aee5445e2e671982cdb")
	filter := q(`{"kinds":[10002],"authors":["%s"]}`, pub(A))
	bySocket := func(t *testing.T, _ *Relay, c *Client, events ...*nostr.Event) {
		for _, e := range events {
			if ok := c.Publish(e); !ok.OK && !hasPrefix(ok.Reason, "blocked", "duplicate") {
				t.Errorf("OK of a version: %+v", ok)
			}
		}
	}
	inside := func(source policy.Source) func(*testing.T, *Relay, *Client, ...*nostr.Event) {
		return func(t *testing.T, r *Relay, _ *Client, events ...*nostr.Event) {
			if _, err := r.Publish(context.Background(), events, source); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, door := range map[string]func(*testing.T, *Relay, *Client, ...*nostr.Event){
		"client": bySocket, "import": inside(policy.FromImport), "sync": inside(policy.FromSync),
	} {
		for _, order := range [][]*nostr.Event{{one, two}, {two, one}} {
			t.Run(name, func(t *testing.T) {
				r := Start(t, newStore(t))
				c := r.Dial(t)
				door(t, r, c, order...)
				wantList(t, "the winner", c.Get(filter).IDs(), two.ID.String())
				door(t, r, c, old)
				wantList(t, "the winner after an older one", c.Get(filter).IDs(), two.ID.String())
			})
		}
	}
}

// Case 27: deletion with a tags only.
func case27(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	d := func(v string) []nostr.Tag { return []nostr.Tag{{"d", v}} }
	x := Event(A, T0, 30023, d("x"), "A's x")
	h := Event(A, T0, 30023, d("wss://h.test:443/p"), "A's h")
	note := Event(A, T0, 1, nil, "A's note")
	bx := Event(B, T0, 30023, d("x"), "B's x")
	c.MustPublish(x, h, note, bx)
	deletion := Event(A, T0+5, 5, []nostr.Tag{{"a", "30023:" + pub(A) + ":x"}, {"a", "30023:" + pub(A) + ":wss://h.test:443/p"}}, "")
	c.MustPublish(deletion)
	wantSet(t, "after the deletion", c.Get(`{"kinds":[1,30023]}`).Contents(), "A's note", "B's x")
	newer := Event(A, T0+10, 30023, d("x"), "A's new x")
	c.MustPublish(newer)
	c.Publish(x)
	c.MustPublish(Event(B, T0+20, 5, []nostr.Tag{{"a", "30023:" + pub(A) + ":x"}}, ""))
	wantSet(t, "at the end", c.Get(`{"kinds":[1,30023]}`).Contents(), "A's note", "B's x", "A's new x")
	c.notServed(t, x)
	c.notServed(t, h)
	wantList(t, "the deletion itself", c.Get(q(`{"ids":["%s"]}`, deletion.ID)).IDs(), deletion.ID.String())
}

// notServed asks for an event by every door.
func (c *Client) notServed(t testing.TB, e *nostr.Event) {
	t.Helper()
	filters := []string{
		q(`{"ids":["%s"]}`, e.ID), q(`{"kinds":[%d]}`, e.Kind), q(`{"authors":["%s"]}`, e.PubKey),
	}
	for _, tag := range e.Tags {
		if len(tag) > 1 && len(tag[0]) == 1 {
			filters = append(filters, q(`{"#%s":[%s]}`, tag[0], strconv.Quote(tag[1])))
		}
	}
	if e.Content != "" {
		filters = append(filters, q(`{"search":%s}`, strconv.Quote(e.Content)))
	}
	for _, f := range filters {
		for _, got := range c.Get(f).Events {
			if got.ID == e.ID {
				t.Errorf("%s serves %s", f, e.ID)
			}
		}
	}
	if n, _ := c.Count(filters[0]); n > 0 {
		t.Errorf("COUNT finds %s", e.ID)
	}
	if answer := c.NegIDs(filters[0]); strings.Contains(answer, e.ID.String()) {
		t.Errorf("NEG lists %s", e.ID)
	}
}

// NegIDs opens a reconciliation with an empty set and returns the relay's message in hex, or its NEG-ERR.
func (c *Client) NegIDs(filter string) string {
	c.t.Helper()
	c.Send(`["NEG-OPEN","ids",` + filter + `,"6100000200"]`)
	m := c.Await(func(m Message) bool { return strings.HasPrefix(m.Label(), "NEG-") && m.String(1) == "ids" })
	c.Send(`["NEG-CLOSE","ids"]`)
	return m.String(2)
}

// Case 29: deletion of a deletion.
func case29(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	n := Event(A, T0, 1, nil, "N")
	d1 := Event(A, T0+1, 5, []nostr.Tag{{"e", n.ID.String()}}, "D1")
	d2 := Event(A, T0+2, 5, []nostr.Tag{{"e", d1.ID.String()}, {"k", "5"}}, "D2")
	c.MustPublish(n, d1, d2)
	c.Publish(n)
	c.notServed(t, n)
	wantSet(t, "deletions", c.Get(`{"kinds":[5]}`).Contents(), "D1", "D2")
}

// Case 31: expiration. The clock is moved, not waited for.
func case31(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t))
	c := r.Dial(t)
	now := time.Now().Unix()
	expires := func(kind nostr.Kind, at int64, content string) *nostr.Event {
		return Event(A, now, kind, []nostr.Tag{{"expiration", fmt.Sprint(at)}}, content)
	}
	c.Publish(expires(1, now-1, "late")).refused(t, "an expired event", "invalid")
	soon := expires(1, now+100, "soon")
	c.MustPublish(soon)
	wantList(t, "before it expires", c.Get(`{"kinds":[1]}`).Contents(), "soon")
	c.Req("eph", `{"kinds":[20001]}`)
	c.Publish(expires(20001, now-1, "flash")) // delivered or refused, but answered
	c.Settle()
	r.Ahead(101)
	c.notServed(t, soon)
	want(t, "events left", len(c.Get(`{"kinds":[1]}`).Events), 0)

	again := Start(t, r.Store)
	again.Ahead(101)
	again.Dial(t).notServed(t, soon)
}

// Case 37: protected events.
func case37(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t))
	c := r.Dial(t)
	e := Event(A, T0, 1, []nostr.Tag{{"-"}}, "s")
	c.Publish(e).refused(t, "without AUTH", "auth-required")
	if c.Challenge == "" {
		t.Fatal("auth-required without a challenge")
	}
	c.Auth(C, URL).accepted(t, "AUTH as C")
	c.Publish(e).refused(t, "after AUTH as C", "restricted")
	c.Auth(A, URL).accepted(t, "AUTH as A")
	c.Publish(e).accepted(t, "after AUTH as A")
	tag := []nostr.Tag{{"e", e.ID.String()}}
	c.Publish(Event(C, T0, 6, tag, string(e.JSON()))).refused(t, "a repost with the event inside", "blocked", "invalid")
	c.Publish(Event(C, T0, 16, tag, " "+string(e.JSON()))).refused(t, "a generic repost with the event inside", "blocked", "invalid")
	c.Publish(Event(C, T0, 6, tag, "")).accepted(t, "a repost by reference")
	v, err := r.Publish(context.Background(), []*nostr.Event{Event(B, T0, 1, []nostr.Tag{{"-"}}, "pulled")}, policy.FromSync)
	if err != nil || v[0].OK {
		t.Errorf("a protected event by sync: %+v %v", v, err)
	}
}

// Case 49: every EVENT gets its OK.
func case49(t *testing.T, newStore NewStore) {
	e := Event(A, T0, 1, nil, "hello")
	t.Run("wrong sig and wrong id", func(t *testing.T) {
		c := Start(t, newStore(t)).Dial(t)
		other := Event(A, T0, 1, nil, "other")
		c.publishText(strings.Replace(string(e.JSON()), e.Sig.String(), other.Sig.String(), 1)).refused(t, "wrong sig", "invalid")
		c.publishText(strings.Replace(string(e.JSON()), e.ID.String(), other.ID.String(), 1)).refused(t, "wrong id", "invalid")
		want(t, "events", len(c.Get(`{}`).Events), 0)
	})
	t.Run("duplicate", func(t *testing.T) {
		c := Start(t, newStore(t)).Dial(t)
		c.MustPublish(e)
		ok := c.Publish(e)
		if !ok.OK || ok.prefix() != "duplicate" {
			t.Errorf("a second time: %+v", ok)
		}
	})
	t.Run("rate", func(t *testing.T) { rateOf49(t, newStore) })
	t.Run("read-only store", func(t *testing.T) {
		c := Start(t, readOnly{newStore(t)}).Dial(t)
		c.Publish(e).refused(t, "read-only", "error")
		c.Publish(Event(A, T0, 20001, nil, "")).accepted(t, "ephemeral")
	})
	t.Run("content over the limit", func(t *testing.T) {
		c := Start(t, newStore(t), func(c *relay.Config) { c.Policy = policy.Size{ContentRunes: 4} }).Dial(t)
		c.Publish(e).refused(t, "five characters", "invalid")
		c.Publish(Event(A, T0, 1, nil, "éééé")).accepted(t, "four characters of eight octets")
	})
	t.Run("message over the limit", func(t *testing.T) {
		c := Start(t, newStore(t), func(c *relay.Config) { c.Limits.MaxMessageBytes = 1000 }).Dial(t)
		c.Publish(Event(A, T0, 1, nil, strings.Repeat("x", 1500))).refused(t, "1.5 times the limit", "invalid", "error")
		c.Alive()
		c.Send(string(nostr.AppendPublish(nil, Event(A, T0, 1, nil, strings.Repeat("x", 5000)))))
		want(t, "close code for five times the limit", c.AwaitClose().Code, 1009)
	})
	t.Run("proof of work", func(t *testing.T) {
		for bits, accepted := range map[int]bool{22: false, 20: true} {
			c := Start(t, newStore(t), func(c *relay.Config) { c.Policy = policy.MinPoW{Bits: bits} }).Dial(t)
			ok := c.publishText(mined)
			if ok.OK != accepted || !accepted && ok.prefix() != "pow" {
				t.Errorf("21 bits where %d are asked: %+v", bits, ok)
			}
		}
	})
}

// mined is the sample event of NIP-13, with 21 leading zero bits.
const mined = `{"id":"000006d8c378af1779d2feebc7603a125d99eca0ccf1085959b307f64e5dd358","pubkey":"a48380f4cfcc1ad5378294fcac36439770f9c878dd880ffa94bb74ea54a6f243","created_at":1651794653,"kind":1,"tags":[["nonce","776797","20"]],"content":"It's just me mining my own business","sig":"284622fc0a3f4f1303455d5175f7ba962a3300d136085b9566801bc2e0699de0c7e31e44c81fb40ad9049173742e904713c3594a1da0fc5d2382a25c11aba977"}`

func rateOf49(t *testing.T, newStore NewStore) {
	now := time.Unix(T0, 0)
	c := Start(t, newStore(t), func(c *relay.Config) {
		c.Limits.EventsPerSecond, c.Limits.EventsBurst = 1, 1
		c.Clock = func() time.Time { return now }
	}).Dial(t)
	var frames []string
	var events []*nostr.Event
	for i := range 5 {
		e := Event(A, T0, 1, nil, fmt.Sprint(i))
		events = append(events, e)
		frames = append(frames, string(nostr.AppendPublish(nil, e)))
	}
	c.Send(frames...)
	accepted := 0
	for _, e := range events {
		ok := c.AwaitOK(e.ID.String())
		if ok.OK {
			accepted++
			continue
		}
		ok.refused(t, "over the rate", "rate-limited")
		if !strings.Contains(ok.Reason, "eventsPerSecond is 1 ") || !strings.Contains(ok.Reason, "would have sufficed") {
			t.Errorf("the refusal does not name the knob: %s", ok.Reason)
		}
	}
	want(t, "accepted of five at once", accepted, 1)
}

// readOnly is a store that takes nothing.
type readOnly struct{ store.Store }

func (readOnly) Insert(context.Context, []*nostr.Event, int64) ([]store.Outcome, error) {
	return nil, store.ErrReadOnly
}
