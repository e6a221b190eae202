package store_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

const t0 = 1700000000

func key(t testing.TB, s string) nostr.PubKey {
	t.Helper()
	k, err := nostr.ParsePubKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func people(t testing.TB) (a, b, c nostr.PubKey) {
	return key(t, "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"),
		key(t, "2f8bde4d1a07209355b4a7250a5c5128e88b84bddc619ab7cba8d569b240efe4"),
		key(t, "5cbdf0646e5db4eaa398f365f2ea7a0e3d419b7e0330e39ce92bddedcac4f9bc")
}

// event makes an event with its true id; stores do not look at signatures.
func event(by nostr.PubKey, at int64, kind nostr.Kind, content string, tags ...nostr.Tag) *nostr.Event {
	e := &nostr.Event{PubKey: by, CreatedAt: at, Kind: kind, Tags: tags, Content: content}
	e.ID = e.ComputeID()
	return e
}

func insert(t testing.TB, s store.Store, now int64, want store.Outcome, events ...*nostr.Event) {
	t.Helper()
	out, err := s.Insert(context.Background(), events, now)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if o != want {
			t.Fatalf("event %d (%q): outcome %d, want %d", i, events[i].Content, o, want)
		}
	}
}

// served lists the contents that a filter gives, in order.
func served(t testing.TB, s store.Store, now int64, filter string) []string {
	t.Helper()
	f, err := nostr.ParseFilter([]byte(filter))
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for e, err := range s.Query(context.Background(), []nostr.Filter{f}, store.View{}, 0, now) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Content)
	}
	return out
}

func expect(t testing.TB, s store.Store, now int64, filter string, want ...string) {
	t.Helper()
	if got := served(t, s, now, filter); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		t.Fatalf("%s: got %q, want %q", filter, got, want)
	}
}

func refusedAs(t testing.TB, s store.Store, id nostr.ID, want string) {
	t.Helper()
	r, ok, err := s.Refusal(context.Background(), id)
	if err != nil || !ok || r.Reason != want {
		t.Fatalf("refusal of %s: %+v %v %v, want %q", id, r, ok, err, want)
	}
}

func TestTieBetweenReplaceables(t *testing.T) {
	a, _, _ := people(t)
	first := event(a, t0, 10002, "", nostr.Tag{"r", "wss://a.test/"})
	second := event(a, t0, 10002, "", nostr.Tag{"r", "wss://b.test/"})
	if first.ID.String() != "754c3da23dd8d858685e10ba613968fefd60607abf5150a07c1f56dfd44d37d6" ||
		second.ID.String() != "55364c78e515eb9074d7a45dc15af149fe934a80afbd7aee5445e2e671982cdb" {
		t.Fatal("the ids are not those of the case")
	}
	older := event(a, t0-1, 10002, "old")
	for _, order := range [][]*nostr.Event{{first, second}, {second, first}} {
		for _, size := range []int{1, 2} {
			s := store.NewMemory()
			for batch := range slices.Chunk(order, size) {
				if _, err := s.Insert(t.Context(), batch, t0); err != nil {
					t.Fatal(err)
				}
			}
			insert(t, s, t0, store.Superseded, older)
			refusedAs(t, s, older.ID, store.ReasonSuperseded)
			refusedAs(t, s, first.ID, store.ReasonSuperseded)
			ids, err := s.EnumerateRange(t.Context(), nostr.Filter{}, 0, 1<<40, t0)
			if err != nil || !slices.Equal(ids, []nostr.ID{second.ID}) {
				t.Fatal(ids, err)
			}
		}
	}
}

func TestTieOrderAndLimit(t *testing.T) {
	a, _, _ := people(t)
	s := store.NewMemory()
	for i := range 5 {
		insert(t, s, t0, store.Stored, event(a, t0, 1, strconv.Itoa(i)))
	}
	expect(t, s, t0, `{"kinds":[1],"limit":3}`, "3", "1", "2")
	expect(t, s, t0, `{"kinds":[1]}`, "3", "1", "2", "0", "4")
}

func TestDeletionByAddress(t *testing.T) {
	a, b, _ := people(t)
	const url = "wss://h.test:443/p"
	x := event(a, t0, 30023, "x", nostr.Tag{"d", "x"})
	u := event(a, t0, 30023, "u", nostr.Tag{"d", url})
	note := event(a, t0, 1, "note")
	bx := event(b, t0, 30023, "bx", nostr.Tag{"d", "x"})
	del := event(a, t0+5, 5, "del", nostr.Tag{"a", "30023:" + a.String() + ":x"}, nostr.Tag{"a", "30023:" + a.String() + ":" + url})
	newer := event(a, t0+10, 30023, "newer", nostr.Tag{"d", "x"})
	foreign := event(b, t0+20, 5, "foreign", nostr.Tag{"a", "30023:" + a.String() + ":x"})
	s := store.NewMemory()
	insert(t, s, t0, store.Stored, x, u, note, bx, del, newer)
	insert(t, s, t0, store.Deleted, x)
	insert(t, s, t0, store.Stored, foreign)
	expect(t, s, t0, `{"kinds":[30023]}`, "newer", "bx")
	expect(t, s, t0, `{"kinds":[1]}`, "note")
	expect(t, s, t0, `{"kinds":[5]}`, "foreign", "del")
	refusedAs(t, s, x.ID, store.ReasonDeleted)

	first := store.NewMemory() // the request before its target
	insert(t, first, t0, store.Stored, del)
	insert(t, first, t0, store.Deleted, x, u)
	insert(t, first, t0, store.Stored, newer, bx)
}

