//go:build amd64 && !purego

package schnorr

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"
)

func needLanes(t testing.TB) {
	t.Helper()
	if !haveIFMA {
		t.Skip("this processor has no AVX-512 IFMA")
	}
}

// TestLanesNeedWhatTheyUse holds the detection to every set of instructions that the
// generator uses.
func TestLanesNeedWhatTheyUse(t *testing.T) {
	x := cpu.X86
	if haveIFMA && !(x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512IFMA && x.HasAVX512VBMI2) {
		t.Error("the lanes run on a processor that lacks some of their instructions")
	}
}

// TestLanesLayout holds the layouts that the generator relies on.
func TestLanesLayout(t *testing.T) {
	var s laneStep
	var e entry
	if unsafe.Sizeof(s) != 152 || unsafe.Offsetof(s.minus) != 128 || unsafe.Offsetof(s.take) != 136 || unsafe.Offsetof(s.offset) != 144 {
		t.Error("a step is not laid out as in internal/gen")
	}
	if unsafe.Offsetof(e.x) != offsetX || unsafe.Offsetof(e.bx) != offsetBX || unsafe.Offsetof(e.y) != 64 {
		t.Error("an entry is not laid out as in internal/gen")
	}
	if unsafe.Sizeof(laneSet{}) != 14*320 {
		t.Error("a set of points is not laid out as in internal/gen")
	}
	if at := uintptr(unsafe.Pointer(laneLadders.New().(*laneLadder).points)); at%64 != 0 {
		t.Errorf("the points begin at %#x, in the middle of a cache line", at)
	}
}

const (
	reducedTop = 1<<48 - 1 + 1<<12 // as in internal/gen
	wideTop    = 1<<50 - 1
)

// oddLanes draws limbs that like to be 0, as large as may be, or near; the fifth is at most top.
func oddLanes(r *rand.Rand, top uint64) (z lanes) {
	for i := range z {
		most := uint64(1<<52 - 1)
		if i == 4 {
			most = top
		}
		for l := range z[i] {
			switch r.IntN(5) {
			case 0:
			case 1:
				z[i][l] = most
			case 2:
				z[i][l] = most - uint64(r.IntN(5))
			case 3:
				z[i][l] = uint64(r.IntN(5))
			default:
				z[i][l] = r.Uint64N(most + 1)
			}
		}
	}
	return z
}

func (z *lanes) big(l int) *big.Int {
	v := new(big.Int)
	for i := 4; i >= 0; i-- {
		v.Lsh(v, 52)
		v.Add(v, new(big.Int).SetUint64(z[i][l]))
	}
	return v
}

// laneCheck compares one operation in all lanes with math/big, with the result apart and in
// place of the first operand, and holds its limbs to the bound.
func laneCheck(t *testing.T, name string, f func(z, x, y, u, v *lanes), top uint64, want func(x, y, u, v *big.Int) *big.Int, x, y, u, v lanes) {
	t.Helper()
	var z lanes
	f(&z, &x, &y, &u, &v)
	in := x
	f(&in, &in, &y, &u, &v)
	if in != z {
		t.Fatalf("%s in place differs", name)
	}
	for l := range 8 {
		for i, limbs := range z {
			most := uint64(1<<52 - 1)
			if i == 4 {
				most = top
			}
			if limbs[l] > most {
				t.Fatalf("%s: limb %d is %#x, above %#x", name, i, limbs[l], most)
			}
		}
		w := want(x.big(l), y.big(l), u.big(l), v.big(l))
		if w.Mod(w, bigP).Cmp(new(big.Int).Mod(z.big(l), bigP)) != 0 {
			t.Fatalf("%s, lane %d: %x from x %x y %x u %x v %x, want %x", name, l, z.big(l), x.big(l), y.big(l), u.big(l), v.big(l), w)
		}
		if top == reducedTop {
			if g := z.get(l); w.Cmp(new(big.Int).Mod(toBig(g[:]...), bigP)) != 0 {
				t.Fatalf("%s, lane %d: get gives %x, want %x", name, l, g, w)
			}
		}
	}
}

