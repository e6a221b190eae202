//go:build amd64 && !purego

package schnorr

import "testing"

// eachPath runs f once on every path that this processor has.
func eachPath(t *testing.T, f func(t *testing.T)) {
	best := haveADX
	defer func() { haveADX = best }()
	if best {
		t.Run("adx", f)
	}
	haveADX = false
	t.Run("portable", f)
}

// eachPathBench is eachPath for benchmarks.
func eachPathBench(b *testing.B, f func(b *testing.B)) {
	best := haveADX
	defer func() { haveADX = best }()
	if best {
		b.Run("adx", f)
	}
	haveADX = false
	b.Run("portable", f)
}
