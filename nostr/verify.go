package nostr

import "github.com/btcsuite/btcd/btcec/v2/schnorr"

// Verifier checks the signatures of events in groups: whatever waits is best
// handed over together.
type Verifier interface {
	// Verify returns for each event whether its Sig is a BIP-340 signature by its
	// PubKey over its ID. It does not look at anything else: that the ID fits
	// the event is for ParseEvent. Safe for concurrent use.
	Verify(events []*Event) []bool
}

// NewVerifier returns the verifier to use.
func NewVerifier() Verifier { return libraryVerifier{} }

// libraryVerifier checks one signature after the other.
type libraryVerifier struct{}

func (libraryVerifier) Verify(events []*Event) []bool {
	out := make([]bool, len(events))
	for i, e := range events {
		out[i] = verifyOne(e)
	}
	return out
}

func verifyOne(e *Event) bool {
	key, err := schnorr.ParsePubKey(e.PubKey[:])
	if err != nil {
		return false
	}
	sig, err := schnorr.ParseSignature(e.Sig[:])
	if err != nil {
		return false
	}
	return sig.Verify(e.ID[:], key)
}
