package nostr

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/bits"
	"strings"
)

// HLL is the HyperLogLog of NIP-45: 256 registers, from which the number of
// different public keys behind a count can be estimated, also after merging
// the answers of several relays.
type HLL [256]byte

// HLLOffset returns the place in the public keys at which the registers of a
// filter's HLL are read, 8 to 23 (NIP-45). It follows from the first value of the
// filter's first tag condition; the second result is false if there is none.
func HLLOffset(f Filter) (int, bool) {
	if len(f.Tags) == 0 || len(f.Tags[0].Values) == 0 {
		return 0, false
	}
	v := f.Tags[0].Values[0]
	digits := v
	var id [32]byte
	switch {
	case decodeHex(id[:], v):
	case addressKey(v) != "":
		digits = addressKey(v)
	default:
		sum := sha256.Sum256([]byte(v))
		digits = hex.EncodeToString(sum[:])
	}
	return int(hexDigit[digits[32]]) + 8, true
}

// addressKey returns the public key inside a value of the form
// kind:pubkey:d, or "".
func addressKey(v string) string {
	kind, rest, ok := strings.Cut(v, ":")
	key, _, ok2 := strings.Cut(rest, ":")
	var k [32]byte
	if !ok || !ok2 || !isDecimal(kind) || !decodeHex(k[:], key) {
		return ""
	}
	return key
}

// Add counts one public key. The offset comes from HLLOffset.
func (h *HLL) Add(key PubKey, offset int) {
	zeros := 0
	for _, b := range key[offset+1:] {
		zeros += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	register := &h[key[offset]]
	*register = max(*register, byte(zeros+1))
}

// Merge takes over what another HLL of the same filter has counted.
func (h *HLL) Merge(other *HLL) {
	for i, v := range other {
		h[i] = max(h[i], v)
	}
}

// Estimate returns about how many different keys were counted: the estimator
// of Flajolet and others, with linear counting while registers are empty and few
// keys are in. The standard error is 6.5 %.
func (h *HLL) Estimate() int64 {
	const m = float64(len(HLL{}))
	const alpha = 0.7213 / (1 + 1.079/m)
	sum, empty := 0.0, 0
	for _, v := range h {
		sum += math.Ldexp(1, -int(v))
		if v == 0 {
			empty++
		}
	}
	estimate := alpha * m * m / sum
	if estimate <= 2.5*m && empty > 0 {
		estimate = m * math.Log(m/float64(empty))
	}
	return int64(math.Round(estimate))
}
