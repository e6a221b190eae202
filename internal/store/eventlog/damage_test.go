package eventlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// closedStore is a store that was filled and closed, and what it holds.
func closedStore(t *testing.T) (d *faultFS, events []*nostr.Event) {
	t.Helper()
	d = newFaultFS(1)
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
	for e, err := range acked.Query(t.Context(), []nostr.Filter{{}}, store.View{}, 0, now) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return d.afterPower("keep"), events
}

func (d *faultFS) logs() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.names)), func(n string) bool { return !strings.HasPrefix(n, "log-") })
}

// known compares what is there and what is listed as damaged with all that there was.
func known(t *testing.T, s *Store, events []*nostr.Event) (have, damaged int) {
	t.Helper()
	ids := slices.Concat(all(t, s), s.Damaged())
	want := make([]nostr.ID, 0, len(events))
	for _, e := range events {
		want = append(want, e.ID)
	}
	order := func(a, b nostr.ID) int { return slices.Compare(a[:], b[:]) }
	slices.SortFunc(ids, order)
	slices.SortFunc(want, order)
	if !slices.Equal(ids, want) {
		t.Fatalf("%d events are there or known to be damaged, want %d", len(ids), len(want))
	}
	st, err := s.Stats(t.Context())
	if err != nil || st.Damaged != int64(len(s.Damaged())) {
		t.Fatalf("stats %+v %v", st, err)
	}
	return len(ids) - len(s.Damaged()), len(s.Damaged())
}

// TestHeaderRot flips each bit of the header of each log file: nothing is lost, it is told once, and the
// header is as it was.
func TestHeaderRot(t *testing.T) {
	clean, events := closedStore(t)
	step := 7
	if testing.Short() {
		step = 41
	}
	for _, name := range clean.logs() {
		for bit := 0; bit < logHeader*8; bit += step {
			for _, lost := range []string{"", manifestName} { // with and without a manifest
				d := clean.afterPower("keep")
				d.names[name].data[bit/8] ^= 1 << (bit % 8)
				delete(d.names, lost)
				s, err := Open("", tiny(d))
				if err != nil {
					t.Fatalf("%s bit %d: %v", name, bit, err)
				}
				if r := s.Report(); len(r.Headers) != 1 || logName(r.Headers[0]) != name {
					t.Fatalf("%s bit %d: report %+v", name, bit, r)
				}
				c, err := s.Check(t.Context())
				if err != nil || len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "header") || c.Events != int64(len(events)) {
					t.Fatalf("%s bit %d: check %+v %v", name, bit, c, err)
				}
				if _, damaged := known(t, s, events); damaged > 0 {
					t.Fatalf("%s bit %d: %d damaged", name, bit, damaged)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if got := d.names[name].data; lost == "" && !slices.Equal(got[:logHeader], clean.names[name].data[:logHeader]) && clean.names[name].data[16] == 0 {
					t.Fatalf("%s bit %d: header %x", name, bit, got[:logHeader])
				}
				checkSound(t, d, events)
			}
		}
	}
}

// checkSound opens and checks a store that is to be whole.
func checkSound(t *testing.T, d *faultFS, events []*nostr.Event) {
	t.Helper()
	s, err := Open("", tiny(d))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.Check(t.Context())
	if err != nil || len(c.Problems)+len(c.Damaged) > 0 {
		t.Fatalf("check %+v %v", c, err)
	}
	known(t, s, events)
}

// TestHeaderMendFails lets the mending of a header fail, each way: the store opens all the same, and the
// next time mends it.
func TestHeaderMendFails(t *testing.T) {
	clean, events := closedStore(t)
	name := clean.logs()[0]
	clean.names[name].data[3] ^= 1
	for kind, how := range failures() {
		for _, op := range []string{"write", "sync"} {
			d := clean.afterPower("keep")
			done := false
			d.fail = func(_ int, what, file string) fault {
				if !done && what == op && file == name {
					done = true
					return how
				}
				return fault{}
			}
			s, err := Open("", tiny(d))
			if err != nil || !done {
				t.Fatalf("%s %s: %v", kind, op, err)
			}
			known(t, s, events)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = Open("", tiny(d)); err != nil {
				t.Fatal(err)
			}
			known(t, s, events)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			checkSound(t, d, events)
		}
	}
}

