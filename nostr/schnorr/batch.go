package schnorr

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// minBatch is how many signatures the batch equation needs to be faster
	// than one by one.
	minBatch = 128
	// maxBatch bounds one equation, its memory (some 4 MiB) and what a bad signature costs.
	maxBatch = 1024
)

// VerifyBatch gives the verdicts of VerifyGroup, for bulk import: at half the
// cost or less where nearly all signatures are good. It checks the one equation
//
//	sum of a·s·G = sum of a·(R + e·P)
//
// over up to maxBatch signatures, each with its own factor a out of 2^128 equally likely
// ones. If it holds, all are good, but for a chance of at most 2^-128: the group
// has prime order, so that whatever the other factors are, at most one
// value of a bad signature's own factor makes the equation hold. If it does
// not, those signatures are verified by VerifyGroup.
//
// random gives the factors: 16 bytes a signature that nobody who chose the
// signatures could foresee, as crypto/rand.Reader does. Where it fails, its error
// is returned and the verdicts say nothing.
//
// Where there are lanes, which are faster still, signatures of cached authors go there.
func (v *Verifier) VerifyBatch(random io.Reader, pubs []*[32]byte, msgs []*[32]byte, sigs []*[64]byte, ok []bool) error {
	if !haveIFMA {
		return v.verifyBatch(random, pubs, msgs, sigs, ok)
	}
	var known, others selection
	v.divide(pubs, &known, &others)
	known.take(pubs, msgs, sigs)
	v.VerifyGroup(known.pubs, known.msgs, known.sigs, known.ok)
	known.give(ok)
	others.take(pubs, msgs, sigs)
	err := v.verifyBatch(random, others.pubs, others.msgs, others.sigs, others.ok)
	others.give(ok)
	return err
}

// selection is some of the signatures of a batch, with their verdicts.
type selection struct {
	at         []int
	pubs, msgs []*[32]byte
	sigs       []*[64]byte
	ok         []bool
}

// divide says which keys are those of cached authors.
func (v *Verifier) divide(pubs []*[32]byte, known, others *selection) {
	var found [groupSize][]entry
	for at := 0; at < len(pubs); at += groupSize {
		n := min(groupSize, len(pubs)-at)
		v.cache.get(pubs[at:at+n], found[:n], nil)
		for i, table := range found[:n] {
			if table != nil {
				known.at = append(known.at, at+i)
			} else {
				others.at = append(others.at, at+i)
			}
		}
	}
}

func (s *selection) take(pubs, msgs []*[32]byte, sigs []*[64]byte) {
	s.pubs, s.msgs, s.sigs, s.ok = make([]*[32]byte, len(s.at)), make([]*[32]byte, len(s.at)), make([]*[64]byte, len(s.at)), make([]bool, len(s.at))
	for k, i := range s.at {
		s.pubs[k], s.msgs[k], s.sigs[k] = pubs[i], msgs[i], sigs[i]
	}
}

func (s *selection) give(ok []bool) {
	for k, i := range s.at {
		ok[i] = s.ok[k]
	}
}

func (v *Verifier) verifyBatch(random io.Reader, pubs []*[32]byte, msgs []*[32]byte, sigs []*[64]byte, ok []bool) error {
	b, _ := v.batches.Get().(*batch)
	if b == nil {
		b = &batch{slots: map[[32]byte]int{}}
	}
	defer v.batches.Put(b)
	for len(pubs) > 0 {
		n := min(maxBatch, len(pubs))
		if n < minBatch {
			v.VerifyGroup(pubs, msgs, sigs, ok)
			return nil
		}
		b.reset(n)
		if _, err := io.ReadFull(random, b.random); err != nil {
			return fmt.Errorf("draw the factors of a batch: %w", err)
		}
		b.collect(v, pubs[:n], msgs[:n], sigs[:n], ok[:n])
		if !b.holds() {
			v.VerifyGroup(pubs[:n], msgs[:n], sigs[:n], ok[:n])
		}
		pubs, msgs, sigs, ok = pubs[n:], msgs[n:], sigs[n:], ok[n:]
	}
	return nil
}

// The equation's points, with small factors, are sorted into buckets: one for each
// window, that is place of a digit of digitBits bits, and each size of digit.
// The upper half of the windows is for authors without a table, whose
// factors have 128 bits; all others have 64.
const (
	digitBits = 8
	windows   = 128 / digitBits
	lower     = windows / 2
	sizes     = 1 << (digitBits - 1)
	buckets   = windows * sizes
)

// batch is one equation in work.
type batch struct {
	random  []byte
	pool    []point  // R, lambda·R; P, lambda·P and perhaps 2^64 times them; then sums
	digits  []digit  // what goes into which bucket
	entries []uint32 // the buckets' points: index in pool times 2, plus 1 for minus
	first   [buckets + 1]int32
	count   [buckets]int32

	slots  map[[32]byte]int // where an author's sum is, -1 for a key that is no point's x
	owners []owner
	sumS   scalar // sum of a·s

	pairs  []pair
	dx     [maxPairs]fe // of each pair, q.x - p.x
	before [maxPairs]fe // the product of those before it
}

