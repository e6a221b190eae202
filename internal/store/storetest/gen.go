package storetest

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Start is the time at which made-up worlds begin.
const Start = 1_700_000_000

// World makes up events and filters that have something to do with one another. The same seed
// makes the same world. Events carry their true id and no signature: stores do not look at it.
type World struct {
	Rand   *rand.Rand
	People []nostr.PubKey
	Past   []*nostr.Event // a sample of what was made, to refer to
	Spread int64          // seconds over which created_at is spread
}

// NewWorld makes a world of so many authors.
func NewWorld(seed uint64, people int, spread int64) *World {
	w := &World{Rand: rand.New(rand.NewPCG(seed, 0x6d657368)), Spread: spread}
	for range people {
		var k nostr.PubKey
		for i := range k {
			k[i] = byte(w.Rand.Uint32())
		}
		w.People = append(w.People, k)
	}
	return w
}

var (
	kinds   = []nostr.Kind{1, 1, 1, 1, 7, 7, 6, 0, 3, 10002, 30023, 30023, 1059, 4, 20001}
	topics  = []string{"bit", "bitcoin", "bi", "nostr", "art", "a:b", "", "caffè"}
	letters = []string{"t", "e", "p", "r", "x", "T"}
	lexicon = strings.Fields("relay mesh note Bitcoin coffee zap Zürich 日本 night build test of the and or not")
)

// person picks an author, some much more often than others.
func (w *World) person() nostr.PubKey {
	n := len(w.People)
	return w.People[min(w.Rand.IntN(n), w.Rand.IntN(n))]
}

// Event makes an event up.
func (w *World) Event() *nostr.Event {
	e := &nostr.Event{
		PubKey:    w.person(),
		CreatedAt: Start + w.Rand.Int64N(w.Spread),
		Kind:      kinds[w.Rand.IntN(len(kinds))],
	}
	switch p := w.Rand.IntN(1000); {
	case p < 60 && len(w.Past) > 0:
		w.deletion(e)
	case p < 62:
		e.Kind = 62
		e.CreatedAt -= w.Spread * 3 / 4
		e.Tags = []nostr.Tag{{"relay", []string{"ALL_RELAYS", "wss://elsewhere.test"}[w.Rand.IntN(2)]}}
	default:
		w.tags(e)
	}
	words := make([]string, w.Rand.IntN(6))
	for i := range words {
		words[i] = lexicon[w.Rand.IntN(len(lexicon))]
	}
	e.Content = strings.Join(words, " ") + " " + strconv.Itoa(w.Rand.IntN(1e6))
	e.ID = e.ComputeID()
	if len(w.Past) < 4096 {
		w.Past = append(w.Past, e)
	} else {
		w.Past[w.Rand.IntN(len(w.Past))] = e
	}
	return e
}

func (w *World) past() *nostr.Event { return w.Past[w.Rand.IntN(len(w.Past))] }

func (w *World) deletion(e *nostr.Event) {
	e.Kind = 5
	for range 1 + w.Rand.IntN(3) {
		target := w.past()
		if w.Rand.IntN(5) > 0 {
			e.PubKey = target.PubKey
		}
		if a, ok := target.Address(); ok && w.Rand.IntN(2) == 0 {
			e.Tags = append(e.Tags, nostr.Tag{"a", a.String()})
		} else {
			e.Tags = append(e.Tags, nostr.Tag{"e", target.ID.String()})
		}
	}
}

func (w *World) tags(e *nostr.Event) {
	if e.Kind == 30023 {
		e.Tags = append(e.Tags, nostr.Tag{"d", topics[w.Rand.IntN(4)]})
	}
	for range w.Rand.IntN(4) {
		e.Tags = append(e.Tags, w.tag())
	}
	if w.Rand.IntN(25) == 0 {
		e.Tags = append(e.Tags, nostr.Tag{"expiration", strconv.FormatInt(Start+w.Rand.Int64N(2*w.Spread), 10)})
	}
}

func (w *World) tag() nostr.Tag {
	switch l := letters[w.Rand.IntN(len(letters))]; {
	case l == "p":
		return nostr.Tag{l, w.person().String()}
	case l == "e" && len(w.Past) > 0:
		return nostr.Tag{l, w.past().ID.String(), "wss://hint.test"}
	case w.Rand.IntN(40) == 0:
		return nostr.Tag{l} // without a value
	default:
		return nostr.Tag{l, topics[w.Rand.IntN(len(topics))]}
	}
}

// Batch makes up so many events, some of them twice.
func (w *World) Batch(n int) []*nostr.Event {
	out := make([]*nostr.Event, n)
	for i := range out {
		if len(w.Past) > 0 && w.Rand.IntN(12) == 0 {
			out[i] = w.past()
		} else {
			out[i] = w.Event()
		}
	}
	return out
}

func some[T any](w *World, most int, pick func() T) []T {
	out := make([]T, 1+w.Rand.IntN(most))
	for i := range out {
		out[i] = pick()
	}
	return out
}

// Filter makes a filter up.
func (w *World) Filter() nostr.Filter {
	var f nostr.Filter
	if w.Rand.IntN(12) == 0 && len(w.Past) > 0 {
		f.IDs = some(w, 5, func() nostr.ID { return w.past().ID })
	}
	if w.Rand.IntN(3) == 0 {
		f.Authors = some(w, []int{1, 3, 40}[w.Rand.IntN(3)], w.person)
	}
	if w.Rand.IntN(2) == 0 {
		f.Kinds = some(w, 3, func() nostr.Kind { return kinds[w.Rand.IntN(len(kinds))] })
	}
	for range max(0, w.Rand.IntN(5)-2) {
		t := w.tag()
		for len(t) < 2 {
			t = w.tag()
		}
		f.Tags = append(f.Tags, nostr.TagFilter{Letter: t[0][0], Values: []string{t[1]}})
		if w.Rand.IntN(2) == 0 {
			last := &f.Tags[len(f.Tags)-1]
			last.Values = append(last.Values, topics[w.Rand.IntN(len(topics))])
		}
	}
	if w.Rand.IntN(3) == 0 {
		v := Start + w.Rand.Int64N(w.Spread)
		f.Since = &v
	}
	if w.Rand.IntN(3) == 0 {
		v := Start + w.Rand.Int64N(w.Spread)
		f.Until = &v
	}
	if w.Rand.IntN(4) > 0 {
		v := w.Rand.IntN(30)
		f.Limit = &v
	}
	if w.Rand.IntN(15) == 0 {
		f.Search = lexicon[w.Rand.IntN(len(lexicon))]
		if w.Rand.IntN(3) == 0 { // a second word, and an extension that nobody knows
			f.Search = strings.ToUpper(f.Search) + ", " + lexicon[w.Rand.IntN(len(lexicon))] + " sort:new"
		}
	}
	if w.Rand.IntN(60) == 0 {
		f.Kinds = []nostr.Kind{}
	}
	return f
}

// View makes a view up; most hide nothing.
func (w *World) View() store.View {
	switch w.Rand.IntN(4) {
	case 0:
		return store.View{Hide: []nostr.Kind{1059, 4}}
	case 1:
		return store.View{Hide: []nostr.Kind{1059, 4, 7}, Reveal: some(w, 3, w.person)}
	}
	return store.View{}
}
