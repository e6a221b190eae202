package gateway

import (
	"context"
	"errors"
	"fmt"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// pageWindow syncs a window without NIP-77: it reads everything the relay has, hands in what is new, and offers
// what did not come. It costs every body, every time.
func (r *syncRun) pageWindow(ctx context.Context, conn *Conn, w window) error {
	f := w.narrow(r.Filter)
	r.count(func(p *Report) { p.method("paging") })
	theirs := map[nostr.ID]struct{}{}
	readable := true
	err := r.readAll(ctx, conn, f, theirs)
	var closed *ClosedError
	switch {
	case errors.Is(err, ErrIncomplete):
		r.lacking = true
	case errors.As(err, &closed) && r.Direction == Push:
		readable, r.blind = false, true // it may take events all the same; those it has it will call duplicates
	case errors.As(err, &closed):
		return refusal(closed.Reason)
	case err != nil:
		return err
	}
	if r.Direction&Push == 0 {
		return nil
	}
	have, err := r.lackedBy(ctx, f, theirs, readable)
	if err != nil {
		return err
	}
	if have = r.offers(have); len(have) == 0 {
		return nil
	}
	return r.transfer(ctx, conn, have, nil)
}

func (r *syncRun) readAll(ctx context.Context, conn *Conn, f nostr.Filter, theirs map[nostr.ID]struct{}) error {
	var fresh []*nostr.Event
	hand := func() error {
		err := r.handIn(ctx, fresh)
		fresh = nil
		return err
	}
	for e, err := range conn.Query(ctx, f) {
		if err != nil {
			if herr := hand(); herr != nil {
				return herr
			}
			return err
		}
		theirs[e.ID] = struct{}{}
		if r.Direction&Pull == 0 {
			r.count(func(p *Report) { p.Bodies++ })
			continue
		}
		need, err := r.wanted(ctx, []nostr.ID{e.ID})
		if err != nil {
			return err
		}
		if len(need) == 0 {
			r.count(func(p *Report) { p.Bodies++ })
			continue
		}
		if fresh = append(fresh, e); len(fresh) >= r.Batch {
			if err := hand(); err != nil {
				return err
			}
		}
	}
	return hand()
}

// lackedBy lists what we hold and the relay did not show.
func (r *syncRun) lackedBy(ctx context.Context, f nostr.Filter, theirs map[nostr.ID]struct{}, readable bool) ([]nostr.ID, error) {
	set, release, err := r.local.Set(ctx, []nostr.Filter{f}, store.View{}, r.now())
	if err != nil {
		return nil, fmt.Errorf("%w: freeze the set: %w", ErrLocal, err)
	}
	defer release()
	var have []nostr.ID
	for i := range set.Len() {
		id := set.Item(i).ID
		if _, ok := theirs[id]; !ok || !readable {
			have = append(have, id)
		}
	}
	return have, nil
}
