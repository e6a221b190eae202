package negentropy

import (
	"bytes"
	"cmp"
	"slices"
)

// Compare orders items by time, then by id. It returns -1, 0 or 1.
func (a Item) Compare(b Item) int {
	if c := cmp.Compare(a.Time, b.Time); c != 0 {
		return c
	}
	return bytes.Compare(a.ID[:], b.ID[:])
}

// blockSize is the number of items between two running sums of a Vector. It
// costs half a byte an item and leaves at most half a block to add up.
const blockSize = 64

// Vector is a Set that holds its items in one sorted slice. Once made it never
// changes, so any number of goroutines may read it.
type Vector struct {
	items []Item
	cum   []Sum // cum[k] is the sum of the first k*blockSize items
}

// NewVector makes a Vector of the items, in any order; an item given twice
// counts once. It takes the slice over: it sorts it in place.
func NewVector(items []Item) *Vector {
	if !slices.IsSortedFunc(items, Item.Compare) {
		slices.SortFunc(items, Item.Compare)
	}
	items = slices.Compact(items)
	v := &Vector{items: items, cum: make([]Sum, 1, len(items)/blockSize+1)}
	var s Sum
	for i := range items {
		s.Add(&items[i].ID)
		if (i+1)%blockSize == 0 {
			v.cum = append(v.cum, s)
		}
	}
	return v
}

// Len is the number of items.
func (v *Vector) Len() int { return len(v.items) }

// Item returns the i-th item in (Time, ID) order.
func (v *Vector) Item(i int) Item { return v.items[i] }

// Items returns all items in (Time, ID) order. The caller must not change them.
func (v *Vector) Items() []Item { return v.items }

// Search returns the smallest i such that Item(i) is not below b, or Len().
func (v *Vector) Search(b Item) int {
	lo, hi := 0, len(v.items)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		it := &v.items[m]
		if it.Time < b.Time || it.Time == b.Time && bytes.Compare(it.ID[:], b.ID[:]) < 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// Sum returns the sum of the ids of the items lo <= i < hi.
func (v *Vector) Sum(lo, hi int) Sum {
	if hi-lo <= blockSize/2 {
		var s Sum
		for i := lo; i < hi; i++ {
			s.Add(&v.items[i].ID)
		}
		return s
	}
	return v.prefix(hi).Minus(v.prefix(lo))
}

// prefix returns the sum of the first n items, from the nearer of the running
// sums on either side.
func (v *Vector) prefix(n int) Sum {
	k, r := n/blockSize, n%blockSize
	if r > blockSize/2 && k+1 < len(v.cum) {
		s := v.cum[k+1]
		for i := n; i < (k+1)*blockSize; i++ {
			s.Sub(&v.items[i].ID)
		}
		return s
	}
	s := v.cum[k]
	for i := k * blockSize; i < n; i++ {
		s.Add(&v.items[i].ID)
	}
	return s
}
