package main

import (
	"fmt"
	"strings"
)

// begin opens a function with a frame of the given number of elements.
func (e *emitter) begin(doc, name string, elements, args int) {
	fmt.Fprintf(e, "\n// %s\nTEXT ·%s(SB), NOSPLIT, $%d-%d\n", doc, name, 32*elements, args)
}

// slot is the i-th element of the frame.
func slot(i int) operand { return operand{"SP", 32 * i} }

func (e *emitter) fieldFunctions() {
	z, x, y := operand{"DI", 0}, operand{"SI", 0}, operand{"DI", 0}
	e.begin("func mulADX(z, x, y *fe)", "mulADX", 0, 24)
	e.op("MOVQ x+8(FP), SI")
	e.op("MOVQ y+16(FP), DI")
	e.product(x, y)
	e.fold()
	e.op("MOVQ z+0(FP), DI")
	e.store(z)
	e.end()

	fmt.Fprintf(e, "\n// func sqrNADX(z, x *fe, n int)\nTEXT ·sqrNADX(SB), NOSPLIT, $8-24\n")
	e.op("MOVQ n+16(FP), CX")
	e.op("MOVQ CX, 0(SP)")
	e.op("MOVQ x+8(FP), AX")
	for i, r := range []string{"SI", "DI", "R13", "R14"} {
		e.op("MOVQ %d(AX), %s", 8*i, r)
	}
	e.WriteString("sqrLoop:\n")
	e.squareInRegisters()
	e.fold()
	for i, r := range []string{"SI", "DI", "R13", "R14"} {
		e.op("MOVQ %s, %s", result[i], r)
	}
	e.op("DECQ 0(SP)")
	e.op("JNZ sqrLoop")
	e.op("MOVQ z+0(FP), DI")
	e.store(z)
	e.end()
}

// squareInRegisters is square with x in SI, DI, R13, R14, for long chains of
// squarings: there every store and load would be waited for.
func (e *emitter) squareInRegisters() {
	e.op("MOVQ SI, DX")
	e.op("MULXQ DI, R9, R10")
	e.op("MULXQ R13, AX, R11")
	e.op("ADDQ AX, R10")
	e.op("MULXQ R14, AX, R12")
	e.op("ADCQ AX, R11")
	e.op("ADCQ $0, R12")
	e.op("XORQ BX, BX")
	e.op("MOVQ DI, DX")
	e.op("MULXQ R13, AX, CX")
	e.op("ADCXQ AX, R11")
	e.op("ADOXQ CX, R12")
	e.op("MULXQ R14, AX, CX")
	e.op("ADCXQ AX, R12")
	e.op("ADOXQ BX, CX")
	e.op("ADCXQ BX, CX")
	e.op("MOVQ R13, DX")
	e.op("MULXQ R14, AX, R8")
	e.op("ADDQ AX, CX")
	e.op("ADCQ BX, R8")
	e.note("unlike products: R9, R10, R11, R12, CX, R8 are limbs 1 to 6")
	e.op("XORQ R15, R15")
	e.op("MOVQ SI, DX")
	e.op("MULXQ DX, SI, AX")
	e.op("ADCXQ R9, R9")
	e.op("ADOXQ AX, R9")
	src := []string{"DI", "R13", "R14"}
	for i, r := range [][2]string{{"R10", "R11"}, {"R12", "CX"}, {"R8", "R15"}} {
		e.op("MOVQ %s, DX", src[i])
		e.op("MULXQ DX, AX, BX")
		e.op("ADCXQ %s, %s", r[0], r[0])
		e.op("ADOXQ AX, %s", r[0])
		e.op("ADCXQ %s, %s", r[1], r[1])
		e.op("ADOXQ BX, %s", r[1])
	}
	e.op("MOVL $0, BX")
	e.op("MOVQ R8, R14")
	e.op("MOVQ CX, R13")
	e.op("MOVQ SI, R8")
}

