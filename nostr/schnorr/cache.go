package schnorr

import "sync"

// tableCost is what one author's table occupies with its place in the cache, in bytes.
const tableCost = combs*authorOdds*96 + 256

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
}

func newCache(bytes int) *cache {
	c := &cache{limit: bytes / tableCost, authors: map[[32]byte]*author{}}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// get returns the author with that key, or nil.
func (c *cache) get(key *[32]byte) *author {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(key)
}

// getAll sets each nil authors[i] whose key is cached.
func (c *cache) getAll(keys []*[32]byte, authors []*author) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, key := range keys {
		authors[i] = c.find(key)
	}
}

func (c *cache) find(key *[32]byte) *author {
	a := c.authors[*key]
	if a != nil && c.ring.next != a {
		a.unlink()
		c.front(a)
	}
	return a
}

// put adds authors that were not there, and drops those used longest ago.
func (c *cache) put(authors ...*author) {
	if c.limit == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range authors {
		if c.authors[a.key] != nil {
			continue // someone else was faster
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
