package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

var noContext = context.Background()

// TestQuota writes several times the quota: the store stays under it, the protected stay, and what went
// does not come back.
func TestQuota(t *testing.T) {
	const quota = 16 << 20
	s, err := Open(t.TempDir(), Options{MaxBytes: quota, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := newSample(9)
	var first *nostr.Event
	profile := &nostr.Event{PubKey: nostr.PubKey{1}, CreatedAt: w.at - 100, Kind: 3}
	profile.ID = profile.ComputeID()
	insert := func(events ...*nostr.Event) {
		t.Helper()
		if _, err := s.Insert(t.Context(), events, 1_700_000_000); err != nil {
			t.Fatal(err)
		}
	}
	insert(profile)
	total := 3 * quota
	if testing.Short() {
		total = 2 * quota
	}
	for written := 0; written < total; {
		batch := make([]*nostr.Event, 500)
		for i := range batch {
			batch[i] = w.event()
			written += len(batch[i].JSON())
		}
		if first == nil {
			first = batch[0]
			for _, e := range batch {
				if e.Kind == 1 {
					first = e
				}
			}
		}
		insert(batch...)
		st, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st.Bytes > quota {
			t.Fatalf("%d bytes after %d were written", st.Bytes, written)
		}
	}
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", st)
	if st.Returned == 0 || st.Events < 5000 {
		t.Fatalf("%+v", st)
	}
	if ok, err := s.Has(t.Context(), profile.ID, 1_700_000_000); !ok || err != nil {
		t.Fatal("a protected event went", err)
	}
	if out, err := s.Insert(t.Context(), []*nostr.Event{first}, 1_700_000_000); err != nil || out[0] != store.Refused {
		t.Fatalf("the oldest came back: %v %v", out, err)
	}
}

// TestRetentionRules checks age and count.
func TestRetentionRules(t *testing.T) {
	s, err := Open(t.TempDir(), Options{NoSync: true, Retention: Retention{Rules: []Rule{
		{Kinds: []nostr.Kind{7}, MaxAge: 100},
		{Kinds: []nostr.Kind{1}, MaxCount: 10},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	add := func(kind nostr.Kind, at int64) {
		e := &nostr.Event{Kind: kind, CreatedAt: at}
		e.ID = e.ComputeID()
		if _, err := s.Insert(t.Context(), []*nostr.Event{e}, 1000); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(50) {
		add(1, 900+i)
		add(7, 875+i)
	}
	s.wmu.Lock()
	err = s.seal()
	s.wmu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		if more, err = s.pass(func() bool { return false }); err != nil {
			t.Fatal(err)
		}
	}
	for kind, want := range map[nostr.Kind]int{1: 10, 7: 25} {
		if n, err := s.Count(t.Context(), []nostr.Filter{{Kinds: []nostr.Kind{kind}}}, store.View{}, 1000); n != want || err != nil {
			t.Fatalf("%d events of kind %d, want %d (%v)", n, kind, want, err)
		}
	}
}

// TestSpaceComesBack purges most of a store and compacts it.
func TestSpaceComesBack(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(dir, Options{NoSync: true, LogFileBytes: 256 << 10, FlushDocs: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	w := newSample(4)
	var ids []nostr.ID
	for range 20 {
		batch := make([]*nostr.Event, 500)
		for i := range batch {
			batch[i] = w.event()
			ids = append(ids, batch[i].ID)
		}
		if _, err := s.Insert(t.Context(), batch, 1_700_000_000); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(t.Context(), ids[:9000], store.ReasonPurged, 1_700_000_000); err != nil {
		t.Fatal(err)
	}
	purged, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if purged.DeadBytes <= before.DeadBytes {
		t.Fatalf("nothing is logically freed: %+v", purged)
	}
	order := func(s *Store) (out []uint64) {
		for a, err := range s.Arrivals(t.Context(), 0, 1_700_000_000) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, a.Seq)
		}
		return out
	}
	seqs := order(s)
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("before %+v, purged %+v, compacted %+v", before, purged, after)
	if after.Returned <= 0 || after.Bytes > before.Bytes/3 {
		t.Fatalf("space did not come back: %+v", after)
	}
	for i := range 2 { // the cursor survives compaction, restart and rebuild
		if got := order(s); !slices.Equal(got, seqs) {
			t.Fatalf("round %d: %d arrivals, want %d as before", i, len(got), len(seqs))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Rebuild(dir, Options{NoSync: true}); err != nil {
			t.Fatal(err)
		}
		s = open()
	}
	if out, err := s.Insert(t.Context(), []*nostr.Event{w.event()}, 1_700_000_000); err != nil || out[0] != store.Stored {
		t.Fatal(out, err)
	}
	if r, ok, err := s.Refusal(t.Context(), ids[3]); !ok || r.Reason != store.ReasonPurged || err != nil {
		t.Fatalf("a purge is forgotten after compaction and rebuild: %v %v %v", r, ok, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReadersAmidUpkeep reads while everything moves: frozen sets stay as they were, a replaceable
// address always has exactly one event, nothing is read after it is gone.
func TestReadersAmidUpkeep(t *testing.T) {
	s := small(t, t.TempDir()).(*Store)
	defer s.Close()
	key := nostr.PubKey{7}
	version := func(i int64) *nostr.Event {
		e := &nostr.Event{PubKey: key, Kind: 0, CreatedAt: i}
		e.ID = e.ComputeID()
		return e
	}
	if _, err := s.Insert(t.Context(), []*nostr.Event{version(1)}, now); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				readOnce(t, s, key)
			}
		})
	}
	w := storetest.NewWorld(8, 20, 300)
	for i := range int64(150) {
		batch := append(w.Batch(20), version(2+i))
		if _, err := s.Insert(t.Context(), batch, now); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			if err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	readers.Wait()
}

func readOnce(t *testing.T, s *Store, key nostr.PubKey) {
	n := 0
	for e, err := range s.Query(noContext, []nostr.Filter{{Authors: []nostr.PubKey{key}}}, store.View{}, 0, now) {
		if err != nil || e.PubKey != key {
			t.Error("query:", err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d events of one address", n)
	}
	set, release, err := s.Set(noContext, []nostr.Filter{{}}, store.View{}, now)
	if err != nil {
		t.Error(err)
		return
	}
	defer release()
	var sum negentropy.Sum
	var last negentropy.Item
	for i := range set.Len() {
		it := set.Item(i)
		if i > 0 && last.Compare(it) >= 0 {
			t.Error("a frozen set is out of order")
		}
		last = it
		sum.Add(&it.ID)
	}
	if sum != set.Sum(0, set.Len()) {
		t.Error("a frozen set's sum is not that of its items")
	}
	for a, err := range s.Arrivals(noContext, 0, now) {
		if err != nil || a.Event == nil {
			t.Error("arrivals:", err)
			return
		}
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	s := small(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), nostr.ID{}, now); !errors.Is(err, store.ErrClosed) {
		t.Fatal(err)
	}
	if _, _, err := s.Set(t.Context(), nil, store.View{}, now); !errors.Is(err, store.ErrClosed) {
		t.Fatal(err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := small(t, dir)
	e := newSample(1).event()
	if _, err := s.Insert(t.Context(), []*nostr.Event{e}, 1_700_000_000); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ro, err := Open(dir, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ro.Insert(t.Context(), []*nostr.Event{e}, 1_700_000_000); !errors.Is(err, store.ErrReadOnly) {
		t.Fatal(err)
	}
	if _, err := ro.Purge(t.Context(), []nostr.ID{e.ID}, store.ReasonPurged, 1_700_000_000); !errors.Is(err, store.ErrReadOnly) {
		t.Fatal(err)
	}
	if got, err := ro.Get(t.Context(), e.ID, 1_700_000_000); err != nil || got.ID != e.ID {
		t.Fatal(err)
	}
	if err := ro.Close(); err != nil {
		t.Fatal(err)
	}
}