// owner is an author in the equation.
type owner struct {
	point point   // if there is no table
	table []entry // if it is cached
	sum   scalar  // of a·e
}

// digit says that a point goes into a bucket.
type digit struct {
	point  uint32 // as in entries
	bucket uint32
}

type pair struct{ p, q uint32 }

func (b *batch) reset(n int) {
	b.random = sized(b.random, 16*n)
	b.pool, b.digits = b.pool[:0], b.digits[:0]
	clear(b.owners) // hold no table longer than needed
	b.owners = b.owners[:0]
	b.sumS = scalar{}
	clear(b.slots)
	clear(b.count[:])
}

// collect takes in the signatures and sets ok for those that may be good if the
// equation holds: the others have an r, s or key out of range or on no point.
func (b *batch) collect(v *Verifier, pubs, msgs []*[32]byte, sigs []*[64]byte, ok []bool) {
	var found [groupSize][]entry
	for at := 0; at < len(pubs); at += groupSize {
		n := min(groupSize, len(pubs)-at)
		v.cache.get(pubs[at:at+n], found[:n], nil)
		for i, table := range found[:n] {
			i += at
			ok[i] = b.add(table, pubs[i], msgs[i], sigs[i], (*[16]byte)(b.random[16*i:]))
		}
	}
	for i := range b.owners {
		b.addOwner(&b.owners[i])
	}
}

// owner returns the author with that key, and with that table unless it is
// nil: or nil if the key is no point's x.
func (b *batch) owner(pub *[32]byte, table []entry) *owner {
	slot, seen := b.slots[*pub]
	if !seen {
		o := owner{table: table}
		slot = -1
		if table != nil || o.point.lift(pub) {
			slot = len(b.owners)
			b.owners = append(b.owners, o)
		}
		b.slots[*pub] = slot
	}
	if slot < 0 {
		return nil
	}
	return &b.owners[slot]
}

// windowBias is the sum of 2^(digitBits-1) over the lower windows.
const windowBias = 0x8080808080808080

// add takes in one signature with the factor a = u + lambda·v, u and v being the two
// halves of random read as digits: bytes less 128. Different bytes give different
// factors: the lattice of split has no vector as short as such differences.
func (b *batch) add(table []entry, pub, msg *[32]byte, sig *[64]byte, random *[16]byte) bool {
	var in input
	var r point
	if !in.parse(sig) || !r.liftX(&in.r) {
		return false
	}
	o := b.owner(pub, table)
	if o == nil {
		return false
	}
	in.challenge(pub, msg[:], sig)
	at := uint32(2 * len(b.pool))
	lr := point{y: r.y}
	mul(&lr.x, &r.x, &beta)
	b.pool = append(b.pool, r, lr)
	for i, c := range random {
		b.put(at+uint32(i/lower)*2, i%lower, int(c)-sizes)
	}

	var factor, t scalar
	t[0] = binary.LittleEndian.Uint64(random[8:])
	t.unbias()
	mulScalar(&factor, &t, &lambda)
	t = scalar{binary.LittleEndian.Uint64(random[:8])}
	t.unbias()
	addScalar(&factor, &factor, &t)

	mulScalar(&t, &factor, &in.s)
	addScalar(&b.sumS, &b.sumS, &t)
	mulScalar(&t, &factor, &in.e)
	addScalar(&o.sum, &o.sum, &t)
	return true
}

// unbias takes windowBias off a number of 64 bits.
func (z *scalar) unbias() {
	if z[0] >= windowBias {
		z[0] -= windowBias
		return
	}
	z[0] = windowBias - z[0]
	negScalar(z, z)
}

// put queues point, times d, at a window; |d| is at most sizes.
func (b *batch) put(point uint32, window, d int) {
	switch {
	case d > 0:
	case d < 0:
		d = -d
		point ^= 1
	default:
		return
	}
	bucket := uint32(window*sizes + d - 1)
	b.count[bucket]++
	b.digits = append(b.digits, digit{point, bucket})
}

// addOwner takes in an author's point with its factor.
func (b *batch) addOwner(o *owner) {
	k1, k2 := split(&o.sum)
	at := uint32(2 * len(b.pool))
	if o.table == nil {
		l := point{y: o.point.y}
		mul(&l.x, &o.point.x, &beta)
		b.pool = append(b.pool, o.point, l)
		b.putHalf(at, &k1, windows)
		b.putHalf(at+2, &k2, windows)
		return
	}
	one, high := &o.table[0], &o.table[combs/2*authorOdds]
	b.pool = append(b.pool, point{one.x, one.y}, point{one.bx, one.y}, point{high.x, high.y}, point{high.bx, high.y})
	b.putHalf(at, &k1, lower)
	b.putHalf(at+2, &k2, lower)
}

