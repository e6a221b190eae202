package identity

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/nostr"
)

// Role is what a key that is bound to the node key is for.
type Role string

// The two roles beside the node key itself.
const (
	RoleAgreement Role = "agreement" // X25519, opens DIDComm envelopes
	RoleTransport Role = "transport" // Ed25519, names the host on iroh and libp2p
)

// Keys are the three secrets of a node. Whoever persists them stores each of the
// three: a derived key is never derived again at run time.
type Keys struct {
	Node      nostr.SecretKey
	Agreement AgreementSecret
	Transport TransportSecret
}

// AgreementSecret is an X25519 scalar, 32 bytes.
type AgreementSecret [32]byte

// TransportSecret is an Ed25519 seed, 32 bytes (RFC 8032).
type TransportSecret [32]byte

// AgreementKey is an X25519 public key.
type AgreementKey [32]byte

// TransportKey is an Ed25519 public key.
type TransportKey [32]byte

// Public returns the X25519 public key.
func (s AgreementSecret) Public() AgreementKey {
	k, err := ecdh.X25519().NewPrivateKey(s[:])
	if err != nil {
		panic("identity: X25519 takes any 32 bytes: " + err.Error())
	}
	return AgreementKey(k.PublicKey().Bytes())
}

// Private returns the key in the form that crypto/ed25519 signs with.
func (s TransportSecret) Private() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(s[:]) }

// Public returns the Ed25519 public key.
func (s TransportSecret) Public() TransportKey {
	return TransportKey(s.Private().Public().(ed25519.PublicKey))
}

// NewKeys draws three independent keys from random, which is crypto/rand's Reader
// outside tests. This is the normative way.
func NewKeys(random io.Reader) (*Keys, error) {
	var k Keys
	for {
		if _, err := io.ReadFull(random, k.Node[:]); err != nil {
			return nil, fmt.Errorf("draw the node key: %w", err)
		}
		if _, err := secret(k.Node); err == nil {
			break
		}
	}
	if _, err := io.ReadFull(random, k.Agreement[:]); err != nil {
		return nil, fmt.Errorf("draw the agreement key: %w", err)
	}
	if _, err := io.ReadFull(random, k.Transport[:]); err != nil {
		return nil, fmt.Errorf("draw the transport key: %w", err)
	}
	return &k, nil
}

// DeriveKeys derives the agreement and transport keys from the node key. It is for
// provisioning only: one secret to back up, three to persist.
func DeriveKeys(node nostr.SecretKey, agreementCounter, transportCounter uint32) (*Keys, error) {
	if _, err := secret(node); err != nil {
		return nil, err
	}
	return &Keys{
		Node:      node,
		Agreement: AgreementSecret(Derive(node, RoleAgreement, agreementCounter)),
		Transport: TransportSecret(Derive(node, RoleTransport, transportCounter)),
	}, nil
}

// Derive is HKDF-SHA256(ikm = node secret, no salt, info = "fleetmesh/node/<role>/<counter>"),
// 32 bytes, the counter in decimal (§ Identity, "The resolution").
func Derive(node nostr.SecretKey, role Role, counter uint32) [32]byte {
	out, err := hkdf.Key(sha256.New, node[:], nil, fmt.Sprintf("fleetmesh/node/%s/%d", role, counter), 32)
	if err != nil {
		panic("identity: HKDF of 32 bytes: " + err.Error())
	}
	return [32]byte(out)
}

// String hides the key, as do the three below: no log and no error can hold one.
func (AgreementSecret) String() string { return "agreement secret" }

// GoString hides the key.
func (AgreementSecret) GoString() string { return "agreement secret" }

// String hides the key.
func (TransportSecret) String() string { return "transport secret" }

// GoString hides the key.
func (TransportSecret) GoString() string { return "transport secret" }
