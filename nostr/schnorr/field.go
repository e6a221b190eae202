package schnorr

import (
	"encoding/binary"
	"math/bits"
)

// fe is an element of the field of p = 2^256 - foldC: four limbs of 64 bits,
// least significant first. Any value below 2^256 is allowed and stands for
// its residue ("weakly reduced"): a residue below foldC has two forms.
// norm gives the one below p.
//
// Every operation takes and gives weakly reduced values, and may have its
// result in place of an operand. B below is 2^64.
type fe [4]uint64

const (
	// foldC is 2^256 mod p: a limb that stands above the four is worth foldC.
	foldC = 0x1000003D1
	// p0 is the lowest limb of p; the three others are all ones.
	p0 = 0xFFFFFFFEFFFFFC2F
)

var (
	feOne   = fe{1}
	feSeven = fe{7}
	// beta is the cube root of 1 with lambda·(x, y) = (beta·x, y).
	beta = fe{0xc1396c28719501ee, 0x9cf0497512f58995, 0x6e64479eac3434e9, 0x7ae96a2b657c0710}
)

// setBytes reads 32 bytes, big endian, and says whether they are below p.
func (z *fe) setBytes(b *[32]byte) bool {
	z[3] = binary.BigEndian.Uint64(b[0:])
	z[2] = binary.BigEndian.Uint64(b[8:])
	z[1] = binary.BigEndian.Uint64(b[16:])
	z[0] = binary.BigEndian.Uint64(b[24:])
	return z[3]&z[2]&z[1] != ^uint64(0) || z[0] < p0
}

// norm brings z below p. As 2^256 < 2p one subtraction does: z - p is
// z + foldC without its carry, and that carry says whether z was at least p.
func (z *fe) norm() {
	r0, c := bits.Add64(z[0], foldC, 0)
	r1, c := bits.Add64(z[1], 0, c)
	r2, c := bits.Add64(z[2], 0, c)
	r3, c := bits.Add64(z[3], 0, c)
	if c != 0 {
		*z = fe{r0, r1, r2, r3}
	}
}

// isZero says whether z is 0 mod p: of the two forms, 0 and p.
func (z *fe) isZero() bool {
	return z[0]|z[1]|z[2]|z[3] == 0 || z[0] == p0 && z[1]&z[2]&z[3] == ^uint64(0)
}

// equal says whether x and y are the same residue.
func equal(x, y *fe) bool {
	a, b := *x, *y
	a.norm()
	b.norm()
	return a == b
}

// isOdd says whether the least form of z is odd.
func (z *fe) isOdd() bool {
	a := *z
	a.norm()
	return a[0]&1 == 1
}

// add: z = x + y. The sum is below 2·2^256. With a carry the rest is
// sum - 2^256 <= 2^256 - 2; foldC pays for the carry, and that may carry once
// more only if the rest was at least 2^256 - foldC: then what is left is below
// foldC, so adding foldC again touches the lowest limb only (2·foldC < B).
func add(z, x, y *fe) {
	r0, c := bits.Add64(x[0], y[0], 0)
	r1, c := bits.Add64(x[1], y[1], c)
	r2, c := bits.Add64(x[2], y[2], c)
	r3, c := bits.Add64(x[3], y[3], c)
	r0, c = bits.Add64(r0, foldC&-c, 0)
	r1, c = bits.Add64(r1, 0, c)
	r2, c = bits.Add64(r2, 0, c)
	r3, c = bits.Add64(r3, 0, c)
	z[0], z[1], z[2], z[3] = r0+foldC&-c, r1, r2, r3
}

// sub: z = x - y. With a borrow the value is x - y + 2^256 >= 1, which is
// foldC too much; taking foldC off may borrow once more only if the value was
// below foldC: then it is now at least 2^256 - foldC + 1, its lowest limb at
// least B - foldC + 1 > foldC, and taking foldC off again touches that limb only.
func sub(z, x, y *fe) {
	r0, c := bits.Sub64(x[0], y[0], 0)
	r1, c := bits.Sub64(x[1], y[1], c)
	r2, c := bits.Sub64(x[2], y[2], c)
	r3, c := bits.Sub64(x[3], y[3], c)
	r0, c = bits.Sub64(r0, foldC&-c, 0)
	r1, c = bits.Sub64(r1, 0, c)
	r2, c = bits.Sub64(r2, 0, c)
	r3, c = bits.Sub64(r3, 0, c)
	z[0], z[1], z[2], z[3] = r0-foldC&-c, r1, r2, r3
}