// TestLostLog removes, empties and cuts log files: every event that went is listed, through restarts and
// rebuilds, until it is healed.
func TestLostLog(t *testing.T) {
	clean, events := closedStore(t)
	names := clean.logs()
	for _, which := range []string{names[0], names[len(names)/2], names[len(names)-1], "log-"} {
		for _, how := range []string{"remove", "empty", "half", "header"} {
			for _, rebuild := range []bool{false, true} {
				t.Run(fmt.Sprint(which, how, rebuild), func(t *testing.T) {
					d := clean.afterPower("keep")
					for _, name := range names {
						if strings.HasPrefix(name, which) {
							lose(d, name, how)
						}
					}
					lostLog(t, d, events, rebuild)
				})
			}
		}
	}
}

func lose(d *faultFS, name, how string) {
	n := d.names[name]
	switch how {
	case "remove":
		delete(d.names, name)
	case "empty":
		n.data = nil
	case "half":
		n.data = n.data[:len(n.data)/2]
	case "header":
		n.data = n.data[:min(len(n.data), logHeader-1)]
	}
}

func lostLog(t *testing.T, d *faultFS, events []*nostr.Event, rebuild bool) {
	if rebuild {
		r, err := Rebuild("", tiny(d))
		if err != nil || len(r.Lost) == 0 {
			t.Fatalf("rebuild: %+v %v", r, err)
		}
		s, err := Open("", tiny(d))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(s.Damaged(), r.Damaged) {
			t.Fatalf("the rebuild lists %d damaged, opening %d", len(r.Damaged), len(s.Damaged()))
		}
		s.Close()
	}
	damaged := 0
	for round := range 3 { // what is known stays known
		s, err := Open("", tiny(d))
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Check(t.Context())
		if err != nil || round == 0 && !rebuild && len(c.Problems) == 0 {
			t.Fatalf("check %+v %v", c, err)
		}
		_, n := known(t, s, events)
		if len(c.Damaged) != n || round > 0 && n != damaged {
			t.Fatalf("round %d: %d damaged, %d before", round, n, damaged)
		}
		damaged = n
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			if r, err := Rebuild("", tiny(d)); err != nil || len(r.Damaged) != n {
				t.Fatalf("rebuild: %+v %v", r, err)
			}
		}
	}
	s, err := Open("", tiny(d))
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Insert(t.Context(), events, now)
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for _, o := range out {
		if o == store.Stored {
			stored++
		}
	}
	if stored != damaged {
		t.Fatalf("%d events healed, %d were damaged", stored, damaged)
	}
	crashed := d.afterPower("drop") // healed, and no checkpoint since
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkSound(t, d, events)
	checkSound(t, crashed, events)
}

// TestLostEverything leaves only the indexes: they still say what there was.
func TestLostEverything(t *testing.T) {
	d, events := closedStore(t)
	for _, name := range append(d.logs(), manifestName) {
		delete(d.names, name)
	}
	s, err := Open("", tiny(d))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if have, damaged := known(t, s, events); have != 0 || damaged != len(events) {
		t.Fatalf("%d there, %d damaged", have, damaged)
	}
}

// TestRebuildRemembers damages records, and rebuilds with and without having read them, and without
// the state: the ids are not forgotten.
func TestRebuildRemembers(t *testing.T) {
	clean, events := closedStore(t)
	for _, how := range []string{"unread", "read", "no state", "purged"} {
		d := clean.afterPower("keep")
		for _, name := range d.logs() {
			if data := d.names[name].data; len(data) > 2000 {
				data[len(data)/2] ^= 4
			}
		}
		if how == "read" || how == "purged" {
			s, err := Open("", tiny(d))
			if err != nil {
				t.Fatal(err)
			}
			if c, err := s.Check(t.Context()); err != nil || len(c.Damaged) == 0 {
				t.Fatalf("check %+v %v", c, err)
			}
			if how == "purged" { // the operator gives them up
				if _, err := s.Purge(t.Context(), s.Damaged(), store.ReasonPurged, now); err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
		}
		if how == "no state" {
			for name := range d.names {
				if strings.HasPrefix(name, "sta-") {
					d.names[name].data[20] ^= 1
				}
			}
		}
		r, err := Rebuild("", tiny(d))
		if err != nil || how == "purged" != (len(r.Damaged) == 0) {
			t.Fatalf("%s: rebuild: %+v %v", how, r, err)
		}
		s, err := Open("", tiny(d))
		if err != nil {
			t.Fatal(err)
		}
		if how == "read" || how == "unread" { // without the state, those whose records have moved are not known
			known(t, s, events)
		}
		if !slices.Equal(s.Damaged(), r.Damaged) {
			t.Fatalf("%s: %d damaged, the rebuild said %d", how, len(s.Damaged()), len(r.Damaged))
		}
		s.Close()
	}
}
