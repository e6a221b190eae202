package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"iter"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// pageRows is how many events are read at a time: an answer of any length holds no more, and no transaction while its reader is slow.
const pageRows = 500

// armsAtOnce is how many arms one statement unites; SQLite allows 500.
const armsAtOnce = 100

// cursor yields the events of one filter in the order of answers, a page at a time.
type cursor struct {
	s     *Store
	ctx   context.Context
	f     *nostr.Filter
	view  *store.View
	terms store.Terms
	now   int64
	arms  []arm
	left  int // of the filter's limit; negative: no limit
	size  int
	at    *place
	page  []*nostr.Event
	done  bool

	chosen bool // how a search is read
}

func (s *Store) cursor(ctx context.Context, f *nostr.Filter, view *store.View, limits bool, now int64) *cursor {
	c := &cursor{s: s, ctx: ctx, f: f, view: view, terms: store.ParseSearch(f.Search), now: now, left: -1, size: pageRows, done: f.MatchesNothing()}
	if limits && f.Limit != nil {
		c.left = max(0, *f.Limit)
		if len(view.Hide) == 0 {
			c.size = min(c.size, max(1, c.left))
		}
	}
	if !c.done {
		c.arms = arms(f, now)
	}
	if len(view.Hide) > 0 && len(view.Reveal) == 0 {
		for i := range c.arms {
			addIn(&c.arms[i].clause, "e.kind NOT", view.Hide, kindArg, "")
		}
	}
	c.chosen = len(c.terms) == 0 || f.IDs != nil
	return c
}

// next returns the next event, nil at the end.
func (c *cursor) next() (*nostr.Event, error) {
	if c.left == 0 {
		return nil, nil
	}
	for len(c.page) == 0 {
		if c.done {
			return nil, nil
		}
		if err := c.load(); err != nil {
			return nil, err
		}
	}
	e := c.page[0]
	c.page = c.page[1:]
	if c.left > 0 {
		c.left--
	}
	return e, nil
}

// load reads the next page. Each statement unites some arms; what they bring is merged, cut to the page, and held against the filter.
func (c *cursor) load() error {
	if !c.chosen {
		if err := c.choose(); err != nil {
			return err
		}
	}
	var rows []row
	for from := 0; from < len(c.arms); {
		var text []string
		var args []any
		for ; from < len(c.arms) && len(text) < armsAtOnce; from++ {
			p := c.arms[from].page(c.at, c.size)
			if len(text) > 0 && len(args)+len(p.args) > maxParameters {
				break
			}
			text = append(text, "SELECT at, id, body FROM ("+p.text[0]+") AS a")
			args = append(args, p.args...)
		}
		q := strings.Join(text, " UNION ALL ")
		if len(text) > 1 {
			q += " ORDER BY at DESC, id LIMIT ?"
			args = append(args, c.size)
		}
		err := c.s.each(c.ctx, c.s.read, q, args, func(r *sql.Rows) error {
			var got row
			var id sql.RawBytes
			if err := r.Scan(&got.at, &id, &got.body); err != nil {
				return err
			}
			if err := fill(&got.id, id); err != nil {
				return err
			}
			rows = append(rows, got)
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return a.compare(b.place) })
	if len(rows) < c.size {
		c.done = true
	} else {
		rows = rows[:c.size]
	}
	if n := len(rows); n > 0 {
		last := rows[n-1].place
		c.at = &last
	}
	return c.keep(slices.CompactFunc(rows, func(a, b row) bool { return a.id == b.id }))
}

// commonWords is how many events with the words of a search are counted before it is decided how to read it.
const commonWords = 20_000

// choose has a search read through the index of words, which costs a look at all events that have them, unless a walk from the newest
// event on is likely to meet as many as the limit asks for sooner.
func (c *cursor) choose() error {
	c.chosen = true
	w := c.s.dialect.Words
	if c.left > 0 {
		var have, all int
		q := "SELECT (SELECT count(*) FROM (" + w.Find + " LIMIT ?) AS found), (SELECT value FROM meta WHERE name = 'seq')"
		err := c.s.read.QueryRowContext(c.ctx, c.s.bind(q), w.Arg(store.WordKeys(slices.Values(c.terms))), commonWords).Scan(&have, &all)
		if err != nil {
			return c.s.failure("count the events with the words of a search", err)
		}
		if have > 0 && have > c.left*all/have {
			c.size = pageRows
			return nil
		}
	}
	for i := range c.arms {
		c.arms[i].search(w, c.terms)
	}
	return nil
}

// row is an event as the tables give it.
type row struct {
	place
	body []byte
}

// compare orders newest first and by the lower id in a tie (NIP-01).
func (p place) compare(q place) int {
	if c := cmp.Compare(q.at, p.at); c != 0 {
		return c
	}
	return bytes.Compare(p.id[:], q.id[:])
}

// keep parses rows and keeps the events that the reader may see.
func (c *cursor) keep(rows []row) error {
	for _, r := range rows {
		e, err := parse(r.id, r.body)
		if err != nil {
			return err
		}
		if c.f.Matches(e) && c.view.Allows(e) && c.terms.Match(e) {
			c.page = append(c.page, e)
		}
	}
	return nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id nostr.ID, now int64) (*nostr.Event, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	e, err := s.one(ctx, s.read, id)
	if err != nil {
		return nil, err
	}
	if e == nil || e.ExpiredAt(now) {
		return nil, store.ErrNotFound
	}
	return e, nil
}

// Has implements store.Store.
func (s *Store) Has(ctx context.Context, id nostr.ID, now int64) (bool, error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	var n int
	err := s.read.QueryRowContext(ctx, s.bind(`SELECT count(*) FROM events WHERE id = ? AND expires > ?`), id[:], now).Scan(&n)
	if err != nil {
		return false, s.failure("look up an id", err)
	}
	return n > 0, nil
}

// Query implements store.Store.
func (s *Store) Query(ctx context.Context, filters []nostr.Filter, view store.View, limit int, now int64) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		if err := s.check(ctx); err != nil {
			yield(nil, err)
			return
		}
		n := 0
		for e, err := range s.merge(ctx, filters, &view, true, now) {
			if !yield(e, err) || err != nil {
				return
			}
			if n++; n == limit {
				return
			}
		}
	}
}

