//go:build !amd64 || purego

package schnorr

// haveADX is a constant here, so that the compiler leaves the other path out.
const haveADX = false

const haveIFMA = false

func mulADX(z, x, y *fe)                               {}
func sqrNADX(z, x *fe, n int)                          {}
func doubleADX(p *jacobian)                            {}
func addMixedADX(p *jacobian, x, y *fe, neg uint64)    {}
func addAffineADX(o, p, q *point, inv *fe, neg uint64) {}
func prefetch(list *addend, n int)                     {}

func ladderLanes8(sum *lanePoints, doublings int, steps *laneStep, n int)  {}
func ladderLanes16(sum *lanePoints, doublings int, steps *laneStep, n int) {}
