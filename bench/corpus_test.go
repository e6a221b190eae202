package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

func TestCorpusIsDeterministicAndSigned(t *testing.T) {
	a, b := newCorpus(3), newCorpus(3)
	var events []*nostr.Event
	seen := map[nostr.ID]bool{}
	for i := range 600 {
		e := a.event(i)
		if again := b.event(i); !bytes.Equal(e.JSON(), again.JSON()) {
			t.Fatalf("event %d differs:\n%s\n%s", i, e.JSON(), again.JSON())
		}
		parsed, err := nostr.ParseEvent(e.JSON())
		if err != nil {
			t.Fatalf("event %d: %v\n%s", i, err, e.JSON())
		}
		if parsed.CreatedAt < corpusStart || parsed.CreatedAt >= corpusEnd(i+1) {
			t.Errorf("event %d is of %d, outside of %d to %d", i, parsed.CreatedAt, corpusStart, corpusEnd(i+1))
		}
		if parsed.Kind.IsReplaceable() || parsed.Kind.IsEphemeral() {
			t.Errorf("event %d has kind %d: a relay would not hold all of the corpus", i, parsed.Kind)
		}
		if seen[e.ID] {
			t.Errorf("event %d has the id of another", i)
		}
		seen[e.ID] = true
		events = append(events, parsed)
	}
	for i, ok := range nostr.NewVerifier().Verify(events) {
		if !ok {
			t.Errorf("event %d: the signature is wrong", i)
		}
	}
	if other := newCorpus(4).event(0); other.ID == events[0].ID {
		t.Error("another seed makes the same event")
	}
}

func TestCorpusSize(t *testing.T) {
	items := newCorpus(1).make(0, 2000)
	if mean := meanSize(items); mean < 600 || mean > 700 {
		t.Errorf("events are of %.0f octets on average, want about 650", mean)
	}
}

func TestCorpusFileGrowsAndHeals(t *testing.T) {
	dir := t.TempDir()
	c := newCorpus(9)
	whole := c.make(0, 30)
	check := func(n int) {
		t.Helper()
		items, err := c.load(t.Context(), dir, n)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) != n {
			t.Fatalf("%d events, want %d", len(items), n)
		}
		for i := range items {
			if items[i].id != whole[i].id || items[i].at != whole[i].at || !bytes.Equal(items[i].raw, whole[i].raw) {
				t.Errorf("event %d differs", i)
			}
		}
	}
	check(10)
	check(20)
	check(5)
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if len(files) != 1 {
		t.Fatalf("files: %v", files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], text[:len(text)-100], 0o644); err != nil { // a run that was killed
		t.Fatal(err)
	}
	check(30)
	text[20] ^= 1
	if err := os.WriteFile(files[0], text, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.load(t.Context(), dir, 3); err == nil {
		t.Error("a spoilt file was taken")
	}
}

// TestNegSet wants the local set to differ from the corpus by exactly what the cell says.
func TestNegSet(t *testing.T) {
	r := &run{corpus: newCorpus(2)}
	r.items = r.corpus.make(0, 997)
	held := map[nostr.ID]bool{}
	for i := range r.items {
		held[r.items[i].id] = true
	}
	for _, different := range []int{0, 10, 100, 498} {
		set := r.negSet(different)
		extra := 0
		for i := range set.Len() {
			if !held[set.Item(i).ID] {
				extra++
			}
		}
		missing := len(r.items) - (set.Len() - extra)
		if extra != different/2 || missing != different/2 {
			t.Errorf("%d different: %d extra and %d missing", different, extra, missing)
		}
	}
}
