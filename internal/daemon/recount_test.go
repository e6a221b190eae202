package daemon

import (
	"context"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// wrongSums is a store whose sums are not those of its ids, as after a fault in memory or on disk.
type wrongSums struct{ store.Store }

type wrongSet struct{ negentropy.Set }

func (w wrongSet) Sum(lo, hi int) negentropy.Sum {
	id := nostr.ID{1}
	return w.Set.Sum(lo, hi).Plus(negentropy.SumOf(&id))
}

func (w wrongSums) Set(ctx context.Context, f []nostr.Filter, v store.View, now int64) (negentropy.Set, func(), error) {
	s, release, err := w.Store.Set(ctx, f, v, now)
	return wrongSet{s}, release, err
}

func TestRecountFindsWhatDoesNotFit(t *testing.T) {
	s := store.NewMemory()
	now := time.Now().Unix()
	var key nostr.SecretKey
	key[0] = 7
	for i := range int64(200) {
		e := &nostr.Event{Kind: 1, CreatedAt: now - i}
		if err := e.Sign(key); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Insert(t.Context(), []*nostr.Event{e}, now); err != nil {
			t.Fatal(err)
		}
	}
	for _, most := range []int{-1, 1, 50, 200, 1000} {
		r, err := recountStore(t.Context(), s, most, now)
		if err != nil || r.Kept != r.Anew || r.Bad != 0 || r.Of != 200 || (most > 0 && r.Counted != min(most, 200)) || r.Read == 0 {
			t.Errorf("%d of 200: %+v, %v", most, r, err)
		}
		r, err = recountStore(t.Context(), wrongSums{s}, most, now)
		if err != nil || r.Kept == r.Anew {
			t.Errorf("%d of 200 with wrong sums: %+v, %v", most, r, err)
		}
	}
	if r, err := recountStore(t.Context(), store.NewMemory(), -1, now); err != nil || r.Counted != 0 || r.Kept != r.Anew {
		t.Errorf("an empty store: %+v, %v", r, err)
	}
}
