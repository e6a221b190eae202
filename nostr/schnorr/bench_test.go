package schnorr

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
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

// BenchmarkVerify compares all ways to verify in one run: each round takes each way
// once, so that other load on the machine meets all alike. It counts processor
// time and reports, for each, the median nanoseconds a signature and how many times
// as fast as libsecp256k1 that is (btcec where that is absent). Run it with -v.
func BenchmarkVerify(b *testing.B) {
	ways := waysToVerify(b)
	spent := make([][]float64, len(ways))
	for b.Loop() {
		for i, w := range ways {
			spent[i] = append(spent[i], w.run())
		}
	}
	base := 0.0
	for i, w := range ways {
		slices.Sort(spent[i])
		median := spent[i][len(spent[i])/2]
		if i == 0 {
			base = median
		}
		b.Logf("%-28s %9.0f ns, least %9.0f, %6.2f times %s", w.name, median, spent[i][0], base/median, ways[0].name)
		b.ReportMetric(median, w.name+"-ns")
	}
}

// way runs once and returns the nanoseconds of processor time one signature took.
type way struct {
	name string
	run  func() float64
}

func waysToVerify(b *testing.B) (ways []way) {
	few := benchTriples(64, 64)
	if program, err := buildLibsecp(b); err == nil {
		ways = append(ways, way{"libsecp256k1", func() float64 {
			_, ns := libsecpVerdicts(b, program, few)
			return ns
		}})
	}
	ways = append(ways, way{"btcec", func() float64 {
		return timed(16, func() {
			for i := range few[:16] {
				oracleVerdict(&few[i])
			}
		})
	}})
	paths(func(path string, on func(func())) {
		add := func(name string, n int, f func()) {
			on(f) // warm
			ways = append(ways, way{path + "/" + name, func() (ns float64) {
				on(func() { ns = timed(n, f) })
				return ns
			}})
		}
		single := func(v *Verifier) func() {
			return func() {
				for i := range few {
					v.Verify(&few[i].pub, few[i].msg[:], &few[i].sig)
				}
			}
		}
		v := NewVerifier(0)
		on(single(v)) // the second sight builds the table
		add("cached", len(few), single(v))
		add("stranger", len(few), single(NewVerifier(-1)))
		for _, n := range []int{16, 64} {
			g := batchOf(few[:n])
			add(fmt.Sprint("group", n), n, func() { v.VerifyGroup(g.pubs, g.msgs, g.sigs, make([]bool, n)) })
		}
		g := batchOf(few)
		cold := NewVerifier(-1)
		add("group64-strangers", len(few), func() { cold.VerifyGroup(g.pubs, g.msgs, g.sigs, make([]bool, len(few))) })
		for _, n := range []int{256, 2048} {
			g := batchOf(benchTriples(n, n/8)) // as an import has it: authors come back
			add(fmt.Sprint("batch", n, "-strangers"), n, func() { batchBench(b, cold, g) })
			for range 2 {
				v.VerifyGroup(g.pubs, g.msgs, g.sigs, make([]bool, n))
			}
			add(fmt.Sprint("group", n), n, func() { v.VerifyGroup(g.pubs, g.msgs, g.sigs, make([]bool, n)) })
			add(fmt.Sprint("batch", n), n, func() { batchBench(b, v, g) })
		}
	})
	return ways
}

func batchBench(b *testing.B, v *Verifier, g group) {
	ok := make([]bool, len(g.pubs))
	if err := v.VerifyBatch(cryptorand.Reader, g.pubs, g.msgs, g.sigs, ok); err != nil || !ok[0] {
		b.Fatal("a batch fails: ", err)
	}
}

// timed returns the nanoseconds of processor time that f takes, divided by n.
func timed(n int, f func()) float64 {
	start := processorTime()
	f()
	return float64(processorTime()-start) / float64(n)
}