func TestDeletionOfDeletion(t *testing.T) {
	a, b, _ := people(t)
	n := event(a, t0, 1, "n")
	d1 := event(a, t0+1, 5, "d1", nostr.Tag{"e", n.ID.String()})
	d2 := event(a, t0+2, 5, "d2", nostr.Tag{"e", d1.ID.String()}, nostr.Tag{"k", "5"})
	s := store.NewMemory()
	insert(t, s, t0, store.Stored, n, d1, d2)
	insert(t, s, t0, store.Deleted, n)
	insert(t, s, t0, store.Duplicate, d1)
	expect(t, s, t0, `{}`, "d2", "d1")
	early := store.NewMemory()
	insert(t, early, t0, store.Stored, d2, d1)
	insert(t, early, t0, store.Deleted, n)

	foreign := event(b, t0+1, 5, "foreign", nostr.Tag{"e", n.ID.String()})
	other := store.NewMemory()
	insert(t, other, t0, store.Stored, foreign, n)
	insert(t, other, t0, store.Stored, d1) // the author's own request binds still
	expect(t, other, t0, `{"kinds":[1]}`)
}

func TestExpiration(t *testing.T) {
	a, _, _ := people(t)
	exp := func(d int64) nostr.Tag { return nostr.Tag{"expiration", strconv.FormatInt(t0+d, 10)} }
	past := event(a, t0, 1, "past", exp(-1))
	soon := event(a, t0, 1, "soon", exp(3))
	s := store.NewMemory()
	insert(t, s, t0, store.Expired, past)
	insert(t, s, t0, store.Stored, soon)
	insert(t, s, t0, store.Ephemeral, event(a, t0, 20001, "", exp(-1)))
	expect(t, s, t0+2, `{}`, "soon")
	expect(t, s, t0+3, `{}`)
	if n, err := s.Count(t.Context(), []nostr.Filter{{}}, store.View{}, t0+3); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	insert(t, s, t0+3, store.Expired, soon)
	refusedAs(t, s, past.ID, store.ReasonExpired)

	// A later version without the tag is not swallowed, and an expired one beats nothing.
	v1 := event(a, t0+1, 0, "v1")
	v2 := event(a, t0+2, 0, "v2", exp(5))
	v3 := event(a, t0+3, 0, "v3")
	s = store.NewMemory()
	insert(t, s, t0, store.Stored, v2)
	insert(t, s, t0+4, store.Superseded, v1)
	insert(t, s, t0+5, store.Stored, v1)
	insert(t, s, t0+5, store.Stored, v3)
	expect(t, s, t0+5, `{"kinds":[0]}`, "v3")
}

func TestVanish(t *testing.T) {
	a, b, c := people(t)
	note := event(a, t0, 1, "note")
	del := event(a, t0, 5, "del", nostr.Tag{"e", note.ID.String()})
	wrap := event(c, t0, 1059, "wrap", nostr.Tag{"p", a.String()})
	late := event(c, t0+12, 1059, "late wrap", nostr.Tag{"p", a.String()})
	other := event(b, t0, 1, "other", nostr.Tag{"p", a.String()})
	elsewhere := event(a, t0+10, 62, "elsewhere", nostr.Tag{"relay", "wss://else.test"})
	here := event(a, t0+10, 62, "here", nostr.Tag{"relay", "WSS://relay.test:7447"})
	newer := event(a, t0+11, 1, "newer")
	s := store.NewMemory(store.WithOwnURLs("wss://relay.test:7447/"))
	insert(t, s, t0, store.Stored, note, wrap, other, late, elsewhere)
	expect(t, s, t0, `{"kinds":[1]}`, "other", "note")
	if n := len(served(t, s, t0, `{}`)); n != 5 {
		t.Fatalf("a request to another relay removed something: %d left", n)
	}
	insert(t, s, t0, store.Stored, here)
	insert(t, s, t0, store.Deleted, note, wrap, del)
	insert(t, s, t0, store.Stored, newer)
	refusedAs(t, s, wrap.ID, store.ReasonDeleted)
	expect(t, s, t0, `{}`, strings.Split("late wrap,newer,here,other", ",")...)
	undo := event(a, t0+20, 5, "undo", nostr.Tag{"e", here.ID.String()})
	insert(t, s, t0, store.Stored, undo)
	insert(t, s, t0, store.Duplicate, here)
	all := store.NewMemory()
	insert(t, all, t0, store.Stored, event(a, t0, 62, "all", nostr.Tag{"relay", "ALL_RELAYS"}))
	insert(t, all, t0, store.Deleted, note)
}