// neg: z = -x.
func neg(z, x *fe) {
	var zero fe
	sub(z, &zero, x)
}

// half: z = x / 2. An odd x gets p added: x + p < 2·2^256 is even, its half
// below 2^256.
func half(z, x *fe) {
	m := -(x[0] & 1)
	r0, c := bits.Add64(x[0], p0&m, 0)
	r1, c := bits.Add64(x[1], m, c)
	r2, c := bits.Add64(x[2], m, c)
	r3, c := bits.Add64(x[3], m, c)
	z[0] = r0>>1 | r1<<63
	z[1] = r1>>1 | r2<<63
	z[2] = r2>>1 | r3<<63
	z[3] = r3>>1 | c<<63
}

// mul: z = x·y.
func mul(z, x, y *fe) {
	if haveADX {
		mulADX(z, x, y)
		return
	}
	mulGo(z, x, y)
}

// sqrN: z = x^(2^n), n at least 1.
func sqrN(z, x *fe, n int) {
	if haveADX {
		sqrNADX(z, x, n)
		return
	}
	sqrGo(z, x)
	for ; n > 1; n-- {
		sqrGo(z, z)
	}
}

func mulGo(z, x, y *fe) {
	z[0], z[1], z[2], z[3] = fold(product((*[4]uint64)(x), (*[4]uint64)(y)))
}

// product returns x·y, row by row: row i adds x·y[i]·B^i. Before row i the sum in
// r0…r(i+3) is at most (B^4 - 1)(B^i - 1), so after it at most
// (B^4 - 1)(B^(i+1) - 1) < B^(i+5): limb i+4 takes the last carries of both
// chains, of the low and of the high halves, without overflowing.
func product(x, y *[4]uint64) (r0, r1, r2, r3, r4, r5, r6, r7 uint64) {
	var c uint64
	x0, x1, x2, x3 := x[0], x[1], x[2], x[3]

	v := y[0]
	h0, l0 := bits.Mul64(x0, v)
	h1, l1 := bits.Mul64(x1, v)
	h2, l2 := bits.Mul64(x2, v)
	h3, l3 := bits.Mul64(x3, v)
	r0 = l0
	r1, c = bits.Add64(l1, h0, 0)
	r2, c = bits.Add64(l2, h1, c)
	r3, c = bits.Add64(l3, h2, c)
	r4 = h3 + c

	v = y[1]
	h0, l0 = bits.Mul64(x0, v)
	h1, l1 = bits.Mul64(x1, v)
	h2, l2 = bits.Mul64(x2, v)
	h3, l3 = bits.Mul64(x3, v)
	r1, c = bits.Add64(r1, l0, 0)
	r2, c = bits.Add64(r2, l1, c)
	r3, c = bits.Add64(r3, l2, c)
	r4, c = bits.Add64(r4, l3, c)
	r5 = h3 + c
	r2, c = bits.Add64(r2, h0, 0)
	r3, c = bits.Add64(r3, h1, c)
	r4, c = bits.Add64(r4, h2, c)
	r5 += c

	v = y[2]
	h0, l0 = bits.Mul64(x0, v)
	h1, l1 = bits.Mul64(x1, v)
	h2, l2 = bits.Mul64(x2, v)
	h3, l3 = bits.Mul64(x3, v)
	r2, c = bits.Add64(r2, l0, 0)
	r3, c = bits.Add64(r3, l1, c)
	r4, c = bits.Add64(r4, l2, c)
	r5, c = bits.Add64(r5, l3, c)
	r6 = h3 + c
	r3, c = bits.Add64(r3, h0, 0)
	r4, c = bits.Add64(r4, h1, c)
	r5, c = bits.Add64(r5, h2, c)
	r6 += c

	v = y[3]
	h0, l0 = bits.Mul64(x0, v)
	h1, l1 = bits.Mul64(x1, v)
	h2, l2 = bits.Mul64(x2, v)
	h3, l3 = bits.Mul64(x3, v)
	r3, c = bits.Add64(r3, l0, 0)
	r4, c = bits.Add64(r4, l1, c)
	r5, c = bits.Add64(r5, l2, c)
	r6, c = bits.Add64(r6, l3, c)
	r7 = h3 + c
	r4, c = bits.Add64(r4, h0, 0)
	r5, c = bits.Add64(r5, h1, c)
	r6, c = bits.Add64(r6, h2, c)
	r7 += c

	return r0, r1, r2, r3, r4, r5, r6, r7
}

