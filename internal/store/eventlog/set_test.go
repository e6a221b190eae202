package eventlog

import (
	"context"
	"math/rand/v2"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// A set answers the same whatever was asked before: it searches from what it found last.
func TestSetAnyOrder(t *testing.T) {
	s, err := Open(t.TempDir(), Options{NoSync: true, headDocs: 150})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := newSample(9)
	var ids []nostr.ID
	for range 7 {
		var batch []*nostr.Event
		for range 400 {
			batch = append(batch, w.event())
			ids = append(ids, batch[len(batch)-1].ID)
		}
		if _, err := s.Insert(context.Background(), batch, 1_700_000_000); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range ids { // a whole stretch, and some of the rest
		if i > 900 && i < 1100 || rng.IntN(9) == 0 {
			if _, err := s.Purge(context.Background(), ids[i:i+1], "purged", 1_700_000_000); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range []nostr.Filter{{}, {Kinds: []nostr.Kind{1, 7}}} {
		got, release, err := s.Set(context.Background(), []nostr.Filter{f}, store.View{}, 1_700_000_000)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if n := len(got.(*set).slices); n < 2 {
			t.Fatalf("%d slices", n)
		}
		var items []negentropy.Item
		for e, err := range s.Query(context.Background(), []nostr.Filter{f}, store.View{}, 0, 1_700_000_000) {
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, negentropy.Item{Time: uint64(e.CreatedAt), ID: e.ID})
		}
		want := negentropy.NewVector(items)
		n := want.Len()
		if got.Len() != n {
			t.Fatalf("%d items, want %d", got.Len(), n)
		}
		at := 0
		for range 30_000 {
			switch rng.IntN(4) { // mostly onwards, as a session goes
			case 0:
				at = rng.IntN(n)
			case 1:
				at = min(n-1, at+1)
			default:
				at = min(n-1, at+rng.IntN(40))
			}
			switch rng.IntN(3) {
			case 0:
				if a, b := got.Item(at), want.Item(at); a != b {
					t.Fatalf("item %d: %v, want %v", at, a, b)
				}
			case 1:
				b := want.Item(at)
				if rng.IntN(2) == 0 {
					b.ID[0] ^= byte(1 + rng.IntN(255))
				}
				if a, b := got.Search(b), want.Search(b); a != b {
					t.Fatalf("search: %d, want %d", a, b)
				}
			default:
				hi := min(n, at+rng.IntN(n/4))
				if a, b := got.Sum(at, hi), want.Sum(at, hi); a != b {
					t.Fatalf("sum %d to %d: %v, want %v", at, hi, a, b)
				}
			}
		}
	}
}