// TestAnyOrder is R2: any permutation in any batching ends in the same set.
func TestAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		events := tangle(t, rng, 50)
		var want []nostr.ID
		for p := range 12 {
			if p > 0 {
				rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			}
			s := store.NewMemory()
			for rest := events; len(rest) > 0; {
				n := 1 + rng.IntN(len(rest))
				if _, err := s.Insert(t.Context(), rest[:n], t0); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			got, err := s.EnumerateRange(t.Context(), nostr.Filter{}, 0, 1<<40, t0)
			if err != nil {
				t.Fatal(err)
			}
			if p == 0 {
				want = got
			} else if !slices.Equal(got, want) {
				t.Fatalf("round %d, permutation %d: %d events, want %d", round, p, len(got), len(want))
			}
		}
	}
}

// tangle makes events that replace, delete and vanish one another.
func tangle(t testing.TB, rng *rand.Rand, n int) []*nostr.Event {
	a, b, c := people(t)
	who := []nostr.PubKey{a, b, c}
	kinds := []nostr.Kind{1, 0, 10002, 30023, 30023, 1059, 20001}
	var out []*nostr.Event
	for len(out) < n {
		by := who[rng.IntN(3)]
		at := t0 + rng.Int64N(8)
		var tags []nostr.Tag
		kind := kinds[rng.IntN(len(kinds))]
		switch p := rng.IntN(100); {
		case p < 25 && len(out) > 0:
			kind = 5
			for range 1 + rng.IntN(3) {
				target := out[rng.IntN(len(out))]
				if addr, ok := target.Address(); ok && rng.IntN(2) == 0 {
					tags = append(tags, nostr.Tag{"a", addr.String()})
				} else {
					tags = append(tags, nostr.Tag{"e", target.ID.String()})
				}
				if rng.IntN(5) > 0 {
					by = target.PubKey
				}
			}
		case p < 28:
			kind, at = 62, at-5
			tags = append(tags, nostr.Tag{"relay", "ALL_RELAYS"})
		default:
			tags = append(tags, nostr.Tag{"d", strconv.Itoa(rng.IntN(2))}, nostr.Tag{"p", who[rng.IntN(3)].String()})
			if rng.IntN(10) == 0 {
				tags = append(tags, nostr.Tag{"expiration", strconv.Itoa(t0 + rng.IntN(3) - 1)})
			}
		}
		out = append(out, event(by, at, kind, strconv.Itoa(rng.IntN(1000)), tags...))
	}
	return out
}

func TestPurgeStaysAway(t *testing.T) {
	a, _, _ := people(t)
	n := event(a, t0, 1, "n")
	v1, v2 := event(a, t0, 0, "v1"), event(a, t0+1, 0, "v2")
	s := store.NewMemory()
	insert(t, s, t0, store.Stored, n, v2)
	got, err := s.Purge(t.Context(), []nostr.ID{n.ID, v2.ID, {1}}, store.ReasonPurged, t0)
	if err != nil || got != 2 {
		t.Fatal(got, err)
	}
	insert(t, s, t0, store.Refused, n, v2)
	insert(t, s, t0, store.Superseded, v1)
	refusedAs(t, s, nostr.ID{1}, store.ReasonPurged)
}

func TestAdvisoryRefusalsAreBounded(t *testing.T) {
	a, _, _ := people(t)
	s := store.NewMemory(store.WithAdvisory(3))
	for i := range 10 {
		insert(t, s, t0, store.Stored, event(a, t0+int64(i), 0, "v"))
	}
	if err := s.Refuse(t.Context(), []store.Refusal{{ID: nostr.ID{9}, Reason: "policy", At: t0}}); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(t.Context())
	if err != nil || st.Refusals != 4 || st.Events != 1 {
		t.Fatalf("%+v %v", st, err)
	}
}

func TestSearchAndView(t *testing.T) {
	a, b, c := people(t)
	s := store.NewMemory()
	insert(t, s, t0, store.Stored,
		event(a, t0, 1, "Best Nostr apps, Zürich"),
		event(a, t0+1, 1, "nostrich", nostr.Tag{"title", "best of"}),
		event(a, t0+2, 1059, "to b", nostr.Tag{"p", b.String()}),
		event(a, t0+3, 1059, "to b and c", nostr.Tag{"p", b.String()}, nostr.Tag{"p", c.String()}),
		event(a, t0+4, 1059, "to nobody"))
	expect(t, s, t0, `{"search":"BEST language:en"}`, "nostrich", "Best Nostr apps, Zürich")
	expect(t, s, t0, `{"search":"zürich best"}`, "Best Nostr apps, Zürich")
	expect(t, s, t0, `{"search":"nost"}`)
	view := store.View{Hide: []nostr.Kind{1059}, Reveal: []nostr.PubKey{b}}
	if n, err := s.Count(t.Context(), []nostr.Filter{{}}, view, t0); n != 3 || err != nil {
		t.Fatal(n, err)
	}
}
