package schnorr

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
)

// benchTriples are good signatures by a number of authors.
func benchTriples(n, authors int) []triple {
	r := rand.New(rand.NewPCG(7, 7))
	number := func() *big.Int { return toBig(r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64()>>1) }
	keys := make([]*big.Int, authors)
	for i := range keys {
		keys[i] = number()
	}
	out := make([]triple, n)
	for i := range out {
		msg := [32]byte{byte(i), byte(i >> 8)}
		out[i] = sign(keys[i%authors], number(), &msg)
	}
	return out
}

func BenchmarkVerify(b *testing.B) {
	all := benchTriples(256, 64)
	b.Run("btcec", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if !oracleVerdict(&all[i%len(all)]) {
				b.Fatal("bad")
			}
		}
	})
	eachPathBench(b, func(b *testing.B) {
		b.Run("cached", func(b *testing.B) { benchSingle(b, NewVerifier(0), all) })
		b.Run("stranger", func(b *testing.B) { benchSingle(b, NewVerifier(-1), all) })
		for _, n := range []int{16, 64, 256} {
			b.Run(fmt.Sprintf("group%d", n), func(b *testing.B) { benchGroup(b, all[:n]) })
		}
	})
}

func benchSingle(b *testing.B, v *Verifier, all []triple) {
	for i := range 2 * len(all) { // the second sight builds the table
		tr := &all[i%len(all)]
		v.Verify(&tr.pub, tr.msg[:], &tr.sig)
	}
	for i := 0; b.Loop(); i++ {
		tr := &all[i%len(all)]
		if !v.Verify(&tr.pub, tr.msg[:], &tr.sig) {
			b.Fatal("bad")
		}
	}
}

func benchGroup(b *testing.B, all []triple) {
	var g group
	for i := range all {
		g.add(&all[i].pub, &all[i].msg, &all[i].sig)
	}
	ok := make([]bool, len(all))
	v := NewVerifier(0)
	for range 2 {
		v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
	}
	for b.Loop() {
		v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/sig")
}

func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{64, 256, 1024, 2048} {
		all := benchTriples(n, n/4+1)
		g := batchOf(all)
		ok := make([]bool, n)
		v := NewVerifier(0)
		for range 2 {
			v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			eachPathBench(b, func(b *testing.B) {
				for b.Loop() {
					if err := v.VerifyBatch(cryptorand.Reader, g.pubs, g.msgs, g.sigs, ok); err != nil || !ok[0] {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/sig")
			})
		})
	}
}
