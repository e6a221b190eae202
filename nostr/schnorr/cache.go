package schnorr

import "sync"

// tableCost is what one author's table occupies with its place in the cache and
// two keys among the sighted, in bytes.
const tableCost = combs*authorOdds*96 + 448

// author is a cached author: a table, in a ring ordered by last use.
type author struct {
	key        [32]byte
	table      authorTable
	prev, next *author
}

// cache keeps the tables used last, up to a number of them. Tables do not
// change once they are in it, so that they may be read without the lock, even
// after they were dropped.
type cache struct {
	mu      sync.Mutex
	limit   int
	authors map[[32]byte]*author
	ring    author // ring.next was used last, ring.prev is dropped next

	// Keys that were asked for and not found, in two generations of at most limit:
	// a table pays from the second signature on.
	sighted, before map[[32]byte]struct{}
}

func newCache(bytes int) *cache {
	c := &cache{limit: bytes / tableCost, authors: map[[32]byte]*author{}, sighted: map[[32]byte]struct{}{}}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// get sets tables[i] to the table of keys[i], or to nil where it is not there;
// again[i], if wanted, then says whether that key was asked for before. It
// returns how many were not there.
func (c *cache) get(keys []*[32]byte, tables [][]entry, again []bool) (missing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, key := range keys {
		a := c.authors[*key]
		if a == nil {
			tables[i] = nil
			missing++
			if again != nil {
				again[i] = c.sight(key)
			}
			continue
		}
		tables[i] = a.table[:]
		if c.ring.next != a {
			a.unlink()
			c.front(a)
		}
	}
	return missing
}

// sight notes a key, and says whether it was noted already.
func (c *cache) sight(key *[32]byte) bool {
	if c.limit == 0 {
		return false
	}
	if _, ok := c.sighted[*key]; ok {
		return true
	}
	if len(c.sighted) >= c.limit {
		c.before, c.sighted = c.sighted, map[[32]byte]struct{}{}
	}
	c.sighted[*key] = struct{}{}
	_, ok := c.before[*key]
	return ok
}

// put adds authors that were not there, and drops those used longest ago.
func (c *cache) put(authors ...*author) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range authors {
		if c.limit == 0 || c.authors[a.key] != nil {
			continue // no room at all, or someone else was faster
		}
		if len(c.authors) >= c.limit {
			last := c.ring.prev
			last.unlink()
			delete(c.authors, last.key)
		}
		c.authors[a.key] = a
		c.front(a)
	}
}

func (a *author) unlink() {
	a.prev.next, a.next.prev = a.next, a.prev
	a.prev, a.next = nil, nil
}

func (c *cache) front(a *author) {
	a.prev, a.next = &c.ring, c.ring.next
	a.prev.next, a.next.prev = a, a
}