// pointFunctions emits the operations on Jacobian points. point.go has the
// formulas in Go and says where they hold.
func (e *emitter) pointFunctions() {
	x1, y1, z1 := operand{"DI", 0}, operand{"DI", 32}, operand{"DI", 64}

	e.begin("func doubleADX(p *jacobian)", "doubleADX", 4, 8)
	e.op("MOVQ p+0(FP), DI")
	s, a, t, u := slot(0), slot(1), slot(2), slot(3)
	e.note("s = y²; l = 3/2·x²")
	e.sqr(s, y1)
	e.sqr(a, x1)
	e.half(u, a)
	e.add(a, a, u)
	e.note("t = x·s; z' = y·z")
	e.mul(t, x1, s)
	e.mul(z1, y1, z1)
	e.note("x' = l² - 2t")
	e.sqr(u, a)
	e.sqr(s, s)
	e.sub(x1, u, t, t)
	e.note("y' = l·(t - x') - s²")
	e.sub(t, t, x1)
	e.mul(u, a, t)
	e.sub(y1, u, s)
	e.end()

	e.begin("func addMixedADX(p *jacobian, x, y *fe, neg uint64)", "addMixedADX", 6, 32)
	e.op("MOVQ y+16(FP), SI")
	e.op("MOVQ neg+24(FP), CX")
	y2, zz, h, r, v, w := slot(0), slot(1), slot(2), slot(3), slot(4), slot(5)
	e.negateIf(y2, operand{"SI", 0})
	e.op("MOVQ p+0(FP), DI")
	e.op("MOVQ x+8(FP), SI")
	e.note("h = x2·z² - x; r = y2·z³ - y")
	e.sqr(zz, z1)
	e.mul(y2, y2, z1)
	e.mul(h, operand{"SI", 0}, zz)
	e.mul(r, y2, zz)
	e.sub(h, h, x1)
	e.sub(r, r, y1)
	e.note("zz = h²; w = h³; v = x·h²; z' = z·h")
	e.sqr(zz, h)
	e.mul(z1, z1, h)
	e.mul(w, zz, h)
	e.mul(v, x1, zz)
	e.sqr(h, r)
	e.mul(y1, y1, w)
	e.note("x' = r² - h³ - 2v; y' = r·(v - x') - y·h³")
	e.sub(x1, h, w, v, v)
	e.sub(v, v, x1)
	e.mul(v, v, r)
	e.sub(y1, v, y1)
	e.end()
}

// prefetch asks the caches for the addends of a ladder: an author's table has
// hardly ever been used a moment ago. An entry's fields do not straddle lines. An
// addend has 32 bytes, its pointers to x and y first.
func (e *emitter) prefetch() {
	e.begin("func prefetch(list *addend, n int)", "prefetch", 0, 16)
	e.op("MOVQ list+0(FP), SI")
	e.op("MOVQ n+8(FP), CX")
	e.WriteString("prefetchLoop:\n")
	e.op("MOVQ 0(SI), AX")
	e.op("MOVQ 8(SI), BX")
	e.op("PREFETCHT0 (AX)")
	e.op("PREFETCHT0 (BX)")
	e.op("ADDQ $32, SI")
	e.op("DECQ CX")
	e.op("JNZ prefetchLoop")
	e.end()
}

// affineFunctions emits what the batch equation spends its time on.
func (e *emitter) affineFunctions() {
	e.begin("func addAffineADX(o, p, q *point, inv *fe, neg uint64)", "addAffineADX", 4, 40)
	px, py := operand{"DI", 0}, operand{"DI", 32}
	qx, qy := operand{"SI", 0}, operand{"SI", 32}
	y, l, u, x := slot(0), slot(1), slot(2), slot(3)
	e.op("MOVQ p+8(FP), DI")
	e.op("MOVQ neg+32(FP), CX")
	e.negateIf(y, py)
	e.op("MOVQ q+16(FP), SI")
	e.note("l = (y2 - y1)·inv; x' = l² - x1 - x2")
	e.sub(l, qy, y)
	e.op("MOVQ inv+24(FP), SI")
	e.mul(l, l, operand{"SI", 0})
	e.op("MOVQ q+16(FP), SI")
	e.sqr(x, l)
	e.sub(x, x, px, qx)
	e.note("y' = l·(x1 - x') - y1")
	e.sub(u, px, x)
	e.mul(u, u, l)
	e.op("MOVQ o+0(FP), DI")
	e.copy(operand{"DI", 0}, x)
	e.sub(operand{"DI", 32}, u, y)
	e.end()
}

// pieces emits the linear operations as functions of their own. Only tests call
// them: on numbers that the point operations meet once in 2^31 times.
func (e *emitter) pieces() {
	z, x, y, w := operand{"DI", 0}, operand{"SI", 0}, operand{"DI", 0}, operand{"R12", 0}
	pointers := func() {
		e.op("MOVQ x+8(FP), SI")
		e.op("MOVQ y+16(FP), DI")
	}
	for _, f := range []struct {
		name string
		emit func(z operand)
	}{
		{"addADX", func(z operand) { e.add(z, x, y) }},
		{"subADX", func(z operand) { e.sub(z, x, y) }},
		{"sub3ADX", func(z operand) { e.sub(z, x, y, w, w) }},
		{"negateIfADX", func(z operand) { e.op("MOVQ $-1, CX"); e.negateIf(z, x) }},
		{"halfADX", func(z operand) { e.half(z, x) }},
	} {
		args := "z, x, y *fe"
		if f.name == "sub3ADX" {
			args = "z, x, y, w *fe"
		}
		e.begin("func "+f.name+"("+args+")", f.name, 1, 8*(strings.Count(args, ",")+1))
		pointers()
		if f.name == "sub3ADX" {
			e.op("MOVQ w+24(FP), R12")
		}
		f.emit(slot(0))
		e.op("MOVQ z+0(FP), DI")
		e.copy(z, slot(0))
		e.end()
	}
}

func (e *emitter) copy(z, x operand) {
	e.load(x)
	e.store(z)
}