// merge yields the events of any of the filters, each once, in the order of answers.
func (s *Store) merge(ctx context.Context, filters []nostr.Filter, view *store.View, limits bool, now int64) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		var cursors []*cursor
		var heads []*nostr.Event
		for i := range filters {
			c := s.cursor(ctx, &filters[i], view, limits, now)
			e, err := c.next()
			if err != nil {
				yield(nil, err)
				return
			}
			if e != nil {
				cursors, heads = append(cursors, c), append(heads, e)
			}
		}
		for len(heads) > 0 {
			first := heads[0]
			for _, e := range heads[1:] {
				if placeOf(e).compare(placeOf(first)) < 0 {
					first = e
				}
			}
			if !yield(first, nil) {
				return
			}
			for i := len(heads) - 1; i >= 0; i-- {
				if heads[i].ID != first.ID {
					continue
				}
				e, err := cursors[i].next()
				if err != nil {
					yield(nil, err)
					return
				}
				if heads[i] = e; e == nil {
					heads, cursors = slices.Delete(heads, i, i+1), slices.Delete(cursors, i, i+1)
				}
			}
		}
	}
}

func placeOf(e *nostr.Event) place { return place{e.CreatedAt, e.ID} }

// Count implements store.Store.
func (s *Store) Count(ctx context.Context, filters []nostr.Filter, view store.View, now int64) (int, error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	if len(filters) == 1 && len(view.Hide) == 0 && len(store.ParseSearch(filters[0].Search)) == 0 {
		if filters[0].MatchesNothing() {
			return 0, nil
		}
		c, err := whole(&filters[0], now)
		if err != nil {
			return 0, err
		}
		var n int
		err = s.read.QueryRowContext(ctx, s.bind("SELECT count(*) FROM events e WHERE "+c.String()), c.args...).Scan(&n)
		if err != nil {
			return 0, s.failure("count", err)
		}
		return n, nil
	}
	set, err := s.items(ctx, filters, &view, now)
	if err != nil {
		return 0, err
	}
	seen := make(map[nostr.ID]struct{}, len(set.items))
	for _, it := range set.items {
		seen[it.ID] = struct{}{}
	}
	return len(seen), nil
}

// Arrivals implements store.Store.
func (s *Store) Arrivals(ctx context.Context, after uint64, now int64) iter.Seq2[store.Arrival, error] {
	return s.arrivals(ctx, `SELECT seq, id, body FROM events WHERE seq > ? AND expires > ? ORDER BY seq LIMIT ?`, after, now)
}

// Foreign yields the arrivals after a number that other faces of the database stored.
func (s *Store) Foreign(ctx context.Context, after uint64, now int64) iter.Seq2[store.Arrival, error] {
	return s.arrivals(ctx, `SELECT seq, id, body FROM events WHERE seq > ? AND expires > ? AND face <> ? ORDER BY seq LIMIT ?`, after, now, s.opt.Face)
}

func (s *Store) arrivals(ctx context.Context, q string, after uint64, more ...any) iter.Seq2[store.Arrival, error] {
	return func(yield func(store.Arrival, error) bool) {
		for {
			var page []store.Arrival
			err := s.check(ctx)
			if err == nil {
				page, err = s.page(ctx, s.read, q, append([]any{int64(after)}, more...)...)
			}
			if err != nil {
				yield(store.Arrival{}, err)
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
				after = a.Seq
			}
			if len(page) < pageRows {
				return
			}
		}
	}
}

// page reads arrivals by a query whose last parameter is their greatest number.
func (s *Store) page(ctx context.Context, from querier, q string, args ...any) ([]store.Arrival, error) {
	var page []store.Arrival
	err := s.each(ctx, from, q, append(args, pageRows), func(r *sql.Rows) error {
		var a store.Arrival
		var body []byte
		var id sql.RawBytes
		var got nostr.ID
		if err := r.Scan(&a.Seq, &id, &body); err != nil {
			return err
		}
		err := fill(&got, id)
		if err == nil {
			a.Event, err = parse(got, body)
		}
		page = append(page, a)
		return err
	})
	return page, err
}
