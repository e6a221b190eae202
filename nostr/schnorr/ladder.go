package schnorr

import "math/bits"

// addend is one table entry that joins the sum with its sign.
type addend struct {
	x, y *fe
	neg  uint64 // all ones for minus
	next uint8  // index of the next addend at the same position, 0 for none
}

const (
	// positions are the doublings' places: 0 to 32, or to 128 with a stranger's
	// table. A carry out of bit 127 stands one above the last tooth's highest bit.
	positions = 129
	// maxAddends bounds the digits of four halves: digits are at least their
	// width apart in bits 0 to 128, so 26 for each half of an author's number
	// and 13 for each of the generator's.
	maxAddends = 2*26 + 2*13
)

// ladder collects the addends of a sum of multiples of points, by position.
// The zero value is an empty sum.
type ladder struct {
	head [positions]uint8 // index of the first addend, 0 for none
	n    int
	list [maxAddends + 1]addend // from 1
}

// addAuthor adds k·P, or -k·P, for the point P of an author's or stranger's table.
func (l *ladder) addAuthor(k *scalar, minus bool, table []entry) {
	k1, k2 := split(k)
	k1.neg = k1.neg != minus
	k2.neg = k2.neg != minus
	l.recode(&k1, authorWindow, table, false)
	l.recode(&k2, authorWindow, table, true)
}

// addGenerator adds k·G.
func (l *ladder) addGenerator(k *scalar) {
	k1, k2 := split(k)
	t := generatorTable()
	l.recode(&k1, fixedWindow, t[:], false)
	l.recode(&k2, fixedWindow, t[:], true)
}

// recode adds one half, times the table's point, or times lambda times that. It
// writes the half in odd digits between -2^(width-1) and 2^(width-1), from the
// lowest bit up: at each odd rest the next width bits are the digit, or that
// less 2^width with a carry for the bits above. The rest and its carry stay below
// 2^128, because the carry comes only after a shift. A digit d finds its multiple
// at |d|/2; for d - 2^width that is the complement's, both being odd. The shifts
// are masked, and in two steps where they may be of 64, to spare comparisons.
func (l *ladder) recode(k *half128, width uint, table []entry, byLambda bool) {
	lo, hi := k.lo, k.hi
	var sign uint64
	if k.neg {
		sign = ^uint64(0)
	}
	top := width - 1
	last := uint(len(table))>>((top-1)&63) - 1 // tooth
	pos, n := uint(0), l.n
	for lo|hi != 0 {
		if lo == 0 {
			lo, hi = hi, 0
			pos += 64
		}
		z := uint(bits.TrailingZeros64(lo))
		lo = lo>>(z&63) | hi<<1<<(^z&63)
		hi >>= z & 63
		pos += z

		minus := -(lo >> (top & 63) & 1) // all ones where the digit is lo - 2^width
		size := (lo ^ minus) & (2<<(top&63) - 1) >> 1
		lo = lo>>1>>(top&63) | hi<<(^top&63)
		hi = hi >> 1 >> (top & 63)
		var carry uint64
		lo, carry = bits.Add64(lo, 0, minus&1)
		hi += carry

		tooth := min(pos/toothBits, last)
		e := &table[tooth<<((top-1)&63)|uint(size)]
		n++
		at := &l.list[n]
		at.x, at.y, at.neg = &e.x, &e.y, sign^minus
		if byLambda {
			at.x = &e.bx
		}
		head := &l.head[pos-tooth*toothBits]
		at.next, *head = *head, uint8(n)
		pos += width
	}
	l.n = n
}

// sum returns the sum of all addends, exactly.
func (l *ladder) sum() jacobian {
	var p jacobian
	l.quickSum(&p)
	if p.z.isZero() {
		// Infinite, or an addition of equal or opposite points on the way.
		p = l.completeSum()
	}
	return p
}

// quickSum sets p to the sum; z is 0 if that is infinite or if an exceptional
// addition spoiled it.
func (l *ladder) quickSum(p *jacobian) {
	pos := positions - 1
	for pos >= 0 && l.head[pos] == 0 {
		pos--
	}
	if pos < 0 {
		return
	}
	first := &l.list[l.head[pos]]
	p.x, p.y, p.z = *first.x, *first.y, feOne
	if first.neg != 0 {
		neg(&p.y, &p.y)
	}
	l.addAt(p, first.next)
	for pos--; pos >= 0; pos-- {
		p.double()
		l.addAt(p, l.head[pos])
	}
}

func (l *ladder) addAt(p *jacobian, i uint8) {
	for i != 0 {
		a := &l.list[i]
		p.addMixed(a.x, a.y, a.neg)
		i = a.next
	}
}

// completeSum is quickSum with additions that have no exceptions.
func (l *ladder) completeSum() jacobian {
	var p jacobian
	for pos := positions - 1; pos >= 0; pos-- {
		p.double()
		for i := l.head[pos]; i != 0; i = l.list[i].next {
			a := &l.list[i]
			p.addComplete(a.x, a.y, a.neg)
		}
	}
	return p
}
