package schnorr

import "sync"

// The lanes verify up to sixteen signatures at once, each in its own lane of
// AVX-512's registers and with its own verdict: no lane's value ever enters
// another's. All lanes take the same steps, so a number is written in digits of which
// none is 0: an odd k below 2^128 is the sum of ±2^i for i from 0 to 127, plus where the bit i
// of k/2 + 2^127 is set. Four neighbours make an odd digit between -15 and 15, eight
// one between -255 and 255. An even number is made odd by adding 1, and the
// points too many are taken off in the end.

const (
	maxLanes = 16
	// minLanes is from how many signatures on a pass of lanes is faster than one by one.
	minLanes   = 4
	laneDigit  = authorWindow - 1 // bits
	fixedDigit = 8                // bits of the generator's digits
	// How many digits both halves of a number have.
	authorSteps    = 2 * 128 / laneDigit
	generatorSteps = 2 * 128 / fixedDigit
)

// lanes is eight elements in limbs of 52 bits: limb i of element l at [i][l].
type lanes [5][8]uint64

// set puts a weakly reduced x into a lane.
func (z *lanes) set(l int, x *fe) {
	const mask = 1<<52 - 1
	z[0][l] = x[0] & mask
	z[1][l] = (x[0]>>52 | x[1]<<12) & mask
	z[2][l] = (x[1]>>40 | x[2]<<24) & mask
	z[3][l] = (x[2]>>28 | x[3]<<36) & mask
	z[4][l] = x[3] >> 16
}

// get takes an element out of a lane: its four lower limbs are below 2^52 and
// the fifth is at most 2^48 + 2^12. So what is above 2^256 is 0 or 1, and where it is 1
// the rest is below 2^221, to which foldC can be added.
func (z *lanes) get(l int) (x fe) {
	over := z[4][l] >> 48
	x[0] = z[0][l] | z[1][l]<<52
	x[1] = z[1][l]>>12 | z[2][l]<<40
	x[2] = z[2][l]>>24 | z[3][l]<<28
	x[3] = z[3][l]>>36 | z[4][l]<<16
	add(&x, &x, &fe{over * foldC})
	return x
}

// laneSet is eight points (x/zz, y/zzz), zz³ = zzz², and room for operations on
// them. internal/gen has the same layout.
type laneSet struct {
	x, y, zz, zzz lanes
	_             [10]lanes
}

type lanePoints [maxLanes / 8]laneSet

// laneStep is one addition: an entry for each lane. internal/gen has the same layout.
type laneStep struct {
	entries [maxLanes]*entry
	minus   uint64 // a bit for each lane that subtracts
	take    uint64 // a bit for each lane that takes part
	offset  uint64 // of x in the entry: of x or bx
}

const (
	offsetX  = 0
	offsetBX = 32
)

// laneLadder is what one pass works on. Its points have no pointers, and so
// begin on a cache line.
type laneLadder struct {
	points      *lanePoints
	author      [authorSteps]laneStep // by window, half and tooth
	generator   [generatorSteps]laneStep
	fix         [2]laneStep
	corrections [maxLanes]entry
}

var laneLadders = sync.Pool{New: func() any { return &laneLadder{points: new(lanePoints)} }}

// odd makes k odd by adding 1 if it is even. It returns the digits, 128 bits of
// which each is a sign, and whether it added.
func (k *half128) odd() (digits half128, added bool) {
	added = k.lo&1 == 0
	lo, hi := k.lo, k.hi
	negative := k.neg
	if added {
		switch {
		case !negative || lo|hi == 0:
			negative = false
			lo |= 1
		case lo == 0:
			lo, hi = ^uint64(0), hi-1
		default:
			lo--
		}
	}
	return half128{lo>>1 | hi<<63, hi>>1 | 1<<63, negative}, added
}

