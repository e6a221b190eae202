//go:build amd64 && !purego

package schnorr

import "golang.org/x/sys/cpu"

//go:generate go run ./internal/gen kernel_amd64.s lanes_amd64.s

// haveADX says whether the processor has MULX, ADCX and ADOX.
var haveADX = cpu.X86.HasBMI2 && cpu.X86.HasADX

// haveIFMA says whether the processor has the AVX-512 instructions of the lanes, and the
// system keeps their registers: cpu looks at both. What has no ADX has no lanes either.
var haveIFMA = haveADX && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL &&
	cpu.X86.HasAVX512IFMA && cpu.X86.HasAVX512VBMI2

// ladderLanes8 doubles the first eight points so many times, and then takes n steps, at least
// one; ladderLanes16 does so with all sixteen.
//
//go:noescape
func ladderLanes8(sum *lanePoints, doublings int, steps *laneStep, n int)

//go:noescape
func ladderLanes16(sum *lanePoints, doublings int, steps *laneStep, n int)

//go:noescape
func mulADX(z, x, y *fe)

//go:noescape
func sqrNADX(z, x *fe, n int)

//go:noescape
func doubleADX(p *jacobian)

//go:noescape
func addMixedADX(p *jacobian, x, y *fe, neg uint64)

//go:noescape
func addAffineADX(o, p, q *point, inv *fe, neg uint64)

// prefetch has the first n addends' entries brought near; n is at least 1.
//
//go:noescape
func prefetch(list *addend, n int)

// The linear operations alone, for tests; y is not used where there is one operand.

//go:noescape
func addADX(z, x, y *fe)

//go:noescape
func subADX(z, x, y *fe)

//go:noescape
func sub3ADX(z, x, y, w *fe) // z = x - y - 2w

//go:noescape
func negateIfADX(z, x, y *fe)

//go:noescape
func halfADX(z, x, y *fe)

// The lanes' field operations alone, for tests.

//go:noescape
func mulLanes(z, x, y, u, v *lanes)

//go:noescape
func mulLessLanes(z, x, y, u, v *lanes) // z = x·y - u - 2v

//go:noescape
func mulPairLanes(z, x, y, u, v *lanes) // z = x·y + u·v

//go:noescape
func sqrLanes(z, x, y, u, v *lanes)

//go:noescape
func sqrLessLanes(z, x, y, u, v *lanes) // z = x² - u - 2v

//go:noescape
func sqrTripleLanes(z, x, y, u, v *lanes) // z = 3x²

//go:noescape
func subLanes(z, x, y, u, v *lanes)

//go:noescape
func negLanes(z, x, y, u, v *lanes)

//go:noescape
func twiceLanes(z, x, y, u, v *lanes)
