//go:build amd64 && !purego

package schnorr

import "golang.org/x/sys/cpu"

//go:generate go run ./internal/gen kernel_amd64.s lanes_amd64.s

// haveADX says whether the processor has MULX, ADCX and ADOX.
var haveADX = cpu.X86.HasBMI2 && cpu.X86.HasADX

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
