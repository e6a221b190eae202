package main

import "fmt"

// laneSet is eight points (x/zz, y/zzz), zz³ = zzz², and what an operation on them needs, in
// memory. lanes.go has the same layout.
type laneSet struct {
	x, y, zz, zzz          element
	bx, by                 element // the points that are added
	nx                     element
	p, r, pp, ppp, q, t, n element
	number                 int
}

func newLaneSet(number int) laneSet {
	s := laneSet{number: number}
	at := number * laneSetVectors * vectorBytes
	for _, e := range []*element{&s.x, &s.y, &s.zz, &s.zzz, &s.bx, &s.by, &s.nx, &s.p, &s.r, &s.pp, &s.ppp, &s.q, &s.t, &s.n} {
		*e = element{"DI", at, reduced}
		at += vectorBytes
	}
	s.by.max, s.t.max, s.n.max, s.p.max = wide, wide, wide, wide
	return s
}

const laneSetVectors = 14

// doubling is "dbl-2008-s-1" of the Explicit-Formulas Database, with a = 0: u = 2y,
// v = u², w = u·v, s = x·v, m = 3x²; x' = m² - 2s, y' = m·(s - x') - w·y. As no point has
// y = 0, zz becomes 0 only where it was.
func (e *laneEmitter) doubling(s *laneSet) []func() {
	u, v, w, xv, m := s.p, s.pp, s.ppp, s.q, s.r
	return []func(){
		func() { e.twice(u, s.y) },
		func() { e.sqrTriple(m, s.x) },
		func() { e.sqr(v, u) },
		func() { e.mul(xv, s.x, v, "") },
		func() { e.mul(w, u, v, ""); e.sub(s.n, nil, w) },
		func() { e.mul(s.zz, s.zz, v, "") },
		func() { e.sqr(s.x, m, xv, xv); e.sub(s.t, &xv, s.x) },
		func() { e.mul(s.zzz, s.zzz, w, "") },
		func() { e.mulPair(s.y, m, s.t, s.y, s.n, "") },
	}
}

// addition is "madd-2008-s": p = x2·zz - x, r = y2·zzz - y; x' = r² - p³ - 2q with
// q = x·p²; y' = r·(q - x') - y·p³; zz' = zz·p², zzz' = zzz·p³. It is right unless
// the points are equal or opposite, or the sum so far is infinite: then zz becomes 0, or stays
// so. Only the lanes in the set's mask take it.
func (e *laneEmitter) addition(s *laneSet) []func() {
	k := fmt.Sprintf("K%d", 2+s.number)
	p := s.p
	p.max = reduced
	return []func(){
		func() { e.mul(p, s.bx, s.zz, "", s.x) },
		func() { e.mul(s.r, s.by, s.zzz, "", s.y) },
		func() { e.sqr(s.pp, p) },
		func() { e.mul(s.ppp, p, s.pp, "") },
		func() { e.mul(s.q, s.x, s.pp, "") },
		func() { e.mul(s.zz, s.zz, s.pp, k) },
		func() {
			v := e.sqr(s.nx, s.r, s.ppp, s.q, s.q)
			e.store(s.x, v, k)
			e.sub(s.t, &s.q, s.nx)
			e.sub(s.n, nil, s.ppp)
		},
		func() { e.mul(s.zzz, s.zzz, s.ppp, k) },
		func() { e.mulPair(s.y, s.r, s.t, s.y, s.n, k) },
	}
}

// together writes the steps of all sets by turns: those of one wait for each other, and
// those of two do not.
func together(sets []laneSet, steps func(*laneSet) []func()) {
	var all [][]func()
	for i := range sets {
		all = append(all, steps(&sets[i]))
	}
	for i := range all[0] {
		for _, f := range all {
			f[i]()
		}
	}
}

// A step of the ladder: sixteen pointers, masks of the lanes that subtract and of
// those that take part, and the offset of x in an entry. lanes.go has the same layout.
const (
	stepMinus = 128
	stepTake  = 136
	stepX     = 144
	stepBytes = 152
)

