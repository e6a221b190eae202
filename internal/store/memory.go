package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// Memory is the Store that the others are compared with: maps, and a look at every
// event for every question. It is durable for as long as the process lives.
type Memory struct {
	rules Rules
	limit int

	mu      sync.RWMutex
	closed  bool
	seq     uint64
	events  map[nostr.ID]Arrival
	current map[nostr.Address]nostr.ID
	tables
}

// tables is all that is remembered besides the events.
type tables struct {
	refused  map[nostr.ID]Refusal
	advisory []nostr.ID // superseded and expired, oldest first: bounded
	asked    map[askedKey]struct{}
	bounds   map[nostr.Address]int64
	floors   map[nostr.Address]Version
	vanished map[nostr.PubKey]int64
}

type askedKey struct {
	id nostr.ID
	by nostr.PubKey
}

// Option sets up a Memory.
type Option func(*Memory)

// WithOwnURLs names the relay URLs by which a vanish request can name us.
func WithOwnURLs(urls ...string) Option { return func(m *Memory) { m.rules.OwnURLs = urls } }

// DefaultAdvisory is how many refusals for "superseded" and "expired" are remembered
// unless an option says otherwise; the oldest are forgotten first. All others are kept for good.
const DefaultAdvisory = 1 << 18

// WithAdvisory bounds the number of remembered refusals for "superseded" and "expired".
func WithAdvisory(n int) Option { return func(m *Memory) { m.limit = n } }

// NewMemory returns an empty store.
func NewMemory(opts ...Option) *Memory {
	m := &Memory{
		limit:   DefaultAdvisory,
		events:  make(map[nostr.ID]Arrival),
		current: make(map[nostr.Address]nostr.ID),
		tables: tables{
			refused:  make(map[nostr.ID]Refusal),
			asked:    make(map[askedKey]struct{}),
			bounds:   make(map[nostr.Address]int64),
			floors:   make(map[nostr.Address]Version),
			vanished: make(map[nostr.PubKey]int64),
		},
	}
	for _, o := range opts {
		o(m)
	}
	return m
}

var _ Store = (*Memory)(nil)

// memState answers the rules' look-ups; the caller holds the lock.
type memState struct{ m *Memory }

func (s memState) Held(id nostr.ID) (*nostr.Event, error) { return s.m.events[id].Event, nil }
func (s memState) Has(id nostr.ID) bool {
	_, ok := s.m.events[id]
	return ok
}
func (s memState) Current(a nostr.Address) (Held, bool) {
	e := s.m.events[s.m.current[a]].Event
	if e == nil {
		return Held{}, false
	}
	return HeldOf(e), true
}
func (s memState) RefusedAs(id nostr.ID) (string, bool) {
	r, ok := s.m.refused[id]
	return r.Reason, ok
}
func (s memState) Asked(id nostr.ID, by nostr.PubKey) bool {
	_, ok := s.m.asked[askedKey{id, by}]
	return ok
}
func (s memState) DeletedUpTo(a nostr.Address) (int64, bool) {
	t, ok := s.m.bounds[a]
	return t, ok
}
func (s memState) Floor(a nostr.Address) (Version, bool) {
	v, ok := s.m.floors[a]
	return v, ok
}
func (s memState) VanishedUpTo(k nostr.PubKey) (int64, bool) {
	t, ok := s.m.vanished[k]
	return t, ok
}

