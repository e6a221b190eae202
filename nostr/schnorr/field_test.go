package schnorr

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"testing"
)

var (
	bigP, _ = new(big.Int).SetString("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFFC2F", 16)
	bigN, _ = new(big.Int).SetString("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141", 16)
)

func toBig(limbs ...uint64) *big.Int {
	z := new(big.Int)
	for i := len(limbs) - 1; i >= 0; i-- {
		z.Lsh(z, 64)
		z.Or(z, new(big.Int).SetUint64(limbs[i]))
	}
	return z
}

func fromBig(x *big.Int) (z [4]uint64) {
	var b [32]byte
	x.FillBytes(b[:])
	for i := range z {
		z[i] = binary.BigEndian.Uint64(b[24-8*i:])
	}
	return z
}

// edgeNumbers lies on and beside every border that the code has: 0, p, n, their halves,
// multiples of foldC, and 2^256.
func edgeNumbers() [][4]uint64 {
	top := new(big.Int).Lsh(big.NewInt(1), 256)
	c := big.NewInt(foldC)
	bases := []*big.Int{
		new(big.Int), bigP, bigN, top, c, new(big.Int).Mul(c, c), new(big.Int).Sub(bigP, c),
		new(big.Int).Rsh(bigP, 1), new(big.Int).Rsh(bigN, 1), new(big.Int).Sub(top, bigN),
	}
	for _, shift := range []uint{32, 33, 62, 64, 66, 127, 128, 129, 192, 255} {
		bases = append(bases, new(big.Int).Lsh(big.NewInt(1), shift))
	}
	var out [][4]uint64
	for _, b := range bases {
		for d := int64(-3); d <= 3; d++ {
			v := new(big.Int).Add(b, big.NewInt(d))
			if v.Sign() >= 0 && v.Cmp(top) < 0 {
				out = append(out, fromBig(v))
			}
		}
	}
	return out
}

// oddLimbs draws a number whose limbs like to be 0, all ones, or near.
func oddLimbs(r *rand.Rand) (x [4]uint64) {
	for i := range x {
		switch r.IntN(6) {
		case 0:
		case 1:
			x[i] = ^uint64(0)
		case 2:
			x[i] = -uint64(r.IntN(5)) - foldC
		case 3:
			x[i] = uint64(r.IntN(5))
		default:
			x[i] = r.Uint64()
		}
	}
	return x
}

// checkField compares every field operation on a and b with math/big, with
// the result apart and in place of each operand.
func checkField(t *testing.T, a, b fe) {
	t.Helper()
	A, B := toBig(a[:]...), toBig(b[:]...)
	check := func(name string, z fe, want *big.Int) {
		t.Helper()
		want.Mod(want, bigP)
		got := toBig(z[:]...)
		if got.Mod(got, bigP).Cmp(want) != 0 {
			t.Fatalf("%s(%x, %x) = %x, want %x", name, a, b, z, want)
		}
		n := z
		n.norm()
		if toBig(n[:]...).Cmp(want) != 0 {
			t.Fatalf("norm(%x) = %x, want %x", z, n, want)
		}
		if z.isZero() != (want.Sign() == 0) || z.isOdd() != (want.Bit(0) == 1) {
			t.Fatalf("isZero or isOdd of %x is wrong", z)
		}
	}
	binary := func(name string, f func(z, x, y *fe), want *big.Int) {
		t.Helper()
		var z fe
		f(&z, &a, &b)
		check(name, z, want)
		x, y := a, b
		f(&x, &x, &b)
		f(&y, &a, &y)
		if x != z || y != z {
			t.Fatalf("%s(%x, %x) in place differs: %x, %x, %x", name, a, b, z, x, y)
		}
	}
	binary("mul", mul, new(big.Int).Mul(A, B))
	binary("mulGo", mulGo, new(big.Int).Mul(A, B))
	binary("add", add, new(big.Int).Add(A, B))
	binary("sub", sub, new(big.Int).Sub(A, B))
	unary := func(name string, f func(z, x *fe), want *big.Int) {
		t.Helper()
		var z fe
		f(&z, &a)
		check(name, z, want)
		x := a
		f(&x, &x)
		if x != z {
			t.Fatalf("%s(%x) in place differs", name, a)
		}
	}
	unary("sqr", func(z, x *fe) { sqrN(z, x, 1) }, new(big.Int).Mul(A, A))
	unary("sqrGo", sqrGo, new(big.Int).Mul(A, A))
	unary("sqr3", func(z, x *fe) { sqrN(z, x, 3) }, new(big.Int).Exp(A, big.NewInt(8), bigP))
	unary("neg", neg, new(big.Int).Neg(A))
	unary("half", half, new(big.Int).Mul(A, new(big.Int).ModInverse(big.NewInt(2), bigP)))
	inv := new(big.Int)
	if m := new(big.Int).Mod(A, bigP); m.Sign() != 0 {
		inv.ModInverse(m, bigP)
	}
	unary("inverse", inverse, inv)
	var z fe
	square := sqrt(&z, &a)
	if want := big.Jacobi(new(big.Int).Mod(A, bigP), bigP) >= 0; square != want {
		t.Fatalf("sqrt(%x) found %v", a, square)
	}
	if square {
		sqrN(&z, &z, 1)
		check("sqrt", z, A)
	}
	if equal(&a, &b) != (new(big.Int).Mod(A, bigP).Cmp(new(big.Int).Mod(B, bigP)) == 0) {
		t.Fatalf("equal(%x, %x) is wrong", a, b)
	}
}