// ladder emits the function for one set or two: so many doublings, then so many
// additions.
func (e *laneEmitter) ladder(n int) {
	var sets []laneSet
	for i := range n {
		sets = append(sets, newLaneSet(i))
	}
	name := fmt.Sprintf("ladderLanes%d", 8*n)
	fmt.Fprintf(e, "\n// func %s(sum *lanePoints, doublings int, steps *laneStep, n int)\nTEXT ·%[1]s(SB), NOSPLIT, $0-32\n", name)
	e.op("MOVQ sum+0(FP), DI")
	e.op("MOVQ doublings+8(FP), CX")
	e.op("MOVQ steps+16(FP), SI")
	e.op("MOVQ n+24(FP), R11")
	e.loadConstants()
	e.op("TESTQ CX, CX")
	e.op("JZ %sAdd", name)
	fmt.Fprintf(e, "%sDouble:\n", name)
	together(sets, e.doubling)
	e.op("DECQ CX")
	e.op("JNZ %sDouble", name)
	fmt.Fprintf(e, "%sAdd:\n", name)
	e.op("MOVQ %d(SI), R8", stepX)
	e.op("MOVQ %d(SI), R9", stepMinus)
	e.op("MOVQ %d(SI), R10", stepTake)
	for i, s := range sets {
		e.op("KMOVQ R9, K1")
		e.op("KMOVQ R10, K%d", 2+i)
		e.op("SHRQ $8, R9")
		e.op("SHRQ $8, R10")
		e.loadEntries(s.bx, s.by, 64*i)
	}
	together(sets, e.addition)
	e.op("ADDQ $%d, SI", stepBytes)
	e.op("DECQ R11")
	e.op("JNZ %sAdd", name)
	e.finish()
}

func (e *laneEmitter) finish() {
	e.op("VZEROUPPER")
	e.op("RET")
}

// pieces emits the field operations as functions of their own, for tests: on
// any limbs that an operation may meet.
func (e *laneEmitter) pieces() {
	at := func(base string, max [5]uint64) element { return element{base, 0, max} }
	z := at("DI", wide)
	x, y, u, v := at("SI", wide), at("DX", wide), at("CX", wide), at("BX", wide)
	low := func(e element) element { e.max = reduced; return e }
	for _, f := range []struct {
		name string
		emit func()
	}{
		{"mulLanes", func() { e.mul(z, x, y, "") }},
		{"mulLessLanes", func() { e.mul(z, x, y, "", low(u), low(v), low(v)) }},
		{"mulPairLanes", func() { e.mulPair(z, x, y, u, v, "") }},
		{"sqrLanes", func() { e.sqr(z, x) }},
		{"sqrLessLanes", func() { e.sqr(z, x, low(u), low(v), low(v)) }},
		{"sqrTripleLanes", func() { e.sqrTriple(z, x) }},
		{"subLanes", func() { l := low(x); e.sub(z, &l, low(y)) }},
		{"negLanes", func() { e.sub(z, nil, low(x)) }},
		{"twiceLanes", func() { e.twice(z, low(x)) }},
	} {
		fmt.Fprintf(e, "\n// func %s(z, x, y, u, v *lanes)\nTEXT ·%[1]s(SB), NOSPLIT, $0-40\n", f.name)
		for i, r := range []string{"DI", "SI", "DX", "CX", "BX"} {
			e.op("MOVQ %c+%d(FP), %s", "zxyuv"[i], 8*i, r)
		}
		e.loadConstants()
		f.emit()
		e.finish()
	}
}

// lanesText is the whole file.
func lanesText() []byte {
	var e laneEmitter
	e.constants()
	e.ladder(1)
	e.ladder(2)
	e.pieces()
	return append(append([]byte(lanesHeader+"\n"), e.data.Bytes()...), e.Bytes()...)
}
