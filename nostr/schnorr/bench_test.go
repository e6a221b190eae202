package schnorr

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchTriples are good signatures by a number of authors.
func benchTriples(n, authors int) []triple {
	f := &forge{rand.New(rand.NewPCG(7, 7))}
	var keys []triple
	out := make([]triple, n)
	for i := range out {
		var msg [32]byte
		l := scalar{f.r.Uint64(), f.r.Uint64(), f.r.Uint64(), f.r.Uint64() >> 1}
		d := toBig(uint64(i%authors)+1, 99, 77, 1)
		msg[i%32] = byte(i)
		out[i] = sign(d, toBig(l[:]...), &msg)
	}
	_ = keys
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
		b.Run("cold", func(b *testing.B) { benchSingle(b, NewVerifier(-1), all) })
		for _, n := range []int{16, 64, 256} {
			b.Run(fmt.Sprintf("group%d", n), func(b *testing.B) { benchGroup(b, all[:n]) })
		}
	})
}

func benchSingle(b *testing.B, v *Verifier, all []triple) {
	for i := range all {
		v.author(&all[i].pub)
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
	v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
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
