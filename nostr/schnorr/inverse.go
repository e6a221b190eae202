package schnorr

import "math/bits"

// sqrt sets z to a square root of x and says whether x has one. The root is
// x^((p+1)/4); written in bits that exponent is 223 ones, 0, 22 ones, 0000, 11, 00.
func sqrt(z, x *fe) bool {
	var o2, o3, o6, o11, o22, o44, o88, t fe // on = x^(2^n - 1): n ones
	join := func(z, hi *fe, n int, lo *fe) {
		sqrN(&t, hi, n)
		mul(z, &t, lo)
	}
	join(&o2, x, 1, x)
	join(&o3, &o2, 1, x)
	join(&o6, &o3, 3, &o3)
	join(&o11, &o6, 3, &o3)
	join(&o11, &o11, 2, &o2)
	join(&o22, &o11, 11, &o11)
	join(&o44, &o22, 22, &o22)
	join(&o88, &o44, 44, &o44)
	join(&t, &o88, 88, &o88) // 176
	join(&t, &t, 44, &o44)   // 220
	join(&t, &t, 3, &o3)     // 223
	join(&t, &t, 23, &o22)
	join(&t, &t, 6, &o2)
	sqrN(&t, &t, 2)
	var square fe
	sqrN(&square, &t, 1)
	ok := equal(&square, x)
	*z = t
	return ok
}

// inverse: z = 1/x, and 0 for 0, in variable time. It is the division by steps of
// Bernstein and Yang ("Fast constant-time gcd computation and modular
// inversion", 2019), 62 steps at once on the lowest bits, with the whole
// numbers caught up after each round.
//
// Throughout, d·x = f and e·x = g mod p. It ends with g = 0 and f = ±1, so d is ±1/x.
func inverse(z, x *fe) {
	v := *x
	v.norm()
	f, g := modulus62, toSigned(&v)
	var d, e signed
	e[0] = 1
	eta, n := int64(-1), 5
	for {
		var t matrix
		eta = t.steps(eta, uint64(f[0]), uint64(g[0]))
		updateDE(&d, &e, &t)
		updateFG(&f, &g, &t, n)
		if g.isZero(n) {
			break
		}
		// Drop the top limbs once both only repeat the sign.
		fn, gn := f[n-1], g[n-1]
		if n > 1 && fn == fn>>63 && gn == gn>>63 {
			f[n-2] |= int64(uint64(fn) << 62)
			g[n-2] |= int64(uint64(gn) << 62)
			n--
		}
	}
	d.toField(z)
	if f[n-1] < 0 {
		neg(z, z)
	}
}

// signed is a number in limbs of 62 bits, least significant first. All but the
// limb in use at the top are in [0, 2^62); that one carries the sign.
type signed [5]int64

const (
	mask62 = 1<<62 - 1
	// invP62 is 1/p mod 2^62.
	invP62 = 0x27C7F6E22DDACACF
)

// modulus62 is p = 256·2^248 - foldC: a negative lowest limb spares products.
var modulus62 = signed{-foldC, 0, 0, 0, 256}

func toSigned(x *fe) signed {
	return signed{
		int64(x[0] & mask62),
		int64((x[0]>>62 | x[1]<<2) & mask62),
		int64((x[1]>>60 | x[2]<<4) & mask62),
		int64((x[2]>>58 | x[3]<<6) & mask62),
		int64(x[3] >> 56),
	}
}

// toField takes a number between -2p and p. Its part above 2^256 is a small
// number h, worth h·foldC.
func (a *signed) toField(z *fe) {
	u := [5]uint64{uint64(a[0]), uint64(a[1]), uint64(a[2]), uint64(a[3]), uint64(a[4])}
	*z = fe{u[0] | u[1]<<62, u[1]>>2 | u[2]<<60, u[2]>>4 | u[3]<<58, u[3]>>6 | u[4]<<56}
	h := a[4] >> 8
	if h < 0 {
		sub(z, z, &fe{uint64(-h) * foldC})
		return
	}
	add(z, z, &fe{uint64(h) * foldC})
}

func (a *signed) isZero(n int) bool {
	any := int64(0)
	for _, v := range a[:n] {
		any |= v
	}
	return any == 0
}

// matrix is what 62 steps do to (f, g), times 2^62. |u|+|v| and |q|+|r| are at
// most 2^62.
type matrix struct{ u, v, q, r int64 }

