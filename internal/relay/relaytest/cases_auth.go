package relaytest

import (
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/nostr"
)

func init() {
	cases["33"] = case33
	cases["34"] = case34
	cases["35"] = case35
	cases["36"] = case36
}

// Case 33: the relay tag of AUTH.
func case33(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t))
	for _, tag := range []string{"wss://relay.test:7447/", "wss://relay.test:7447", "WSS://Relay.Test:7447"} {
		r.Dial(t).Auth(A, tag).accepted(t, tag)
	}
	r.Dial(t).Auth(A, "wss://relay.test:7447/?x=1") // either, but answered
	for _, tag := range []string{"wss://relay.test/", "wss://evil.test:7447/", "wss://relay.test.evil.test:7447/", "", "not a url"} {
		r.Dial(t).Auth(A, tag).refused(t, "relay tag "+tag, "invalid", "restricted")
	}
	Dial(t, r.Addr, "/inbox").Auth(A, "wss://relay.test:7447/inbox").accepted(t, "the path of the connection")
	second := Start(t, newStore(t), func(c *relay.Config) { c.PublicURLs = []string{"wss://other.test/", "wss://relay.test/"} })
	second.Dial(t).Auth(A, "wss://relay.test:443").accepted(t, "the default port spelled out")
	none := Start(t, newStore(t), func(c *relay.Config) { c.PublicURLs = nil })
	none.Dial(t).Auth(A, "ws://"+none.Addr).accepted(t, "the address itself, where none is declared")
	Dial(t, none.Addr, "/", "X-Forwarded-Host: evil.test").Auth(A, "ws://evil.test").refused(t, "a forwarded host", "invalid")
	want(t, "mismatches counted", r.Metrics().WrongURL, 4)
}

// Case 34: every AUTH gets an OK, all keys count, and the time may be off ten minutes either way.
func case34(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t))
	c := r.Dial(t)
	c.AwaitChallenge()
	auth := func(k nostr.SecretKey, at int64, kind nostr.Kind, challenge string) OK {
		e := Event(k, at, kind, []nostr.Tag{{"relay", URL}, {"challenge", challenge}}, "")
		c.Send(string(nostr.AppendAuthEvent(nil, e)))
		return c.AwaitOK(e.ID.String())
	}
	now := time.Now().Unix()
	auth(A, now-700, 22242, c.Challenge).refused(t, "700 s ago", "invalid")
	auth(A, now+700, 22242, c.Challenge).refused(t, "in 700 s", "invalid")
	auth(A, now, 22242, "wrong").refused(t, "another challenge", "invalid")
	auth(A, now, 1, c.Challenge).refused(t, "kind 1", "invalid")
	auth(A, now-500, 22242, c.Challenge).accepted(t, "500 s ago")
	auth(B, now+500, 22242, c.Challenge).accepted(t, "in 500 s")
	auth(A, now, 22242, c.Challenge).accepted(t, "a second time")
	for _, k := range []nostr.SecretKey{A, B} {
		c.Publish(Event(k, T0, 1, []nostr.Tag{{"-"}}, "mine")).accepted(t, "protected, with one of two keys")
	}
	c.Publish(Event(A, now, 22242, []nostr.Tag{{"relay", URL}, {"challenge", "x"}}, "")).refused(t, "kind 22242 as an EVENT", "invalid")
	want(t, "kind 22242 served", len(c.Get(`{"kinds":[22242]}`).Events), 0)
	other := r.Dial(t)
	other.AwaitChallenge()
	if other.Challenge == c.Challenge {
		t.Error("two connections got the same challenge")
	}
}

func wrapFor(k nostr.SecretKey, content string, more ...nostr.Tag) *nostr.Event {
	tags := append([]nostr.Tag{{"p", pub(k)}}, more...)
	return Event(C, T0, 1059, tags, content)
}

