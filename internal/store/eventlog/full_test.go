package eventlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
)

var errNoSpace = fmt.Errorf("no room: %w", syscall.ENOSPC)

// memory is what a store remembers besides the events.
func memory(s *Store) []any {
	t := s.tables
	return []any{maps.Clone(t.refused), slices.Clone(t.advisory), maps.Clone(t.asked), maps.Clone(t.bounds), maps.Clone(t.floors), maps.Clone(t.vanished),
		s.Damaged(), s.lastSeq.Load(), s.maxSeq, s.clock, s.base}
}

// TestDiskFull fills the disk again and again, in the middle of a workload of everything: the batch is
// refused as a whole and leaves no trace, and succeeds when there is room.
func TestDiskFull(t *testing.T) {
	for _, how := range []string{"short", "nothing", "all", "truncate too"} {
		t.Run(how, func(t *testing.T) { diskFull(t, how) })
	}
}

// noRoomOn is how a directory fails while its disk is full.
func noRoomOn(how string, isFull *bool) func(int, string, string) fault {
	return func(_ int, what, name string) fault {
		switch {
		case !*isFull:
		case what == "create", what == "write" && how == "nothing":
			return fault{err: errNoSpace}
		case what == "write" && how == "all":
			return fault{err: errNoSpace, applied: true}
		case what == "write":
			return fault{err: errNoSpace, short: true}
		case what == "truncate" && how == "truncate too":
			return fault{err: errNoSpace}
		}
		return fault{}
	}
}

func diskFull(t *testing.T, how string) {
	d := newFaultFS(1)
	isFull := false
	d.fail = noRoomOn(how, &isFull)
	s, err := Open("", tiny(d))
	if err != nil {
		t.Fatal(err)
	}
	w := storetest.NewWorld(7, 6, 100)
	oracle := store.NewMemory()
	for i := range 60 {
		batch := w.Batch(1 + w.Rand.IntN(20))
		if i%2 == 1 {
			isFull = true
			refusedWhole(t, s, oracle, batch, now+int64(i))
			if i%8 == 1 { // upkeep on a full disk fails, and loses nothing
				s.Compact(t.Context())
				storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
			}
			if i%10 == 1 { // so does the power
				afterCut(t, d, oracle, batch, now+int64(i))
			}
			isFull = false
		}
		var got []store.Outcome
		for _, part := range [][]*nostr.Event{batch[:1], batch[1:]} { // the first is less than what was written in part
			out, err := s.Insert(t.Context(), part, now+int64(i))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, out...)
			if n, err := sizeOf(d, logName(s.active.no)); err != nil || n != s.base && !s.torn {
				t.Fatalf("batch %d: the log has %d bytes, of which %d count (%v)", i, n, s.base, err)
			}
		}
		want, err := oracle.Insert(t.Context(), batch, now+int64(i))
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("batch %d: %v, want %v (%v)", i, got, want, err)
		}
		storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
		for more := true; more; {
			if more, err = s.pass(func() bool { return false }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c, err := s.Check(t.Context()); err != nil || len(c.Problems)+len(c.Damaged) > 0 {
		t.Fatalf("check %+v %v", c, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.fail = nil
	if _, err := Rebuild("", tiny(d)); err != nil {
		t.Fatal(err)
	}
	if s, err = Open("", tiny(d)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
}

// refusedWhole offers a batch to a store on a full disk.
func refusedWhole(t *testing.T, s *Store, oracle *store.Memory, batch []*nostr.Event, at int64) {
	t.Helper()
	before := memory(s)
	for range 2 {
		if _, err := s.Insert(t.Context(), batch, at); !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrReadOnly) {
			t.Fatalf("insert on a full disk: %v", err)
		}
		if _, err := s.Purge(t.Context(), oldAndNew(t, s), store.ReasonPurged, now); !errors.Is(err, store.ErrFull) {
			t.Fatalf("purge on a full disk: %v", err)
		}
	}
	if after := memory(s); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("a batch left a trace:\n%v\n%v", before, after)
	}
	storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
}

// oldAndNew returns the ids of the oldest event and of one in the head.
func oldAndNew(t *testing.T, s *Store) []nostr.ID {
	t.Helper()
	ids := all(t, s)[:1]
	for i, d := range s.cur.head.docs {
		if s.cur.head.died[i] == 0 {
			ids = append(ids, d.id)
			break
		}
	}
	return ids
}

// afterCut opens what a power cut leaves and offers the refused batch again.
func afterCut(t *testing.T, d *faultFS, oracle *store.Memory, batch []*nostr.Event, at int64) {
	t.Helper()
	for _, mode := range []string{"keep", "drop", "mix"} {
		s, err := Open("", tiny(d.afterPower(mode)))
		if err != nil {
			t.Fatal(err)
		}
		held := all(t, s)
		for _, id := range all(t, oracle) {
			r, refused, _ := s.Refusal(t.Context(), id)
			if !slices.Contains(held, id) && !(refused && !strings.Contains(r.Reason, "purged")) {
				t.Fatalf("%s: an acknowledged event is lost", mode)
			}
		}
		if _, err := s.Insert(t.Context(), batch, at); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullThenBroken has the way back from a full disk fail: then nobody knows what the disk holds, and
// the store is read-only for good. So it is after a sync that failed for lack of room.
func TestFullThenBroken(t *testing.T) {
	for _, c := range []struct{ name, op string }{{"truncate", "truncate"}, {"sync after truncate", "sync"}, {"sync alone", "only sync"}} {
		t.Run(c.name, func(t *testing.T) {
			d := newFaultFS(1)
			on := false
			d.fail = func(_ int, what, name string) fault {
				switch {
				case !on:
				case what == "write" && c.op != "only sync":
					return fault{err: errNoSpace, short: true}
				case what == c.op:
					return fault{err: syscall.EIO}
				case "only "+what == c.op:
					return fault{err: errNoSpace}
				}
				return fault{}
			}
			s, err := Open("", tiny(d))
			if err != nil {
				t.Fatal(err)
			}
			w := storetest.NewWorld(7, 6, 100)
			acked, pending := w.Batch(10), w.Batch(10)
			oracle := store.NewMemory()
			if _, err := oracle.Insert(t.Context(), acked, now); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Insert(t.Context(), acked, now); err != nil {
				t.Fatal(err)
			}
			on = true
			if _, err := s.Insert(t.Context(), pending, now); !errors.Is(err, store.ErrReadOnly) {
				t.Fatalf("insert: %v", err)
			}
			on = false
			if _, err := s.Insert(t.Context(), pending, now); !errors.Is(err, store.ErrReadOnly) {
				t.Fatalf("insert when all is well again: %v", err)
			}
			storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
			s.Close()
			verify(t, d.afterPower("mix"), oracle, pending)
		})
	}
}
