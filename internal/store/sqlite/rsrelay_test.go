package sqlite

import (
	"database/sql"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// relayDatabase makes a file as nostr-rs-relay 0.9 lays it out (its schema version 18), with some rows.
func relayDatabase(t *testing.T, application int, rows ...[2]any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nostr.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	run := func(q string, args ...any) {
		if _, err := db.Exec(q, args...); err != nil {
			t.Fatal(err)
		}
	}
	if application == rsRelayID {
		run(`PRAGMA application_id = 1654008667`)
	}
	run(`PRAGMA journal_mode = WAL`)
	run(`CREATE TABLE event (id INTEGER PRIMARY KEY, event_hash BLOB NOT NULL, first_seen INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER,
 author BLOB NOT NULL, delegated_by BLOB, kind INTEGER NOT NULL, hidden INTEGER, content TEXT NOT NULL)`)
	for _, r := range rows {
		run(`INSERT INTO event (event_hash, first_seen, created_at, author, kind, hidden, content) VALUES (x'00', 1, 1, x'01', 1, ?, ?)`, r[0], r[1])
	}
	return path
}

func TestReadRelayDatabase(t *testing.T) {
	path := relayDatabase(t, rsRelayID, [2]any{0, `{"a":1}`}, [2]any{1, `{"hidden":1}`}, [2]any{nil, `{"b":2}`})
	if ok, err := IsDatabase(path); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r, size, err := ReadRelayDatabase(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "{\"a\":1}\n{\"b\":2}\n" || size != int64(len(got)) {
		t.Fatalf("%q of %d octets, %v", got, size, err)
	}
}

func TestOtherFiles(t *testing.T) {
	if _, _, err := ReadRelayDatabase(t.Context(), relayDatabase(t, 0)); err == nil || !strings.Contains(err.Error(), "not one of nostr-rs-relay") {
		t.Error(err)
	}
	dump := filepath.Join(t.TempDir(), "dump.jsonl")
	for _, text := range []string{"", "{}\n", "SQLite format 3", "{\"id\":\"long enough to be read\"}\n"} {
		if err := os.WriteFile(dump, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if ok, err := IsDatabase(dump); ok || err != nil {
			t.Errorf("%q: %v %v", text, ok, err)
		}
	}
}
