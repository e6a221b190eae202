package schnorr

import (
	"sync"
	"testing"
)

// cached says which of the keys have a table in the cache.
func cached(c *cache, keys []*[32]byte) []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]bool, len(keys))
	for i, k := range keys {
		out[i] = c.authors[*k] != nil
	}
	return out
}

func TestCacheKeepsTheLastUsed(t *testing.T) {
	all := benchTriples(5, 5)
	v := NewVerifier(3 * tableCost)
	g := batchOf(all)
	meet := func(i int) {
		if !v.Verify(g.pubs[i], g.msgs[i][:], g.sigs[i]) {
			t.Fatalf("number %d is refused", i)
		}
	}
	expect := func(what string, want ...bool) {
		t.Helper()
		got := cached(v.cache, g.pubs)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: number %d is cached: %v", what, i, got[i])
			}
		}
	}
	meet(0)
	expect("once", false, false, false, false, false)
	for i := range 3 {
		meet(i)
		meet(i)
	}
	expect("twice", true, true, true, false, false)
	meet(0)
	meet(3)
	meet(3)
	expect("a fourth", true, false, true, true, false)
	meet(4)
	meet(4)
	expect("a fifth", true, false, false, true, true)
	if n := len(v.cache.authors); n != 3 {
		t.Errorf("%d tables where there is room for 3", n)
	}
}

// TestCacheNeverGrows meets many keys, good and bad, once and often.
func TestCacheNeverGrows(t *testing.T) {
	all := newForge(20).triples(400)
	g := batchOf(all)
	ok := make([]bool, len(all))
	for _, limit := range []int{0, 1, 7} {
		v := NewVerifier(limit*tableCost - 1 + min(limit, 1))
		for range 3 {
			v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
		}
		c := v.cache
		if c.limit != limit || len(c.authors) > limit || len(c.sighted) > limit || len(c.before) > limit {
			t.Errorf("limit %d: %d tables, %d and %d sighted", c.limit, len(c.authors), len(c.sighted), len(c.before))
		}
		n := 0
		for a := c.ring.next; a != &c.ring; a = a.next {
			n++
			if c.authors[a.key] != a || a.next.prev != a {
				t.Fatal("the ring is broken")
			}
		}
		if n != len(c.authors) {
			t.Errorf("%d in the ring, %d in the map", n, len(c.authors))
		}
	}
}

// TestConcurrentUse has several goroutines share a cache that is too small.
func TestConcurrentUse(t *testing.T) {
	all := newForge(21).triples(120)
	want := make([]bool, len(all))
	for i := range all {
		want[i] = oracleVerdict(&all[i])
	}
	v := NewVerifier(10 * tableCost)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for round := range 3 {
				if (worker+round)%2 == 0 {
					g := batchOf(all)
					g.check(t, v, want)
					continue
				}
				for i := range all {
					if got := v.Verify(&all[i].pub, all[i].msg[:], &all[i].sig); got != want[i] {
						t.Errorf("number %d: verdict %v", i, got)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestTables compares a table's entries with multiples added up one by one.
func TestTables(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		var p point
		key := benchTriples(1, 1)[0].pub
		if !p.lift(&key) {
			t.Fatal("no point")
		}
		for _, teeth := range []int{1, combs} {
			table := make([]entry, teeth*authorOdds)
			b := newTableBuilder(0)
			b.add(&p, table, teeth)
			b.finish()
			base := jacobian{p.x, p.y, feOne}
			for tooth := range teeth {
				var sum jacobian
				var q point
				q.fromJacobian(&base)
				for i := range authorOdds {
					if i > 0 {
						sum.addComplete(&q.x, &q.y, 0)
					}
					sum.addComplete(&q.x, &q.y, 0)
					var want point
					want.fromJacobian(&sum)
					e := &table[tooth*authorOdds+i]
					var bx fe
					mul(&bx, &want.x, &beta)
					bx.norm()
					if e.x != want.x || e.y != want.y || e.bx != bx {
						t.Fatalf("tooth %d, entry %d differs", tooth, i)
					}
				}
				for range toothBits {
					base.double()
				}
			}
		}
	})
}

func (q *point) fromJacobian(p *jacobian) {
	var zi, z2 fe
	inverse(&zi, &p.z)
	sqrN(&z2, &zi, 1)
	mul(&q.x, &p.x, &z2)
	mul(&z2, &z2, &zi)
	mul(&q.y, &p.y, &z2)
	q.x.norm()
	q.y.norm()
}
