package storetest

import (
	"cmp"
	"context"
	"os"
	"slices"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Full says whether the long runs were asked for.
func Full() bool { return os.Getenv("FLEETMESH_FULL") == "1" }

// Differential loads made-up events and asks the store about random filters; each answer is
// compared with a look at every event. It is 100,000 events and 10,000 filters if FLEETMESH_FULL is
// 1, and less otherwise.
func Differential(t *testing.T, open Opener) {
	events, filters := 20_000, 2_000
	switch {
	case Full():
		events, filters = 100_000, 10_000
	case testing.Short():
		events, filters = 4_000, 400
	}
	w := NewWorld(42, 300, int64(events)/4)
	now := Start + w.Spread
	s := open(t, t.TempDir())
	defer s.Close()
	oracle := store.NewMemory()
	for n := 0; n < events; {
		batch := w.Batch(min(events-n, 1+w.Rand.IntN(900)))
		n += len(batch)
		want, err := oracle.Insert(t.Context(), batch, now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Insert(t.Context(), batch, now)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatal("outcomes differ")
		}
	}
	all := everything(t, oracle, now)
	t.Logf("%d of %d events are in the set", len(all), events)
	for i := range filters {
		f := w.Filter()
		want := brute(all, &f)
		if got := ids(t, s, []nostr.Filter{f}, store.View{}, 0, now); !slices.Equal(got, want) {
			t.Fatalf("filter %d %s: %d events, want %d", i, describe([]nostr.Filter{f}), len(got), len(want))
		}
		if i%100 == 0 {
			Compare(t, s, oracle, []nostr.Filter{f, w.Filter()}, w.View(), 0, now)
		}
	}
	t.Logf("%d filters without a difference", filters)
}

// everything returns the live events, newest first.
func everything(t *testing.T, s store.Store, now int64) []*nostr.Event {
	var all []*nostr.Event
	for e, err := range s.Query(context.Background(), []nostr.Filter{{}}, store.View{}, 0, now) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *nostr.Event) int {
		if c := cmp.Compare(b.CreatedAt, a.CreatedAt); c != 0 {
			return c
		}
		return slices.Compare(a.ID[:], b.ID[:])
	})
	return all
}

func brute(all []*nostr.Event, f *nostr.Filter) []nostr.ID {
	var out []nostr.ID
	terms := store.ParseSearch(f.Search)
	for _, e := range all {
		if f.Limit != nil && len(out) >= *f.Limit {
			break
		}
		if f.Matches(e) && terms.Match(e) {
			out = append(out, e.ID)
		}
	}
	return out
}