func TestFieldEdges(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		edges := edgeNumbers()
		for _, a := range edges {
			for _, b := range edges {
				checkField(t, a, b)
			}
		}
	})
}

func TestFieldRandom(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		n := 20000
		if testing.Short() {
			n = 2000
		}
		for range n {
			checkField(t, oddLimbs(r), oddLimbs(r))
		}
	})
}

func FuzzField(f *testing.F) {
	for _, e := range edgeNumbers() {
		f.Add(e[0], e[1], e[2], e[3], e[3], e[0], e[1], e[2])
	}
	f.Fuzz(func(t *testing.T, a0, a1, a2, a3, b0, b1, b2, b3 uint64) {
		eachPath(t, func(t *testing.T) { checkField(t, fe{a0, a1, a2, a3}, fe{b0, b1, b2, b3}) })
	})
}

func TestInverseAll(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 9 {
		xs, scratch := make([]fe, n), make([]fe, n)
		for i := range xs {
			xs[i] = oddLimbs(r)
			if xs[i].isZero() {
				xs[i] = feOne
			}
		}
		want := append([]fe(nil), xs...)
		inverseAll(xs, scratch)
		for i := range xs {
			inverse(&want[i], &want[i])
			if !equal(&xs[i], &want[i]) {
				t.Fatalf("inverse %d of %d differs", i, n)
			}
		}
	}
}

func BenchmarkField(b *testing.B) {
	x := fe{1, 2, 3, 4}
	eachPathBench(b, func(b *testing.B) {
		b.Run("mul", func(b *testing.B) {
			for b.Loop() {
				mul(&x, &x, &x)
			}
		})
		b.Run("mulThroughput", func(b *testing.B) {
			var y, z, w fe
			for i := 0; i < b.N; i += 3 {
				mul(&y, &x, &x)
				mul(&z, &x, &x)
				mul(&w, &x, &x)
			}
		})
		b.Run("sqr", func(b *testing.B) { sqrN(&x, &x, b.N) })
		b.Run("inverse", func(b *testing.B) {
			for b.Loop() {
				inverse(&x, &x)
			}
		})
		b.Run("sqrt", func(b *testing.B) {
			for b.Loop() {
				sqrt(&x, &x)
			}
		})
	})
}

// TestRareCarries multiplies and squares into residues that are small, or
// small in their lower half: only those make the last reduction carry far.
func TestRareCarries(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	small := func() *big.Int {
		v := new(big.Int).SetUint64(r.Uint64())
		v.Lsh(v, uint(r.IntN(4)))
		v.Rsh(v, uint(r.IntN(70)))
		if r.IntN(3) == 0 {
			v.SetInt64(foldC + int64(r.IntN(9)) - 4)
		}
		if r.IntN(2) == 0 {
			high := new(big.Int).SetUint64(r.Uint64())
			v.Or(v, high.Lsh(high, 128+uint(r.IntN(64))))
		}
		return v
	}
	eachPath(t, func(t *testing.T) {
		for range 3000 {
			x := oddLimbs(r)
			X := toBig(x[:]...)
			if X.Mod(X, bigP).Sign() == 0 {
				continue
			}
			v := small()
			y := new(big.Int).ModInverse(X, bigP)
			checkField(t, x, fromBig(y.Mul(y, v).Mod(y, bigP)))
			if root := new(big.Int).ModSqrt(v.Mod(v, bigP), bigP); root != nil {
				checkField(t, fromBig(root), x)
				checkField(t, fromBig(new(big.Int).Sub(bigP, root)), x)
			}
		}
	})
}
