package schnorr

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"unsafe"
)

// Sixteen sums s·G - e·P side by side, each exact and with a verdict of its own. All lanes do the same steps, so that digits have to stand at the
// same places in each: an odd number k below 2^128 is the sum of d_j·16^j with all d_j odd, d_j = 2·b_j - 15, where b_j is the j-th digit of
// (2^128 + k)/2 in base 16; and in base 256 the same with 2·b_j - 255. So the digits are read off, with no carries. An even k takes the digits
// of k + 1, and the point is taken off again at the end. Digits of one tooth's table are 32 bits of the number, so that seven times four doublings serve all.
//
// Each sum starts from a point off, not at infinity, and 2^28·off is taken from it last. Which point that is does not matter: an addition of equal or
// opposite points leaves zz = zzz = 0 for good, and such a sum is then taken again by itself. That is also how an infinite sum ends.
const (
	laneCount = 16
	// minLanes is how many signatures have to wait for lanes to be faster than one after the other: sixteen cost as much as five.
	minLanes = 6

	laneDoublings = 4              // between two places of digits
	lanePlaces    = toothBits / 4  // of digits in base 16, in a tooth
	authorRows    = 2 * combs      // halves of a number by teeth
	laneRows      = 2 * authorRows // of one place: an author's and the generator's
)

// lane is an element of eight lanes: limbs of 52 bits, least significant first.
type lane [5][8]uint64

const laneLimb = 1<<52 - 1

// set puts x, any value below 2^256, into a lane.
func (z *lane) set(i int, x *fe) {
	z[0][i] = x[0] & laneLimb
	z[1][i] = (x[0]>>52 | x[1]<<12) & laneLimb
	z[2][i] = (x[1]>>40 | x[2]<<24) & laneLimb
	z[3][i] = (x[2]>>28 | x[3]<<36) & laneLimb
	z[4][i] = x[3] >> 16
}

// get reads a lane of a reduced element: below 2^256 + 2^215. What is at 2^256, a bit, is worth foldC; where it is set little is left, and
// nothing is carried that far again.
func (z *lane) get(i int) (x fe) {
	z0, z1, z2, z3, z4 := z[0][i], z[1][i], z[2][i], z[3][i], z[4][i]
	z0 += z4 >> 48 * foldC
	z4 &= 1<<48 - 1
	z1 += z0 >> 52
	z2 += z1 >> 52
	z3 += z2 >> 52
	z4 += z3 >> 52
	z0, z1, z2, z3 = z0&laneLimb, z1&laneLimb, z2&laneLimb, z3&laneLimb
	return fe{z0 | z1<<52, z1>>12 | z2<<40, z2>>24 | z3<<28, z3>>36 | z4<<16}
}

// laneSet is eight sums: the points (x/zz, y/zzz), and what the kernel works with.
type laneSet struct {
	x, y, zz, zzz lane
	_             [11]lane
}

// laneState is sixteen sums.
type laneState [2]laneSet

// laneRow is what one addition adds to each sum.
type laneRow struct {
	x     [laneCount]*fe // below p
	y     uintptr        // octets from x to y
	on    uint16         // lanes that are added to
	minus uint16         // lanes in which -y stands for y
	_     uint32
}

const (
	plainY  = unsafe.Offsetof(entry{}.y) - unsafe.Offsetof(entry{}.x)
	lambdaY = unsafe.Offsetof(entry{}.y) - unsafe.Offsetof(entry{}.bx)
)

// laneOff is the point that sums start from, and -2^28 times it.
var laneOff = sync.OnceValue(func() (off [2]entry) {
	var p point
	for x := sha256.Sum256([]byte("fleetmesh lanes")); !p.lift(&x); {
		x = sha256.Sum256(x[:])
	}
	off[0].x, off[0].y = p.x, p.y
	q := jacobian{p.x, p.y, feOne}
	for range laneDoublings * (lanePlaces - 1) {
		q.double()
	}
	var zi, z2 fe
	inverse(&zi, &q.z)
	sqrN(&z2, &zi, 1)
	mul(&off[1].x, &q.x, &z2)
	mul(&z2, &z2, &zi)
	mul(&off[1].y, &q.y, &z2)
	neg(&off[1].y, &off[1].y)
	off[1].x.norm()
	off[1].y.norm()
	return off
})

// laneWork is the memory of one call.
type laneWork struct {
	memory [unsafe.Sizeof(laneState{}) + 63]byte
	rows   [laneRows]laneRow

	tables [laneCount]*authorTable
	// The digits of both halves of -e and of s: a word for each tooth. minus are the halves' signs, even those that are one too large.
	author, fixed  [2][combs][laneCount]uint32
	minusE, minusS [2]uint16
	evenE, evenS   [2]uint16
}

var laneWorks = sync.Pool{New: func() any { return new(laneWork) }}

// state begins at a cache line.
func (w *laneWork) state() *laneState {
	at := -uintptr(unsafe.Pointer(&w.memory)) & 63
	return (*laneState)(unsafe.Pointer(&w.memory[at]))
}

// laneJob is one signature in a lane.
type laneJob struct {
	in    *input
	table *authorTable
}

// laneSum is what came of a job: R has r as x and its y is y/zzz, or it has not; or it has to be computed by itself.
type laneSum struct {
	matches, again bool
	y, zzz         fe
}

