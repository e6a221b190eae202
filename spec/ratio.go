package spec

import (
	"fmt"
	"math"
	"math/bits"
)

// Ratio is an exact non-negative rational in lowest terms. It is how the
// constants carry every fraction that arithmetic compares (§ Governance:
// integers only where a number is compared).
type Ratio struct {
	Num int64 `json:"num"` // at least 0
	Den int64 `json:"den"` // at least 1
}

// R returns num/den in lowest terms. It panics where num is negative or den is
// not positive: a ratio is written by a programmer, or checked first.
func R(num, den int64) Ratio {
	if num < 0 || den <= 0 {
		panic(fmt.Sprintf("spec: ratio %d/%d is not a non-negative rational", num, den))
	}
	a, b := num, den
	for b != 0 {
		a, b = b, a%b
	}
	return Ratio{Num: num / a, Den: den / a}
}

// Floor returns floor(n × r) for n ≥ 0, computed in 128 bits, and saturates at
// the largest int64. A negative n counts as 0: no count is negative.
func (r Ratio) Floor(n int64) int64 {
	if n <= 0 || r.Num <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(r.Num))
	if hi >= uint64(r.Den) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(r.Den))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// Cmp compares r with s exactly: -1, 0 or +1.
func (r Ratio) Cmp(s Ratio) int {
	ah, al := bits.Mul64(uint64(r.Num), uint64(s.Den))
	bh, bl := bits.Mul64(uint64(s.Num), uint64(r.Den))
	switch {
	case ah < bh || ah == bh && al < bl:
		return -1
	case ah == bh && al == bl:
		return 0
	}
	return 1
}

// CmpFraction compares num/den with r exactly, without reducing num/den first:
// -1, 0 or +1. num and den must not be negative; den 0 with num above 0 is
// greater than any ratio (a limit of zero with anything measured is an overrun
// without bound), and 0/0 is 0.
func (r Ratio) CmpFraction(num, den int64) int {
	if den == 0 && num == 0 {
		den = 1
	}
	return Ratio{Num: num, Den: den}.Cmp(r)
}

// String returns "num/den".
func (r Ratio) String() string { return fmt.Sprintf("%d/%d", r.Num, r.Den) }

func (r Ratio) check() error {
	if r.Num < 0 || r.Den < 1 || R(r.Num, r.Den) != r {
		return fmt.Errorf("ratio %s is not a non-negative rational in lowest terms", r)
	}
	return nil
}
