package negentropy

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

var million = sync.OnceValue(func() []Item {
	return randomItems(rand.New(rand.NewPCG(11, 11)), 1_000_000, 30_000_000)
})

func BenchmarkFingerprintRange(b *testing.B) {
	v := NewVector(slices.Clone(million()))
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		lo := r.IntN(v.Len())
		_ = RangeFingerprint(v, lo, lo+r.IntN(v.Len()-lo))
	}
}

func BenchmarkFingerprintBounds(b *testing.B) {
	v := NewVector(slices.Clone(million()))
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		from := 1700000000 + uint64(r.IntN(15_000_000))
		_ = RangeFingerprint(v, v.Search(Item{Time: from}), v.Search(Item{Time: from + 10_000_000}))
	}
}

func BenchmarkNewVector1M(b *testing.B) {
	src := million()
	for b.Loop() {
		b.StopTimer()
		items := slices.Clone(src)
		b.StartTimer()
		NewVector(items)
	}
}

// BenchmarkReconcile1M is a whole session, both sides, over a million items
// with ten differences.
func BenchmarkReconcile1M(b *testing.B) {
	all := million()
	v := NewVector(slices.Clone(all[5:]))
	w := NewVector(slices.Clone(all[:len(all)-5]))
	for b.Loop() {
		have, need, messages := reconcile(b, NewClient(v, 60000), NewServer(w, 60000), 60000)
		if len(have) != 5 || len(need) != 5 {
			b.Fatal(len(have), len(need))
		}
		b.ReportMetric(float64(messages), "messages")
	}
}
