package eventlog

import (
	"sync"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// tables is all that the store remembers besides the events: refusals, and the tombstones
// that keep deleted events away. It lives in memory and is written whole at each checkpoint;
// what came after is in the log.
type tables struct {
	mu       sync.RWMutex
	limit    int // of bounded refusals
	refused  map[nostr.ID]refusal
	advisory []nostr.ID // bounded refusals, oldest first
	asked    map[asked]struct{}
	bounds   map[nostr.Address]int64
	floors   map[nostr.Address]store.Version
	vanished map[nostr.PubKey]int64

	noting bool     // a group is being made that may have to be taken back
	steps  []func() // by these
	before []nostr.ID
}

type refusal struct {
	reason string
	at     int64
}

func newTables(limit int) *tables {
	return &tables{
		limit:    limit,
		refused:  make(map[nostr.ID]refusal),
		asked:    make(map[asked]struct{}),
		bounds:   make(map[nostr.Address]int64),
		floors:   make(map[nostr.Address]store.Version),
		vanished: make(map[nostr.PubKey]int64),
	}
}

// apply takes over the effects of a change. Doing it twice does no harm.
func (t *tables) apply(fx *effects) {
	if fx.empty() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range fx.drops {
		if d.reason != "" {
			t.refuse(d.id, refusal{d.reason, fx.at})
		}
	}
	for _, r := range fx.refused {
		t.refuse(r.ID, refusal{r.Reason, r.At})
	}
	for _, a := range fx.asked {
		put(t, t.asked, a, struct{}{})
	}
	for _, b := range fx.bounds {
		if old, ok := t.bounds[b.addr]; !ok || old < b.until {
			put(t, t.bounds, b.addr, b.until)
		}
	}
	for _, f := range fx.floors {
		if old, ok := t.floors[f.Address]; !ok || f.Version.Beats(old) {
			put(t, t.floors, f.Address, f.Version)
		}
	}
	for _, v := range fx.vanished {
		if old, ok := t.vanished[v.key]; !ok || old < v.until {
			put(t, t.vanished, v.key, v.until)
		}
	}
}

// refuse enters a refusal; a binding one is never replaced.
func (t *tables) refuse(id nostr.ID, r refusal) {
	if old, ok := t.refused[id]; ok && (old.reason == r.reason || store.Binding(old.reason)) {
		return
	}
	put(t, t.refused, id, r)
	if !store.Bounded(r.reason) {
		return
	}
	t.advisory = append(t.advisory, id)
	for len(t.advisory) > t.limit {
		if first := t.advisory[0]; store.Bounded(t.refused[first].reason) {
			drop(t, t.refused, first)
		}
		t.advisory = t.advisory[1:]
	}
}

// stored forgets an advisory refusal of an event that is stored after all.
func (t *tables) stored(id nostr.ID) {
	t.mu.Lock()
	if r, ok := t.refused[id]; ok && !store.Binding(r.reason) {
		drop(t, t.refused, id)
	}
	t.mu.Unlock()
}

// needs says whether a refusal would change anything.
func (t *tables) needs(id nostr.ID, reason string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	old, ok := t.refused[id]
	return !ok || old.reason != reason && !store.Binding(old.reason)
}

func (t *tables) refusal(id nostr.ID) (store.Refusal, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.refused[id]
	return store.Refusal{ID: id, Reason: r.reason, At: r.at}, ok
}

// all returns the content as effects, at most chunk entries at a time.
func (t *tables) all(chunk int, fn func(fx *effects)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var fx effects
	n := 0
	step := func() {
		if n++; n%chunk == 0 {
			fn(&fx)
			fx = effects{}
		}
	}
	entry := func(id nostr.ID, r refusal) {
		fx.refused = append(fx.refused, store.Refusal{ID: id, Reason: r.reason, At: r.at})
		step()
	}
	done := make(map[nostr.ID]bool, len(t.advisory))
	for _, id := range t.advisory { // their order is their age
		if r, ok := t.refused[id]; ok && store.Bounded(r.reason) && !done[id] {
			done[id] = true
			entry(id, r)
		}
	}
	for id, r := range t.refused {
		if !done[id] {
			entry(id, r)
		}
	}
	for a := range t.asked {
		fx.asked = append(fx.asked, a)
		step()
	}
	for a, until := range t.bounds {
		fx.bounds = append(fx.bounds, bound{a, until})
		step()
	}
	for a, v := range t.floors {
		fx.floors = append(fx.floors, store.Floor{Address: a, Version: v})
		step()
	}
	for k, until := range t.vanished {
		fx.vanished = append(fx.vanished, vanish{k, until})
		step()
	}
	if !fx.empty() {
		fn(&fx)
	}
}

// counts returns the numbers of tombstones and refusals.
func (t *tables) counts() (tombstones, refusals int64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return int64(len(t.asked) + len(t.bounds) + len(t.floors) + len(t.vanished)), int64(len(t.refused))
}