// check says whether the store may be used; the caller holds the lock.
func (m *Memory) check(ctx context.Context) error {
	if m.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// Insert implements Store.
func (m *Memory) Insert(ctx context.Context, events []*nostr.Event, now int64) ([]Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	out := make([]Outcome, len(events))
	for i, e := range events {
		c, err := m.rules.Decide(memState{m}, e, now)
		if err != nil {
			return nil, fmt.Errorf("decide: %w", err)
		}
		m.apply(&c, now)
		out[i] = c.Outcome
	}
	return out, nil
}

func (m *Memory) apply(c *Change, now int64) {
	e := c.Event
	for _, d := range c.Drops {
		m.drop(d.ID, d.Reason, now)
	}
	for _, id := range c.Asked {
		m.asked[askedKey{id, e.PubKey}] = struct{}{}
	}
	for _, a := range c.Bounds {
		if t, ok := m.bounds[a]; !ok || t < e.CreatedAt {
			m.bounds[a] = e.CreatedAt
		}
	}
	for _, f := range c.Floors {
		m.raise(f)
	}
	if c.Refuse != "" {
		m.refuse(Refusal{e.ID, c.Refuse, now})
	}
	if c.Outcome == Stored {
		m.seq++
		m.events[e.ID] = Arrival{m.seq, e}
		delete(m.refused, e.ID) // an advisory entry that no longer holds
		if a, ok := e.Address(); ok {
			m.current[a] = e.ID
		}
	}
	if c.Vanish {
		if t, ok := m.vanished[e.PubKey]; !ok || t < e.CreatedAt {
			m.vanished[e.PubKey] = e.CreatedAt
		}
		for id, a := range m.events {
			if m.rules.Vanishing(a.Event, e.PubKey, e.CreatedAt) {
				m.drop(id, ReasonDeleted, now)
			}
		}
	}
}

func (m *Memory) raise(f Floor) {
	if v, ok := m.floors[f.Address]; !ok || f.Version.Beats(v) {
		m.floors[f.Address] = f.Version
	}
}

func (m *Memory) drop(id nostr.ID, reason string, now int64) {
	a, ok := m.events[id]
	if !ok {
		return
	}
	delete(m.events, id)
	if addr, ok := a.Event.Address(); ok && m.current[addr] == id {
		delete(m.current, addr)
	}
	m.refuse(Refusal{id, reason, now})
}

// refuse enters r. A binding entry is never replaced by an advisory one.
func (m *Memory) refuse(r Refusal) {
	old, had := m.refused[r.ID]
	if had && (old.Reason == r.Reason || Binding(old.Reason)) {
		return
	}
	m.refused[r.ID] = r
	if Bounded(r.Reason) {
		m.advisory = append(m.advisory, r.ID)
		m.forget()
	}
}

// Bounded says whether entries with that reason are forgotten, oldest first, when there are too
// many of them.
func Bounded(reason string) bool {
	return reason == ReasonSuperseded || reason == ReasonExpired || reason == ReasonRetention
}

// forget drops the oldest bounded entries over the limit.
func (m *Memory) forget() {
	for len(m.advisory) > m.limit {
		id := m.advisory[0]
		m.advisory = m.advisory[1:]
		if Bounded(m.refused[id].Reason) {
			delete(m.refused, id)
		}
	}
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, id nostr.ID, now int64) (*nostr.Event, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	e := m.events[id].Event
	if e == nil || e.ExpiredAt(now) {
		return nil, ErrNotFound
	}
	return e, nil
}

// Has implements Store.
func (m *Memory) Has(ctx context.Context, id nostr.ID, now int64) (bool, error) {
	_, err := m.Get(ctx, id, now)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// newestFirst is NIP-01's order of answers.
func newestFirst(a, b *nostr.Event) int {
	if c := cmp.Compare(b.CreatedAt, a.CreatedAt); c != 0 {
		return c
	}
	return slices.Compare(a.ID[:], b.ID[:])
}

// matching returns the events of one filter, newest first, limit not applied.
func (m *Memory) matching(f *nostr.Filter, view *View, now int64) []*nostr.Event {
	if f.MatchesNothing() {
		return nil
	}
	var out []*nostr.Event
	terms := ParseSearch(f.Search)
	for _, a := range m.events {
		e := a.Event
		if !e.ExpiredAt(now) && f.Matches(e) && view.Allows(e) && terms.Match(e) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, newestFirst)
	return out
}

// union returns the events of any of the filters, each once, newest first.
func (m *Memory) union(filters []nostr.Filter, view *View, now int64, limits bool) []*nostr.Event {
	var all []*nostr.Event
	for i := range filters {
		f := &filters[i]
		es := m.matching(f, view, now)
		if limits && f.Limit != nil {
			es = es[:min(len(es), max(0, *f.Limit))]
		}
		all = append(all, es...)
	}
	slices.SortFunc(all, newestFirst)
	return slices.CompactFunc(all, func(a, b *nostr.Event) bool { return a.ID == b.ID })
}

// Query implements Store.
func (m *Memory) Query(ctx context.Context, filters []nostr.Filter, view View, limit int, now int64) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		m.mu.RLock()
		err := m.check(ctx)
		var es []*nostr.Event
		if err == nil {
			es = m.union(filters, &view, now, true)
		}
		m.mu.RUnlock()
		if err != nil {
			yield(nil, err)
			return
		}
		if limit > 0 {
			es = es[:min(len(es), limit)]
		}
		for _, e := range es {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Count implements Store.
func (m *Memory) Count(ctx context.Context, filters []nostr.Filter, view View, now int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.check(ctx); err != nil {
		return 0, err
	}
	return len(m.union(filters, &view, now, false)), nil
}

// Set implements Store.
func (m *Memory) Set(ctx context.Context, filters []nostr.Filter, view View, now int64) (negentropy.Set, func(), error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.check(ctx); err != nil {
		return nil, nil, err
	}
	es := m.union(filters, &view, now, false)
	items := make([]negentropy.Item, len(es))
	for i, e := range es {
		items[i] = negentropy.Item{Time: uint64(e.CreatedAt), ID: e.ID}
	}
	return negentropy.NewVector(items), func() {}, nil
}

// Within narrows a filter to [since, until]; neither bound ever widens the other
// (protocol.txt § Replication).
func Within(f nostr.Filter, since, until int64) nostr.Filter {
	if f.Since == nil || *f.Since < since {
		f.Since = &since
	}
	if f.Until == nil || *f.Until > until {
		f.Until = &until
	}
	return f
}

// FingerprintRange implements Store.
func (m *Memory) FingerprintRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([16]byte, error) {
	set, release, err := m.Set(ctx, []nostr.Filter{Within(f, since, until)}, View{}, now)
	if err != nil {
		return [16]byte{}, err
	}
	defer release()
	return negentropy.RangeFingerprint(set, 0, set.Len()), nil
}

// EnumerateRange implements Store.
func (m *Memory) EnumerateRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([]nostr.ID, error) {
	set, release, err := m.Set(ctx, []nostr.Filter{Within(f, since, until)}, View{}, now)
	if err != nil {
		return nil, err
	}
	defer release()
	ids := make([]nostr.ID, set.Len())
	for i := range ids {
		ids[i] = set.Item(i).ID
	}
	return ids, nil
}

// Arrivals implements Store.
func (m *Memory) Arrivals(ctx context.Context, after uint64, now int64) iter.Seq2[Arrival, error] {
	return func(yield func(Arrival, error) bool) {
		m.mu.RLock()
		err := m.check(ctx)
		var as []Arrival
		for _, a := range m.events {
			if a.Seq > after && !a.Event.ExpiredAt(now) {
				as = append(as, a)
			}
		}
		m.mu.RUnlock()
		if err != nil {
			yield(Arrival{}, err)
			return
		}
		slices.SortFunc(as, func(a, b Arrival) int { return cmp.Compare(a.Seq, b.Seq) })
		for _, a := range as {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// LastSeq implements Store.
func (m *Memory) LastSeq(ctx context.Context) (uint64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.seq, m.check(ctx)
}

// Purge implements Store. An address keeps the purged version as its floor, so that older
// versions do not come back in its place.
func (m *Memory) Purge(ctx context.Context, ids []nostr.ID, reason string, now int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx); err != nil {
		return 0, err
	}
	n := 0
	for _, id := range ids {
		if a, ok := m.events[id]; ok && !a.Event.ExpiredAt(now) {
			n++
			if addr, ok := a.Event.Address(); ok {
				m.raise(Floor{addr, VersionOf(a.Event)})
			}
			m.drop(id, reason, now)
		} else if ok {
			m.drop(id, reason, now)
		} else {
			m.refuse(Refusal{id, reason, now})
		}
	}
	return n, nil
}

// Refuse implements Store. Ids that are held are left alone.
func (m *Memory) Refuse(ctx context.Context, refusals []Refusal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx); err != nil {
		return err
	}
	for _, r := range refusals {
		if _, held := m.events[r.ID]; !held {
			m.refuse(r)
		}
	}
	return nil
}

// Refusal implements Store.
func (m *Memory) Refusal(ctx context.Context, id nostr.ID) (Refusal, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.refused[id]
	return r, ok, m.check(ctx)
}

// Refusals implements Store.
func (m *Memory) Refusals(ctx context.Context) iter.Seq2[Refusal, error] {
	return func(yield func(Refusal, error) bool) {
		m.mu.RLock()
		err := m.check(ctx)
		rs := slices.Collect(maps.Values(m.refused))
		m.mu.RUnlock()
		if err != nil {
			yield(Refusal{}, err)
			return
		}
		for _, r := range rs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Stats implements Store.
func (m *Memory) Stats(ctx context.Context) (Stats, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return Stats{
		Events:     int64(len(m.events)),
		Tombstones: int64(len(m.asked) + len(m.bounds) + len(m.floors) + len(m.vanished)),
		Refusals:   int64(len(m.refused)),
		LastSeq:    m.seq,
	}, m.check(ctx)
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
