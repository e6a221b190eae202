package relaytest

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

func init() {
	cases["39"] = case39
	cases["40"] = case40
	cases["41"] = case41
	cases["43"] = case43
}

// Case 39: negentropy, exact frames.
func case39(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	n := []*nostr.Event{Event(A, T0, 1, nil, "n0"), Event(A, T0+1, 1, nil, "n1"), Event(A, T0+1, 1, nil, "n2")}
	for i, head := range []string{"2d1fcfcb", "24a1b50f", "ed4c6081"} {
		want(t, "id of the case", n[i].ID.String()[:8], head)
	}
	c.MustPublish(n...)
	const all = "61000002032d1fcfcbfaabf71c100f154f0716a25b520152bec558560c033138f3ca8f848b24a1b50f5b439c17f227639922f2115163ffd4aa28fbaad83af6d33a5d22fb55ed4c6081862ff336c4914ffc6671f54f3ac704a9693b625703d345f829438201"
	for open, answer := range map[string]string{
		"6100000200": all,
		"61000001503d8e35c22381eaca224051d3239a8a": "61",
		"6100000100000000000000000000000000000000": all,
		"6200000200": "61",
		"61":         "61",
	} {
		c.Send(`["NEG-OPEN","n",{"kinds":[1]},"` + open + `"]`)
		m := c.Await(func(m Message) bool { return strings.HasPrefix(m.Label(), "NEG-") })
		if m.Label() != "NEG-MSG" || m.String(1) != "n" || m.String(2) != answer {
			t.Errorf("NEG-OPEN %s: got %v, want NEG-MSG %s", open, m, answer)
		}
	}
	c.Alive()
}

// Case 40: refusals of negentropy name the session and have a code of their own.
func case40(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t), func(c *relay.Config) {
		c.Limits.MaxNegSessions, c.Limits.MaxNegRecords = 2, 2
	})
	c := r.Dial(t)
	c.MustPublish(Event(A, T0, 1, nil, "1"), Event(A, T0, 1, nil, "2"), Event(A, T0, 7, nil, "3"), Event(A, T0, 1, nil, "4"))
	err := func(frame string) Message {
		c.Send(frame)
		return c.Await(func(m Message) bool { return strings.HasPrefix(m.Label(), "NEG-") })
	}
	check := func(what string, m Message, sub string, prefix string) {
		t.Helper()
		if m.Label() != "NEG-ERR" || m.String(1) != sub || !hasPrefix(m.String(2), prefix) {
			t.Errorf("%s: got %v, want NEG-ERR %s %s", what, m, sub, prefix)
		}
	}
	m := err(`["NEG-OPEN","big",{},"6100000200"]`)
	check("too many records", m, "big", "blocked")
	if len(m) != 4 || m[3] != float64(2) {
		t.Errorf("too many records: no maximum as fourth element: %v", m)
	}
	check("bad message", err(`["NEG-OPEN","bad",{"kinds":[7]},"ff"]`), "bad", "invalid")
	check("not hex", err(`["NEG-OPEN","hex",{"kinds":[7]},"zz"]`), "hex", "invalid")
	check("unknown session", err(`["NEG-MSG","never","61"]`), "never", "closed")
	check("private kind", err(`["NEG-OPEN","wrap",{"kinds":[1059]},"6100000200"]`), "wrap", "auth-required")
	want(t, "first session", err(`["NEG-OPEN","s1",{"kinds":[7]},"6100000200"]`).Label(), "NEG-MSG")
	want(t, "second session", err(`["NEG-OPEN","s2",{"kinds":[7]},"6100000200"]`).Label(), "NEG-MSG")
	check("third session", err(`["NEG-OPEN","s3",{"kinds":[7]},"6100000200"]`), "s3", "rate-limited")
	want(t, "the same id again", err(`["NEG-OPEN","s2",{"kinds":[7]},"6100000200"]`).Label(), "NEG-MSG")
	check("garbage within a session", err(`["NEG-MSG","s2","6101"]`), "s2", "invalid")
	check("after the error", err(`["NEG-MSG","s2","61"]`), "s2", "closed")
	c.Send(`["NEG-CLOSE","s1"]`)
	check("after NEG-CLOSE", err(`["NEG-MSG","s1","61"]`), "s1", "closed")
	c.Alive()

	off := Start(t, newStore(t), func(c *relay.Config) { c.Off.Negentropy = true }).Dial(t)
	off.Send(`["NEG-OPEN","off",{},"6100000200"]`)
	check("switched off", off.Next(), "off", "unsupported")
	idle := Start(t, newStore(t), func(c *relay.Config) { c.Limits.NegIdle = time.Millisecond }).Dial(t)
	idle.Send(`["NEG-OPEN","idle",{},"6100000200"]`)
	idle.Next()
	check("idle", idle.Next(), "idle", "closed")
}

