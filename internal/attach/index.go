package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// index is what the relay holds of one filter, an item an event and no bodies: it is read once, and then kept up by NIP-77 sessions that cost
// next to nothing where nothing has changed.
type index struct {
	key    string
	filter nostr.Filter
	view   store.View

	refresh sync.Mutex // one at a time

	mu    sync.Mutex
	items map[nostr.ID]entry
	whole bool // it was filled
	short bool // the relay's sessions do not show all that it holds
}

// entry is one event.
type entry struct {
	created int64
	expires int64 // 0: never
	out     bool  // the relay holds it and nobody may see it here: it does not prove itself, or the view hides it
}

func (x *index) drop(id nostr.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.items, id)
}

func (x *index) size() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.items)
}

func (x *index) holds(id nostr.ID, now int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok := x.items[id]
	return ok && !v.out && (v.expires == 0 || v.expires > now)
}

// add takes note of an event that the relay holds.
func (x *index) add(e *nostr.Event, stays bool) {
	if !x.filter.Matches(e) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	v := entry{created: e.CreatedAt, out: stays || !x.view.Allows(e)}
	if at, ok := e.Expiration(); ok {
		v.expires = at
	}
	x.items[e.ID] = v
}

// seen adds an event to every index that it belongs to.
func (s *Store) seen(e *nostr.Event) {
	s.mu.Lock()
	list := slices.Clone(s.indexes)
	s.mu.Unlock()
	for _, x := range list {
		x.add(e, s.stays(e))
	}
}

// all is everything the index has, as the relay would count it.
func (x *index) all() *negentropy.Vector {
	x.mu.Lock()
	defer x.mu.Unlock()
	items := make([]negentropy.Item, 0, len(x.items))
	for id, v := range x.items {
		items = append(items, negentropy.Item{Time: uint64(v.created), ID: id})
	}
	return negentropy.NewVector(items)
}