// digit returns where the bits of a digit are found in a table, and 1 for minus.
func (k *half128) digit(at, width uint) (index uint, minus uint64) {
	word := k.lo
	if at >= 64 {
		word = k.hi
	}
	half := uint64(1) << (width - 1)
	v := word >> (at & 63) & (2*half - 1)
	minus = (v>>(width-1) ^ 1) & 1
	index = uint((v ^ -minus) & (half - 1))
	if k.neg {
		minus ^= 1
	}
	return index, minus
}

// generatorCorrections are G, lambda·G and, negated, the sum of both, which is
// -lambda²·G.
var generatorCorrections = sync.OnceValue(func() *[4]entry {
	var c [4]entry
	g := &generatorTable()[0]
	for i := range c {
		c[i].correct(g, i&1 == 1, i&2 == 2)
	}
	return &c
})

// correct sets c to the point that was added too often: P, lambda·P or both, with 1 + lambda =
// -lambda², whose x is -(1 + beta)·x. Its y is that of P, or less that for both.
func (c *entry) correct(p *entry, first, second bool) {
	c.x, c.y = p.x, p.y
	switch {
	case first && second:
		add(&c.x, &p.x, &p.bx)
		neg(&c.x, &c.x)
		c.x.norm()
		neg(&c.y, &c.y)
		c.y.norm()
	case second:
		c.x = p.bx
	}
}

// verifyLanes takes the sums s·G - e·P of up to maxLanes inputs whose tables have the
// same number of teeth. It sets sums, whose z is 0 where the sum is infinite or met an
// exceptional addition on its way.
func verifyLanes(ins []*input, tables [][]entry, sums []xyzz) {
	w := laneLadders.Get().(*laneLadder)
	defer laneLadders.Put(w)
	w.prepare()
	teeth := uint(len(tables[0])) / authorOdds
	for l, in := range ins {
		w.addAuthor(l, &in.e, tables[l], teeth)
		w.addGenerator(l, &in.s)
	}
	// The lanes that are left do what lane 0 does.
	for l := len(ins); l < maxLanes; l++ {
		w.repeat(l)
	}
	w.run(len(ins), teeth)
	for l := range ins {
		set := &w.points[l/8]
		l8 := l % 8
		sums[l] = xyzz{set.x.get(l8), set.y.get(l8), set.zz.get(l8), set.zzz.get(l8)}
	}
}

// xyzz is the point (x/zz, y/zzz), zz³ = zzz².
type xyzz struct{ x, y, zz, zzz fe }

func (w *laneLadder) prepare() {
	for _, steps := range [][]laneStep{w.author[:], w.generator[:], w.fix[:]} {
		for i := range steps {
			steps[i].minus, steps[i].take = 0, 1<<maxLanes-1
		}
	}
	w.fix[0].take, w.fix[1].take = 0, 0
}

func (s *laneStep) put(l int, e *entry, minus uint64) {
	s.entries[l] = e
	s.minus |= minus << l
}

func (w *laneLadder) repeat(l int) {
	for _, steps := range [][]laneStep{w.author[:], w.generator[:], w.fix[:]} {
		for i := range steps {
			s := &steps[i]
			s.put(l, s.entries[0], s.minus&1)
		}
	}
}

// addAuthor puts the digits of -k in lane l.
func (w *laneLadder) addAuthor(l int, k *scalar, table []entry, teeth uint) {
	k1, k2 := split(k)
	k1.neg, k2.neg = !k1.neg, !k2.neg
	d1, first := k1.odd()
	d2, second := k2.odd()
	windows := 128 / laneDigit / teeth
	i := 0
	for window := range windows {
		for half, d := range [2]*half128{&d1, &d2} {
			for tooth := range teeth {
				index, minus := d.digit((tooth*windows+window)*laneDigit, laneDigit)
				s := &w.author[i]
				s.offset = uint64(half * offsetBX)
				s.put(l, &table[tooth*authorOdds+index], minus)
				i++
			}
		}
	}
	w.corrections[l].correct(&table[0], first, second)
	w.correct(0, l, &w.corrections[l], first || second)
}