// Case 41: a sync that comes to rest. The relay is the peer that answers truthfully; the puller's rules are
// those of any client: it does not fetch what it knows to be refused.
func case41(t *testing.T, newStore NewStore) {
	peer := Start(t, newStore(t))
	refusesKind7 := func(c *relay.Config) { c.Policy = policy.NewKinds(nil, []nostr.Kind{7}) }
	us := Start(t, newStore(t), refusesKind7)
	now := time.Now().Unix()
	v1, v2 := Event(A, T0, 0, nil, "v1"), Event(A, T0+1, 0, nil, "v2")
	expiring := Event(A, T0, 1, []nostr.Tag{{"expiration", fmt.Sprint(now + 100)}}, "expiring")
	unwanted := Event(A, T0, 7, nil, "+")
	peer.Dial(t).MustPublish(v1, expiring, unwanted)
	us.Dial(t).MustPublish(v2)
	us.Ahead(200) // our clock has the event expired, the peer's has not

	for pass, wanted := range []int{3, 0, 0} {
		want(t, fmt.Sprintf("bodies fetched in pass %d", pass+1), pull(t, peer, us), wanted)
	}
	c := us.Dial(t)
	wantList(t, "our kind 0", c.Get(`{"kinds":[0]}`).Contents(), "v2")
	want(t, "our events", len(c.Get(`{}`).Events), 1)
}

// pull reconciles once and fetches what we lack and have not refused. It returns the number of bodies.
func pull(t *testing.T, peer, us *Relay) int {
	t.Helper()
	ctx := context.Background()
	now := time.Now().Unix() + 200
	set, release, err := us.Store.Set(ctx, []nostr.Filter{{}}, store.View{}, now)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	c := peer.Dial(t)
	side := negentropy.NewClient(set, 0)
	c.Send(`["NEG-OPEN","sync",{},"` + hex.EncodeToString(side.Initiate()) + `"]`)
	var fetch []string
	for {
		m := c.Await(func(m Message) bool { return strings.HasPrefix(m.Label(), "NEG-") })
		msg, _ := hex.DecodeString(m.String(2))
		next, _, need, err := side.Reconcile(msg)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range need {
			if _, known, err := us.Store.Refusal(ctx, id); err != nil {
				t.Fatal(err)
			} else if !known {
				fetch = append(fetch, `"`+id.String()+`"`)
			}
		}
		if next == nil {
			break
		}
		c.Send(`["NEG-MSG","sync","` + hex.EncodeToString(next) + `"]`)
	}
	if len(fetch) == 0 {
		return 0
	}
	got := c.Get(`{"ids":[` + strings.Join(fetch, ",") + `]}`).Events
	if _, err := us.Sink(policy.FromSync).Offer(ctx, got); err != nil {
		t.Fatal(err)
	}
	return len(got)
}

// Case 43: COUNT.
func case43(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t))
	c := r.Dial(t)
	c.MustPublish(Event(A, T0, 1, []nostr.Tag{{"t", "x"}}, "1"), Event(A, T0, 1, nil, "2"), Event(B, T0, 7, nil, "3"))
	n, _ := c.Count(q(`{"authors":["%s"]}`, pub(A)), `{"kinds":[1]}`)
	want(t, "two filters", n, 2)
	if n, closed := c.Count(`{"kinds":[]}`); n != 0 && closed == "" {
		t.Errorf("an empty list: %d", n)
	}
	for _, frame := range []string{`["COUNT","bad"]`, `["COUNT","bad",{"kinds":["x"]}]`, `["COUNT","bad",{"nonsense":1}]`} {
		c.Send(frame)
		if m := c.Next(); m.Label() != "CLOSED" || m.String(1) != "bad" || !hasPrefix(m.String(2), "invalid") {
			t.Errorf("%s: got %v", frame, m)
		}
	}
	c.MustPublish(Event(A, T0, 1, nil, "4"))
	wantList(t, "messages afterwards", c.live(c.Settle()))
	off := Start(t, newStore(t), func(c *relay.Config) { c.Off.Count = true }).Dial(t)
	if n, closed := off.Count(`{}`); n >= 0 || !strings.Contains(closed, ": ") {
		t.Errorf("switched off: %d %q", n, closed)
	}

	// The registers of followers, with an offset that follows from the key.
	follow := []nostr.Tag{{"p", pub(B)}}
	c.MustPublish(Event(A, T0, 3, follow, ""), Event(C, T0, 3, follow, ""))
	c.Send(q(`["COUNT","hll",{"kinds":[3],"#p":["%s"]}]`, pub(B)))
	m := c.Await(func(m Message) bool { return m.String(1) == "hll" })
	registers, _ := hex.DecodeString(m[2].(map[string]any)["hll"].(string))
	var wanted nostr.HLL
	for _, k := range []nostr.SecretKey{A, C} {
		wanted.Add(k.PubKey(), 8+int(unhex(pub(B)[32])))
	}
	if !slices.Equal(registers, wanted[:]) {
		t.Errorf("registers: %x", registers)
	}
}

func unhex(c byte) byte {
	return byte(strings.IndexByte("0123456789abcdef", c))
}