// steps takes 62 steps on the low 64 bits of f (odd) and g and returns the new
// eta. One step halves g where it is even, and else first adds f, having
// changed places with it where eta is negative. Rather than step by step it
// cancels several low bits of g at once, by a multiple of f.
func (t *matrix) steps(eta int64, f, g uint64) int64 {
	u, v, q, r := uint64(1), uint64(0), uint64(0), uint64(1)
	left := 62
	for {
		zeros := bits.TrailingZeros64(g | ^uint64(0)<<left)
		g >>= zeros
		u <<= zeros
		v <<= zeros
		eta -= int64(zeros)
		left -= zeros
		if left == 0 {
			break
		}
		var w uint64
		if eta < 0 {
			eta = -eta
			f, g = g, -f
			u, q = q, -u
			v, r = r, -v
			// f(f²-2) is -1/f mod 2^6, so w cancels up to six bits.
			limit := min(int(eta)+1, left)
			w = f * g * (f*f - 2) & (^uint64(0) >> (64 - uint(limit)) & 63)
		} else {
			// f + 2·((f+1) & 4) is 1/f mod 2^4.
			limit := min(int(eta)+1, left)
			w = f + (f+1)&4<<1
			w = -w * g & (^uint64(0) >> (64 - uint(limit)) & 15)
		}
		g += f * w
		q += u * w
		r += v * w
	}
	*t = matrix{int64(u), int64(v), int64(q), int64(r)}
	return eta
}

// wide is a signed number of 128 bits. The sums taken in it are of two products
// below 2^62·2^63 and one below 2^62·2^34, and a carried part below 2^66: no overflow.
type wide struct{ hi, lo uint64 }

// mac returns a + x·y.
func (a wide) mac(x, y int64) wide {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	hi -= uint64(x>>63)&uint64(y) + uint64(y>>63)&uint64(x)
	lo, c := bits.Add64(a.lo, lo, 0)
	hi, _ = bits.Add64(a.hi, hi, c)
	return wide{hi, lo}
}

// shift returns a / 2^62, rounded down.
func (a wide) shift() wide {
	return wide{uint64(int64(a.hi) >> 62), a.lo>>62 | a.hi<<2}
}

// updateFG: (f, g) = t·(f, g) / 2^62, on n limbs; the division is exact.
func updateFG(f, g *signed, t *matrix, n int) {
	f0, g0 := f[0], g[0]
	cf := wide{}.mac(t.u, f0).mac(t.v, g0).shift()
	cg := wide{}.mac(t.q, f0).mac(t.r, g0).shift()
	for i := 1; i < n; i++ {
		fi, gi := f[i], g[i]
		cf = cf.mac(t.u, fi).mac(t.v, gi)
		cg = cg.mac(t.q, fi).mac(t.r, gi)
		f[i-1] = int64(cf.lo & mask62)
		g[i-1] = int64(cg.lo & mask62)
		cf, cg = cf.shift(), cg.shift()
	}
	f[n-1] = int64(cf.lo)
	g[n-1] = int64(cg.lo)
}

// updateDE: (d, e) = t·(d, e) / 2^62 mod p, keeping both between -2p and p: a
// multiple of p is added that makes the division exact, and one more for each
// negative operand.
func updateDE(d, e *signed, t *matrix) {
	sd, se := d[4]>>63, e[4]>>63
	md := t.u&sd + t.v&se
	me := t.q&sd + t.r&se
	d0, e0 := d[0], e[0]
	cd := wide{}.mac(t.u, d0).mac(t.v, e0)
	ce := wide{}.mac(t.q, d0).mac(t.r, e0)
	md -= (int64(uint64(invP62)*cd.lo) + md) & mask62
	me -= (int64(uint64(invP62)*ce.lo) + me) & mask62
	cd = cd.mac(-foldC, md).shift()
	ce = ce.mac(-foldC, me).shift()
	for i := 1; i < 4; i++ {
		di, ei := d[i], e[i]
		cd = cd.mac(t.u, di).mac(t.v, ei)
		ce = ce.mac(t.q, di).mac(t.r, ei)
		d[i-1] = int64(cd.lo & mask62)
		e[i-1] = int64(ce.lo & mask62)
		cd, ce = cd.shift(), ce.shift()
	}
	di, ei := d[4], e[4]
	cd = cd.mac(t.u, di).mac(t.v, ei).mac(256, md)
	ce = ce.mac(t.q, di).mac(t.r, ei).mac(256, me)
	d[3] = int64(cd.lo & mask62)
	e[3] = int64(ce.lo & mask62)
	d[4] = int64(cd.shift().lo)
	e[4] = int64(ce.shift().lo)
}

// inverseAll replaces every element of xs, none of them 0, by its inverse: one
// inversion and three multiplications an element. scratch is as long as xs.
func inverseAll(xs, scratch []fe) {
	if len(xs) == 0 {
		return
	}
	acc := xs[0]
	for i := 1; i < len(xs); i++ {
		scratch[i] = acc
		mul(&acc, &acc, &xs[i])
	}
	inverse(&acc, &acc)
	for i := len(xs) - 1; i > 0; i-- {
		x := xs[i]
		mul(&xs[i], &acc, &scratch[i])
		mul(&acc, &acc, &x)
	}
	xs[0] = acc
}