// addGenerator puts the digits of k in lane l. The generator's table has combs
// teeth of toothBits bits.
func (w *laneLadder) addGenerator(l int, k *scalar) {
	k1, k2 := split(k)
	d1, first := k1.odd()
	d2, second := k2.odd()
	table := generatorTable()
	i := 0
	for window := range uint(toothBits / fixedDigit) {
		for half, d := range [2]*half128{&d1, &d2} {
			for tooth := range uint(combs) {
				index, minus := d.digit(tooth*toothBits+window*fixedDigit, fixedDigit)
				s := &w.generator[i]
				s.offset = uint64(half * offsetBX)
				s.put(l, &table[tooth*fixedOdds+index], minus)
				i++
			}
		}
	}
	which := 0
	if first {
		which = 1
	}
	if second {
		which |= 2
	}
	w.correct(1, l, &generatorCorrections()[which], which != 0)
}

func (w *laneLadder) correct(i, l int, e *entry, needed bool) {
	s := &w.fix[i]
	s.offset = offsetX
	s.put(l, e, 1)
	if needed {
		s.take |= 1 << l
	}
}

// run adds everything up for the first n lanes. The highest window's first
// digit is where the sum starts.
func (w *laneLadder) run(n int, teeth uint) {
	ladder := ladderLanes16
	if n <= 8 {
		ladder = ladderLanes8
	}
	each := int(2 * teeth)
	windows := authorSteps / each
	w.start(&w.author[(windows-1)*each])
	for window := windows - 1; window >= 0; window-- {
		steps := w.author[window*each:][:each]
		if window == windows-1 {
			ladder(w.points, 0, &steps[1], each-1)
		} else {
			ladder(w.points, laneDigit, &steps[0], each)
		}
		if at := window * laneDigit; at < toothBits && at%fixedDigit == 0 {
			ladder(w.points, 0, &w.generator[at/fixedDigit*2*combs], 2*combs)
		}
	}
	ladder(w.points, 0, &w.fix[0], len(w.fix))
}

func (w *laneLadder) start(s *laneStep) {
	for l, e := range s.entries {
		set := &w.points[l/8]
		y := e.y
		if s.minus>>l&1 == 1 {
			neg(&y, &y)
		}
		set.x.set(l%8, &e.x)
		set.y.set(l%8, &y)
		set.zz.set(l%8, &feOne)
		set.zzz.set(l%8, &feOne)
	}
}

// inLanes is the lanes' part of a group: the inputs at places have tables with the same
// number of teeth.
func (g *groupWork) inLanes(places []int) {
	for len(places) >= minLanes {
		n := min(maxLanes, len(places))
		if n > maxLanes/2 && n < maxLanes/2+minLanes-1 {
			n = maxLanes / 2 // half a pass and the rest one by one
		}
		var (
			ins    [maxLanes]*input
			tables [maxLanes][]entry
			sums   [maxLanes]xyzz
		)
		for k, i := range places[:n] {
			ins[k], tables[k] = &g.inputs[i], g.tables[i]
		}
		verifyLanes(ins[:n], tables[:n], sums[:n])
		for k, i := range places[:n] {
			g.finish(i, &sums[k])
		}
		places = places[n:]
	}
	for _, i := range places {
		g.alone(i)
	}
}

// finish takes a lane's sum: x = X/ZZ is compared as r·ZZ = X.
func (g *groupWork) finish(i int, sum *xyzz) {
	if sum.zz.isZero() {
		g.alone(i) // infinite, or an exceptional addition: hardly ever but for crafted keys
		return
	}
	var u fe
	mul(&u, &g.inputs[i].r, &sum.zz)
	if equal(&u, &sum.x) {
		g.pend(i, &sum.y, &sum.zzz)
	}
}