func checkLanes(t *testing.T, x, y, u, v, lx, ly, lu, lv lanes) {
	t.Helper()
	num := func() *big.Int { return new(big.Int) }
	laneCheck(t, "mul", mulLanes, reducedTop, func(x, y, _, _ *big.Int) *big.Int { return num().Mul(x, y) }, x, y, u, v)
	laneCheck(t, "mulPair", mulPairLanes, reducedTop, func(x, y, u, v *big.Int) *big.Int { return num().Add(num().Mul(x, y), num().Mul(u, v)) }, x, y, u, v)
	laneCheck(t, "sqr", sqrLanes, reducedTop, func(x, _, _, _ *big.Int) *big.Int { return num().Mul(x, x) }, x, y, u, v)
	laneCheck(t, "sqrTriple", sqrTripleLanes, reducedTop, func(x, _, _, _ *big.Int) *big.Int { return num().Mul(big.NewInt(3), num().Mul(x, x)) }, x, y, u, v)
	less := func(z, u, v *big.Int) *big.Int { return z.Sub(z, u).Sub(z, v).Sub(z, v) }
	laneCheck(t, "mulLess", mulLessLanes, reducedTop, func(x, y, u, v *big.Int) *big.Int { return less(num().Mul(x, y), u, v) }, x, y, lu, lv)
	laneCheck(t, "sqrLess", sqrLessLanes, reducedTop, func(x, _, u, v *big.Int) *big.Int { return less(num().Mul(x, x), u, v) }, x, y, lu, lv)
	laneCheck(t, "sub", subLanes, wideTop, func(x, y, _, _ *big.Int) *big.Int { return num().Sub(x, y) }, lx, ly, u, v)
	laneCheck(t, "neg", negLanes, wideTop, func(x, _, _, _ *big.Int) *big.Int { return num().Neg(x) }, lx, ly, u, v)
	laneCheck(t, "twice", twiceLanes, wideTop, func(x, _, _, _ *big.Int) *big.Int { return num().Lsh(x, 1) }, lx, ly, u, v)
}

// TestLanesField compares every field operation of the lanes with math/big, on the largest
// limbs that the generator's bounds allow and on any others.
func TestLanesField(t *testing.T) {
	needLanes(t)
	full := func(top uint64) (z lanes) {
		for i := range z {
			for l := range z[i] {
				z[i][l] = 1<<52 - 1
				if i == 4 {
					z[i][l] = top
				}
			}
		}
		return z
	}
	w, l, zero := full(wideTop), full(reducedTop), lanes{}
	checkLanes(t, w, w, w, w, l, l, l, l)
	checkLanes(t, zero, zero, zero, zero, zero, zero, zero, zero)
	checkLanes(t, zero, w, zero, w, zero, l, l, l)
	var edges lanes // 0, p, p±1, 2^256-1…
	for i, e := range edgeNumbers() {
		x := fe(e)
		edges.set(i%8, &x)
		if i%8 == 7 {
			checkLanes(t, edges, w, w, edges, edges, l, edges, l)
			checkLanes(t, w, edges, edges, edges, edges, edges, l, edges)
		}
	}
	n := 3000
	if testing.Short() {
		n = 300
	}
	r := rand.New(rand.NewPCG(52, 8))
	wide := func() lanes { return oddLanes(r, wideTop) }
	low := func() lanes { return oddLanes(r, reducedTop) }
	for range n {
		checkLanes(t, wide(), wide(), wide(), wide(), low(), low(), low(), low())
	}
}

// FuzzLanesField draws the limbs from a seed, and puts one of them where the fuzzer says.
func FuzzLanesField(f *testing.F) {
	needLanes(f)
	for i := range uint64(12) {
		f.Add(i, i*0x1555555555555, uint8(i*9))
	}
	f.Fuzz(func(t *testing.T, seed, limb uint64, at uint8) {
		r := rand.New(rand.NewPCG(seed, 9))
		x, lx := oddLanes(r, wideTop), oddLanes(r, reducedTop)
		i := at % 5
		x[i][at%8], lx[i][at%8] = limb&(1<<52-1), limb&(1<<52-1)
		if i == 4 {
			x[i][at%8], lx[i][at%8] = limb&wideTop, limb&(1<<48-1)
		}
		checkLanes(t, x, oddLanes(r, wideTop), oddLanes(r, wideTop), oddLanes(r, wideTop), lx, oddLanes(r, reducedTop), oddLanes(r, reducedTop), oddLanes(r, reducedTop))
	})
}

