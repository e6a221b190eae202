package schnorr

import (
	"encoding/binary"
	"math/bits"
)

// scalar is a number mod n, the order of the curve, always below n: four
// limbs, least significant first.
type scalar [4]uint64

var order = scalar{0xBFD25E8CD0364141, 0xBAAEDCE6AF48A03B, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF}

// 2^256 mod n, whose third limb is 1.
const (
	foldN0 = 0x402DA1732FC9BEBF
	foldN1 = 0x4551231950B75FC4
)

// setBytes reads 32 bytes, big endian, and says whether they are below n. If
// not it takes n off, once, which is enough for any 256 bits.
func (z *scalar) setBytes(b *[32]byte) bool {
	z[3] = binary.BigEndian.Uint64(b[0:])
	z[2] = binary.BigEndian.Uint64(b[8:])
	z[1] = binary.BigEndian.Uint64(b[16:])
	z[0] = binary.BigEndian.Uint64(b[24:])
	return !z.reduce(0)
}

// reduce takes n off once if top·2^256 + z is at least n, and says whether it did.
func (z *scalar) reduce(top uint64) bool {
	r0, b := bits.Sub64(z[0], order[0], 0)
	r1, b := bits.Sub64(z[1], order[1], b)
	r2, b := bits.Sub64(z[2], order[2], b)
	r3, b := bits.Sub64(z[3], order[3], b)
	if b > top {
		return false
	}
	*z = scalar{r0, r1, r2, r3}
	return true
}

func (z *scalar) isZero() bool { return z[0]|z[1]|z[2]|z[3] == 0 }

// addScalar: z = x + y.
func addScalar(z, x, y *scalar) {
	r0, c := bits.Add64(x[0], y[0], 0)
	r1, c := bits.Add64(x[1], y[1], c)
	r2, c := bits.Add64(x[2], y[2], c)
	r3, c := bits.Add64(x[3], y[3], c)
	*z = scalar{r0, r1, r2, r3}
	z.reduce(c)
}

// negScalar: z = -x.
func negScalar(z, x *scalar) {
	if x.isZero() {
		*z = scalar{}
		return
	}
	var b uint64
	z[0], b = bits.Sub64(order[0], x[0], 0)
	z[1], b = bits.Sub64(order[1], x[1], b)
	z[2], b = bits.Sub64(order[2], x[2], b)
	z[3], _ = bits.Sub64(order[3], x[3], b)
}

// mulScalar: z = x·y. Folding the upper limbs by 2^256 mod n < 2^129 leaves
// 512 -> 386 -> 260 bits; the third fold's limb is below 16, so what it leaves is
// below 2^256 + 2^133, and after one carry's worth below 2^134.
func mulScalar(z, x, y *scalar) {
	var r [8]uint64
	r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7] = product((*[4]uint64)(x), (*[4]uint64)(y))
	r = foldOrder(r)
	r = foldOrder(r)
	r = foldOrder(r)
	*z = scalar{r[0], r[1], r[2], r[3]}
	z.reduce(r[4])
}

// foldOrder returns low + high·(2^256 mod n) of r's two halves.
func foldOrder(r [8]uint64) (z [8]uint64) {
	copy(z[:4], r[:4])
	for i, f := range [3]uint64{foldN0, foldN1, 1} {
		var carry uint64
		for j := range 4 {
			hi, lo := bits.Mul64(r[4+j], f)
			var c uint64
			lo, c = bits.Add64(lo, z[i+j], 0)
			hi += c
			lo, c = bits.Add64(lo, carry, 0)
			z[i+j], carry = lo, hi+c
		}
		for k := i + 4; carry != 0; k++ {
			z[k], carry = bits.Add64(z[k], carry, 0)
		}
	}
	return z
}

// half128 is a signed number whose size is below 2^128.
type half128 struct {
	lo, hi uint64
	neg    bool
}

// The lattice of pairs (a, b) with a + b·lambda = 0 mod n has the short base
// (glvA, -glvB) and (glvA + glvB, glvA). The two shift factors are glvA and
// glvB times 2^384 / n, rounded.
var (
	glvA    = [2]uint64{0xE86C90E49284EB15, 0x3086D221A7D46BCD}
	glvB    = [2]uint64{0x6F547FA90ABFE4C3, 0xE4437ED6010E8828}
	glvMulA = [4]uint64{0xE893209A45DBB031, 0x3DAA8A1471E8CA7F, 0xE86C90E49284EB15, 0x3086D221A7D46BCD}
	glvMulB = [4]uint64{0x1571B4AE8AC47F71, 0x221208AC9DF506C6, 0x6F547FA90ABFE4C4, 0xE4437ED6010E8828}
	lambda  = scalar{0xDF02967C1B23BD72, 0x122E22EA20816678, 0xA5261C028812645A, 0x5363AD4CC05C30E0}
)

// split writes k as k1 + lambda·k2 mod n. It takes from (k, 0) the nearest
// point c1·(glvA, -glvB) + c2·(glvA+glvB, glvA) of the lattice: c1 = k·glvA/n and
// c2 = k·glvB/n, each rounded, wrong by at most 1/2 + 2^-128 (the factors are
// within 1/2 and k < 2^256). Hence |k1| < (2·glvA + glvB)·(1/2 + 2^-128) < 0.64·2^128
// and |k2| < (glvA + glvB)·(1/2 + 2^-128) < 0.55·2^128: three limbs and a sign are
// enough to compute both, and two hold their sizes.
func split(k *scalar) (k1, k2 half128) {
	c1 := roundShift384(k, &glvMulA)
	c2 := roundShift384(k, &glvMulB)
	aa := low192(&c1, &glvA)
	ab := low192(&c1, &glvB)
	ba := low192(&c2, &glvA)
	bb := low192(&c2, &glvB)
	v := [3]uint64{k[0], k[1], k[2]}
	v = sub192(&v, &aa)
	v = sub192(&v, &ba)
	v = sub192(&v, &bb)
	w := sub192(&ab, &ba)
	return toHalf(&v), toHalf(&w)
}

// roundShift384 returns k·m / 2^384, rounded to the nearest. It fits two limbs:
// k·m < 0.9·2^512.
func roundShift384(k *scalar, m *[4]uint64) [2]uint64 {
	_, _, _, _, _, r5, r6, r7 := product((*[4]uint64)(k), m)
	lo, c := bits.Add64(r6, r5>>63, 0)
	return [2]uint64{lo, r7 + c}
}

// low192 returns x·y mod 2^192.
func low192(x, y *[2]uint64) [3]uint64 {
	h00, l00 := bits.Mul64(x[0], y[0])
	h01, l01 := bits.Mul64(x[0], y[1])
	h10, l10 := bits.Mul64(x[1], y[0])
	r1, c1 := bits.Add64(h00, l01, 0)
	r1, c2 := bits.Add64(r1, l10, 0)
	return [3]uint64{l00, r1, x[1]*y[1] + h01 + h10 + c1 + c2}
}

func sub192(x, y *[3]uint64) (z [3]uint64) {
	var b uint64
	z[0], b = bits.Sub64(x[0], y[0], 0)
	z[1], b = bits.Sub64(x[1], y[1], b)
	z[2], _ = bits.Sub64(x[2], y[2], b)
	return z
}

func toHalf(v *[3]uint64) half128 {
	if v[2]>>63 == 0 {
		return half128{v[0], v[1], false}
	}
	w := sub192(&[3]uint64{}, v)
	return half128{w[0], w[1], true}
}
