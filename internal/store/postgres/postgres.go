// Package postgres is the event store in a PostgreSQL database, for those who outgrow one machine: several nodes serve one database,
// and an event that comes to one of them, stored or ephemeral, reaches the live subscriptions of all (LISTEN/NOTIFY).
package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"fleetmesh.org/fleetmesh/internal/store/sqlstore"
	"fleetmesh.org/fleetmesh/nostr"
)

// writersLock is the advisory lock that the one writer holds, over all faces of a database: arrival numbers follow the order of commits.
const writersLock = 0x666c656574 // "fleet"

// Store is a face of the database.
type Store struct {
	*sqlstore.Store
	config  *pgx.ConnConfig
	db      *sql.DB
	passing chan *nostr.Event // ephemeral, to the other faces
	failed  chan error        // to pass them; Foreign tells
}

// Open opens the store in a database, making its tables where there are none. url is a connection URL or a keyword string, as libpq takes
// them; the password may come from PGPASSWORD or a password file.
func Open(ctx context.Context, url string, opt sqlstore.Options) (*Store, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database's address: %w", err) // pgx leaves the password out
	}
	if opt.Face == 0 {
		opt.Face = newFace()
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(8)
	s, err := sqlstore.Open(ctx, db, db, dialect(opt.Face), opt)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	out := &Store{Store: s, config: config, db: db, passing: make(chan *nostr.Event, passWaiting), failed: make(chan error, 1)}
	passing, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { out.pass(passing) })
	s.OnClose(func() error {
		stop()
		running.Wait()
		return nil
	})
	return out, nil
}

// newFace draws the number of a face; two that are equal would hide each other's events from their live subscriptions.
func newFace() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
}

func dialect(face int64) sqlstore.Dialect {
	return sqlstore.Dialect{
		Name: "postgres", Bytes: "BYTEA", Integer: "BIGINT", Numbered: true,
		Words: sqlstore.Words{
			Tables: []string{`CREATE TABLE IF NOT EXISTS words (seq BIGINT PRIMARY KEY, words BIGINT[] NOT NULL)`,
				`CREATE INDEX IF NOT EXISTS words_words ON words USING gin (words)`},
			Add:  `INSERT INTO words (seq, words) VALUES `,
			Drop: `DELETE FROM words WHERE seq IN`,
			Find: `SELECT w.seq FROM words w WHERE w.words @> ?::bigint[]`,
			Arg: func(hashes []uint64) any {
				out := make([]int64, len(hashes))
				for i, h := range hashes {
					out[i] = int64(h)
				}
				return out
			},
		},
		Lock: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(writersLock))
			return err
		},
		Committing: func(ctx context.Context, tx *sql.Tx, _, last uint64) error {
			_, err := tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, notice{face, last}.String())
			return err
		},
		Size: func(ctx context.Context, db *sql.DB) (n int64, err error) {
			err = db.QueryRowContext(ctx, `SELECT pg_database_size(current_database())`).Scan(&n)
			return n, err
		},
		Full: func(err error) bool {
			const diskFull = "53100"
			var e *pgconn.PgError
			return errors.As(err, &e) && e.Code == diskFull
		},
	}
}
