package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
)

// tiny makes everything happen within a few hundred events.
func tiny(fs FS) Options {
	return Options{FS: fs, headDocs: 8, FlushDocs: 24, LogFileBytes: 6 << 10}
}

// workload inserts batches until one fails. It returns the oracle of what was acknowledged and the
// batch that was not.
func workload(t *testing.T, s *Store, seed uint64, batches int) (acked *store.Memory, pending []*nostr.Event, err error) {
	t.Helper()
	w := storetest.NewWorld(seed, 6, 100)
	acked = store.NewMemory()
	for i := range batches {
		batch := w.Batch(1 + w.Rand.IntN(20))
		got, err := s.Insert(t.Context(), batch, now)
		if err != nil {
			return acked, batch, err
		}
		want, err := acked.Insert(t.Context(), batch, now)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("outcomes %v, want %v", got, want)
		}
		for more := true; more; { // upkeep may fail, and is tried again
			if more, err = s.pass(func() bool { return false }); err != nil {
				break
			}
		}
		if i == batches/2 || i == batches-1 {
			s.Compact(t.Context()) // likewise
		}
	}
	return acked, nil, nil
}

const now = storetest.Start + 10

func all(t *testing.T, s store.Store) []nostr.ID {
	t.Helper()
	ids, err := s.EnumerateRange(t.Context(), nostr.Filter{}, 0, 1<<40, now)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// verify opens what is left and checks that nothing acknowledged is lost: what the unfinished batch
// did is either done or not, event by event, and offering it again completes it.
func verify(t *testing.T, left *faultFS, acked *store.Memory, pending []*nostr.Event) {
	t.Helper()
	s, err := Open("", tiny(left))
	if err != nil {
		t.Fatalf("open after the fault: %v", err)
	}
	before := all(t, acked)
	if _, err := acked.Insert(t.Context(), pending, now); err != nil {
		t.Fatal(err)
	}
	kept := make(map[nostr.ID]bool)
	for _, id := range all(t, acked) {
		kept[id] = true
	}
	for _, id := range before {
		if ok, err := s.Has(t.Context(), id, now); err != nil || kept[id] && !ok {
			t.Fatalf("an acknowledged event is lost: %v (%+v)", err, s.Report())
		}
	}
	if _, err := s.Insert(t.Context(), pending, now); err != nil {
		t.Fatal(err)
	}
	storetest.Compare(t, s, acked, []nostr.Filter{{}}, store.View{}, 0, now)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open("", tiny(left)); err != nil {
		t.Fatal(err)
	}
	storetest.Compare(t, s, acked, []nostr.Filter{{}}, store.View{}, 0, now)
	r, err := s.Check(t.Context())
	if err != nil || len(r.Problems)+len(r.Damaged) > 0 {
		t.Fatalf("check: %+v %v", r, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Rebuild("", tiny(left)); err != nil {
		t.Fatal(err)
	}
	if s, err = Open("", tiny(left)); err != nil {
		t.Fatal(err)
	}
	storetest.Compare(t, s, acked, []nostr.Filter{{}}, store.View{}, 0, now)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// operations counts what the workload does to the directory.
func operations(t *testing.T) int {
	t.Helper()
	d := newFaultFS(1)
	s, err := Open("", tiny(d))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := workload(t, s, 1, workBatches); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.passes.checkpoints == 0 || s.passes.merges == 0 || s.passes.rewrites == 0 {
		t.Fatalf("the workload does not exercise everything: %+v", s.passes)
	}
	return d.ops
}

const workBatches = 30

func stride(n int) int {
	switch {
	case storetest.Full():
		return 1
	case testing.Short():
		return n/20 + 1
	}
	return n/100 + 1
}

// TestPowerCut cuts the power at every write, sync, rename, creation and removal.
func TestPowerCut(t *testing.T) {
	n := operations(t)
	for _, mode := range []string{"drop", "keep", "mix"} {
		t.Run(mode, func(t *testing.T) {
			for at := 1; at <= n; at += stride(n) {
				d := newFaultFS(uint64(at))
				d.fail = func(op int, what, name string) fault {
					if op == at {
						return fault{err: errPower, power: true}
					}
					return fault{}
				}
				cutAt(t, d, d, mode)
			}
		})
	}
}

func cutAt(t *testing.T, d *faultFS, fs FS, mode string) {
	t.Helper()
	s, err := Open("", tiny(fs))
	acked := store.NewMemory()
	var pending []*nostr.Event
	if err == nil {
		acked, pending, _ = workload(t, s, 1, workBatches)
		s.Close() // fails or not: the power is off
	} else if !errors.Is(err, errPower) {
		t.Fatal(err)
	}
	verify(t, d.afterPower(mode), acked, pending)
}

// TestFailures lets every operation fail, in each way, and go on: the store must go on
// right, or be read-only and keep what it has acknowledged.
func TestFailures(t *testing.T) {
	n := operations(t)
	for kind, how := range failures() {
		t.Run(kind, func(t *testing.T) {
			for at := 3; at <= n; at += stride(n) { // 1 and 2 are the creation of the first file
				d := newFaultFS(uint64(at))
				failed := ""
				d.fail = func(op int, what, name string) fault {
					if op == at {
						failed = what + " " + name
						return how
					}
					return fault{}
				}
				s, err := Open("", tiny(d))
				if err != nil {
					continue // the failure was during the making
				}
				acked, pending, err := workload(t, s, 1, workBatches)
				if errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrReadOnly) {
					fullThenRoom(t, s, acked, pending)
				} else if err != nil {
					if !errors.Is(err, store.ErrReadOnly) {
						t.Fatalf("%s: %v", failed, err)
					}
					if kind == "full" && !errors.Is(err, store.ErrFull) {
						t.Fatalf("a full disk is not told: %v", err)
					}
					if _, err := s.Insert(t.Context(), pending, now); !errors.Is(err, store.ErrReadOnly) {
						t.Fatalf("the store accepts after %s failed: %v", failed, err)
					}
					storetest.Compare(t, s, acked, []nostr.Filter{{}}, store.View{}, 0, now) // readers see what was acknowledged
				}
				s.Close() // reports the failure or not
				for _, mode := range []string{"keep", "drop"} {
					verify(t, d.afterPower(mode), replayed(t, err, pending), pending)
				}
			}
		})
	}
}

// fullThenRoom offers a batch again that a full disk has refused.
func fullThenRoom(t *testing.T, s *Store, acked *store.Memory, pending []*nostr.Event) {
	t.Helper()
	storetest.Compare(t, s, acked, []nostr.Filter{{}}, store.View{}, 0, now)
	got, err := s.Insert(t.Context(), pending, now)
	if err != nil {
		t.Fatalf("the disk has room again: %v", err)
	}
	if want, err := acked.Insert(t.Context(), pending, now); err != nil || !slices.Equal(got, want) {
		t.Fatalf("outcomes %v, want %v (%v)", got, want, err)
	}
	storetest.Compare(t, s, acked, []nostr.Filter{{}}, store.View{}, 0, now)
}

// replayed makes the oracle of the workload again, without its unfinished batch.
func replayed(t *testing.T, failed error, pending []*nostr.Event) *store.Memory {
	t.Helper()
	w := storetest.NewWorld(1, 6, 100)
	m := store.NewMemory()
	for range workBatches {
		batch := w.Batch(1 + w.Rand.IntN(20))
		if failed != nil && len(pending) > 0 && batch[0].ID == pending[0].ID && len(batch) == len(pending) {
			break
		}
		if _, err := m.Insert(t.Context(), batch, now); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestBitRot flips bits all over: in what can be made anew nothing is lost, in the log the
// damaged events are set aside, and come back when they are offered again.
func TestBitRot(t *testing.T) {
	d := newFaultFS(1)
	s, err := Open("", tiny(d))
	if err != nil {
		t.Fatal(err)
	}
	acked, _, err := workload(t, s, 3, workBatches)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	clean := d.afterPower("keep")
	var events []*nostr.Event
	for e, err := range acked.Query(t.Context(), []nostr.Filter{{}}, store.View{}, 0, now) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	for name, n := range clean.names {
		if name == "LOCK" || len(n.data) == 0 {
			continue
		}
		for i := range 12 {
			rotten := clean.afterPower("keep")
			bit := (len(n.data)*8/12)*i + i
			rotten.names[name].data[bit/8] ^= 1 << (bit % 8)
			rot(t, rotten, fmt.Sprintf("%s bit %d", name, bit), acked, events, strings.HasPrefix(name, "log-"))
		}
	}
}

func rot(t *testing.T, d *faultFS, what string, acked *store.Memory, events []*nostr.Event, inLog bool) {
	t.Helper()
	s, err := Open("", tiny(d))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer s.Close()
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	lost := len(s.Damaged())
	for e, err := range s.Query(t.Context(), []nostr.Filter{{}}, store.View{}, 0, now) {
		if err != nil || e.ComputeID() != e.ID {
			t.Fatalf("%s: a damaged event is served: %v", what, err)
		}
	}
	if lost > 0 && !inLog {
		t.Fatalf("%s: %d events lost", what, lost)
	}
	if _, err := s.Insert(t.Context(), events, now); err != nil {
		t.Fatal(err)
	}
	if got, want := all(t, s), all(t, acked); !slices.Equal(got, want) {
		t.Fatalf("%s: %d events after healing, want %d (%d set aside, %+v)", what, len(got), len(want), lost, s.Report())
	}
	if len(s.Damaged()) > 0 {
		t.Fatalf("%s: still damaged after healing", what)
	}
	again, err := Open("", tiny(d.afterPower("keep"))) // without a checkpoint
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := all(t, again), all(t, acked); !slices.Equal(got, want) {
		t.Fatalf("%s: %d events after healing and a crash, want %d", what, len(got), len(want))
	}
}
