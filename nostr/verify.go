package nostr

import (
	"crypto/rand"

	"fleetmesh.org/fleetmesh/nostr/schnorr"
)

// Verifier checks the signatures of events in groups: whatever waits is best
// handed over together.
type Verifier interface {
	// Verify returns for each event whether its Sig is a BIP-340 signature by its
	// PubKey over its ID. It does not look at anything else: that the ID fits
	// the event is for ParseEvent. Safe for concurrent use.
	Verify(events []*Event) []bool
}

// NewVerifier returns a verifier that remembers the authors it saw last, in
// some megabytes. It works on the caller's goroutine.
func NewVerifier() Verifier { return &groupVerifier{schnorr.NewVerifier(0)} }

// NewBulkVerifier returns a Verifier for those who have hundreds of signatures at hand, nearly all of them good: it checks them in one equation,
// at half the cost or less, and one by one where that does not hold. The verdicts are NewVerifier's.
func NewBulkVerifier() Verifier { return &bulkVerifier{schnorr.NewVerifier(0)} }

type bulkVerifier struct{ schnorr *schnorr.Verifier }

func (v *bulkVerifier) Verify(events []*Event) []bool {
	out := make([]bool, len(events))
	keys, ids, sigs := make([]*[32]byte, len(events)), make([]*[32]byte, len(events)), make([]*[64]byte, len(events))
	for i, e := range events {
		keys[i], ids[i], sigs[i] = (*[32]byte)(&e.PubKey), (*[32]byte)(&e.ID), (*[64]byte)(&e.Sig)
	}
	if err := v.schnorr.VerifyBatch(rand.Reader, keys, ids, sigs, out); err != nil { // never: the system's randomness does not fail
		v.schnorr.VerifyGroup(keys, ids, sigs, out)
	}
	return out
}

// VerifyPath names the code that verifies signatures on this processor, as
// schnorr.Path does.
func VerifyPath() string { return schnorr.Path() }

// UseVerifyPath has everything verified by that code, if this processor has it, as
// schnorr.Use does: for measuring, before anything is verified.
func UseVerifyPath(path string) error { return schnorr.Use(path) }

type groupVerifier struct{ schnorr *schnorr.Verifier }

// verifyGroup is how many events are handed on at once, so that the lists for
// it need no memory of their own.
const verifyGroup = 64

func (v *groupVerifier) Verify(events []*Event) []bool {
	out := make([]bool, len(events))
	if len(events) == 1 {
		out[0] = verifyWith(v.schnorr, events[0])
		return out
	}
	var (
		keys [verifyGroup]*[32]byte
		ids  [verifyGroup]*[32]byte
		sigs [verifyGroup]*[64]byte
	)
	for at := 0; at < len(events); at += verifyGroup {
		n := min(verifyGroup, len(events)-at)
		for i, e := range events[at : at+n] {
			keys[i], ids[i], sigs[i] = (*[32]byte)(&e.PubKey), (*[32]byte)(&e.ID), (*[64]byte)(&e.Sig)
		}
		v.schnorr.VerifyGroup(keys[:n], ids[:n], sigs[:n], out[at:at+n])
	}
	return out
}

func verifyWith(v *schnorr.Verifier, e *Event) bool {
	return v.Verify((*[32]byte)(&e.PubKey), e.ID[:], (*[64]byte)(&e.Sig))
}

// unremembering serves keys that are seen once, as those of gift wraps.
var unremembering = schnorr.NewVerifier(-1)

func verifyOne(e *Event) bool { return verifyWith(unremembering, e) }
