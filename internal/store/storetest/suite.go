// Package storetest is the suite that every event store passes: random operations side by
// side with store.Memory, and a differential run against a matcher that looks at every event.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// Opener opens the store under test; dir is the test's own. Opening the same dir again after
// Close must give the same store.
type Opener func(t testing.TB, dir string) store.Store

// Run runs the model test: random operations on the store and on a store.Memory, which must
// agree at every step, through reopening. volatile says that the store forgets at Close.
func Run(t *testing.T, open Opener, volatile bool) {
	steps := 120
	if testing.Short() {
		steps = 40
	}
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			m := &model{t: t, w: NewWorld(seed, 12, 400), open: open, dir: t.TempDir(), now: Start + 10, oracle: store.NewMemory()}
			for range 3 {
				m.again = append(m.again, again{m.w.Filter(), m.w.View()})
			}
			m.again[0].filter = nostr.Filter{}
			m.s = open(t, m.dir)
			defer func() { m.ok(m.s.Close()) }()
			for range steps {
				m.step(volatile)
			}
			m.compareAll()
		})
	}
}

type model struct {
	t      *testing.T
	w      *World
	open   Opener
	dir    string
	s      store.Store
	oracle *store.Memory
	now    int64
	again  []again // asked for over and over: an engine may keep what it answered
}

type again struct {
	filter nostr.Filter
	view   store.View
}

func (m *model) ok(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) step(volatile bool) {
	ctx := m.t.Context()
	switch p := m.w.Rand.IntN(20); {
	case p < 8:
		m.insert(m.w.Batch(1 + m.w.Rand.IntN(60)))
	case p < 10:
		m.insert(m.w.Batch(1))
	case p == 10:
		ids := some(m.w, 5, func() nostr.ID { return m.w.past().ID })
		if len(m.w.Past) == 0 {
			return
		}
		a, err := m.oracle.Purge(ctx, ids, store.ReasonPurged, m.now)
		m.ok(err)
		b, err := m.s.Purge(ctx, ids, store.ReasonPurged, m.now)
		m.ok(err)
		if a != b {
			m.t.Fatalf("purge of %d ids: %d, want %d", len(ids), b, a)
		}
	case p == 11:
		r := []store.Refusal{{ID: m.w.Event().ID, Reason: "policy", At: m.now}}
		m.ok(m.oracle.Refuse(ctx, r))
		m.ok(m.s.Refuse(ctx, r))
	case p == 12:
		m.now += m.w.Rand.Int64N(40)
	case p == 13 && !volatile:
		m.ok(m.s.Close())
		m.s = m.open(m.t, m.dir)
	default:
		m.compare()
	}
}

func (m *model) insert(events []*nostr.Event) {
	want, err := m.oracle.Insert(m.t.Context(), events, m.now)
	m.ok(err)
	got, err := m.s.Insert(m.t.Context(), events, m.now)
	m.ok(err)
	if !slices.Equal(got, want) {
		m.t.Fatalf("outcomes %v, want %v", got, want)
	}
}

// compare asks both about a few filters.
func (m *model) compare() {
	filters := some(m.w, 3, m.w.Filter)
	Compare(m.t, m.s, m.oracle, filters, m.w.View(), []int{0, 0, 7}[m.w.Rand.IntN(3)], m.now)
	a := &m.again[m.w.Rand.IntN(len(m.again))]
	Compare(m.t, m.s, m.oracle, []nostr.Filter{a.filter}, a.view, 0, m.now)
	for _, e := range []*nostr.Event{m.w.Event(), m.w.past()} {
		a, err := m.oracle.Has(m.t.Context(), e.ID, m.now)
		m.ok(err)
		b, err := m.s.Has(m.t.Context(), e.ID, m.now)
		m.ok(err)
		got, err := m.s.Get(m.t.Context(), e.ID, m.now)
		if a != b || a != (err == nil) || !a && !errors.Is(err, store.ErrNotFound) || a && got.ID != e.ID {
			m.t.Fatalf("has %v, want %v; get: %v", b, a, err)
		}
		ra, _, err := m.oracle.Refusal(m.t.Context(), e.ID)
		m.ok(err)
		rb, _, err := m.s.Refusal(m.t.Context(), e.ID)
		m.ok(err)
		if !sameRefusal(ra.Reason, rb.Reason) {
			m.t.Fatalf("refusal %v, want %v", rb, ra)
		}
	}
	m.arrivals()
}