// index returns the index of a filter, making it if need be. The one that was not used for longest goes.
func (s *Store) index(f nostr.Filter, view store.View) (*index, error) {
	f.Limit = nil
	text, err := json.Marshal([]any{f, view})
	if err != nil {
		return nil, fmt.Errorf("name a filter: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.indexes, func(x *index) bool { return x.key == string(text) })
	x := &index{key: string(text), filter: f, view: view, items: map[nostr.ID]entry{}}
	switch {
	case i >= 0:
		x = s.indexes[i]
		s.indexes = slices.Delete(s.indexes, i, i+1)
	case len(s.indexes) >= maxIndexes:
		s.indexes = slices.Delete(s.indexes, 0, 1)
	}
	s.indexes = append(s.indexes, x)
	return x, nil
}

// negFrame bounds the messages of the sessions with the relay, in octets before hex.
const negFrame = 60_000

// bring makes an index agree with the relay. The first time it reads everything, page by page: some relays show a session only the newest part of
// what they hold. Later it asks by NIP-77 what has changed, or reads again where the relay refuses that.
func (s *Store) bring(ctx context.Context, x *index) error {
	x.refresh.Lock()
	defer x.refresh.Unlock()
	if !x.whole {
		err := s.on(ctx, func(ctx context.Context, c *gateway.Conn) error { return s.reread(ctx, c, x) })
		x.whole = err == nil
		return err
	}
	return s.on(ctx, func(ctx context.Context, c *gateway.Conn) error {
		var gone, fresh []nostr.ID
		_, err := c.Reconcile(ctx, x.filter, x.all(), negFrame, func(have, need []nostr.ID) (bool, error) {
			gone, fresh = append(gone, have...), append(fresh, need...)
			return true, nil
		})
		var no *gateway.NegError
		if errors.As(err, &no) || errors.Is(err, gateway.ErrTimeout) {
			return s.reread(ctx, c, x)
		}
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(fresh, askIDs) {
			if err := s.note(ctx, c, x, nostr.Filter{IDs: chunk}); err != nil {
				return err
			}
		}
		return s.lost(ctx, c, x, gone)
	})
}

// lost drops what the relay holds no more. It is asked for first: a session may have shown a part alone, and then what is missing in it says nothing.
func (s *Store) lost(ctx context.Context, c *gateway.Conn, x *index, gone []nostr.ID) error {
	for chunk := range slices.Chunk(gone, askIDs) {
		if x.short {
			return nil
		}
		there, err := c.QueryAll(ctx, nostr.Filter{IDs: chunk})
		if err != nil && !errors.Is(err, gateway.ErrIncomplete) {
			return err
		}
		x.short = len(there) == askIDs
		for _, id := range chunk {
			if !slices.ContainsFunc(there, func(e *nostr.Event) bool { return e.ID == id }) {
				x.drop(id)
			}
		}
	}
	return nil
}

// note reads events and takes note of them. Those that do not prove themselves are noted too, so that they are not asked for again.
func (s *Store) note(ctx context.Context, c *gateway.Conn, x *index, f nostr.Filter) error {
	events, err := c.QueryAll(ctx, f)
	if err != nil && !errors.Is(err, gateway.ErrIncomplete) {
		return err
	}
	verdicts := s.verifier.Verify(events)
	for i, e := range events {
		hidden, err := s.hidden(ctx, e.ID)
		if err != nil {
			return err
		}
		x.add(e, hidden || !verdicts[i] || s.stays(e))
	}
	return nil
}

// reread fills an index anew.
func (s *Store) reread(ctx context.Context, c *gateway.Conn, x *index) error {
	anew := &index{filter: x.filter, view: x.view, items: map[nostr.ID]entry{}}
	if err := s.note(ctx, c, anew, x.filter); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.items = anew.items
	return nil
}

// Set implements store.Store.
func (s *Store) Set(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (negentropy.Set, func(), error) {
	in := map[nostr.ID]int64{}
	local, release, err := s.cfg.Local.Set(ctx, filters, view, now)
	if err != nil {
		return nil, nil, err
	}
	for i := range local.Len() {
		item := local.Item(i)
		in[item.ID] = int64(item.Time)
	}
	release()
	for _, f := range filters {
		if !s.asked(&f) {
			continue
		}
		x, err := s.index(f, view)
		if err != nil {
			return nil, nil, err
		}
		if err := s.bring(ctx, x); err != nil {
			return nil, nil, fmt.Errorf("reconcile with the attached relay: %w", err)
		}
		x.mu.Lock()
		for id, v := range x.items {
			if !v.out && (v.expires == 0 || v.expires > now) {
				in[id] = v.created
			}
		}
		x.mu.Unlock()
	}
	items := make([]negentropy.Item, 0, len(in))
	for id, created := range in {
		items = append(items, negentropy.Item{Time: uint64(created), ID: id})
	}
	return negentropy.NewVector(items), func() {}, nil
}

// Count implements store.Store. It counts the set: a relay's own count may be an estimate.
func (s *Store) Count(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (int, error) {
	set, release, err := s.Set(ctx, filters, view, now)
	if err != nil {
		return 0, err
	}
	defer release()
	return set.Len(), nil
}

// between freezes a filter's set and finds a range of time in it.
func (s *Store) between(ctx context.Context, f nostr.Filter, since, until, now int64) (set negentropy.Set, lo, hi int, release func(), err error) {
	set, release, err = s.Set(ctx, []nostr.Filter{f}, store.View{}, now)
	if err != nil {
		return nil, 0, 0, nil, err
	}
	lo = set.Search(negentropy.Item{Time: uint64(max(0, since))})
	if hi = set.Len(); until+1 > until {
		hi = set.Search(negentropy.Item{Time: uint64(max(0, until+1))})
	}
	return set, lo, max(lo, hi), release, nil
}

// FingerprintRange implements store.Store.
func (s *Store) FingerprintRange(ctx context.Context, f nostr.Filter, since, until, now int64) (fp [16]byte, err error) {
	set, lo, hi, release, err := s.between(ctx, f, since, until, now)
	if err != nil {
		return fp, err
	}
	defer release()
	return negentropy.RangeFingerprint(set, lo, hi), nil
}

// EnumerateRange implements store.Store.
func (s *Store) EnumerateRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([]nostr.ID, error) {
	set, lo, hi, release, err := s.between(ctx, f, since, until, now)
	if err != nil {
		return nil, err
	}
	defer release()
	var out []nostr.ID
	for i := lo; i < hi; i++ {
		out = append(out, set.Item(i).ID)
	}
	return out, nil
}
