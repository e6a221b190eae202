//go:build amd64 && !purego

package schnorr

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// eachPath runs f once on every path that this processor has.
func eachPath(t *testing.T, f func(t *testing.T)) {
	paths(func(name string, on func(func())) { on(func() { t.Run(name, f) }) })
}

// eachPathBench is eachPath for benchmarks.
func eachPathBench(b *testing.B, f func(b *testing.B)) {
	paths(func(name string, on func(func())) { on(func() { b.Run(name, f) }) })
}

// paths calls f for every path, with its name and a function that runs another on it.
func paths(f func(name string, on func(func()))) {
	for _, name := range Paths() {
		f(name, func(g func()) {
			best := Path()
			defer func() {
				if err := Use(best); err != nil {
					panic(err)
				}
			}()
			if err := Use(name); err != nil {
				panic(err)
			}
			g()
		})
	}
}

// TestKernelPieces compares the kernel's linear operations with math/big.
func TestKernelPieces(t *testing.T) {
	if !haveADX {
		t.Skip("this processor has no ADX")
	}
	check := func(name string, z fe, want *big.Int, operands ...fe) {
		t.Helper()
		n := z
		n.norm()
		if toBig(n[:]...).Cmp(want.Mod(want, bigP)) != 0 {
			t.Fatalf("%s(%x) = %x, want %x", name, operands, z, want)
		}
	}
	three := func(a, b, c fe) {
		t.Helper()
		A, B, C := toBig(a[:]...), toBig(b[:]...), toBig(c[:]...)
		var z fe
		addADX(&z, &a, &b)
		check("add", z, new(big.Int).Add(A, B), a, b)
		subADX(&z, &a, &b)
		check("sub", z, new(big.Int).Sub(A, B), a, b)
		negateIfADX(&z, &a, &b)
		check("negateIf", z, new(big.Int).Neg(A), a)
		halfADX(&z, &a, &b)
		check("half", z, new(big.Int).Mul(A, new(big.Int).ModInverse(big.NewInt(2), bigP)), a)
		sub3ADX(&z, &a, &b, &c)
		w := new(big.Int).Sub(A, B)
		check("sub3", z, w.Sub(w, C).Sub(w, C), a, b, c)
	}
	r := rand.New(rand.NewPCG(11, 12))
	edges := edgeNumbers()
	for _, a := range edges {
		for _, b := range edges {
			three(a, b, edges[r.IntN(len(edges))])
		}
	}
	for range 50000 {
		three(oddLimbs(r), oddLimbs(r), oddLimbs(r))
	}
}

// TestKernelFormulas compares the kernel's point operations with those in Go,
// on numbers of which most are no points: the formulas are the same polynomials.
func TestKernelFormulas(t *testing.T) {
	if !haveADX {
		t.Skip("this processor has no ADX")
	}
	r := rand.New(rand.NewPCG(13, 14))
	same := func(name string, a, b []fe) {
		t.Helper()
		for i := range a {
			if !equal(&a[i], &b[i]) {
				t.Fatalf("%s: coordinate %d is %x, in Go %x", name, i, a[i], b[i])
			}
		}
	}
	for range 50000 {
		p := jacobian{oddLimbs(r), oddLimbs(r), oddLimbs(r)}
		q, s := point{oddLimbs(r), oddLimbs(r)}, point{oddLimbs(r), oddLimbs(r)}
		inv, neg := fe(oddLimbs(r)), -uint64(r.IntN(2))
		a, b := p, p
		doubleADX(&a)
		b.doubleGo()
		same("double", []fe{a.x, a.y, a.z}, []fe{b.x, b.y, b.z})
		a, b = p, p
		addMixedADX(&a, &q.x, &q.y, neg)
		b.addMixedGo(&q.x, &q.y, neg)
		same("addMixed", []fe{a.x, a.y, a.z}, []fe{b.x, b.y, b.z})
		var u, v point
		addAffineADX(&u, &q, &s, &inv, neg)
		v.addAffineGo(&q, &s, &inv, neg)
		same("addAffine", []fe{u.x, u.y}, []fe{v.x, v.y})
	}
}

// TestAddendLayout holds the layout that the kernel's prefetch relies on.
func TestAddendLayout(t *testing.T) {
	var a addend
	if unsafe.Sizeof(a) != 32 || unsafe.Offsetof(a.x) != 0 || unsafe.Offsetof(a.y) != 8 {
		t.Errorf("an addend has %d bytes, x at %d, y at %d", unsafe.Sizeof(a), unsafe.Offsetof(a.x), unsafe.Offsetof(a.y))
	}
}
