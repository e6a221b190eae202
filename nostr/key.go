package nostr

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"

	verifier "fleetmesh.org/fleetmesh/nostr/schnorr"
)

// SecretKey is a secp256k1 secret key: a big-endian number from 1 to the group
// order less one. It prints as a placeholder, so that no log can hold one.
type SecretKey [32]byte

// hiddenKey is what a secret key prints as.
const hiddenKey = "secret key"

// String hides the key.
func (SecretKey) String() string { return hiddenKey }

// Format hides the key from every verb.
func (SecretKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hiddenKey) }

// MarshalText fails, so that no key gets into JSON or a log by accident: where
// one must be written, EncodeNsec says so.
func (SecretKey) MarshalText() ([]byte, error) {
	return nil, errors.New("a secret key is not written as text")
}

// GenerateKey makes a new secret key from crypto/rand.
func GenerateKey() (SecretKey, error) {
	for {
		var k SecretKey
		if _, err := rand.Read(k[:]); err != nil {
			return SecretKey{}, fmt.Errorf("generate key: %w", err)
		}
		if k.valid() {
			return k, nil
		}
	}
}

func (k SecretKey) valid() bool {
	var n btcec.ModNScalar
	defer n.Zero()
	return !n.SetByteSlice(k[:]) && !n.IsZero()
}

// ParseSecretKey reads a secret key from 64 lower-case hex digits or its nsec
// form (NIP-19). Errors do not quote the input.
func ParseSecretKey(s string) (SecretKey, error) {
	var k SecretKey
	if strings.HasPrefix(s, "nsec1") {
		ent, err := DecodeNIP19(s)
		if err != nil {
			return SecretKey{}, fmt.Errorf("secret key: %w", err)
		}
		k = ent.SecretKey
	} else if !decodeHex(k[:], s) {
		return SecretKey{}, errors.New("secret key is neither 64 lower-case hex digits nor an nsec")
	}
	if !k.valid() {
		return SecretKey{}, errors.New("secret key is outside the group order")
	}
	return k, nil
}

// private returns the key in the form of the curve library.
func (k SecretKey) private() *btcec.PrivateKey {
	priv, _ := btcec.PrivKeyFromBytes(k[:])
	return priv
}

// PubKey returns the x-only public key (BIP-340). The key must be valid.
func (k SecretKey) PubKey() PubKey {
	return PubKey(schnorr.SerializePubKey(k.private().PubKey()))
}

// selfCheck remembers the few keys that sign often.
var selfCheck = verifier.NewVerifier(1 << 16)

// Sign sets PubKey, ID and Sig. The signature is BIP-340 with fresh auxiliary
// randomness, and is verified before it is given out: one that a fault spoilt
// could betray the key. It fails for strings that are not UTF-8, as nobody could read
// the event.
func (e *Event) Sign(k SecretKey) error {
	if !k.valid() {
		return errors.New("sign event: secret key is outside the group order")
	}
	if !e.validText() {
		return fmt.Errorf("sign event: %w: a string is not valid UTF-8", ErrSyntax)
	}
	var aux [32]byte
	if _, err := rand.Read(aux[:]); err != nil {
		return fmt.Errorf("sign event: %w", err)
	}
	priv := k.private()
	defer priv.Zero()
	e.raw = nil
	e.PubKey = PubKey(schnorr.SerializePubKey(priv.PubKey()))
	e.ID = e.ComputeID()
	sig, err := schnorr.Sign(priv, e.ID[:], schnorr.CustomNonce(aux), schnorr.FastSign())
	if err != nil {
		return fmt.Errorf("sign event: %w", err)
	}
	made := Sig(sig.Serialize())
	if !selfCheck.Verify((*[32]byte)(&e.PubKey), e.ID[:], (*[64]byte)(&made)) {
		return errors.New("sign event: the signature made is wrong")
	}
	e.Sig = made
	return nil
}

func (e *Event) validText() bool {
	for _, t := range e.Tags {
		for _, v := range t {
			if !utf8.ValidString(v) {
				return false
			}
		}
	}
	return utf8.ValidString(e.Content)
}