// sameRefusal compares reasons, "" for no refusal. Engines may remove expired events when they
// like, and then remember them as expired.
func sameRefusal(want, got string) bool { return want == got || got == store.ReasonExpired }

func (m *model) arrivals() {
	list := func(s store.Store) (ids []nostr.ID, seqs []uint64) {
		for a, err := range s.Arrivals(m.t.Context(), 0, m.now) {
			m.ok(err)
			ids, seqs = append(ids, a.Event.ID), append(seqs, a.Seq)
		}
		return ids, seqs
	}
	want, _ := list(m.oracle)
	got, seqs := list(m.s)
	if !slices.Equal(got, want) {
		m.t.Fatalf("%d arrivals, want %d", len(got), len(want))
	}
	if len(seqs) == 0 {
		return
	}
	last, err := m.s.LastSeq(m.t.Context())
	m.ok(err)
	if last < seqs[len(seqs)-1] || !slices.IsSorted(seqs) {
		m.t.Fatal("arrival numbers do not rise")
	}
	cut := m.w.Rand.IntN(len(seqs))
	n := 0
	for a, err := range m.s.Arrivals(m.t.Context(), seqs[cut], m.now) {
		m.ok(err)
		if a.Event.ID != want[cut+1+n] {
			m.t.Fatalf("arrival %d after the cursor is another event", n)
		}
		n++
	}
	if n != len(want)-cut-1 {
		m.t.Fatalf("%d arrivals after the cursor, want %d", n, len(want)-cut-1)
	}
}

func (m *model) compareAll() {
	Compare(m.t, m.s, m.oracle, []nostr.Filter{{}}, store.View{}, 0, m.now)
	refusals := func(s store.Store) map[nostr.ID]string {
		out := make(map[nostr.ID]string)
		for r, err := range s.Refusals(m.t.Context()) {
			m.ok(err)
			out[r.ID] = r.Reason
		}
		return out
	}
	want, got := refusals(m.oracle), refusals(m.s)
	for id := range want {
		if _, ok := got[id]; !ok {
			got[id] = ""
		}
	}
	for id, reason := range got {
		if !sameRefusal(want[id], reason) {
			m.t.Fatalf("refusal of %s is %q, want %q", id, reason, want[id])
		}
	}
	a, err := m.oracle.Stats(m.t.Context())
	m.ok(err)
	b, err := m.s.Stats(m.t.Context())
	m.ok(err)
	if a.Tombstones != b.Tombstones {
		m.t.Fatalf("%d tombstones, want %d", b.Tombstones, a.Tombstones)
	}
}

func ids(t testing.TB, s store.Store, filters []nostr.Filter, view store.View, limit int, now int64) []nostr.ID {
	t.Helper()
	var out []nostr.ID
	for e, err := range s.Query(context.Background(), filters, view, limit, now) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.ID)
	}
	return out
}

