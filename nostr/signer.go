package nostr

import (
	"errors"

	"fleetmesh.org/fleetmesh/nostr/schnorr"
)

// Signer makes many signatures by one key, each at a fraction of what Event.Sign costs. It is safe for concurrent use.
type Signer struct{ schnorr *schnorr.Signer }

// NewSigner takes a secret key; one that is out of range is an error.
func NewSigner(k SecretKey) (*Signer, error) {
	s, ok := schnorr.NewSigner((*[32]byte)(&k))
	if !ok {
		return nil, errors.New("the secret key is zero or not below the order of the curve")
	}
	return &Signer{s}, nil
}

// PubKey is the signer's public key.
func (s *Signer) PubKey() PubKey { return s.schnorr.PubKey() }

// Sign makes a BIP-340 signature with zero auxiliary randomness: the same for the same digest.
func (s *Signer) Sign(digest [32]byte) Sig { return s.schnorr.Sign(&digest, new([32]byte)) }
