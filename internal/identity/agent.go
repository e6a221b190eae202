package identity

import (
	"fleetmesh.org/fleetmesh/nostr"
)

// Agent holds the node key and does the two things the protocol asks of it. An
// operator may keep it in a process of its own; then a call can block or fail, and
// the caller treats a failure as "nothing was signed".
type Agent interface {
	// PubKey is the node's key, which is its DID.
	PubKey() nostr.PubKey
	// Sign makes a BIP-340 signature over a 32-byte digest: an event id, a receipt's link, a hop message.
	Sign(digest [32]byte) (nostr.Sig, error)
	// SharedX is the x coordinate of the ECDH point with another key, unhashed.
	SharedX(with nostr.PubKey) ([32]byte, error)
}

// KeyAgent is the Agent that has the secret in memory.
type KeyAgent struct {
	secret nostr.SecretKey
	pub    nostr.PubKey
	signer *nostr.Signer
}

// NewKeyAgent makes an agent of a secret key, which it checks.
func NewKeyAgent(k nostr.SecretKey) (*KeyAgent, error) {
	if _, err := secret(k); err != nil {
		return nil, err
	}
	signer, err := nostr.NewSigner(k)
	if err != nil {
		return nil, err
	}
	return &KeyAgent{secret: k, pub: k.PubKey(), signer: signer}, nil
}

// PubKey returns the node's key.
func (a *KeyAgent) PubKey() nostr.PubKey { return a.pub }

// Sign signs a digest with zero auxiliary randomness: always alike for the same digest, as receipts and vectors need.
func (a *KeyAgent) Sign(digest [32]byte) (nostr.Sig, error) {
	return a.signer.Sign(digest), nil
}

// SharedX agrees on a value with another key.
func (a *KeyAgent) SharedX(with nostr.PubKey) ([32]byte, error) { return sharedX(a.secret, with) }

// SignEvent fills in an event's author, id and signature through an agent. The
// event must not have come from ParseEvent.
func SignEvent(a Agent, e *nostr.Event) error {
	e.PubKey = a.PubKey()
	e.ID = e.ComputeID()
	sig, err := a.Sign(e.ID)
	if err != nil {
		return err
	}
	e.Sig = sig
	return nil
}

// String names the key by its public half.
func (a *KeyAgent) String() string { return "key agent of " + FormatDID(a.pub) }

// GoString names the key by its public half.
func (a *KeyAgent) GoString() string { return a.String() }