// putHalf queues k times a point. The windows from end on go, from window 0, to
// 2^64 times that point, which is two places behind it in pool.
func (b *batch) putHalf(point uint32, k *half128, end int) {
	if k.neg {
		point ^= 1
	}
	carry := 0
	for i := range windows {
		word := k.lo
		if i >= lower {
			word = k.hi
		}
		d := int(word>>(i%lower*digitBits)&(2*sizes-1)) + carry
		carry = 0
		if i < windows-1 && d >= sizes {
			d -= 2 * sizes
			carry = 1
		}
		at := point + uint32(i/end)*4
		// The last digit takes the carry, and so may be up to 2·sizes.
		if d > sizes {
			b.put(at, i%end, sizes)
			d -= sizes
		}
		b.put(at, i%end, d)
	}
}

// holds says whether the equation holds. It may say no where it does, if points that
// are added are equal or opposite.
func (b *batch) holds() bool {
	b.sort()
	for {
		b.pair()
		if len(b.pairs) == 0 {
			break
		}
		if !b.addPairs() {
			return false
		}
	}
	left := b.total()
	var l ladder
	l.addGenerator(&b.sumS)
	right := l.sum()
	return left.equal(&right)
}

// sort lays the queued points out by bucket.
func (b *batch) sort() {
	var next [buckets]int32
	at := int32(0)
	for i, n := range b.count {
		b.first[i], next[i] = at, at
		at += n
	}
	b.first[buckets] = at
	b.entries = sized(b.entries, int(at))
	if n := len(b.pool) + int(at); cap(b.pool) < n { // fewer sums than entries will come
		b.pool = append(make([]point, 0, n+n/4), b.pool...)
	}
	for _, d := range b.digits {
		b.entries[next[d.bucket]] = d.point
		next[d.bucket]++
	}
}

// pair pairs the points of each bucket, and puts the place of their coming sum
// in their stead: q ± p, which then has q's sign.
func (b *batch) pair() {
	b.pairs = b.pairs[:0]
	sum := uint32(len(b.pool))
	for i, n := range b.count {
		if n < 2 {
			continue
		}
		e := b.entries[b.first[i]:][:n]
		half := n / 2
		for k := range half {
			b.pairs = append(b.pairs, pair{e[2*k], e[2*k+1]})
			e[k] = sum*2 | e[2*k+1]&1
			sum++
		}
		if n&1 == 1 {
			e[half] = e[n-1]
		}
		b.count[i] = n - half
	}
}

// addPairs appends the pairs' sums to pool. It says whether it could: not if the
// two of a pair have the same x.
func (b *batch) addPairs() bool {
	for rest := b.pairs; len(rest) > 0; {
		n := min(maxPairs, len(rest))
		if !b.addSome(rest[:n]) {
			return false
		}
		rest = rest[n:]
	}
	return true
}

// maxPairs is how many sums share one inversion: enough for its part to be
// small, few enough for what lies between its two passes to stay in a near cache.
const maxPairs = 512

// addSome is addPairs for at most maxPairs.
func (b *batch) addSome(pairs []pair) bool {
	acc := feOne
	for i, pr := range pairs {
		dx := &b.dx[i]
		sub(dx, &b.pool[pr.q>>1].x, &b.pool[pr.p>>1].x)
		b.before[i] = acc
		mul(&acc, &acc, dx)
	}
	if acc.isZero() {
		return false
	}
	inverse(&acc, &acc)
	base := len(b.pool)
	b.pool = b.pool[:base+len(pairs)] // sort left room
	for i := len(pairs) - 1; i >= 0; i-- {
		var inv fe
		mul(&inv, &acc, &b.before[i])
		mul(&acc, &acc, &b.dx[i])
		pr := pairs[i]
		b.pool[base+i].addAffine(&b.pool[pr.p>>1], &b.pool[pr.q>>1], &inv, -uint64((pr.p^pr.q)&1))
	}
	return true
}

// total returns the sum of all buckets times their factors. What is left in a bucket
// is one point or none.
func (b *batch) total() jacobian {
	var total jacobian
	for w := windows - 1; w >= 0; w-- {
		for range digitBits {
			total.double()
		}
		if b.first[(w+1)*sizes] == b.first[w*sizes] {
			continue
		}
		// Bucket by bucket from the largest: sum of j·bucket[j] is the sum of running sums.
		var running, sum jacobian
		for j := sizes - 1; j >= 0; j-- {
			i := w*sizes + j
			if b.count[i] > 0 {
				e := b.entries[b.first[i]]
				p := &b.pool[e>>1]
				running.addComplete(&p.x, &p.y, -uint64(e&1))
			}
			sum.addJacobian(&running)
		}
		total.addJacobian(&sum)
	}
	return total
}

// sized returns s with length n, and with any content.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
