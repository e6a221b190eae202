package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

// TestPassing has ephemeral events of all sizes cross from one face to the other, and none that is too large; nothing of them is stored.
func TestPassing(t *testing.T) {
	a, b := face(t, t.Name()), face(t, t.Name())
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard := make(chan *nostr.Event, 100)
	listening := make(chan error, 1)
	live := func(events []*nostr.Event) {
		for _, e := range events {
			heard <- e
		}
	}
	go func() { listening <- b.Foreign(ctx, 0, live, func(err error) { t.Error(err) }) }()
	event := func(kind nostr.Kind, content string) *nostr.Event {
		e := &nostr.Event{CreatedAt: storetest.Start, Kind: kind, Content: content}
		e.ID = e.ComputeID()
		return e
	}
	// A stored event says that the other face listens.
	if _, err := a.Insert(ctx, []*nostr.Event{event(1, "stored")}, storetest.Start); err != nil {
		t.Fatal(err)
	}
	wait := time.After(time.Minute)
	next := func() *nostr.Event {
		select {
		case e := <-heard:
			return e
		case <-wait:
			t.Fatal("nothing was heard within a minute")
			return nil
		}
	}
	if e := next(); e.Content != "stored" {
		t.Fatal(e.Content)
	}
	var want []*nostr.Event
	for _, n := range []int{0, 1, 100, 3000, 10_000, 50_000, 200_000} {
		want = append(want, event(20_001, strings.Repeat("é∂", n)))
	}
	a.Pass([]*nostr.Event{event(20_001, strings.Repeat("x", passOctets))})
	a.Pass(want)
	for i, w := range want {
		if e := next(); e.ID != w.ID || e.Content != w.Content {
			t.Fatalf("event %d: heard one of %d octets, not of %d", i, len(e.Content), len(w.Content))
		}
	}
	cancel()
	<-listening
	if st, err := b.Stats(t.Context()); err != nil || st.Events != 1 {
		t.Fatal(st, err)
	}
}

func TestParts(t *testing.T) {
	long := "x" + strings.Repeat("é", partOctets) // a piece would end within a character
	var a assembly
	pieces := parts(7, 9, long)
	if len(pieces) != 3 {
		t.Fatal(len(pieces))
	}
	for i, s := range pieces {
		p, err := parsePart(s)
		if err != nil || len(s) >= 8000 || !utf8.ValidString(s) {
			t.Fatal(len(s), err)
		}
		text, ok := a.add(p)
		if ok != (i == 2) || ok && text != long {
			t.Fatal(i, ok, len(text))
		}
	}
	// One whose beginning was missed is never whole, nor one with a hole.
	for _, pick := range [][]int{{1, 2}, {0, 2}, {0, 0, 2}} {
		for _, i := range pick {
			p, _ := parsePart(pieces[i])
			if _, ok := a.add(p); ok {
				t.Fatal(pick)
			}
		}
	}
	for _, bad := range []string{"", "1 2 3 4", "1 2 3 3 x", "1 2 -1 3 x", "a 2 0 1 x"} {
		if _, err := parsePart(bad); err == nil {
			t.Errorf("%q was taken for a piece", bad)
		}
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
