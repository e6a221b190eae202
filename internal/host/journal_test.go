package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func journal(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func put(t *testing.T, j *Journal, key, value string) {
	t.Helper()
	if err := j.Put(key, json.RawMessage(value), true); err != nil {
		t.Fatal(err)
	}
}

func TestJournalKeepsTheNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := journal(t, path)
	put(t, j, "a", `1`)
	put(t, j, "b", `{"x":"\n"}`)
	put(t, j, "a", `2`)
	put(t, j, "b", `null`)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got := journal(t, path).Records(); len(got) != 1 || string(got["a"]) != "2" {
		t.Errorf("records %s", got)
	}
}

// TestJournalTornAnywhere cuts the file at every octet: what was whole before the cut is there, and the journal goes on.
func TestJournalTornAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := journal(t, path)
	put(t, j, "a", `"one"`)
	first := j.size
	put(t, j, "a", `"two"`)
	j.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(text) + 1 {
		if err := os.WriteFile(path, text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j := journal(t, path)
		want := ""
		if int64(cut) >= first {
			want = `"one"`
		}
		if cut == len(text) {
			want = `"two"`
		}
		if got := string(j.Records()["a"]); got != want {
			t.Fatalf("cut at %d: %s, want %s", cut, got, want)
		}
		put(t, j, "c", `3`)
		j.Close()
		if got := string(journal(t, path).Records()["c"]); got != "3" {
			t.Fatalf("cut at %d: the journal does not go on", cut)
		}
	}
}

func TestJournalDamageInTheMiddleIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := journal(t, path)
	put(t, j, "a", `1`)
	put(t, j, "b", `2`)
	j.Close()
	text, _ := os.ReadFile(path)
	text[12] ^= 1
	os.WriteFile(path, text, 0o600)
	if _, err := OpenJournal(path); err == nil {
		t.Error("a damaged journal opened")
	}
}

// failing is a file whose next write or sync fails, after doing it or instead of doing it.
type failing struct {
	journalFile
	write, sync, applied bool
}

func (f *failing) Write(b []byte) (int, error) {
	if !f.write {
		return f.journalFile.Write(b)
	}
	if f.applied {
		f.journalFile.Write(b)
	}
	return 0, errors.New("disk")
}

func (f *failing) Sync() error {
	if f.sync {
		return errors.New("disk")
	}
	return f.journalFile.Sync()
}

func TestJournalFailsBothWays(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   failing
		durable bool
	}{
		{"write not applied", failing{write: true}, false},
		{"write applied but reported failed", failing{write: true, applied: true}, true},
		{"sync failed", failing{sync: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "j")
			f := c.fault
			on := false
			j, err := openJournal(path, func(p string) (journalFile, error) {
				inner, err := appendTo(p)
				f.journalFile = inner
				if on {
					return &f, err
				}
				return inner, err
			})
			if err != nil {
				t.Fatal(err)
			}
			put(t, j, "a", `1`)
			on = true
			j.f = &f
			if err := j.Put("a", json.RawMessage(`2`), true); err == nil {
				t.Fatal("no error")
			}
			if err := j.Put("a", json.RawMessage(`3`), true); err == nil {
				t.Fatal("a broken journal took a record")
			}
			want := "1"
			if c.durable {
				want = "2"
			}
			if got := string(journal(t, path).Records()["a"]); got != want {
				t.Errorf("after opening again: %s, want %s", got, want)
			}
		})
	}
}

func TestJournalCompacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := journal(t, path)
	for i := range 40_000 {
		if err := j.Put(fmt.Sprint("k", i%10), json.RawMessage(fmt.Sprintf(`"%040d"`, i)), false); err != nil {
			t.Fatal(err)
		}
	}
	if j.size > compactAt+200 {
		t.Errorf("the journal holds %d octets", j.size)
	}
	j.Close()
	got := journal(t, path).Records()
	if len(got) != 10 || string(got["k9"]) != fmt.Sprintf(`"%040d"`, 39_999) {
		t.Errorf("records %s", got)
	}
}

func FuzzJournalLine(f *testing.F) {
	line, _ := appendJournalLine(nil, journalLine{"k", json.RawMessage(`{"a":1}`)})
	f.Add(line[:len(line)-1])
	f.Add([]byte("00000000 {}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		line, err := readJournalLine(b)
		if err != nil {
			return
		}
		again, err := appendJournalLine(nil, line)
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if back, err := readJournalLine(again[:len(again)-1]); err != nil || back.Key != line.Key {
			t.Fatalf("%q: %v, %+v", again, err, back)
		}
	})
}
