package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"

	"fleetmesh.org/fleetmesh/internal/monitor"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// readBack is how many events of a recount are read and hashed again.
const readBack = 64

// recountStore counts up to most ids of the store again, in a range chosen at random (all if most is negative), compares their fingerprint with that of
// the store's own sums, and reads some of the events back. What it looks at is a frozen set, so nothing that arrives meanwhile matters.
func recountStore(ctx context.Context, s store.Store, most int, now int64) (*monitor.Recount, error) {
	set, release, err := s.Set(ctx, []nostr.Filter{{}}, store.View{}, now)
	if err != nil {
		return nil, err
	}
	defer release()
	lo, hi := 0, set.Len()
	if most > 0 && hi > most {
		lo = rand.IntN(hi - most + 1)
		hi = lo + most
	}
	r := &monitor.Recount{Counted: hi - lo, Of: set.Len()}
	kept := negentropy.RangeFingerprint(set, lo, hi)
	var sum negentropy.Sum
	for i := lo; i < hi; i++ {
		if i%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		id := set.Item(i).ID
		sum.Add(&id)
	}
	anew := negentropy.Fingerprint(sum, hi-lo)
	r.Kept, r.Anew = hex.EncodeToString(kept[:]), hex.EncodeToString(anew[:])
	for range min(readBack, hi-lo) {
		whole, err := sound(ctx, s, set.Item(lo+rand.IntN(hi-lo)).ID, now)
		if err != nil {
			return nil, err
		}
		r.Read++
		if !whole {
			r.Bad++
		}
	}
	return r, nil
}

// sound reads an event of a frozen set and hashes it. One that left the store meanwhile, by a deletion or because it was replaced, is no fault.
func sound(ctx context.Context, s store.Store, id nostr.ID, now int64) (bool, error) {
	e, err := s.Get(ctx, id, now)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil && e.ComputeID() == id, nil
}
