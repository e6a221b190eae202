package relay

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// collector notes what it is told.
type collector struct{ got []*nostr.Event }

func (c *collector) deliver(p *parcel) { c.got = append(c.got, p.event) }

func randomKey(rng *rand.Rand, n int) (k [32]byte) {
	k[0], k[31] = byte(rng.IntN(n)), 1
	return k
}

func randomEvent(rng *rand.Rand) *nostr.Event {
	e := &nostr.Event{ID: randomKey(rng, 40), PubKey: randomKey(rng, 6), Kind: nostr.Kind(rng.IntN(5)), CreatedAt: int64(rng.IntN(20))}
	for range rng.IntN(4) {
		e.Tags = append(e.Tags, nostr.Tag{string(rune('p' + rng.IntN(3))), fmt.Sprint(rng.IntN(5))})
	}
	if rng.IntN(5) == 0 {
		e.Tags = append(e.Tags, nostr.Tag{"p"}, nostr.Tag{"long", "1"})
	}
	return e
}

func randomFilter(rng *rand.Rand) (f nostr.Filter) {
	if rng.IntN(8) == 0 {
		f.IDs = []nostr.ID{}
		for range rng.IntN(4) {
			f.IDs = append(f.IDs, randomKey(rng, 40))
		}
	}
	if rng.IntN(3) == 0 {
		f.Authors = []nostr.PubKey{}
		for range rng.IntN(4) {
			f.Authors = append(f.Authors, randomKey(rng, 6))
		}
	}
	if rng.IntN(2) == 0 {
		for range 1 + rng.IntN(3) {
			f.Kinds = append(f.Kinds, nostr.Kind(rng.IntN(5)))
		}
	}
	for _, letter := range "pqr" {
		if rng.IntN(4) == 0 {
			t := nostr.TagFilter{Letter: byte(letter)}
			for range rng.IntN(4) {
				t.Values = append(t.Values, fmt.Sprint(rng.IntN(5)))
			}
			f.Tags = append(f.Tags, t)
		}
	}
	if rng.IntN(4) == 0 {
		since := int64(rng.IntN(20))
		f.Since = &since
	}
	if rng.IntN(4) == 0 {
		until := int64(rng.IntN(20))
		f.Until = &until
	}
	return f
}

// TestIndexAgainstBruteForce compares what the index delivers with a look at every filter, while
// registrations come and go.
func TestIndexAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var x index
	x.init()
	type member struct {
		c       *collector
		filters []nostr.Filter
		reg     *registration
	}
	var members []*member
	delivered := 0
	for number := uint64(1); number <= 20000; number++ {
		switch {
		case len(members) < 200 && rng.IntN(4) == 0:
			m := &member{c: &collector{}}
			for range 1 + rng.IntN(3) {
				m.filters = append(m.filters, randomFilter(rng))
			}
			m.reg = register(m.c, m.filters)
			x.add(m.reg)
			members = append(members, m)
		case len(members) > 0 && rng.IntN(6) == 0:
			i := rng.IntN(len(members))
			x.remove(members[i].reg)
			x.remove(members[i].reg)
			members[i] = members[len(members)-1]
			members = members[:len(members)-1]
		}
		e := randomEvent(rng)
		x.match(&parcel{event: e, batch: 1}, number)
		for _, m := range members {
			wanted := 0
			for i := range m.filters {
				if m.filters[i].Matches(e) {
					wanted = 1
				}
			}
			if len(m.c.got) != wanted {
				t.Fatalf("event %d: delivered %d times, want %d; filters %+v, event %+v", number, len(m.c.got), wanted, m.filters, e)
			}
			delivered += wanted
			m.c.got = m.c.got[:0]
		}
	}
	t.Logf("%d deliveries compared", delivered)
	for _, m := range members {
		x.remove(m.reg)
	}
	if n := len(x.ids) + len(x.authors) + len(x.authorKinds) + len(x.kinds) + len(x.tags) + len(x.rest); n != 0 {
		t.Errorf("an empty index holds %d lists", n)
	}
}

// BenchmarkFanOut measures what one event costs in the index beside many subscriptions of which 10 match.
func BenchmarkFanOut(b *testing.B) {
	for _, subs := range []int{10, 1000, 100_000} {
		for name, filter := range map[string]func(i int) nostr.Filter{
			"author": func(i int) nostr.Filter {
				return nostr.Filter{Authors: []nostr.PubKey{{byte(i), byte(i >> 8), byte(i >> 16)}}, Kinds: []nostr.Kind{1}}
			},
			"tag": func(i int) nostr.Filter {
				return nostr.Filter{Tags: []nostr.TagFilter{{Letter: 't', Values: []string{fmt.Sprint(i)}}}}
			},
			"id": func(i int) nostr.Filter { return nostr.Filter{IDs: []nostr.ID{{byte(i), byte(i >> 8), byte(i >> 16)}}} },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, subs), func(b *testing.B) {
				var x index
				x.init()
				c := &counter{}
				for i := range subs {
					x.add(register(c, []nostr.Filter{filter(i / 10)}))
				}
				e := &nostr.Event{Kind: 1, Tags: []nostr.Tag{{"t", "0"}, {"e", "x"}, {"p", "y"}}}
				number := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					number++
					x.match(&parcel{event: e, batch: 1}, number)
				}
				b.ReportMetric(float64(c.n)/float64(number), "deliveries/op")
			})
		}
	}
}

type counter struct{ n int }

func (c *counter) deliver(*parcel) { c.n++ }
