package store

import (
	"context"
	"iter"

	"fleetmesh.org/fleetmesh/nostr"
)

// Row is a stored event as it is passed on: its text, and what of it orders and names it.
type Row struct {
	ID        nostr.ID
	CreatedAt int64
	Text      []byte // its JSON as Event.JSON has it; the receiver may keep but not change it
	By        []int  // the filters that it came by, by their index; only if there are several, and good until the next row
}

// RowQuerier is a Store that answers a query without reading into the events that it gives out.
type RowQuerier interface {
	// QueryRows yields the rows of Query's events. Row.By leaves out filters whose limit was reached before, and
	// the Row itself is good until the next.
	QueryRows(ctx context.Context, filters []nostr.Filter, view View, max int, now int64) iter.Seq2[*Row, error]
}

// Rows answers a query with text: by QueryRows where the store has it, and else by Query.
func Rows(ctx context.Context, s Store, filters []nostr.Filter, view View, max int, now int64) iter.Seq2[*Row, error] {
	if q, ok := s.(RowQuerier); ok {
		return q.QueryRows(ctx, filters, view, max, now)
	}
	return func(yield func(*Row, error) bool) {
		var row Row
		for e, err := range s.Query(ctx, filters, view, max, now) {
			if err != nil {
				yield(nil, err)
				return
			}
			row.ID, row.CreatedAt, row.Text, row.By = e.ID, e.CreatedAt, e.JSON(), row.By[:0]
			if len(filters) > 1 {
				for i := range filters {
					if filters[i].Matches(e) && ParseSearch(filters[i].Search).Match(e) {
						row.By = append(row.By, i)
					}
				}
			}
			if !yield(&row, nil) {
				return
			}
		}
	}
}
