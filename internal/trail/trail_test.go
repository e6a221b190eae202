package trail

import (
	"os"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

func id(n byte) nostr.ID { return nostr.ID{n} }

func TestBook(t *testing.T) {
	dir := t.TempDir()
	b, err := open(dir, 1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	grant := id(9)
	if err := b.Add(Departure{Event: id(1), Road: "mesh", To: "did:nostr:x", Grant: &grant, Window: 7, At: 100}, Departure{Event: id(2), Road: "bridge", To: "wss://a", At: 101}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// A torn line, as a power cut leaves it, costs nothing but itself.
	f, err := os.OpenFile(filepath.Join(dir, "left.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(`{"event":"01`)
	}
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if b, err = open(dir, 1000, 2); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(Departure{Event: id(1), Road: "bridge", To: "wss://a", At: 102}); err != nil {
		t.Fatal(err)
	}
	list, since, err := b.Of(id(1))
	if err != nil || since != 100 || len(list) != 2 || *list[0].Grant != grant || list[1].To != "wss://a" {
		t.Errorf("%+v since %d: %v", list, since, err)
	}
	for i := range 100 {
		if err := b.Add(Departure{Event: id(3), Road: "bridge", To: "wss://b", At: 200 + int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	list, since, err = b.Of(id(1))
	if err != nil || len(list) != 0 || since <= 200 {
		t.Errorf("the oldest is not forgotten: %+v since %d: %v", list, since, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%d files: %v", len(files), err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Add(Departure{}); err == nil {
		t.Error("a closed book takes lines")
	}
	var none *Book
	if err := none.Add(Departure{}); err != nil {
		t.Error(err)
	}
}
