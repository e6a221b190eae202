package nostr

import "math/bits"

// PoWDifficulty returns the number of leading zero bits of an id (NIP-13).
func PoWDifficulty(id ID) int {
	for i, b := range id {
		if b != 0 {
			return 8*i + bits.LeadingZeros8(b)
		}
	}
	return 8 * len(id)
}
