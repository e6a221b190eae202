package eventlog

import (
	ring "container/list"
	"errors"
	"sync"
	"sync/atomic"
)

func isDamaged(err error) bool { return errors.Is(err, errDamaged) }

func loadWord(s *segment, w int) uint64 { return atomic.LoadUint64(&s.dead[w]) }

// partCache keeps parts by segment and filter, the least used go first.
type partCache struct {
	mu    sync.Mutex
	limit int64 // bytes
	used  int64
	byKey map[partKey]*ring.Element
	age   *ring.List // front: used last
}

type partKey struct {
	segment uint64
	filter  string
}

type cached struct {
	key  partKey
	part *part
	over *overlay
	size int64
}

func newPartCache(limit int64) *partCache {
	return &partCache{limit: limit, byKey: make(map[partKey]*ring.Element), age: ring.New()}
}

func (c *partCache) get(k partKey) (*part, *overlay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.byKey[k]
	if el == nil {
		return nil, nil
	}
	c.age.MoveToFront(el)
	e := el.Value.(*cached)
	return e.part, e.over
}

// put enters a part, in the place of an older one.
func (c *partCache) put(k partKey, p *part, o *overlay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.byKey[k]; el != nil {
		c.drop(el)
	}
	e := &cached{k, p, o, p.bytes() + int64(len(k.filter))}
	if o != nil {
		e.size += o.bytes()
	}
	if e.size > c.limit {
		return
	}
	c.byKey[k] = c.age.PushFront(e)
	c.used += e.size
	for c.used > c.limit {
		c.drop(c.age.Back())
	}
}

func (c *partCache) drop(el *ring.Element) {
	e := c.age.Remove(el).(*cached)
	delete(c.byKey, e.key)
	c.used -= e.size
}
