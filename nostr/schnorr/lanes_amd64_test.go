//go:build amd64 && !purego

package schnorr

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// big reads a lane, as the number that its limbs make.
func (z *lane) big(i int) *big.Int {
	v := new(big.Int)
	for l := 4; l >= 0; l-- {
		v.Lsh(v, 52).Add(v, new(big.Int).SetUint64(z[l][i]))
	}
	return v
}

// oddLane draws elements whose limbs are on the borders of what the kernel allows: below 2^52, the top limb below top.
func oddLane(r *rand.Rand, top uint64) (z lane) {
	for l := range z {
		limit := uint64(1 << 52)
		if l == 4 {
			limit = top
		}
		for i := range z[l] {
			switch r.IntN(5) {
			case 0:
				z[l][i] = limit - 1 - r.Uint64N(3)
			case 1:
				z[l][i] = r.Uint64N(3)
			case 2:
				z[l][i] = 1 << r.IntN(48)
			default:
				z[l][i] = r.Uint64N(limit)
			}
		}
	}
	return z
}

// The tops of a reduced element, and of a difference of such: what a product takes.
const reducedTop, looseTop = 1<<48 + 1<<7, 1<<48 + 1<<49 + 1<<8

// TestLanePieces compares field operations on lanes with math/big, at the borders of what each may be given, and holds what each gives to its bound.
func TestLanePieces(t *testing.T) {
	if !haveIFMA {
		t.Skip("this processor has no AVX-512 IFMA")
	}
	check := func(name string, z *lane, top uint64, want func(i int) *big.Int) {
		t.Helper()
		for i := range 8 {
			for l := range z {
				if l < 4 && z[l][i] >= 1<<52 || l == 4 && z[l][i] >= top {
					t.Fatalf("%s: limb %d is %#x", name, l, z[l][i])
				}
			}
			got, w := z.big(i), want(i)
			if got.Mod(got, bigP).Cmp(w.Mod(w, bigP)) != 0 {
				t.Fatalf("%s: lane %d is %x, want %x", name, i, got, w)
			}
		}
	}
	mulBig := func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
	r := rand.New(rand.NewPCG(15, 16))
	for range 5000 {
		x, y, w := oddLane(r, looseTop), oddLane(r, looseTop), oddLane(r, reducedTop)
		var z lane
		mulLanes(&z, &x, &y, &w)
		check("mul", &z, reducedTop, func(i int) *big.Int { return mulBig(x.big(i), y.big(i)) })
		mulTwiceSubLanes(&z, &x, &y, &w)
		check("mulTwiceSub", &z, reducedTop, func(i int) *big.Int {
			v := mulBig(x.big(i), y.big(i))
			v.Add(v, mulBig(y.big(i), w.big(i)))
			return v.Sub(v, mulBig(big.NewInt(3), w.big(i)))
		})
		sqrTripleSubLanes(&z, &x, &y, &w)
		check("sqrTripleSub", &z, reducedTop, func(i int) *big.Int {
			v := mulBig(x.big(i), x.big(i))
			return v.Sub(v, w.big(i)).Mul(v, big.NewInt(3))
		})
		x, y = oddLane(r, reducedTop), oddLane(r, reducedTop)
		subLanes(&z, &x, &y, &w)
		check("sub", &z, looseTop, func(i int) *big.Int { return new(big.Int).Sub(x.big(i), y.big(i)) })
		twiceLanes(&z, &x, &y, &w)
		check("twice", &z, 1<<49+1<<9, func(i int) *big.Int { return mulBig(big.NewInt(2), x.big(i)) })
	}
}

// TestLaneRoundTrip puts numbers of 256 bits into lanes and reads them, and reads elements that are at 2^256 and above.
func TestLaneRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for range 20000 {
		var z lane
		x := fe(oddLimbs(r))
		z.set(3, &x)
		if z.get(3) != x {
			t.Fatalf("%x comes back as %x", x, z.get(3))
		}
		z = oddLane(r, reducedTop)
		got, want := z.get(5), z.big(5)
		got.norm()
		if toBig(got[:]...).Cmp(want.Mod(want, bigP)) != 0 {
			t.Fatalf("%x is read as %x", want, got)
		}
	}
}

