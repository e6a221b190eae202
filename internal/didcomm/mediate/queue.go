package mediate

import (
	"container/list"
	"iter"
)

// item is one envelope that waits.
type item struct {
	id       string
	envelope []byte
	received int64
	expires  int64
	tries    int
	leased   int64 // not handed out again before this second
	at       *list.Element
	aside    bool
}

// client is one registered leaf. What was handed out often enough without an
// answer is moved from waiting to aside: it is offered alone and last, so that it
// can harm neither what came with it nor what comes after it.
type client struct {
	name     string
	receives bool
	live     bool
	items    map[string]*item
	waiting  *list.List // of *item, oldest first
	aside    *list.List
	bytes    int64
	done     *bounded
}

func newClient(name string) *client {
	return &client{name: name, items: map[string]*item{}, waiting: list.New(), aside: list.New(), done: newBounded()}
}

// queue adds an item and returns its size; one that is here or was acknowledged is
// not added.
func (c *client) queue(it *item, tries int) int64 {
	if c.items[it.id] != nil || c.done.has(it.id) {
		return 0
	}
	it.aside = it.tries >= tries
	it.at = c.list(it).PushBack(it)
	c.items[it.id] = it
	c.bytes += int64(len(it.envelope))
	return int64(len(it.envelope))
}

func (c *client) list(it *item) *list.List {
	if it.aside {
		return c.aside
	}
	return c.waiting
}

func (c *client) tried(ids []string, now int64, lim Limits) {
	for _, id := range ids {
		it := c.items[id]
		if it == nil {
			continue
		}
		it.tries++
		it.leased = now + int64(lim.Lease.Seconds())
		if it.aside {
			c.aside.MoveToBack(it.at) // the next one's turn
		}
	}
}

// release ends all leases, when the connection that they belong to is over. What
// has used up its tries goes aside now, not while its answer may be on the way.
func (c *client) release(tries int) {
	for e := c.waiting.Front(); e != nil; {
		it := e.Value.(*item)
		e = e.Next()
		it.leased = 0
		c.setAside(it, tries)
	}
	for e := c.aside.Front(); e != nil; e = e.Next() {
		e.Value.(*item).leased = 0
	}
}

func (c *client) setAside(it *item, tries int) {
	if it.tries < tries || it.aside {
		return
	}
	c.waiting.Remove(it.at)
	it.aside = true
	it.at = c.aside.PushBack(it)
}

func (c *client) ack(ids []string, until int64, remember int) (freed int64) {
	for _, id := range ids {
		freed += c.remove(id)
		c.done.set(id, until, remember)
	}
	return freed
}

func (c *client) drop(ids []string) (freed int64) {
	for _, id := range ids {
		freed += c.remove(id)
	}
	return freed
}

func (c *client) remove(id string) int64 {
	it := c.items[id]
	if it == nil {
		return 0
	}
	c.list(it).Remove(it.at)
	delete(c.items, id)
	c.bytes -= int64(len(it.envelope))
	return int64(len(it.envelope))
}

// all yields what waits, then what is aside, oldest first.
func (c *client) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for _, l := range []*list.List{c.waiting, c.aside} {
			for e := l.Front(); e != nil; e = e.Next() {
				if !yield(e.Value.(*item)) {
					return
				}
			}
		}
	}
}

// batch picks what to hand out: of what waits, oldest first; when nothing of that
// is left, one of those aside.
func (c *client) batch(now int64, limit int, lim Limits) []*item {
	var out []*item
	var bytes int64
	for e := c.waiting.Front(); e != nil && len(out) < limit; {
		it := e.Value.(*item)
		e = e.Next()
		if it.leased > now || it.expires <= now {
			continue
		}
		if it.tries >= lim.Tries { // its lease ran out on a connection that lives
			c.setAside(it, lim.Tries)
			continue
		}
		if bytes += int64(len(it.envelope)); len(out) > 0 && bytes > lim.BatchBytes {
			break
		}
		out = append(out, it)
	}
	if len(out) > 0 {
		return out
	}
	for e := c.aside.Front(); e != nil; e = e.Next() {
		if it := e.Value.(*item); it.leased <= now && it.expires > now {
			return []*item{it}
		}
	}
	return nil
}

// bounded remembers a number under each of at most some names, the oldest name
// forgotten first.
type bounded struct {
	byName map[string]*list.Element // of boundedEntry
	order  *list.List
}

type boundedEntry struct {
	name  string
	value int64
}

func newBounded() *bounded { return &bounded{byName: map[string]*list.Element{}, order: list.New()} }

func (b *bounded) has(name string) bool { return b.byName[name] != nil }

// get is 0 for an unknown name.
func (b *bounded) get(name string) int64 {
	if e := b.byName[name]; e != nil {
		return e.Value.(boundedEntry).value
	}
	return 0
}

func (b *bounded) set(name string, value int64, limit int) {
	if e := b.byName[name]; e != nil {
		e.Value = boundedEntry{name, value}
		return
	}
	b.byName[name] = b.order.PushBack(boundedEntry{name, value})
	for len(b.byName) > limit {
		b.forget(b.order.Front().Value.(boundedEntry).name)
	}
}

func (b *bounded) forget(name string) {
	if e := b.byName[name]; e != nil {
		b.order.Remove(e)
		delete(b.byName, name)
	}
}

// expire forgets the oldest names whose value is a time that has come.
func (b *bounded) expire(now int64) {
	for e := b.order.Front(); e != nil; e = b.order.Front() {
		entry := e.Value.(boundedEntry)
		if entry.value > now {
			return
		}
		b.forget(entry.name)
	}
}

func (b *bounded) all() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for e := b.order.Front(); e != nil; e = e.Next() {
			if entry := e.Value.(boundedEntry); !yield(entry.name, entry.value) {
				return
			}
		}
	}
}
