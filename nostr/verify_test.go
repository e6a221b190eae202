package nostr

import (
	"math/rand/v2"
	"testing"

	"github.com/btcsuite/btcd/btcec/v2/schnorr"
)

// libraryVerdict asks another implementation.
func libraryVerdict(e *Event) bool {
	key, err := schnorr.ParsePubKey(e.PubKey[:])
	if err != nil {
		return false
	}
	sig, err := schnorr.ParseSignature(e.Sig[:])
	return err == nil && sig.Verify(e.ID[:], key)
}

// Signatures with one flipped bit, borrowed keys and values out of range get
// the verdict of the library, in groups of every size.
func TestVerifierAgreesWithLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	lines := usualEvents(t)
	v := NewVerifier()
	for n := range 70 {
		var events []*Event
		for range n {
			e, err := ParseEvent(lines[rng.IntN(len(lines))])
			if err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(8) {
			case 0:
				e.Sig[rng.IntN(64)] ^= 1 << rng.IntN(8)
			case 1:
				e.ID[rng.IntN(32)] ^= 1 << rng.IntN(8)
			case 2:
				e.PubKey[rng.IntN(32)] ^= 1 << rng.IntN(8)
			case 3:
				e.Sig = Sig{}
			case 4:
				for i := range 32 {
					e.Sig[32*rng.IntN(2)+i] = 0xff
				}
			}
			events = append(events, e)
		}
		for i, ok := range v.Verify(events) {
			if ok != libraryVerdict(events[i]) {
				t.Fatalf("verdict %v on %s", ok, events[i].appendJSON(nil))
			}
		}
	}
}
