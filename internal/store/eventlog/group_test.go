package eventlog

import (
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
)

// TestGroupCommit holds a sync up: what is offered meanwhile shares the next one, and none of it is
// seen or answered before.
func TestGroupCommit(t *testing.T) {
	d := newFaultFS(1)
	s, err := Open("", Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	entered, goOn := make(chan struct{}), make(chan struct{})
	syncs := 0
	d.mu.Lock()
	d.fail = func(_ int, what, _ string) fault {
		if what == "sync" {
			if syncs++; syncs == 1 {
				close(entered)
				<-goOn
			}
		}
		return fault{}
	}
	d.mu.Unlock()
	w := storetest.NewWorld(2, 5, 100)
	offer := func(e *nostr.Event) *request {
		r := &request{size: 1, done: make(chan struct{})}
		r.run = func() error {
			_, err := s.insert(e, now)
			return err
		}
		s.requests <- r
		return r
	}
	events := []*nostr.Event{}
	for len(events) < 101 {
		if e := w.Event(); e.Kind == 1 && !e.ExpiredAt(now) {
			events = append(events, e)
		}
	}
	all := []*request{offer(events[0])}
	<-entered
	for _, e := range events[1:] {
		all = append(all, offer(e))
	}
	for i, r := range all {
		select {
		case <-r.done:
			t.Fatalf("request %d was answered before the sync", i)
		default:
		}
	}
	if n, err := s.Count(t.Context(), []nostr.Filter{{}}, store.View{}, now); n != 0 || err != nil {
		t.Fatalf("%d events are seen before the sync (%v)", n, err)
	}
	close(goOn)
	for _, r := range all {
		<-r.done
		if r.err != nil {
			t.Fatal(r.err)
		}
	}
	if syncs != 2 {
		t.Fatalf("%d syncs for 101 inserts, want 2", syncs)
	}
	if n, err := s.Count(t.Context(), []nostr.Filter{{}}, store.View{}, now); n != 101 || err != nil {
		t.Fatalf("%d events (%v)", n, err)
	}
}
