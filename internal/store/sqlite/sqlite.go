// Package sqlite is the event store in one SQLite file, in pure Go: for operators who want their events in a file that every
// tool can open. It is slower than the event log, and the first set of a filter for NIP-77 costs a read of all its items.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	driver "modernc.org/sqlite"

	"fleetmesh.org/fleetmesh/internal/store/sqlstore"
)

// Open opens or makes the store in a file. Its directory is made where there is none. What Insert reports as stored is on the disk
// (write-ahead log with synchronous=FULL).
func Open(ctx context.Context, path string, opt sqlstore.Options) (*sqlstore.Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of %s: %w", path, err)
	}
	write, err := sql.Open("sqlite", dsn(path, "immediate"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	write.SetMaxOpenConns(1)
	read, err := sql.Open("sqlite", dsn(path, "deferred"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), write.Close())
	}
	read.SetMaxOpenConns(8)
	s, err := sqlstore.Open(ctx, write, read, dialect, opt)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), write.Close(), read.Close())
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("guard %s: %w", path, err), s.Close())
	}
	return s, nil
}

func dsn(path, lock string) string {
	q := url.Values{"_txlock": {lock}}
	for _, pragma := range []string{"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-16000)", "temp_store(MEMORY)"} {
		q.Add("_pragma", pragma)
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

var dialect = sqlstore.Dialect{
	Name: "sqlite", Bytes: "BLOB", Integer: "INTEGER", Suffix: " WITHOUT ROWID",
	Words: sqlstore.Words{
		Tables: []string{`CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(hashes, content='', contentless_delete=1, detail=none, tokenize='ascii')`},
		Add:    `INSERT INTO words (rowid, hashes) VALUES `,
		Drop:   `DELETE FROM words WHERE rowid IN`,
		Find:   `SELECT rowid FROM words WHERE words MATCH ?`,
		Arg:    tokens,
	},
	Size: func(ctx context.Context, db *sql.DB) (n int64, err error) {
		err = db.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`).Scan(&n)
		return n, err
	},
	Full: func(err error) bool {
		const sqliteFull = 13 // SQLITE_FULL
		var e *driver.Error
		return errors.As(err, &e) && e.Code()&0xff == sqliteFull
	},
}

// tokens writes hashes as what FTS5 takes for words, and in a search for words that must all be there.
func tokens(hashes []uint64) any {
	b := make([]byte, 0, 14*len(hashes))
	for i, h := range hashes {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, 'w') // so that none reads as a word of the search language
		b = strconv.AppendUint(b, h, 36)
	}
	return string(b)
}
