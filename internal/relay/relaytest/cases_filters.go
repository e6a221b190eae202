package relaytest

import (
	"slices"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

func init() {
	cases["13"] = case13
	cases["15"] = case15
	cases["17"] = case17
	cases["19"] = case19
	cases["21"] = case21
	cases["25"] = case25
}

// Case 13: tag values where one is the beginning of the other.
func case13(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	x := Event(A, T0, 1, []nostr.Tag{{"t", "bit"}}, "X")
	y := Event(A, T0, 1, []nostr.Tag{{"t", "bitcoin"}}, "Y")
	z := Event(A, T0, 1, []nostr.Tag{{"t", "bit"}, {"t", "bitcoin"}}, "Z")
	w := Event(A, T0, 1, []nostr.Tag{{"t", "bi"}}, "W")
	c.MustPublish(x, y, z, w)
	wantSet(t, "bit or bitcoin", c.Get(`{"#t":["bit","bitcoin"]}`).Contents(), "X", "Y", "Z")
	wantSet(t, "bitcoin or bit", c.Get(`{"#t":["bitcoin","bit"]}`).Contents(), "X", "Y", "Z")
	wantSet(t, "bit", c.Get(`{"#t":["bit"]}`).Contents(), "X", "Z")

	// The same on the live stream: Z matches twice and comes once.
	c.Req("live", `{"#t":["bit","bitcoin"],"limit":0}`)
	for _, s := range []string{"X2", "Z2", "W2"} {
		tags := map[string][]nostr.Tag{"X2": x.Tags, "Z2": z.Tags, "W2": w.Tags}[s]
		c.MustPublish(Event(A, T0, 1, tags, s))
	}
	wantList(t, "live", c.live(c.Settle()), "live X2", "live Z2")
}

// Case 15: limit 0.
func case15(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	for _, s := range []string{"1", "2", "3"} {
		c.MustPublish(Event(A, T0, 1, nil, s))
	}
	a := c.Req("z", `{"kinds":[1],"limit":0}`)
	want(t, "stored events with limit 0", len(a.Events), 0)
	want(t, "EOSE", a.EOSE, true)
	c.MustPublish(Event(A, T0, 1, nil, "4"))
	wantList(t, "live", c.live(c.Settle()), "z 4")
	if n, closed := c.Count(`{"kinds":[1],"limit":0}`); n != 4 && n != 0 {
		t.Errorf("COUNT with limit 0: %d %q", n, closed)
	}
	c.Alive()
}

// Case 17: since and until.
func case17(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	c.MustPublish(Event(A, T0-1, 1, nil, "before"), Event(A, T0, 1, nil, "at"), Event(A, T0+1, 1, nil, "after"))
	wantList(t, "since = until", c.Get(q(`{"since":%d,"until":%d}`, T0, T0)).Contents(), "at")
	a := c.Req("none", q(`{"since":%d,"until":%d}`, T0+1, T0))
	want(t, "EOSE of an empty range", a.EOSE, true)
	want(t, "events of an empty range", len(a.Events), 0)
	c.Req("l", q(`{"since":%d}`, T0+1))
	c.MustPublish(Event(B, T0, 1, nil, "live at"), Event(B, T0+1, 1, nil, "live after"))
	wantList(t, "live", c.live(c.Settle()), "l live after")
}

// Case 19: empty lists and the empty filter.
func case19(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	for _, s := range []string{"1", "2", "3"} {
		c.MustPublish(Event(A, T0, 1, nil, s))
	}
	for i, f := range []string{`{"kinds":[]}`, `{"ids":[]}`, `{"authors":[]}`, `{"#e":[]}`, `{"kinds":[1],"#t":[]}`} {
		a := c.Req(q("empty%d", i), f)
		if len(a.Events) > 0 || (!a.EOSE && !hasPrefix(a.Closed, "invalid")) {
			t.Errorf("%s: %d events, closed %q", f, len(a.Events), a.Closed)
		}
		if n, _ := c.Count(f); n > 0 {
			t.Errorf("COUNT %s: %d", f, n)
		}
	}
	c.MustPublish(Event(A, T0, 1, nil, "4"))
	wantList(t, "live for empty lists", c.live(c.Settle()))
	want(t, "events of {}", len(c.Get(`{}`).Events), 4)
}

// Case 21: replacing and closing a subscription.
func case21(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	c.Req("a", `{"kinds":[1]}`)
	c.Req("a", `{"kinds":[2]}`)
	c.Req("a", `{"kinds":[3]}`)
	c.Req("b", `{"kinds":[1]}`)
	round := func(s string) []string {
		for _, k := range []nostr.Kind{1, 2, 3} {
			c.MustPublish(Event(A, T0+int64(k), k, nil, s))
			s += "+"
		}
		return c.live(c.Settle())
	}
	wantList(t, "first round", round("x"), "b x", "a x++")
	c.Send(`["CLOSE","a"]`, `["CLOSE","a"]`, `["CLOSE","never"]`)
	wantList(t, "second round", round("y"), "b y")
	c.Alive()

	// Neither may CLOSE overtake REQ when both come in one piece.
	c.Send(`["REQ","c",{"kinds":[1]}]`, `["CLOSE","c"]`, `["REQ","d",{"kinds":[1],"limit":0}]`)
	c.AwaitAnswer("d")
	seen := slices.DeleteFunc(round("z"), func(s string) bool { return s[0] == 'b' })
	wantList(t, "third round", seen, "d z")
}

// Case 25: equal created_at, order and limit.
func case25(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	for _, s := range []string{"0", "1", "2", "3", "4"} {
		c.MustPublish(Event(A, T0, 1, nil, s))
	}
	wantList(t, "limit 3", c.Get(`{"kinds":[1],"limit":3}`).Contents(), "3", "1", "2")
	wantList(t, "no limit", c.Get(`{"kinds":[1]}`).Contents(), "3", "1", "2", "0", "4")
}
