package schnorr

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
)

// batchOf turns triples into what VerifyBatch wants.
func batchOf(all []triple) (g group) {
	for i := range all {
		g.add(&all[i].pub, &all[i].msg, &all[i].sig)
	}
	return g
}

// equationHolds evaluates the equation alone over signatures, and says whether
// it held and which signatures took part.
func equationHolds(t *testing.T, v *Verifier, all []triple) (holds bool, in []bool) {
	t.Helper()
	g := batchOf(all)
	b := batch{slots: map[[32]byte]int{}}
	b.reset(maxBatch)
	if _, err := rand.Read(b.random); err != nil {
		t.Fatal(err)
	}
	in = make([]bool, len(all))
	b.collect(v, g.pubs, g.msgs, g.sigs, in)
	return b.holds(), in
}

func TestEquationHolds(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		v := NewVerifier(0)
		for _, n := range []int{1, 2, 3, 7, 64, 300} {
			all := benchTriples(n, n/3+1)
			if ok, _ := equationHolds(t, v, all); !ok {
				t.Errorf("%d good signatures: the equation does not hold", n)
			}
			for _, at := range []int{0, n / 2, n - 1} {
				bad := append([]triple(nil), all...)
				bad[at].msg[3] ^= 1
				if ok, _ := equationHolds(t, v, bad); ok {
					t.Errorf("%d signatures, number %d bad: the equation holds", n, at)
				}
			}
		}
	})
}

// TestEquationAlone takes adversarial batches without the fallback: where it
// holds, all that took part must be good.
func TestEquationAlone(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 40
	}
	eachPath(t, func(t *testing.T) {
		v := NewVerifier(0)
		f := newForge(9)
		held := 0
		for range rounds {
			all := f.triples(1 + f.r.IntN(12))
			ok, in := equationHolds(t, v, all)
			if ok {
				held++
			}
			for i := range all {
				good := oracleVerdict(&all[i])
				if in[i] != good && (ok || good) {
					t.Fatalf("%s: took part %v, equation %v, yet the verdict is %v: %+v", all[i].what, in[i], ok, good, all[i])
				}
			}
		}
		if held == 0 || held == rounds {
			t.Errorf("the equation held in %d of %d batches", held, rounds)
		}
	})
}

func TestBatchVerdicts(t *testing.T) {
	for _, n := range []int{0, 1, minBatch - 1, minBatch, maxBatch + minBatch} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { batchVerdicts(t, n) })
	}
}

// batchVerdicts judges batches of n: all good, one bad, many kinds, official
// vectors, and one signature n times.
func batchVerdicts(t *testing.T, n int) {
	all := benchTriples(n, n/4+1)
	want := make([]bool, n)
	for i := range want {
		want[i] = true
	}
	check := func(what string) {
		g := batchOf(all)
		eachPath(t, func(t *testing.T) {
			ok := make([]bool, n)
			if err := NewVerifier(0).VerifyBatch(rand.Reader, g.pubs, g.msgs, g.sigs, ok); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if ok[i] != want[i] {
					t.Errorf("%s, %d of %d: verdict %v", what, i, n, ok[i])
				}
			}
		})
	}
	check("good")
	if n == 0 {
		return
	}
	all[n/2].sig[40] ^= 1
	want[n/2] = false
	check("one bad")
	f := newForge(10)
	for i := 0; i < n; i += 9 {
		all[i] = f.triple(all[:i])
		want[i] = oracleVerdict(&all[i])
	}
	check("mixed")
	for i, o := range officialVectors(t) {
		if len(o.msg) == 32 && i < n {
			all[i] = triple{pub: o.pub, msg: [32]byte(o.msg), sig: o.sig}
			want[i] = o.valid
		}
	}
	check("official")
	for i := range all {
		all[i], want[i] = all[0], want[0]
	}
	check("one many times")
}

// TestBatchEdgeFactors gives factors of only zeros, which would leave all signatures
// out, only ones, and the like: sound or not, the code must bear them, and good
// signatures must pass.
func TestBatchEdgeFactors(t *testing.T) {
	all := benchTriples(minBatch, 10)
	g := batchOf(all)
	eachPath(t, func(t *testing.T) {
		v := NewVerifier(0)
		for _, b := range []byte{0x80, 0, 0xff, 0x7f, 0x81, 1} {
			ok := make([]bool, len(all))
			random := bytes.NewReader(bytes.Repeat([]byte{b}, 16*len(all)))
			if err := v.VerifyBatch(random, g.pubs, g.msgs, g.sigs, ok); err != nil {
				t.Fatal(err)
			}
			for i := range ok {
				if !ok[i] {
					t.Errorf("factors of %#x: number %d is refused", b, i)
				}
			}
		}
	})
}

func TestBatchRandomFails(t *testing.T) {
	all := benchTriples(minBatch, 10)
	g := batchOf(all)
	ok := make([]bool, len(all))
	broken := errors.New("no entropy")
	for _, r := range []io.Reader{iotest.ErrReader(broken), io.MultiReader(bytes.NewReader(make([]byte, 100)), iotest.ErrReader(broken))} {
		if err := NewVerifier(0).VerifyBatch(r, g.pubs, g.msgs, g.sigs, ok); !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
		for i := range ok {
			if ok[i] {
				t.Fatalf("number %d passes without factors", i)
			}
		}
	}
}

// FuzzBatch compares small adversarial batches with btcec.
func FuzzBatch(f *testing.F) {
	for i := range uint64(20) {
		f.Add(i, uint8(i))
	}
	v := NewVerifier(0)
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		all := newForge(seed).triples(1 + int(n%16))
		ok, in := equationHolds(t, v, all)
		for i := range all {
			if good := oracleVerdict(&all[i]); in[i] != good && (ok || good) {
				t.Fatalf("%s: took part %v, equation %v, verdict %v: %+v", all[i].what, in[i], ok, good, all[i])
			}
		}
	})
}