// TestLanesPoints compares doublings and additions in lanes, the masked ones and the
// negated ones too, with those of jacobian.
func TestLanesPoints(t *testing.T) {
	needLanes(t)
	r := rand.New(rand.NewPCG(53, 8))
	table := generatorTable()
	ladders := []func(*lanePoints, int, *laneStep, int){ladderLanes8, ladderLanes16}
	for round := range 300 {
		w := laneLadders.New().(*laneLadder)
		var first, step laneStep
		step.minus, step.take = r.Uint64N(1<<16), r.Uint64N(1<<16)
		step.offset = uint64(r.IntN(2)) * offsetBX
		for l := range maxLanes {
			first.put(l, &table[r.IntN(len(table))], r.Uint64N(2))
			step.entries[l] = &table[r.IntN(len(table))]
			if l%5 == 0 { // an exceptional addition, once nothing is doubled
				step.entries[l] = first.entries[l]
			}
		}
		doublings := r.IntN(3)
		w.start(&first)
		n := 8 + round%2*8
		ladders[round%2](w.points, doublings, &step, 1)
		for l := range n {
			e, a := first.entries[l], step.entries[l]
			p := jacobian{e.x, e.y, feOne}
			if first.minus>>l&1 == 1 {
				neg(&p.y, &p.y)
			}
			for range doublings {
				p.double()
			}
			x := &a.x
			if step.offset == offsetBX {
				x = &a.bx
			}
			before := p
			if step.take>>l&1 == 1 {
				p.addComplete(x, &a.y, -(step.minus >> l & 1))
			}
			set := &w.points[l/8]
			zz, zzz := set.zz.get(l%8), set.zzz.get(l%8)
			if zz.isZero() != zzz.isZero() {
				t.Fatal("zz and zzz do not become 0 together")
			}
			if zz.isZero() {
				// Only where the points were equal or opposite.
				var px fe
				sqrN(&px, &before.z, 1)
				mul(&px, &px, x)
				if !equal(&px, &before.x) {
					t.Fatalf("lane %d of %d: zz is 0 for no reason", l, n)
				}
				continue
			}
			// (x, y, zz, zzz) as jacobian: z = zzz/zz.
			q := jacobian{x: set.x.get(l % 8), y: set.y.get(l % 8)}
			var zi fe
			inverse(&zi, &zz)
			mul(&q.z, &zzz, &zi)
			if !p.equal(&q) {
				t.Fatalf("lane %d of %d, %d doublings: the point differs", l, n, doublings)
			}
		}
	}
}

// TestLaneDigits adds the digits of a number up again.
func TestLaneDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(54, 8))
	value := func(lo, hi uint64, neg bool) *big.Int {
		v := toBig(lo, hi)
		if neg {
			v.Neg(v)
		}
		return v
	}
	edges := [][2]uint64{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {^uint64(0), 0}, {^uint64(0), 1 << 62}, {0, 1 << 63}, {^uint64(1), 1<<63 + 1<<61}}
	for range 2000 {
		l := oddLimbs(r)
		edges = append(edges, [2]uint64{l[0], l[1] % (3 << 62)})
	}
	for _, e := range edges {
		for _, sign := range []bool{false, true} {
			k := half128{e[0], e[1], sign}
			d, added := k.odd()
			want := value(e[0], e[1], sign)
			if added {
				want.Add(want, big.NewInt(1))
			}
			for _, width := range []uint{laneDigit, fixedDigit} {
				got := new(big.Int)
				for at := uint(0); at < 128; at += width {
					index, minus := d.digit(at, width)
					v := big.NewInt(int64(2*index + 1))
					if minus == 1 {
						v.Neg(v)
					}
					got.Add(got, v.Lsh(v, at))
				}
				if got.Cmp(want) != 0 {
					t.Fatalf("the digits of %x, %v are worth %x, want %x", e, sign, got, want)
				}
			}
		}
	}
}

// TestLanesInEverySize puts a bad signature at each place of groups of every size up to two
// passes, of authors known and new.
func TestLanesInEverySize(t *testing.T) {
	needLanes(t)
	for _, authors := range []int{40, 3} {
		v := NewVerifier(0)
		for n := 1; n <= 34; n++ {
			all := benchTriples(n, authors)
			for at := range n {
				bad := append([]triple(nil), all...)
				bad[at].sig[40] ^= 1
				want := make([]bool, n)
				for i := range want {
					want[i] = i != at
				}
				g := batchOf(bad)
				g.check(t, v, want)
			}
		}
	}
}
