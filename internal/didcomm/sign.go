package didcomm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"math/big"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	k1ecdsa "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Signature algorithms (RFC 8037, RFC 7518, RFC 8812).
const (
	AlgEdDSA  = "EdDSA"
	AlgES256  = "ES256"
	AlgES256K = "ES256K"
)

const maxSignatures = 8

// Signer signs as the authentication key that KID names. Sign returns the raw
// JWS signature of the octets: 64 octets for each algorithm here.
type Signer struct {
	KID  string
	Alg  string
	Sign func(input []byte) ([]byte, error)
}

// Ed25519Signer signs with EdDSA.
func Ed25519Signer(kid string, key ed25519.PrivateKey) Signer {
	return Signer{KID: kid, Alg: AlgEdDSA, Sign: func(in []byte) ([]byte, error) { return ed25519.Sign(key, in), nil }}
}

// Secp256k1Signer signs with ES256K, deterministically (RFC 6979).
func Secp256k1Signer(kid string, key *secp256k1.PrivateKey) Signer {
	return Signer{KID: kid, Alg: AlgES256K, Sign: func(in []byte) ([]byte, error) {
		h := sha256.Sum256(in)
		sig := k1ecdsa.SignCompact(key, h[:], true)
		return sig[1:], nil // without the recovery octet: r ‖ s
	}}
}

// jwsHeader is the protected header of a signature.
type jwsHeader struct {
	Typ  string         `json:"typ,omitempty"`
	Alg  string         `json:"alg"`
	KID  string         `json:"kid,omitempty"`
	Crit jsontext.Value `json:"crit,omitempty"`
}

type jwsSignature struct {
	Protected string `json:"protected"`
	Signature string `json:"signature"`
	Header    struct {
		KID string `json:"kid"`
	} `json:"header"`
}

type jwsJSON struct {
	Payload    string         `json:"payload"`
	Signatures []jwsSignature `json:"signatures"`
}

// Sign puts the signed layer round a plaintext: JWS, general JSON serialisation
// (§ DIDComm Signed Messages).
func Sign(plain []byte, as Signer) ([]byte, error) {
	head, err := jsonv2.Marshal(jwsHeader{Typ: TypSigned, Alg: as.Alg}, strict)
	if err != nil {
		return nil, fmt.Errorf("write signature header: %w", err)
	}
	j := jwsJSON{Payload: b64.EncodeToString(plain), Signatures: make([]jwsSignature, 1)}
	s := &j.Signatures[0]
	s.Protected, s.Header.KID = b64.EncodeToString(head), as.KID
	sig, err := as.Sign([]byte(s.Protected + "." + j.Payload))
	if err != nil {
		return nil, fmt.Errorf("sign as %s: %w", as.KID, err)
	}
	s.Signature = b64.EncodeToString(sig)
	b, err := jsonv2.Marshal(j, strict)
	if err != nil {
		return nil, fmt.Errorf("%w: write signed message: %w", ErrSyntax, err)
	}
	if len(b) > MaxEnvelope {
		return nil, ErrTooLarge
	}
	return b, nil
}

// verifySigned returns the payload and the key id that signed it. Every signature
// must verify. Errors: ErrSyntax for the form, ErrOpen for everything else.
func verifySigned(b []byte, resolve Resolver) (payload []byte, kid string, err error) {
	var j jwsJSON
	if err := jsonv2.Unmarshal(b, &j, strict); err != nil {
		return nil, "", fmt.Errorf("%w: signed message: %w", ErrSyntax, err)
	}
	if n := len(j.Signatures); n == 0 || n > maxSignatures {
		return nil, "", fmt.Errorf("%w: %d signatures, wanted 1 to %d", ErrSyntax, n, maxSignatures)
	}
	if payload, err = unb64(j.Payload); err != nil {
		return nil, "", err
	}
	for i, s := range j.Signatures {
		if i > 0 && DIDOf(s.Header.KID) != DIDOf(kid) {
			return nil, "", fmt.Errorf("%w: signatures of several parties", ErrSyntax)
		}
		if kid = s.Header.KID; !isDID(kid) || len(kid) > MaxIDLength {
			return nil, "", fmt.Errorf("%w: signature by %.80q, which is not a DID URL", ErrSyntax, kid)
		}
		head, sig, err := parseSignature(s.Protected, s.Signature)
		if err != nil {
			return nil, "", err
		}
		if head.Typ != "" && head.Typ != TypSigned && "application/"+head.Typ != TypSigned {
			return nil, "", fmt.Errorf("%w: signature header: typ %.80q", ErrSyntax, head.Typ)
		}
		if !verifyBy(resolve, kid, head.Alg, []byte(s.Protected+"."+j.Payload), sig) {
			return nil, "", ErrOpen
		}
	}
	return payload, kid, nil
}

func parseSignature(protectedText, signature string) (head jwsHeader, sig []byte, err error) {
	if len(protectedText) > maxHeader {
		return head, nil, fmt.Errorf("%w: signature header is longer than %d octets", ErrSyntax, maxHeader)
	}
	raw, err := unb64(protectedText)
	if err != nil {
		return head, nil, err
	}
	if err := jsonv2.Unmarshal(raw, &head, strict); err != nil {
		return head, nil, fmt.Errorf("%w: signature header: %w", ErrSyntax, err)
	}
	if head.Crit != nil {
		return head, nil, fmt.Errorf("%w: signature header: crit is not supported", ErrSyntax)
	}
	sig, err = unb64(signature)
	return head, sig, err
}

// verifyBy resolves kid and checks one signature.
func verifyBy(resolve Resolver, kid, alg string, input, sig []byte) bool {
	if resolve == nil {
		return false
	}
	key, err := resolve.VerificationKey(kid)
	if err != nil {
		return false
	}
	return verify(key, alg, input, sig)
}

// verify checks a raw JWS signature. The algorithm must be the one of the key's
// type: a header cannot choose another.
func verify(key crypto.PublicKey, alg string, input, sig []byte) bool {
	if len(sig) != 64 {
		return false
	}
	switch k := key.(type) {
	case ed25519.PublicKey:
		return alg == AlgEdDSA && len(k) == ed25519.PublicKeySize && ed25519.Verify(k, input, sig)
	case *ecdsa.PublicKey:
		h := sha256.Sum256(input)
		return alg == AlgES256 && k.Params().BitSize == 256 &&
			ecdsa.Verify(k, h[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
	case *secp256k1.PublicKey:
		var r, s secp256k1.ModNScalar
		if alg != AlgES256K || r.SetByteSlice(sig[:32]) || s.SetByteSlice(sig[32:]) || r.IsZero() || s.IsZero() {
			return false
		}
		h := sha256.Sum256(input)
		return k1ecdsa.NewSignature(&r, &s).Verify(h[:], k)
	}
	return false
}
