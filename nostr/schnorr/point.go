package schnorr

// The curve is y² = x³ + 7, of prime order n: no point has y = 0.

// point is a finite point of the curve.
type point struct{ x, y fe }

// jacobian is the point (x/z², y/z³), or infinity where z = 0.
type jacobian struct{ x, y, z fe }

// generator is the point G of the curve.
var generator = point{
	fe{0x59f2815b16f81798, 0x029bfcdb2dce28d9, 0x55a06295ce870b07, 0x79be667ef9dcbbac},
	fe{0x9c47d08ffb10d4b8, 0xfd17b448a6855419, 0x5da4fbfc0e1108a8, 0x483ada7726a3c465},
}

// double: p = 2p, in every case: as no point has y = 0 the result is finite
// where p is, and z stays 0 where it was 0.
func (p *jacobian) double() {
	if haveADX {
		doubleADX(p)
		return
	}
	p.doubleGo()
}

// doubleGo has the tangent's slope as l = 3/2·x² and the result scaled to z' = y·z:
// x' = l² - 2t, y' = l(t - x') - y⁴ with t = x·y².
func (p *jacobian) doubleGo() {
	var s, l, t, u fe
	sqrGo(&s, &p.y)
	sqrGo(&l, &p.x)
	half(&u, &l)
	add(&l, &l, &u)
	mulGo(&t, &p.x, &s)
	mulGo(&p.z, &p.y, &p.z)
	sqrGo(&u, &l)
	sqrGo(&s, &s)
	sub(&u, &u, &t)
	sub(&p.x, &u, &t)
	sub(&t, &t, &p.x)
	mulGo(&u, &l, &t)
	sub(&p.y, &u, &s)
}

// addMixed: p = p + (x, ±y), minus where neg is all ones. x and y are below p.
// It is right unless p is infinite or p = ±(x, ±y); then z becomes 0.
// Since z' is a multiple of z here and in double, a z of 0 stays: whoever
// finds z = 0 at the end takes the sum again with addComplete, and whoever finds
// another z knows that no addition met an exception.
func (p *jacobian) addMixed(x, y *fe, neg uint64) {
	if haveADX {
		addMixedADX(p, x, y, neg)
		return
	}
	p.addMixedGo(x, y, neg)
}

func (p *jacobian) addMixedGo(x, y *fe, m uint64) {
	var y2, zz, h, r, v, w fe
	y2 = *y
	if m != 0 {
		neg(&y2, &y2)
	}
	sqrGo(&zz, &p.z)
	mulGo(&y2, &y2, &p.z)
	mulGo(&h, x, &zz)
	mulGo(&r, &y2, &zz)
	sub(&h, &h, &p.x)
	sub(&r, &r, &p.y)
	sqrGo(&zz, &h)
	mulGo(&p.z, &p.z, &h)
	mulGo(&w, &zz, &h)
	mulGo(&v, &p.x, &zz)
	sqrGo(&h, &r)
	mulGo(&p.y, &p.y, &w)
	sub(&h, &h, &w)
	sub(&h, &h, &v)
	sub(&p.x, &h, &v)
	sub(&v, &v, &p.x)
	mulGo(&v, &v, &r)
	sub(&p.y, &v, &p.y)
}

// addComplete: p = p + (x, ±y) in every case.
func (p *jacobian) addComplete(x, y *fe, m uint64) {
	y2 := *y
	if m != 0 {
		neg(&y2, &y2)
	}
	if p.z.isZero() {
		*p = jacobian{*x, y2, feOne}
		return
	}
	var zz, u, s fe
	sqrN(&zz, &p.z, 1)
	mul(&u, x, &zz)
	mul(&s, &y2, &p.z)
	mul(&s, &s, &zz)
	switch {
	case !equal(&u, &p.x):
		p.addMixed(x, &y2, 0)
	case equal(&s, &p.y):
		p.double()
	default:
		*p = jacobian{}
	}
}

// addJacobian: p = p + q in every case.
func (p *jacobian) addJacobian(q *jacobian) {
	switch {
	case q.z.isZero():
		return
	case p.z.isZero():
		*p = *q
		return
	}
	var pz, qz, u1, u2, s1, s2, h, r fe
	sqrN(&pz, &p.z, 1)
	sqrN(&qz, &q.z, 1)
	mul(&u1, &p.x, &qz)
	mul(&u2, &q.x, &pz)
	mul(&s1, &p.y, &q.z)
	mul(&s1, &s1, &qz)
	mul(&s2, &q.y, &p.z)
	mul(&s2, &s2, &pz)
	sub(&h, &u2, &u1)
	sub(&r, &s2, &s1)
	if h.isZero() {
		if r.isZero() {
			p.double()
		} else {
			*p = jacobian{}
		}
		return
	}
	// As in addMixed, with u1, s1 for x, y and z = z1·z2.
	var h2, h3, v fe
	sqrN(&h2, &h, 1)
	mul(&h3, &h2, &h)
	mul(&v, &u1, &h2)
	mul(&p.z, &p.z, &q.z)
	mul(&p.z, &p.z, &h)
	sqrN(&p.x, &r, 1)
	sub(&p.x, &p.x, &h3)
	sub(&p.x, &p.x, &v)
	sub(&p.x, &p.x, &v)
	sub(&v, &v, &p.x)
	mul(&v, &v, &r)
	mul(&s1, &s1, &h3)
	sub(&p.y, &v, &s1)
}

// equal says whether p and q are the same point.
func (p *jacobian) equal(q *jacobian) bool {
	if p.z.isZero() || q.z.isZero() {
		return p.z.isZero() && q.z.isZero()
	}
	var pz, qz, a, b fe
	sqrN(&pz, &p.z, 1)
	sqrN(&qz, &q.z, 1)
	mul(&a, &p.x, &qz)
	mul(&b, &q.x, &pz)
	if !equal(&a, &b) {
		return false
	}
	mul(&pz, &pz, &p.z)
	mul(&qz, &qz, &q.z)
	mul(&a, &p.y, &qz)
	mul(&b, &q.y, &pz)
	return equal(&a, &b)
}

// addAffine: o = q ± p, minus where m is all ones, if p and q have different x;
// inv is 1/(q.x - p.x). Coordinates need not be below p. o is neither p nor q.
func (o *point) addAffine(p, q *point, inv *fe, m uint64) {
	if haveADX {
		addAffineADX(o, p, q, inv, m)
		return
	}
	o.addAffineGo(p, q, inv, m)
}

func (o *point) addAffineGo(p, q *point, inv *fe, m uint64) {
	var l, x, y, u fe
	y = p.y
	if m != 0 {
		neg(&y, &y)
	}
	sub(&l, &q.y, &y)
	mulGo(&l, &l, inv)
	sqrGo(&x, &l)
	sub(&x, &x, &p.x)
	sub(&o.x, &x, &q.x)
	sub(&u, &p.x, &o.x)
	mulGo(&u, &u, &l)
	sub(&o.y, &u, &y)
}

// lift finds the point with an even y of a key, and says whether there is one.
func (q *point) lift(key *[32]byte) bool {
	var x fe
	return x.setBytes(key) && q.liftX(&x)
}

// liftX finds the point with that x (below p) and an even y, and says
// whether there is one.
func (q *point) liftX(x *fe) bool {
	var c fe
	sqrN(&c, x, 1)
	mul(&c, &c, x)
	add(&c, &c, &feSeven)
	if !sqrt(&q.y, &c) {
		return false
	}
	q.x = *x
	q.y.norm()
	if q.y[0]&1 == 1 {
		neg(&q.y, &q.y)
		q.y.norm()
	}
	return true
}
