package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/sqlstore"
	"fleetmesh.org/fleetmesh/nostr"
)

// filled is a store of n notes of which one has a rare word.
func filled(b *testing.B, n int) *sqlstore.Store {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "events.db"), sqlstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	var batch []*nostr.Event
	for i := range n {
		content := fmt.Sprintf("a common note about topic%d number%d", i%100, i)
		if i == n/10 {
			content += " unheard"
		}
		e := &nostr.Event{PubKey: nostr.PubKey{byte(i)}, CreatedAt: int64(i), Kind: 1, Content: content}
		e.ID = e.ComputeID()
		if batch = append(batch, e); len(batch) == 1000 || i == n-1 {
			if _, err := s.Insert(b.Context(), batch, int64(n)); err != nil {
				b.Fatal(err)
			}
			batch = nil
		}
	}
	return s
}

const benchEvents = 20_000

var other int64

// BenchmarkSearch compares a search for a word of one event, of each hundredth, and of all, with a look at all events.
func BenchmarkSearch(b *testing.B) {
	s := filled(b, benchEvents)
	limit := 20
	for _, c := range []struct {
		name string
		f    nostr.Filter
	}{{"one", nostr.Filter{Search: "unheard"}}, {"hundredth", nostr.Filter{Search: "topic7", Limit: &limit}},
		{"all", nostr.Filter{Search: "common", Limit: &limit}}, {"look", nostr.Filter{}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				for _, err := range s.Query(b.Context(), []nostr.Filter{c.f}, store.View{}, 0, benchEvents) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkSet compares a set that is kept with one that is read anew.
func BenchmarkSet(b *testing.B) {
	s := filled(b, benchEvents)
	set := func(b *testing.B, f nostr.Filter) {
		if _, _, err := s.Set(b.Context(), []nostr.Filter{f}, store.View{}, benchEvents); err != nil {
			b.Fatal(err)
		}
	}
	set(b, nostr.Filter{})
	b.Run("kept", func(b *testing.B) {
		for b.Loop() {
			set(b, nostr.Filter{})
		}
	})
	b.Run("anew", func(b *testing.B) {
		for b.Loop() {
			since := -1 - other // another filter each time
			other++
			set(b, nostr.Filter{Since: &since})
		}
	})
}
