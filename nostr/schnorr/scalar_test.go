package schnorr

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

func bigHalf(h half128) *big.Int {
	v := toBig(h.lo, h.hi)
	if h.neg {
		v.Neg(v)
	}
	return v
}

// checkScalar compares the operations on a and b mod n with math/big.
func checkScalar(t *testing.T, a, b scalar) {
	t.Helper()
	var bytes [32]byte
	toBig(a[:]...).FillBytes(bytes[:])
	below := toBig(a[:]...).Cmp(bigN) < 0
	if a.setBytes(&bytes) != below {
		t.Fatalf("setBytes(%x) says below n: %v", bytes, !below)
	}
	b.reduce(0)
	A, B := toBig(a[:]...), toBig(b[:]...)
	check := func(name string, z scalar, want *big.Int) {
		t.Helper()
		if toBig(z[:]...).Cmp(want.Mod(want, bigN)) != 0 {
			t.Fatalf("%s(%x, %x) = %x, want %x", name, a, b, z, want)
		}
	}
	var z scalar
	addScalar(&z, &a, &b)
	check("add", z, new(big.Int).Add(A, B))
	mulScalar(&z, &a, &b)
	check("mul", z, new(big.Int).Mul(A, B))
	negScalar(&z, &a)
	check("neg", z, new(big.Int).Neg(A))

	k1, k2 := split(&a)
	sum := new(big.Int).Mul(bigHalf(k2), toBig(lambda[:]...))
	sum.Add(sum, bigHalf(k1))
	if sum.Mod(sum, bigN).Cmp(A) != 0 {
		t.Fatalf("split(%x) = %v, %v", a, k1, k2)
	}
	bound := new(big.Int).Lsh(big.NewInt(64), 128)
	for _, k := range []half128{k1, k2} {
		if new(big.Int).Mul(toBig(k.lo, k.hi), big.NewInt(100)).Cmp(bound) >= 0 {
			t.Fatalf("split(%x): a half is %x, not below 0.64 of 2^128", a, toBig(k.lo, k.hi))
		}
	}
}

func TestScalar(t *testing.T) {
	edges := edgeNumbers()
	for _, a := range edges {
		for _, b := range edges {
			checkScalar(t, a, b)
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 50000 {
		checkScalar(t, oddLimbs(r), oddLimbs(r))
	}
	// Multiples of lambda and of the lattice's numbers sit on the rounding borders.
	for i := range uint64(2000) {
		var z scalar
		for _, f := range []scalar{lambda, {glvA[0], glvA[1]}, {glvB[0], glvB[1]}} {
			mulScalar(&z, &f, &scalar{i})
			checkScalar(t, z, f)
		}
	}
}

func FuzzScalar(f *testing.F) {
	for _, e := range edgeNumbers() {
		f.Add(e[0], e[1], e[2], e[3], e[3], e[0], e[1], e[2])
	}
	f.Fuzz(func(t *testing.T, a0, a1, a2, a3, b0, b1, b2, b3 uint64) {
		checkScalar(t, scalar{a0, a1, a2, a3}, scalar{b0, b1, b2, b3})
	})
}

// TestLatticeConstants derives the constants of split.
func TestLatticeConstants(t *testing.T) {
	a, b, l := toBig(glvA[:]...), toBig(glvB[:]...), toBig(lambda[:]...)
	zero := func(x, y *big.Int) {
		t.Helper()
		s := new(big.Int).Mul(y, l)
		if s.Add(s, x).Mod(s, bigN).Sign() != 0 {
			t.Fatal("a vector of the base is not in the lattice")
		}
	}
	zero(a, new(big.Int).Neg(b))
	zero(new(big.Int).Add(a, b), a)
	round := func(x *big.Int) *big.Int {
		s := new(big.Int).Lsh(x, 385)
		s.Div(s, bigN).Add(s, big.NewInt(1))
		return s.Rsh(s, 1)
	}
	if round(a).Cmp(toBig(glvMulA[:]...)) != 0 || round(b).Cmp(toBig(glvMulB[:]...)) != 0 {
		t.Fatal("the factors are not a·2^384/n and b·2^384/n")
	}
	c := toBig(beta[:]...)
	if c.Exp(c, big.NewInt(3), bigP).Cmp(big.NewInt(1)) != 0 {
		t.Fatal("beta is no cube root of 1")
	}
	inv := new(big.Int).Mul(big.NewInt(invP62), bigP)
	if inv.And(inv, big.NewInt(mask62)).Cmp(big.NewInt(1)) != 0 {
		t.Fatal("invP62 is not 1/p mod 2^62")
	}
}
