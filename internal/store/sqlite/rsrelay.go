package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
)

// rsRelayID is the application_id that nostr-rs-relay writes into its database files.
const rsRelayID = 1654008667

var magic = []byte("SQLite format 3\x00")

// IsDatabase says whether a file is a SQLite database, by its first octets.
func IsDatabase(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, len(magic))
	_, err = io.ReadFull(f, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return bytes.Equal(head, magic), err
}

// ReadRelayDatabase opens the database of a nostr-rs-relay and yields its events as JSONL, oldest row first, without those that it hides (it
// keeps superseded versions hidden). The file is only read, and may be in use. size is a guess of the octets to come.
func ReadRelayDatabase(ctx context.Context, path string) (lines io.ReadCloser, size int64, err error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(10000)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", path, err)
	}
	var id int64
	if err := db.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&id); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("read %s: %w", path, err), db.Close())
	}
	if id != rsRelayID {
		return nil, 0, errors.Join(fmt.Errorf("%s is a SQLite database, but not one of nostr-rs-relay: its application_id is %d, not %d", path, id, rsRelayID), db.Close())
	}
	if err := db.QueryRowContext(ctx, `SELECT coalesce(sum(length(content) + 1), 0) FROM event WHERE hidden IS NOT TRUE`).Scan(&size); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("read %s: %w", path, err), db.Close())
	}
	r, w := io.Pipe()
	go func() {
		err := writeLines(ctx, db, w)
		if err != nil {
			err = fmt.Errorf("read %s: %w", path, err)
		}
		w.CloseWithError(errors.Join(err, db.Close())) // nil is the end of the file
	}()
	return r, size, nil
}

func writeLines(ctx context.Context, db *sql.DB, w io.Writer) error {
	rows, err := db.QueryContext(ctx, `SELECT content FROM event WHERE hidden IS NOT TRUE ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var text sql.RawBytes
		if err := rows.Scan(&text); err != nil {
			return err
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return rows.Err()
}
