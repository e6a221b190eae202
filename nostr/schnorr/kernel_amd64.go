//go:build amd64 && !purego

package schnorr

import "golang.org/x/sys/cpu"

//go:generate go run ./internal/gen kernel_amd64.s

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