// TestLaneLayout holds the layout that the kernel relies on.
func TestLaneLayout(t *testing.T) {
	var r laneRow
	if unsafe.Sizeof(r) != 144 || unsafe.Offsetof(r.y) != 128 || unsafe.Offsetof(r.on) != 136 || unsafe.Offsetof(r.minus) != 138 {
		t.Errorf("a row has %d bytes", unsafe.Sizeof(r))
	}
	if s := unsafe.Sizeof(laneSet{}); s != 15*320 {
		t.Errorf("a set has %d bytes", s)
	}
}

// TestLaneSums compares sums in lanes with those taken by themselves, for numbers at every border, and few jobs as well as many.
func TestLaneSums(t *testing.T) {
	if !haveIFMA {
		t.Skip("this processor has no AVX-512 IFMA")
	}
	f := newForge(19)
	for range 60 {
		n := 1 + f.r.IntN(laneCount)
		jobs, inputs, tables := make([]laneJob, n), make([]input, n), make([]authorTable, n)
		for i := range jobs {
			var key [32]byte
			key, _ = evenPoint(f.number())
			var p point
			if !p.lift(&key) {
				t.Fatal("no point")
			}
			b := newTableBuilder(len(tables[i]))
			b.add(&p, tables[i][:], combs)
			b.finish()
			for _, k := range []*scalar{&inputs[i].s, &inputs[i].e} {
				var text [32]byte
				f.number().FillBytes(text[:])
				k.setBytes(&text)
			}
			if f.r.IntN(8) == 0 {
				inputs[i].e = scalar{}
			}
			if f.r.IntN(8) == 0 {
				inputs[i].s = scalar{}
			}
			jobs[i] = laneJob{&inputs[i], &tables[i]}
			sum := inputs[i].sum(tables[i][:])
			if !sum.z.isZero() { // so that x matches
				var zi, z2 fe
				inverse(&zi, &sum.z)
				sqrN(&z2, &zi, 1)
				mul(&inputs[i].r, &sum.x, &z2)
				inputs[i].r.norm()
			}
		}
		out := make([]laneSum, n)
		sumLanes(jobs, out)
		for i := range out {
			sum := inputs[i].sum(tables[i][:])
			if sum.z.isZero() {
				if !out[i].again {
					t.Fatalf("an infinite sum ended as %+v", out[i])
				}
				continue
			}
			if !out[i].matches {
				t.Fatalf("x does not match: s %x e %x: %+v", inputs[i].s, inputs[i].e, out[i])
			}
			var zi, y, want fe
			inverse(&zi, &out[i].zzz)
			mul(&y, &zi, &out[i].y)
			inverse(&zi, &sum.z)
			sqrN(&want, &zi, 1)
			mul(&want, &want, &zi)
			mul(&want, &want, &sum.y)
			if !equal(&y, &want) {
				t.Fatalf("y is %x, want %x", y, want)
			}
		}
	}
}

// TestLaneExceptions has lanes meet the point that they start from: an author whose key it is, and sums that end at infinity. Such sums are taken again.
func TestLaneExceptions(t *testing.T) {
	if !haveIFMA {
		t.Skip("this processor has no AVX-512 IFMA")
	}
	off := laneOff()
	p := point{off[0].x, off[0].y}
	var table authorTable
	b := newTableBuilder(len(table))
	b.add(&p, table[:], combs)
	b.finish()
	var inputs [laneCount]input
	var jobs [laneCount]laneJob
	for i := range jobs {
		inputs[i].e = scalar{uint64(i)}
		jobs[i] = laneJob{&inputs[i], &table}
	}
	var out [laneCount]laneSum
	sumLanes(jobs[:], out[:])
	for i := range out {
		sum := inputs[i].sum(table[:])
		if sum.z.isZero() && !out[i].again {
			t.Errorf("%d: an infinite sum ended as %+v", i, out[i])
		}
		if out[i].again || sum.z.isZero() {
			continue
		}
		var zi, y, want fe
		inverse(&zi, &out[i].zzz)
		mul(&y, &zi, &out[i].y)
		inverse(&zi, &sum.z)
		sqrN(&want, &zi, 1)
		mul(&want, &want, &zi)
		mul(&want, &want, &sum.y)
		if !equal(&y, &want) {
			t.Errorf("%d: y is %x, want %x", i, y, want)
		}
	}
}
