package didcomm

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

var b64 = base64.RawURLEncoding.Strict()

// unb64 decodes base64url without padding and, unlike the standard decoder,
// without line breaks in it.
func unb64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, fmt.Errorf("%w: line break in base64url", ErrSyntax)
	}
	b, err := b64.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return b, nil
}

// PublicKey is a key-agreement key and the DID URL that names it.
type PublicKey struct {
	KID string
	Key *ecdh.PublicKey
}

// Keyring holds our own key-agreement keys. Key returns the private key that
// kid names, if it is here. *ecdh.PrivateKey is a KeyExchanger, and so is
// anything that does the agreement elsewhere.
type Keyring interface {
	Key(kid string) (ecdh.KeyExchanger, bool)
}

// Resolver finds others' public keys. It answers only from documents that are
// valid now: a key of an expired or revoked document is an error.
type Resolver interface {
	// AgreementKeys returns the key-agreement keys of a DID in its order of
	// preference, or the one key that a DID URL names.
	AgreementKeys(didOrKID string) ([]PublicKey, error)
	// VerificationKey returns the authentication key that kid names: an
	// ed25519.PublicKey, an *ecdsa.PublicKey on P-256 or a *secp256k1.PublicKey.
	VerificationKey(kid string) (crypto.PublicKey, error)
}

// Keys is a Keyring in memory, by key id.
type Keys map[string]*ecdh.PrivateKey

// Key implements Keyring.
func (k Keys) Key(kid string) (ecdh.KeyExchanger, bool) {
	key, ok := k[kid]
	return key, ok && key != nil
}

// JWK is the JSON form of a public or private key (RFC 7517, RFC 8037).
type JWK struct {
	KID string `json:"kid,omitempty"`
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y,omitempty"`
	D   string `json:"d,omitempty"`
}

// nistCurves are the curves whose points have two coordinates.
var nistCurves = map[string]struct {
	curve ecdh.Curve
	size  int // octets of a coordinate
}{
	"P-256": {ecdh.P256(), 32},
	"P-384": {ecdh.P384(), 48},
	"P-521": {ecdh.P521(), 66},
}

// AgreementPublic returns the key-agreement key that the JWK describes: X25519,
// P-256, P-384 or P-521. The point is checked to lie on its curve.
func (j *JWK) AgreementPublic() (*ecdh.PublicKey, error) {
	x, err := unb64(j.X)
	if err != nil {
		return nil, err
	}
	if j.Kty == "OKP" && j.Crv == "X25519" {
		k, err := ecdh.X25519().NewPublicKey(x)
		if err != nil {
			return nil, fmt.Errorf("%w: key: %w", ErrSyntax, err)
		}
		return k, nil
	}
	c, ok := nistCurves[j.Crv]
	if j.Kty != "EC" || !ok {
		return nil, fmt.Errorf("%w: no key agreement on %.20q %.20q", ErrSyntax, j.Kty, j.Crv)
	}
	point, err := j.point(x, c.size)
	if err != nil {
		return nil, err
	}
	k, err := c.curve.NewPublicKey(point)
	if err != nil {
		return nil, fmt.Errorf("%w: key: %w", ErrSyntax, err)
	}
	return k, nil
}

// point returns the uncompressed form 04 ‖ x ‖ y.
func (j *JWK) point(x []byte, size int) ([]byte, error) {
	y, err := unb64(j.Y)
	if err != nil {
		return nil, err
	}
	if len(x) != size || len(y) != size {
		return nil, fmt.Errorf("%w: key on %s: a coordinate is not %d octets", ErrSyntax, j.Crv, size)
	}
	return append(append([]byte{4}, x...), y...), nil
}

// AgreementPrivate returns the private key of a JWK with "d", and refuses one
// whose public part does not belong to it.
func (j *JWK) AgreementPrivate() (*ecdh.PrivateKey, error) {
	pub, err := j.AgreementPublic()
	if err != nil {
		return nil, err
	}
	d, err := unb64(j.D)
	if err != nil {
		return nil, err
	}
	k, err := pub.Curve().NewPrivateKey(d)
	if err != nil {
		return nil, fmt.Errorf("%w: private key: %w", ErrSyntax, err)
	}
	if !k.PublicKey().Equal(pub) {
		return nil, fmt.Errorf("%w: private and public part of a key differ", ErrSyntax)
	}
	return k, nil
}

// VerificationPublic returns the signature key that the JWK describes, of a type
// that Resolver.VerificationKey names.
func (j *JWK) VerificationPublic() (crypto.PublicKey, error) {
	x, err := unb64(j.X)
	if err != nil {
		return nil, err
	}
	switch {
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		if len(x) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("%w: an Ed25519 key has %d octets, not %d", ErrSyntax, ed25519.PublicKeySize, len(x))
		}
		return ed25519.PublicKey(x), nil
	case j.Kty == "EC" && (j.Crv == "P-256" || j.Crv == "secp256k1"):
		point, err := j.point(x, 32)
		if err != nil {
			return nil, err
		}
		if j.Crv == "secp256k1" {
			k, err := secp256k1.ParsePubKey(point)
			if err != nil {
				return nil, fmt.Errorf("%w: key: %w", ErrSyntax, err)
			}
			return k, nil
		}
		k, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
		if err != nil {
			return nil, fmt.Errorf("%w: key: %w", ErrSyntax, err)
		}
		return k, nil
	}
	return nil, fmt.Errorf("%w: no signatures on %.20q %.20q", ErrSyntax, j.Kty, j.Crv)
}

// AgreementJWK is the JSON form of a key-agreement public key.
func AgreementJWK(k *ecdh.PublicKey) (JWK, error) {
	if k.Curve() == ecdh.X25519() {
		return JWK{Kty: "OKP", Crv: "X25519", X: b64.EncodeToString(k.Bytes())}, nil
	}
	for name, c := range nistCurves {
		if k.Curve() == c.curve {
			p := k.Bytes()[1:]
			return JWK{Kty: "EC", Crv: name, X: b64.EncodeToString(p[:c.size]), Y: b64.EncodeToString(p[c.size:])}, nil
		}
	}
	return JWK{}, fmt.Errorf("didcomm: unknown curve %v", k.Curve())
}
