package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"iter"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Words says how a database finds events by their words. The database is given hashes, one for each of the words that store.Terms defines, and
// not the text: its own idea of a word would give other answers than the other engines.
type Words struct {
	Tables []string           // statements that make the index
	Add    string             // the start of a statement that adds rows of (seq, Arg)
	Drop   string             // the start of a statement that drops the rows of some seq; "(SELECT …)" follows
	Find   string             // a query for the seq of the events that have all the words of its one Arg
	Arg    func([]uint64) any // hashes, each once, as a parameter
}

// row makes the rows of an event: one, or none if it has no words.
func (w *Words) row(seq int64, e *nostr.Event) [][]any {
	keys := store.WordKeys(store.WordsOf(e))
	if len(keys) == 0 {
		return nil
	}
	return [][]any{{seq, w.Arg(keys)}}
}

// addWords indexes the events of tables of format 1.
func (s *Store) addWords(ctx context.Context, tx *sql.Tx) error {
	d := s.draft(ctx, tx, 0)
	for page, err := range s.pagesIn(ctx, tx) {
		if err != nil {
			return fmt.Errorf("read the events, to index their words: %w", err)
		}
		var rows [][]any
		for _, a := range page {
			rows = append(rows, s.dialect.Words.row(int64(a.Seq), a.Event)...)
		}
		if err := d.rows(s.dialect.Words.Add, "", rows); err != nil {
			return s.failure("index the words of the events", err)
		}
	}
	if _, err := tx.ExecContext(ctx, s.bind(`UPDATE meta SET value = ? WHERE name = 'format'`), int64(format)); err != nil {
		return s.failure("note the new format", err)
	}
	return nil
}

// pagesIn yields all events by their arrival, in pages, within a transaction.
func (s *Store) pagesIn(ctx context.Context, tx *sql.Tx) iter.Seq2[[]store.Arrival, error] {
	return func(yield func([]store.Arrival, error) bool) {
		for after := int64(0); ; {
			page, err := s.page(ctx, tx, `SELECT seq, id, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?`, after)
			if len(page) == 0 && err == nil || !yield(page, err) || err != nil {
				return
			}
			after = int64(page[len(page)-1].Seq)
		}
	}
}