func sqrGo(z, x *fe) {
	z[0], z[1], z[2], z[3] = fold(square((*[4]uint64)(x)))
}

// square returns x²: twice the products of unlike limbs (limbs 1 to 6), then the
// four squares. The products of unlike limbs sum to less than B^8 / 2, so
// doubling them fits r1…r7, and the whole is x² < B^8.
func square(x *[4]uint64) (r0, r1, r2, r3, r4, r5, r6, r7 uint64) {
	var c uint64
	x0, x1, x2, x3 := x[0], x[1], x[2], x[3]

	// x0·(x1, x2, x3) fills limbs 1 to 4; x1·x3 and x2·x3 stand at 4 and 5.
	h1, l1 := bits.Mul64(x0, x1)
	h2, l2 := bits.Mul64(x0, x2)
	h3, l3 := bits.Mul64(x0, x3)
	h4, l4 := bits.Mul64(x1, x3)
	h5, l5 := bits.Mul64(x2, x3)
	r1 = l1
	r2, c = bits.Add64(l2, h1, 0)
	r3, c = bits.Add64(l3, h2, c)
	r4, c = bits.Add64(l4, h3, c)
	r5, c = bits.Add64(l5, h4, c)
	r6 = h5 + c
	h, l := bits.Mul64(x1, x2)
	r3, c = bits.Add64(r3, l, 0)
	r4, c = bits.Add64(r4, h, c)
	r5, c = bits.Add64(r5, 0, c)
	r6 += c

	r7 = r6 >> 63
	r6 = r6<<1 | r5>>63
	r5 = r5<<1 | r4>>63
	r4 = r4<<1 | r3>>63
	r3 = r3<<1 | r2>>63
	r2 = r2<<1 | r1>>63
	r1 <<= 1

	q0, l0 := bits.Mul64(x0, x0)
	q1, s1 := bits.Mul64(x1, x1)
	q2, s2 := bits.Mul64(x2, x2)
	q3, s3 := bits.Mul64(x3, x3)
	r0 = l0
	r1, c = bits.Add64(r1, q0, 0)
	r2, c = bits.Add64(r2, s1, c)
	r3, c = bits.Add64(r3, q1, c)
	r4, c = bits.Add64(r4, s2, c)
	r5, c = bits.Add64(r5, q2, c)
	r6, c = bits.Add64(r6, s3, c)
	r7 = r7 + q3 + c

	return r0, r1, r2, r3, r4, r5, r6, r7
}

// fold reduces eight limbs to a weakly reduced element. The upper four, times foldC,
// join the lower four: at most (2^256 - 1)(foldC + 1), so the limb t above is
// at most foldC. t·foldC < 2^67 joins the lowest limbs; if that carries out of
// the fourth, what is left is below 2^67, so its second limb is below 8 and
// adding foldC for the carry ends there.
func fold(r0, r1, r2, r3, r4, r5, r6, r7 uint64) (z0, z1, z2, z3 uint64) {
	var c uint64
	h0, l0 := bits.Mul64(r4, foldC)
	h1, l1 := bits.Mul64(r5, foldC)
	h2, l2 := bits.Mul64(r6, foldC)
	h3, l3 := bits.Mul64(r7, foldC)
	r0, c = bits.Add64(r0, l0, 0)
	r1, c = bits.Add64(r1, l1, c)
	r2, c = bits.Add64(r2, l2, c)
	r3, c = bits.Add64(r3, l3, c)
	t := h3 + c
	r1, c = bits.Add64(r1, h0, 0)
	r2, c = bits.Add64(r2, h1, c)
	r3, c = bits.Add64(r3, h2, c)
	t += c
	h, l := bits.Mul64(t, foldC)
	r0, c = bits.Add64(r0, l, 0)
	r1, c = bits.Add64(r1, h, c)
	r2, c = bits.Add64(r2, 0, c)
	r3, c = bits.Add64(r3, 0, c)
	r0, c = bits.Add64(r0, foldC&-c, 0)
	return r0, r1 + c, r2, r3
}
