package main

import (
	"path/filepath"
	"testing"
)

// TestSyncWays brings a few events both ways that bench sync compares, over real sockets.
func TestSyncWays(t *testing.T) {
	items := newCorpus(1).make(0, 300)
	from, err := newSyncNode(filepath.Join(t.TempDir(), "from"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer from.close()
	if err := from.fill(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	c := syncCmd{Events: len(items)}
	for i, w := range []syncWay{{"sync/1.0", viaSync}, {"nip77", viaNIP77}} {
		s := &sample{Values: map[string]float64{}}
		if err := c.once(t.Context(), from, filepath.Join(t.TempDir(), w.name), byte(2+i), w, s); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		if s.Values["wire_bytes_per_event"] < meanSize(items) {
			t.Errorf("%s: %v octets on the wire an event of %v", w.name, s.Values["wire_bytes_per_event"], meanSize(items))
		}
	}
}

// TestStar runs the smallest star of bench peers. What three peers hold in memory is less than what other tests of this process left to collect.
func TestStar(t *testing.T) {
	items := newCorpus(1).make(0, 5)
	c := peersCmd{Events: len(items)}
	p, err := c.star(t.Context(), 3, items)
	if err != nil {
		t.Fatal(err)
	}
	if p.goroutine <= 0 || p.cpu <= 0 {
		t.Errorf("a peering that costs nothing: %+v", p)
	}
}
