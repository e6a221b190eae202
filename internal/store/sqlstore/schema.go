package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// format is the version of the tables. A newer one is refused, so that an older program never spoils it. Format 2 brought the words
// of events and the list of what went.
const format = 2

// tableStatements make the tables. Times are unix seconds; keys, ids and signatures raw octets; expires is store.NoExpiry where an event has no
// end. tags has a row for each single-letter tag of an event, by which filters find it.
func (d *Dialect) tableStatements() []string {
	b, i, x := d.Bytes, d.Integer, d.Suffix
	return append([]string{
		`CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value ` + i + ` NOT NULL)` + x,
		`CREATE TABLE IF NOT EXISTS events (id ` + b + ` PRIMARY KEY, seq ` + i + ` NOT NULL, face ` + i + ` NOT NULL, created_at ` + i + ` NOT NULL, kind ` + i + ` NOT NULL,
 pubkey ` + b + ` NOT NULL, address ` + b + `, expires ` + i + ` NOT NULL, body ` + b + ` NOT NULL)`,
		`CREATE UNIQUE INDEX IF NOT EXISTS events_seq ON events (seq)`,
		`CREATE UNIQUE INDEX IF NOT EXISTS events_address ON events (address)`,
		`CREATE INDEX IF NOT EXISTS events_time ON events (created_at DESC, id)`,
		`CREATE INDEX IF NOT EXISTS events_kind ON events (kind, created_at DESC, id)`,
		`CREATE INDEX IF NOT EXISTS events_author ON events (pubkey, created_at DESC, id)`,
		`CREATE INDEX IF NOT EXISTS events_author_kind ON events (pubkey, kind, created_at DESC, id)`,
		fmt.Sprintf(`CREATE INDEX IF NOT EXISTS events_expires ON events (expires) WHERE expires < %d`, int64(noExpiry)),
		`CREATE TABLE IF NOT EXISTS tags (term ` + b + ` NOT NULL, created_at ` + i + ` NOT NULL, id ` + b + ` NOT NULL, kind ` + i + ` NOT NULL, PRIMARY KEY (term, created_at, id))` + x,
		`CREATE INDEX IF NOT EXISTS tags_id ON tags (id)`,
		`CREATE TABLE IF NOT EXISTS refused (id ` + b + ` PRIMARY KEY, reason TEXT NOT NULL, at ` + i + ` NOT NULL, place ` + i + `)` + x,
		`CREATE INDEX IF NOT EXISTS refused_place ON refused (place) WHERE place IS NOT NULL`,
		`CREATE TABLE IF NOT EXISTS asked (id ` + b + ` NOT NULL, pubkey ` + b + ` NOT NULL, PRIMARY KEY (id, pubkey))` + x,
		`CREATE TABLE IF NOT EXISTS bounds (address ` + b + ` PRIMARY KEY, until ` + i + ` NOT NULL)` + x,
		`CREATE TABLE IF NOT EXISTS floors (address ` + b + ` PRIMARY KEY, created_at ` + i + ` NOT NULL, id ` + b + ` NOT NULL)` + x,
		`CREATE TABLE IF NOT EXISTS vanished (pubkey ` + b + ` PRIMARY KEY, until ` + i + ` NOT NULL)` + x,
		`CREATE TABLE IF NOT EXISTS gone (n ` + i + ` PRIMARY KEY, created_at ` + i + ` NOT NULL, id ` + b + ` NOT NULL)`,
	}, d.Words.Tables...)
}

// prepare makes the tables, or refuses those of a newer program.
func (s *Store) prepare(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		for _, ddl := range s.dialect.tableStatements() {
			if _, err := tx.ExecContext(ctx, ddl); err != nil {
				return s.failure("make the tables", err)
			}
		}
		for name, value := range map[string]int64{"format": format, "seq": 0, "place": 0, "gone": 0} {
			if _, err := tx.ExecContext(ctx, s.bind(`INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING`), name, value); err != nil {
				return s.failure("make the tables", err)
			}
		}
		var have int64
		if err := tx.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'format'`).Scan(&have); err != nil {
			return fmt.Errorf("read the format: %w", err)
		}
		if have > format {
			return fmt.Errorf("the tables are of format %d, and this program knows up to %d: use a newer one", have, format)
		}
		if have < 2 {
			return s.addWords(ctx, tx)
		}
		return nil
	})
}

// bind writes the parameters of a statement as the database wants them.
func (s *Store) bind(q string) string {
	if !s.dialect.Numbered {
		return q
	}
	var b strings.Builder
	n := 0
	for i := range len(q) {
		if q[i] != '?' {
			b.WriteByte(q[i])
			continue
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// list returns "(?, ?, …)" for n parameters.
func list(n int) string { return "(" + strings.Repeat("?, ", n-1) + "?)" }

// spread rounds a number of parameters up to a power of two, so that the database sees few different statements; the caller
// repeats its last value.
func spread(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// in appends values as the parameters of an IN list and returns its text.
func in[T any](args *[]any, values []T, arg func(T) any) string {
	n := spread(len(values))
	for i := range n {
		*args = append(*args, arg(values[min(i, len(values)-1)]))
	}
	return list(n)
}