// Case 35: gift wraps to the recipient only.
func case35(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t))
	writer := r.Dial(t)
	w := wrapFor(B, "w")
	writer.MustPublish(w)
	filter := q(`{"kinds":[1059],"#p":["%s"]}`, pub(B))

	stranger := r.Dial(t)
	if a := stranger.Req("s", filter); !hasPrefix(a.Closed, "auth-required") || len(a.Events) > 0 || stranger.Challenge == "" {
		t.Errorf("stranger: %+v, challenge %q", a, stranger.Challenge)
	}
	stranger.Auth(C, URL).accepted(t, "AUTH as C")
	if a := stranger.Req("s", filter); len(a.Events) > 0 || (!a.EOSE && !hasPrefix(a.Closed, "restricted")) {
		t.Errorf("C: %+v", a)
	}
	stranger.Req("all", `{"kinds":[1059]}`)
	stranger.Req("any", `{}`)

	b := r.Dial(t)
	b.Auth(B, URL).accepted(t, "AUTH as B")
	a := b.Req("b", filter)
	wantList(t, "B's wraps", a.IDs(), w.ID.String())
	want(t, "EOSE", a.EOSE, true)
	writer.MustPublish(wrapFor(B, "second"), Event(C, T0, 21059, []nostr.Tag{{"p", pub(B)}}, "fleeting"))
	b.Req("e", q(`{"kinds":[21059],"#p":["%s"]}`, pub(B)))
	writer.MustPublish(Event(C, T0+1, 21059, []nostr.Tag{{"p", pub(B)}}, "fleeting too"))
	wantList(t, "B live", b.live(b.Settle()), "b second", "e fleeting too")
	wantList(t, "C live", stranger.live(stranger.Settle()))
}

// Case 36: a stranger finds no byte of a wrap by any of the doors: REQ by every kind of filter, live stream, COUNT, HLL,
// NEG and search; and neither does one of two recipients.
func case36(t *testing.T, newStore NewStore) {
	const secret = "confidential"
	for name, tags := range map[string][]nostr.Tag{"one recipient": nil, "two recipients": {{"p", pub(A)}}, "no recipient": nil} {
		t.Run(name, func(t *testing.T) {
			r := Start(t, newStore(t))
			writer := r.Dial(t)
			make := func(s string) *nostr.Event {
				e := wrapFor(B, secret+" "+s, append(tags, nostr.Tag{"t", "topic"})...)
				if name == "no recipient" {
					e = Event(C, T0, 1059, []nostr.Tag{{"t", "topic"}}, secret+" "+s)
				}
				return e
			}
			w := make("stored")
			writer.MustPublish(w, Event(A, T0, 1, nil, "public"))
			for reader, key := range map[string]*nostr.SecretKey{"stranger": nil, "A": &A} {
				c := r.Dial(t)
				c.Alive()
				if key != nil {
					c.Auth(*key, URL).accepted(t, "AUTH")
				}
				c.Req("live", `{}`)
				c.Req("live2", q(`{"ids":["%s"]}`, w.ID), `{"#t":["topic"]}`)
				writer.MustPublish(make("live for " + reader))
				for _, m := range c.Settle() {
					if strings.Contains(q("%v", m), secret) {
						t.Errorf("%s: live stream: %v", reader, m)
					}
				}
				c.sixDoors(t, reader, w)
			}
		})
	}
}

func (c *Client) sixDoors(t *testing.T, reader string, w *nostr.Event) {
	t.Helper()
	c.notServed(t, w)
	for _, f := range []string{`{}`, `{"search":"confidential"}`, `{"#t":["topic"]}`, q(`{"#p":["%s"]}`, pub(B)), `{"kinds":[1059,1]}`} {
		for _, e := range c.Get(f).Events {
			if e.Kind == 1059 {
				t.Errorf("%s: REQ %s serves a wrap", reader, f)
			}
		}
		if n, _ := c.Count(f); n > 1 {
			t.Errorf("%s: COUNT %s: %d", reader, f, n)
		}
		if got := c.NegIDs(f); strings.Contains(got, w.ID.String()) {
			t.Errorf("%s: NEG %s lists the wrap", reader, f)
		}
	}
	c.Send(q(`["COUNT","hll",{"#p":["%s"]}]`, pub(B)))
	m := c.Await(func(m Message) bool { return m.String(1) == "hll" })
	if m.Label() == "COUNT" {
		hll, _ := m[2].(map[string]any)["hll"].(string)
		if strings.Trim(hll, "0") != "" {
			t.Errorf("%s: the registers tell of a wrap: %s", reader, hll)
		}
	}
}
