package sim

// rng is splitmix64: small, the same everywhere, and good enough to choose faults.
type rng struct{ state uint64 }

func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws from 0 to n-1; 0 where there is nothing to draw from.
func (r *rng) below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return int64(r.next() % uint64(n))
}

// between draws from a to b, both included.
func (r *rng) between(a, b int64) int64 { return a + r.below(b-a+1) }

// chance is true n times in a hundred thousand.
func (r *rng) chance(n int64) bool { return n > 0 && r.below(100_000) < n }
