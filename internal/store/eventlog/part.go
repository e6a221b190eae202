package eventlog

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"

	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// part is what a filter has in one segment, in negentropy's order, with sums a block of
// 64. It depends on the segment and the filter alone, so it is kept in a cache; what died or
// expired is masked by an overlay.
type part struct {
	seg   *segment
	docs  []uint32          // the matching documents; nil for all of the segment
	items []negentropy.Item // instead of a segment: the matching documents of a head
	n     int
	sums  []negentropy.Sum // sum before each block and of all; nil: those of the segment
}

// overlay masks documents of a part.
type overlay struct {
	out   []uint64         // a bit a place; nil: nothing is masked
	left  []uint32         // number of unmasked places before each block, and of all
	sums  []negentropy.Sum // sum of the unmasked before each block, and of all
	ndead int64            // deaths of the segment when it was made
	vis   uint64
	from  int64 // it holds for readers at from <= now < until, as far as expiration goes
	until int64
}

func (p *part) item(i int) negentropy.Item {
	if p.items != nil {
		return p.items[i]
	}
	d := p.doc(i)
	return negentropy.Item{Time: uint64(p.seg.at(d)), ID: *p.seg.id(d)}
}

func (p *part) doc(i int) uint32 {
	if p.docs == nil {
		return uint32(i)
	}
	return p.docs[i]
}

// lower returns how many places are below b.
func (p *part) lower(b *negentropy.Item) int { return p.lowerIn(b, 0, p.n) }

// lowerIn does the same when the answer is known to be between lo and hi.
func (p *part) lowerIn(b *negentropy.Item, lo, hi int) int {
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if p.below(m, b) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// gallop returns the first place of lo <= i <= hi that is not below b, looking near a place first.
func (p *part) gallop(b *negentropy.Item, near, lo, hi int) int {
	near = min(max(near, lo), hi)
	if near == hi || !p.below(near, b) {
		for step := 1; lo < near; step *= 2 {
			if at := max(lo, near-step); p.below(at, b) {
				return p.lowerIn(b, at+1, near)
			} else {
				near = at
			}
		}
		return lo
	}
	lo = near + 1
	for step := 1; lo < hi; step *= 2 {
		at := min(hi-1, lo+step)
		if !p.below(at, b) {
			return p.lowerIn(b, lo, at)
		}
		lo = at + 1
	}
	return hi
}

func (p *part) below(i int, b *negentropy.Item) bool {
	if p.items != nil {
		return p.items[i].Compare(*b) < 0
	}
	d := p.doc(i)
	if t := uint64(p.seg.at(d)); t != b.Time {
		return t < b.Time
	}
	return bytes.Compare(p.seg.id(d)[:], b.ID[:]) < 0
}

func (p *part) block(b int) negentropy.Sum {
	if p.sums == nil {
		return p.seg.sum(b)
	}
	return p.sums[b]
}

// sumUp makes the sums of a part that has its own list.
func (p *part) sumUp() {
	var s negentropy.Sum
	p.sums = make([]negentropy.Sum, 0, p.n/blockDocs+2)
	for i := range p.n {
		if i%blockDocs == 0 {
			p.sums = append(p.sums, s)
		}
		it := p.item(i)
		s.Add(&it.ID)
	}
	p.sums = append(p.sums, s)
}

// bytes is the memory that a part takes.
func (p *part) bytes() int64 {
	return int64(len(p.docs)*4+len(p.sums)*32+len(p.items)*40) + 200
}

func (o *overlay) bytes() int64 { return int64(len(o.out)*8+len(o.left)*4+len(o.sums)*32) + 100 }

// fits says whether the overlay is what a reader would get.
func (o *overlay) fits(seg *segment, vis uint64, now int64) bool {
	return o.ndead == seg.ndead.Load() && o.vis <= vis && o.from <= now && now < o.until
}

// mask makes the overlay of a part for a reader. keep says that it may be cached.
func (p *part) mask(vis uint64, now int64) (o *overlay, keep bool) {
	seg := p.seg
	o = &overlay{ndead: seg.ndead.Load(), vis: vis, from: minTime, until: maxTime}
	var out []uint64
	hide := func(i int) {
		if out == nil {
			out = make([]uint64, (p.n+63)/64)
		}
		out[i/64] |= 1 << (i % 64)
	}
	gone := int64(0)
	if o.ndead > 0 {
		for w := range seg.dead {
			for b := loadWord(seg, w); b != 0; b &= b - 1 {
				d := uint32(w*64 + bits.TrailingZeros64(b))
				if seg.live(d, vis) {
					continue
				}
				gone++
				if i, ok := p.find(d); ok {
					hide(i)
				}
			}
		}
	}
	for i := 0; i < len(seg.exps); i += expirySize {
		at := int64(binary.LittleEndian.Uint64(seg.exps[i+4:]))
		if at > now {
			o.until = min(o.until, at)
			continue
		}
		o.from = max(o.from, at)
		if i, ok := p.find(binary.LittleEndian.Uint32(seg.exps[i:])); ok {
			hide(i)
		}
	}
	o.out = out
	o.count(p)
	return o, gone == o.ndead && seg.ndead.Load() == o.ndead
}

// find returns the place of a document.
func (p *part) find(d uint32) (int, bool) {
	if p.docs == nil {
		return int(d), true
	}
	return slices.BinarySearch(p.docs, d)
}

// count makes the counts and sums of what is not masked.
func (o *overlay) count(p *part) {
	if o.out == nil {
		return
	}
	blocks := (p.n + blockDocs - 1) / blockDocs
	o.left = make([]uint32, blocks+1)
	o.sums = make([]negentropy.Sum, blocks+1)
	var less negentropy.Sum
	left := uint32(0)
	for b := range blocks {
		o.left[b] = left
		o.sums[b] = p.block(b).Minus(less)
		size := min(blockDocs, p.n-b*blockDocs)
		left += uint32(size - bits.OnesCount64(o.out[b]))
		for w := o.out[b]; w != 0; w &= w - 1 {
			it := p.item(b*blockDocs + bits.TrailingZeros64(w))
			less.Add(&it.ID)
		}
	}
	o.left[blocks] = left
	o.sums[blocks] = p.block(blocks).Minus(less)
}

// slice is a part with its overlay, cut to places lo <= i < hi. Ranks count unmasked places
// from lo on.
type slice struct {
	*part
	*overlay
	lo, hi int
	first  int // unmasked places before lo
	n      int // unmasked places in the slice
	before negentropy.Sum
}

func newSlice(p *part, o *overlay, lo, hi int) *slice {
	s := &slice{part: p, overlay: o, lo: lo, hi: max(lo, hi)}
	s.first = s.countTo(s.lo)
	s.n = s.countTo(s.hi) - s.first
	s.before = s.sumTo(s.lo)
	return s
}

// countTo returns the number of unmasked places below i.
func (s *slice) countTo(i int) int {
	if s.out == nil {
		return i
	}
	b := i / blockDocs
	n := int(s.left[b])
	if r := i % blockDocs; r > 0 {
		n += r - bits.OnesCount64(s.out[b]&(1<<r-1))
	}
	return n
}

// sumTo returns the sum of the unmasked places below i: from the nearer of the sums around it.
func (s *slice) sumTo(i int) negentropy.Sum {
	b := i / blockDocs
	end := min((b+1)*blockDocs, s.part.n)
	if i-b*blockDocs > end-i {
		b++
	} else {
		end = b * blockDocs
	}
	var sum negentropy.Sum
	if s.out != nil {
		sum = s.overlay.sums[b]
	} else {
		sum = s.block(b)
	}
	if end <= i {
		s.addUp(&sum, end, i)
		return sum
	}
	var less negentropy.Sum
	s.addUp(&less, i, end)
	return sum.Minus(less)
}

// addUp adds the unmasked places lo <= i < hi to a sum.
func (s *slice) addUp(sum *negentropy.Sum, lo, hi int) {
	for k := lo; k < hi; k++ {
		if s.out == nil || s.out[k/blockDocs]>>(k%blockDocs)&1 == 0 {
			if s.items != nil {
				sum.Add(&s.items[k].ID)
			} else {
				sum.Add(s.seg.id(s.doc(k)))
			}
		}
	}
}

// place returns the place of a rank.
func (s *slice) place(rank int) int {
	k := rank + s.first
	if s.out == nil {
		return k
	}
	b := sort.Search(len(s.left), func(i int) bool { return int(s.left[i]) > k }) - 1
	if b >= len(s.out) {
		return s.part.n
	}
	k -= int(s.left[b])
	for w := ^s.out[b]; w != 0; w &= w - 1 {
		if k == 0 {
			return b*blockDocs + bits.TrailingZeros64(w)
		}
		k--
	}
	return s.part.n
}

// documents returns the documents of a segment that match a plan, dead or not, ascending.
func (c *scan) documents(seg *segment) ([]uint32, error) {
	p := c.p
	if p.nothing {
		return []uint32{}, nil
	}
	st := c.segment(seg)
	if st.done {
		return []uint32{}, nil
	}
	cand := st.candidates()
	out := make([]uint32, 0, len(cand))
	for _, d := range cand {
		ok, err := st.belongs(d)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, d)
		}
	}
	return out, nil
}