// compareRows checks that an answer in rows has the events of the query, and says what they came by: each row a
// filter that it matches, and all of these unless their limit was reached.
func compareRows(t testing.TB, s store.Store, want []nostr.ID, filters []nostr.Filter, view store.View, limit int, now int64) {
	t.Helper()
	n := 0
	found := make([]int, len(filters))
	for row, err := range store.Rows(context.Background(), s, filters, view, limit, now) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := nostr.ParseKept(slices.Clone(row.Text))
		if err != nil {
			t.Fatal(err)
		}
		if n == len(want) || row.ID != want[n] || e.ID != row.ID || e.CreatedAt != row.CreatedAt {
			t.Fatalf("rows %s: another event at %d of %d", describe(filters), n, len(want))
		}
		n++
		if len(filters) < 2 {
			continue
		}
		if len(row.By) == 0 {
			t.Fatalf("rows %s: a row by no filter", describe(filters))
		}
		for i := range filters {
			matches := filters[i].Matches(e) && store.ParseSearch(filters[i].Search).Match(e)
			by := slices.Contains(row.By, i)
			if by && !matches || matches && !by && (filters[i].Limit == nil || found[i] < *filters[i].Limit) {
				t.Fatalf("rows %s: by %v", describe(filters), row.By)
			}
			if by {
				found[i]++
			}
		}
	}
	if n != len(want) {
		t.Fatalf("rows %s: %d, want %d", describe(filters), n, len(want))
	}
}

// Compare checks that two stores answer the same: query, count, set and fingerprints.
func Compare(t testing.TB, got, want store.Store, filters []nostr.Filter, view store.View, limit int, now int64) {
	t.Helper()
	ctx := context.Background()
	a, b := ids(t, want, filters, view, limit, now), ids(t, got, filters, view, limit, now)
	if !slices.Equal(a, b) {
		t.Fatalf("query %s: %d events, want %d", describe(filters), len(b), len(a))
	}
	compareRows(t, got, b, filters, view, limit, now)
	na, err := want.Count(ctx, filters, view, now)
	if err != nil {
		t.Fatal(err)
	}
	nb, err := got.Count(ctx, filters, view, now)
	if err != nil {
		t.Fatal(err)
	}
	if na != nb {
		t.Fatalf("count %s: %d, want %d", describe(filters), nb, na)
	}
	sa, ra, err := want.Set(ctx, filters, view, now)
	if err != nil {
		t.Fatal(err)
	}
	defer ra()
	sb, rb, err := got.Set(ctx, filters, view, now)
	if err != nil {
		t.Fatal(err)
	}
	defer rb()
	compareSets(t, sb, sa, filters)
	since, until := int64(Start+50), int64(Start+350)
	fa, err := want.FingerprintRange(ctx, filters[0], since, until, now)
	if err != nil {
		t.Fatal(err)
	}
	fb, err := got.FingerprintRange(ctx, filters[0], since, until, now)
	if err != nil {
		t.Fatal(err)
	}
	if fa != fb {
		t.Fatalf("fingerprint of %s differs", describe(filters[:1]))
	}
}

// compareSets checks two sets item by item and sum by sum.
func compareSets(t testing.TB, got, want negentropy.Set, filters []nostr.Filter) {
	t.Helper()
	n := want.Len()
	if got.Len() != n {
		t.Fatalf("set %s: %d items, want %d", describe(filters), got.Len(), n)
	}
	for i := range n {
		if got.Item(i) != want.Item(i) {
			t.Fatalf("set %s: item %d differs", describe(filters), i)
		}
	}
	for _, cut := range [][2]int{{0, n}, {0, n / 3}, {n / 3, n}, {n / 4, n / 2}, {n / 2, min(n, n/2+3)}, {n, n}} {
		if got.Sum(cut[0], cut[1]) != want.Sum(cut[0], cut[1]) {
			t.Fatalf("set %s: sum of %v differs", describe(filters), cut)
		}
	}
	for _, i := range []int{0, n / 5, n / 2, n - 1} {
		if i < 0 || i >= n {
			continue
		}
		it := want.Item(i)
		for _, probe := range []negentropy.Item{it, {Time: it.Time}, {Time: it.Time + 1}} {
			if got.Search(probe) != want.Search(probe) {
				t.Fatalf("set %s: search near %d differs", describe(filters), i)
			}
		}
	}
}

func describe(filters []nostr.Filter) string {
	var b []byte
	for i := range filters {
		b = append(filters[i].AppendJSON(b), ' ')
	}
	if len(b) > 500 {
		return string(b[:500]) + "…"
	}
	return string(b)
}
