package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/sqlstore"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
)

func open(t testing.TB, name string) store.Store { return face(t, name) }

func face(t testing.TB, name string) *Store {
	t.Helper()
	s, err := Open(t.Context(), database(t, name), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSuite(t *testing.T) { storetest.Run(t, open, false) }

func TestDifferential(t *testing.T) { storetest.Differential(t, open) }

// TestFaces has two faces of one database store at the same time: both hold the same set, and the one that listens hears of each event that
// the other stored, once and in order.
func TestFaces(t *testing.T) {
	a, b := face(t, t.Name()), face(t, t.Name())
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := storetest.NewWorld(7, 20, 4000)
	now := storetest.Start + w.Spread
	heard := make(chan []*nostr.Event, 10_000)
	listening := make(chan error, 1)
	go func() {
		listening <- b.Foreign(ctx, 0, func(events []*nostr.Event) { heard <- events }, func(err error) { t.Error(err) })
	}()
	stored := make(chan error, 2)
	for _, by := range []struct {
		face   *Store
		events []*nostr.Event
	}{{a, w.Batch(600)}, {b, w.Batch(600)}} {
		go func() {
			for part := range slices.Chunk(by.events, 50) {
				if _, err := by.face.Insert(ctx, part, now); err != nil {
					stored <- err
					return
				}
			}
			stored <- nil
		}()
	}
	for range 2 {
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
	storetest.Compare(t, a, b, []nostr.Filter{{}}, store.View{}, 0, now)
	last := &nostr.Event{PubKey: w.People[0], CreatedAt: now, Kind: 1, Content: "the last"}
	last.ID = last.ComputeID()
	if out, err := a.Insert(ctx, []*nostr.Event{last}, now); err != nil || out[0] != store.Stored {
		t.Fatal(out, err)
	}
	var got []nostr.ID
	for end := time.After(time.Minute); !slices.Contains(got, last.ID); {
		select {
		case events := <-heard:
			for _, e := range events {
				got = append(got, e.ID)
			}
		case <-end:
			t.Fatal("the last event was not heard within a minute")
		}
	}
	cancel()
	<-listening
	var want []nostr.ID
	for e, err := range b.Store.Foreign(t.Context(), 0, time.Now().Unix()) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e.Event.ID)
	}
	// What was removed between being heard and now is only in got; the rest is there once, in the same order.
	kept := slices.DeleteFunc(slices.Clone(got), func(id nostr.ID) bool { return !slices.Contains(want, id) })
	if len(want) == 0 || !slices.Equal(kept, want) {
		t.Fatalf("heard %d events, of which %d are held; %d are of the other face", len(got), len(kept), len(want))
	}
}

func TestNotice(t *testing.T) {
	n := notice{7, 9}
	if got, err := parseNotice(n.String()); err != nil || got != n {
		t.Fatal(got, err)
	}
	for _, bad := range []string{"", "7", "7 x", "x 9", "7 -1"} {
		if _, err := parseNotice(bad); err == nil {
			t.Errorf("%q was taken for a notice", bad)
		}
	}
}