// sumLanes computes R = s·G - e·P of up to laneCount jobs, at least one.
func sumLanes(jobs []laneJob, out []laneSum) {
	w := laneWorks.Get().(*laneWork)
	defer laneWorks.Put(w)
	w.recode(jobs)
	s := w.state()
	off := laneOff()
	for g := range s {
		for l := range 8 {
			s[g].x.set(l, &off[0].x)
			s[g].y.set(l, &off[0].y)
			s[g].zz.set(l, &feOne)
			s[g].zzz.set(l, &feOne)
		}
	}
	fixed := generatorTable()
	for place := lanePlaces - 1; place >= 0; place-- {
		n := w.place(place, fixed)
		prefetchRows(&w.rows[0], n)
		if place < lanePlaces-1 {
			doubleLanes(s, laneDoublings)
		}
		addLanes(s, &w.rows[0], n)
	}
	addLanes(s, &w.rows[0], w.last(fixed, &off[1]))
	for i := range jobs {
		set, l := &s[i>>3], i&7
		zz := set.zz.get(l)
		if zz.isZero() {
			out[i] = laneSum{again: true}
			continue
		}
		x := set.x.get(l)
		mul(&zz, &zz, &jobs[i].in.r)
		out[i] = laneSum{matches: equal(&zz, &x), y: set.y.get(l), zzz: set.zzz.get(l)}
	}
	runtime.KeepAlive(jobs)
	clear(w.tables[:]) // hold no table longer than needed
	clear(w.rows[:])
}

// recode reads the digits of all jobs; lanes without a job do what the first does.
func (w *laneWork) recode(jobs []laneJob) {
	w.minusE, w.minusS, w.evenE, w.evenS = [2]uint16{}, [2]uint16{}, [2]uint16{}, [2]uint16{}
	for i := range laneCount {
		job := &jobs[0]
		if i < len(jobs) {
			job = &jobs[i]
		}
		w.tables[i] = job.table
		e1, e2 := split(&job.in.e)
		s1, s2 := split(&job.in.s)
		for h, k := range [2]*half128{&e1, &e2} {
			w.minusE[h] |= bit(!k.neg, i)
			w.evenE[h] |= bit(k.lo&1 == 0, i)
			k.teeth(&w.author[h], i)
		}
		for h, k := range [2]*half128{&s1, &s2} {
			w.minusS[h] |= bit(k.neg, i)
			w.evenS[h] |= bit(k.lo&1 == 0, i)
			k.teeth(&w.fixed[h], i)
		}
	}
}

func bit(set bool, i int) uint16 {
	if set {
		return 1 << i
	}
	return 0
}

// teeth puts the words of (2^128 + k)/2 into a lane, or of (2^128 + k + 1)/2 where k is even, which are the same.
func (k *half128) teeth(to *[combs][laneCount]uint32, i int) {
	lo, hi := k.lo>>1|k.hi<<63, k.hi>>1|1<<63
	to[0][i], to[1][i], to[2][i], to[3][i] = uint32(lo), uint32(lo>>32), uint32(hi), uint32(hi>>32)
}

// place makes the rows of the digits at 16^place in each tooth, and returns how many there are. The generator's digits, twice as wide, stand at every
// other place.
func (w *laneWork) place(place int, fixed *fixedTable) (n int) {
	for h := range 2 {
		for t := range combs {
			r := w.row(n, h, w.minusE[h])
			n++
			for l, word := range &w.author[h][t] {
				size, minus := digit16(word >> (4 * place & 31))
				r.put(l, h, &w.tables[l][t*authorOdds+size], minus)
			}
		}
	}
	if place&1 != 0 {
		return n
	}
	for h := range 2 {
		for t := range combs {
			r := w.row(n, h, w.minusS[h])
			n++
			for l, word := range &w.fixed[h][t] {
				size, minus := digit256(word >> (4 * place & 31))
				r.put(l, h, &fixed[t*fixedOdds+size], minus)
			}
		}
	}
	return n
}

// digit16 is the place of |d| among the odd multiples, and whether d is negative, for d = 2·b - 15, b being the lowest four bits.
func digit16(b uint32) (size int, minus uint16) {
	m := b >> 3 & 1
	return int((b ^ (m - 1)) & 7), uint16(m ^ 1)
}

// digit256 is the same for d = 2·b - 255, b being the lowest eight bits.
func digit256(b uint32) (size int, minus uint16) {
	m := b >> 7 & 1
	return int((b ^ (m - 1)) & 127), uint16(m ^ 1)
}

// row begins the n-th row, of a number's first half or of its second, which goes with lambda times each point.
func (w *laneWork) row(n, half int, minus uint16) *laneRow {
	r := &w.rows[n]
	r.y, r.on, r.minus = plainY, 1<<laneCount-1, minus
	if half == 1 {
		r.y = lambdaY
	}
	return r
}

// put sets what a lane of the row adds.
func (r *laneRow) put(l, half int, e *entry, minus uint16) {
	r.x[l] = &e.x
	if half == 1 {
		r.x[l] = &e.bx
	}
	r.minus ^= minus << (l & 15)
}

// last makes the rows that take off what even numbers have too much, and the point that the sums started from.
func (w *laneWork) last(fixed *fixedTable, off *entry) (n int) {
	for h := range 2 {
		p, g := w.row(2*h, h, ^w.minusE[h]), w.row(2*h+1, h, ^w.minusS[h])
		p.on, g.on = w.evenE[h], w.evenS[h]
		for l := range laneCount {
			p.put(l, h, &w.tables[l][0], 0)
			g.put(l, h, &fixed[0], 0)
		}
	}
	r := w.row(4, 0, 0)
	for l := range laneCount {
		r.put(l, 0, off, 0)
	}
	return 5
}
