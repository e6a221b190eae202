package nostr

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A Matcher agrees with its filter, on lists of every length around the one
// where it changes its way.
func TestMatcherAgreesWithFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	key := func() [32]byte { return [32]byte{byte(rng.IntN(60))} }
	matched := 0
	for range 20000 {
		var f Filter
		n := func() int { return []int{0, 1, 3, longList - 1, longList, 100}[rng.IntN(6)] }
		if rng.IntN(3) == 0 {
			f.IDs = []ID{}
			for range n() {
				f.IDs = append(f.IDs, key())
			}
		}
		if rng.IntN(3) == 0 {
			f.Authors = []PubKey{}
			for range n() {
				f.Authors = append(f.Authors, key())
			}
		}
		if rng.IntN(3) == 0 {
			f.Kinds = []Kind{}
			for range n() {
				f.Kinds = append(f.Kinds, Kind(rng.IntN(60)))
			}
		}
		for range rng.IntN(3) {
			tag := TagFilter{Letter: "et"[rng.IntN(2)]}
			for range n() {
				tag.Values = append(tag.Values, fmt.Sprint(rng.IntN(60)))
			}
			f.Tags = append(f.Tags, tag)
		}
		since := int64(rng.IntN(4))
		f.Since = &since
		m := NewMatcher(f)
		for range 10 {
			e := &Event{ID: key(), PubKey: key(), Kind: Kind(rng.IntN(60)), CreatedAt: int64(rng.IntN(6))}
			for range rng.IntN(4) {
				e.Tags = append(e.Tags, []Tag{{"e", fmt.Sprint(rng.IntN(60))}, {"t", fmt.Sprint(rng.IntN(60))}, {"t"}, {"et", "1"}}[rng.IntN(4)])
			}
			want := f.Matches(e)
			if got := m.Matches(e); got != want {
				t.Fatalf("%s: %v, want %v, on %s", f.AppendJSON(nil), got, want, e.JSON())
			}
			if want {
				matched++
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d matches", matched)
	}
}