// candidates returns the union of the candidate lists, or the documents with the ids.
func (st *segStream) candidates() []uint32 {
	high := st.all
	var out []uint32
	switch {
	case st.p.ids != nil:
		for i := range st.p.ids {
			if d, ok := st.s.find(&st.p.ids[i]); ok && d >= st.low && d < high && (!st.lists || containsAny(st.from, d)) {
				out = append(out, d)
			}
		}
		slices.Sort(out)
	case !st.lists:
		for d := st.low; d < high; d++ {
			out = append(out, d)
		}
	default:
		for _, c := range st.from {
			for k := c.list.lower(st.low); k < c.end; k++ {
				out = append(out, c.list.get(k))
			}
		}
		if len(st.from) > 1 {
			slices.Sort(out)
			out = slices.Compact(out)
		}
	}
	return out
}

func containsAny(from []cursor, d uint32) bool {
	return slices.ContainsFunc(from, func(c cursor) bool { return c.list.contains(d) })
}

// belongs is matches without liveness: death and expiration are the overlay's business.
func (st *segStream) belongs(d uint32) (bool, error) {
	k := st.s.kind(d)
	if !st.p.wantsKind(k) {
		return false, nil
	}
	for i := range st.rest {
		if !st.rest[i].contains(d) {
			return false, nil
		}
	}
	if !st.p.hidden(k) {
		return true, nil
	}
	if !st.shown.contains(d) || !st.s.live(d, st.n.vis) {
		return false, nil
	}
	x := st.s.doc(d)
	e, err := st.n.read(&x)
	if isDamaged(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return st.p.view.Allows(e), nil
}
