package trail

import (
	"encoding/json"
	"testing"
)

func TestDiary(t *testing.T) {
	dir := t.TempDir()
	d, err := openDiary(dir, 100_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	add := func(e Entry) {
		t.Helper()
		if err := d.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	add(Entry{At: 100, Peer: "did:a", What: "granted"})
	for range 10 * mostEntries { // one peer makes much ado
		add(Entry{At: 120, Peer: "did:b", What: "fault"})
	}
	for range mostEntries + 5 {
		add(Entry{At: 121, Peer: "did:b", What: "receipt-accepted", Window: 7, Slip: &Slip{Way: "received", Head: "00", Receipt: json.RawMessage(`{}`)}})
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = openDiary(dir, 100_000, 1); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	list, since, err := d.Of("did:a", func(*Entry) bool { return true })
	if err != nil || since != 100 || len(list) != 1 || list[0].What != "granted" {
		t.Errorf("%+v since %d: %v", list, since, err)
	}
	list, _, err = d.Of("did:b", func(e *Entry) bool { return e.Slip == nil })
	if err != nil || len(list) != mostEntries {
		t.Errorf("%d entries of a peer that made ado, want %d: %v", len(list), mostEntries, err)
	}
	list, _, err = d.Of("", func(e *Entry) bool { return e.Window == 7 })
	if err != nil || len(list) != mostEntries+5 {
		t.Errorf("%d receipts, want %d: %v", len(list), mostEntries+5, err)
	}
	var none *Diary
	if err := none.Add(Entry{}); err != nil {
		t.Error(err)
	}
}
