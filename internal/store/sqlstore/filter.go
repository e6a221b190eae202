package sqlstore

import (
	"fmt"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// maxParameters is how many a statement may have, in the database that allows the fewest.
const maxParameters = 30_000

// clause is a condition in SQL with its arguments.
type clause struct {
	text []string
	args []any
}

func (c *clause) add(text string, args ...any) {
	c.text = append(c.text, text)
	c.args = append(c.args, args...)
}

func addIn[T any](c *clause, before string, values []T, arg func(T) any, after string) {
	text := before + " IN " + in(&c.args, values, arg) + after
	c.text = append(c.text, text)
}

func (c *clause) String() string { return strings.Join(c.text, " AND ") }

// search adds the condition that an event has all the words.
func (c *clause) search(w Words, terms store.Terms) {
	if len(terms) > 0 {
		c.add("e.seq IN ("+w.Find+")", w.Arg(store.WordKeys(slices.Values(terms))))
	}
}

func kindArg(k nostr.Kind) any { return int64(k) }

// parts says which conditions of a filter a clause holds; an arm leaves out what it is driven by.
type parts struct{ ids, authors, kinds, tags bool }

var allParts = parts{true, true, true, true}

// residual writes the conditions of a filter on events e, and that they have not expired.
func residual(f *nostr.Filter, p parts, now int64) clause {
	var c clause
	c.add("e.expires > ?", now)
	if f.Since != nil {
		c.add("e.created_at >= ?", *f.Since)
	}
	if f.Until != nil {
		c.add("e.created_at <= ?", *f.Until)
	}
	if p.ids && f.IDs != nil {
		addIn(&c, "e.id", f.IDs, octets, "")
	}
	if p.authors && f.Authors != nil {
		addIn(&c, "e.pubkey", f.Authors, octets, "")
	}
	if p.kinds && f.Kinds != nil {
		addIn(&c, "e.kind", f.Kinds, kindArg, "")
	}
	for i, t := range f.Tags {
		if i == 0 && !p.tags {
			continue
		}
		addIn(&c, "e.id IN (SELECT x.id FROM tags x WHERE x.term", t.Values, termArg(t.Letter), ")")
	}
	return c
}

func termArg(letter byte) func(string) any {
	return func(v string) any {
		term := store.TagKey(letter, v)
		return term[:]
	}
}

// whole is the filter as one clause.
func whole(f *nostr.Filter, now int64) (clause, error) {
	c := residual(f, allParts, now)
	if len(c.args) > maxParameters {
		return c, fmt.Errorf("a filter of %d values is too long for one SQL statement, which takes %d", len(c.args), maxParameters)
	}
	return c, nil
}

// arm is a way to the events of one value of a filter's narrowest condition, which an index yields in the order of answers.
type arm struct {
	from string // "events e" or a join with tags t
	by   string // the alias whose created_at and id the index is ordered by
	clause
}

// arms splits a filter along its narrowest indexed condition: ids, else the values of a tag, else author and kind, else authors,
// else kinds, else time alone.
func arms(f *nostr.Filter, now int64) []arm {
	switch {
	case f.IDs != nil:
		return split(f.IDs, portion, residual(f, parts{false, true, true, true}, now), func(c *clause, ids []nostr.ID) {
			addIn(c, "e.id", ids, octets, "")
		})
	case len(f.Tags) > 0:
		return tagArms(f, now)
	case f.Authors != nil && f.Kinds != nil && len(f.Kinds) <= 8:
		var out []arm
		rest := residual(f, parts{true, false, false, true}, now)
		for _, k := range f.Kinds {
			out = append(out, split(f.Authors, 1, rest, func(c *clause, a []nostr.PubKey) {
				c.add("e.pubkey = ? AND e.kind = ?", a[0][:], int64(k))
			})...)
		}
		return out
	case f.Authors != nil:
		return split(f.Authors, 1, residual(f, parts{true, false, true, true}, now), func(c *clause, a []nostr.PubKey) { c.add("e.pubkey = ?", a[0][:]) })
	case f.Kinds != nil:
		return split(f.Kinds, 1, residual(f, parts{true, true, false, true}, now), func(c *clause, k []nostr.Kind) { c.add("e.kind = ?", int64(k[0])) })
	}
	return []arm{{"events e", "e", residual(f, allParts, now)}}
}

// split makes an arm of every n values.
func split[T any](values []T, n int, rest clause, drive func(*clause, []T)) []arm {
	var out []arm
	for len(values) > 0 {
		n = min(n, len(values))
		c := clause{append([]string(nil), rest.text...), append([]any(nil), rest.args...)}
		drive(&c, values[:n])
		out = append(out, arm{"events e", "e", c})
		values = values[n:]
	}
	return out
}

func tagArms(f *nostr.Filter, now int64) []arm {
	t := f.Tags[0]
	out := split(t.Values, 1, residual(f, parts{true, true, false, false}, now), func(c *clause, v []string) {
		term := store.TagKey(t.Letter, v[0])
		c.add("t.term = ?", term[:])
		if f.Kinds != nil {
			addIn(c, "t.kind", f.Kinds, kindArg, "")
		}
		if f.Since != nil {
			c.add("t.created_at >= ?", *f.Since)
		}
		if f.Until != nil {
			c.add("t.created_at <= ?", *f.Until)
		}
	})
	for i := range out {
		out[i].from, out[i].by = "tags t JOIN events e ON e.id = t.id", "t"
	}
	return out
}

// page writes the statement for the n events that come first in an arm after a place; a nil place is the start.
func (a *arm) page(after *place, n int) clause {
	c := clause{append([]string(nil), a.text...), append([]any(nil), a.args...)}
	if after != nil {
		by := a.by
		c.add(by+".created_at <= ? AND ("+by+".created_at < ? OR "+by+".id > ?)", after.at, after.at, after.id[:])
	}
	q := "SELECT " + a.by + ".created_at AS at, " + a.by + ".id AS id, e.body AS body FROM " + a.from + " WHERE " + c.String() +
		" ORDER BY " + a.by + ".created_at DESC, " + a.by + ".id LIMIT ?"
	return clause{[]string{q}, append(c.args, n)}
}

// place is a point in the order of answers.
type place struct {
	at int64
	id nostr.ID
}

// visible splits a filter at the kinds that a view hides: what every reader may see, and what needs a look at each event; the second is nil
// where the reader can see none of it.
func visible(f *nostr.Filter, v *store.View) (open, hidden *nostr.Filter) {
	if len(v.Hide) == 0 {
		return f, nil
	}
	hide := v.Hide
	if f.Kinds != nil {
		hide = nil
		for _, k := range v.Hide {
			if slices.Contains(f.Kinds, k) {
				hide = append(hide, k)
			}
		}
	}
	if len(hide) == 0 {
		return f, nil
	}
	if len(v.Reveal) > 0 {
		h := *f
		h.Kinds = hide
		var keys []string
		for _, k := range v.Reveal {
			keys = append(keys, k.String())
		}
		h.Tags = append(append([]nostr.TagFilter(nil), f.Tags...), nostr.TagFilter{Letter: 'p', Values: keys})
		hidden = &h
	}
	return f, hidden
}
