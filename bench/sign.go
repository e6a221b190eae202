package main

import (
	"crypto/sha256"

	"github.com/btcsuite/btcd/btcec/v2"

	"fleetmesh.org/fleetmesh/nostr"
)

// signer signs the same event the same way every time, which nostr.Event.Sign rightly does not, and in half the time. Its
// keys protect nothing: they come from a seed that everybody knows.
type signer struct {
	secret btcec.ModNScalar // of the point with even y
	pub    nostr.PubKey
}

func newSigner(secret [32]byte) signer {
	var s signer
	s.secret.SetBytes(&secret)
	x, odd := basePoint(&s.secret)
	if odd {
		s.secret.Negate()
	}
	s.pub = x
	return s
}

// basePoint is k times the generator: its x, and whether its y is odd.
func basePoint(k *btcec.ModNScalar) (x [32]byte, odd bool) {
	var p btcec.JacobianPoint
	btcec.ScalarBaseMultNonConst(k, &p)
	p.ToAffine()
	return *p.X.Bytes(), p.Y.IsOdd()
}

// sign sets the id and the signature (BIP-340, Default Signing, with a nonce that depends on the key and the id alone).
func (s *signer) sign(e *nostr.Event) {
	e.ID = e.ComputeID()
	secret := s.secret.Bytes()
	var k, challenge, sum btcec.ModNScalar
	nonce := tagged("fleetmesh/bench/nonce", secret[:], e.ID[:])
	k.SetBytes(&nonce)
	x, odd := basePoint(&k)
	if odd {
		k.Negate()
	}
	h := tagged("BIP0340/challenge", x[:], e.PubKey[:], e.ID[:])
	challenge.SetBytes(&h)
	sum.Mul2(&challenge, &s.secret).Add(&k)
	copy(e.Sig[:32], x[:])
	sum.PutBytesUnchecked(e.Sig[32:])
}

// tagged is BIP-340's tagged hash.
func tagged(tag string, parts ...[]byte) [32]byte {
	t := sha256.Sum256([]byte(tag))
	b := append(append(make([]byte, 0, 160), t[:]...), t[:]...)
	for _, p := range parts {
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}
