package didcomm

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	josecipher "github.com/go-jose/go-jose/v4/cipher"
	"golang.org/x/crypto/chacha20poly1305"
)

// Algorithms (RFC 7518, draft-madden-jose-ecdh-1pu-04, draft-amringer-jose-chacha-02).
const (
	AlgAuthcrypt = "ECDH-1PU+A256KW"
	AlgAnoncrypt = "ECDH-ES+A256KW"
	EncCBC       = "A256CBC-HS512"
	EncGCM       = "A256GCM"
	EncXC20P     = "XC20P"
)

// errCrypto stands in for every failure under an envelope; open.go turns it into
// ErrOpen.
var errCrypto = errors.New("crypto")

// fixedInfo is the Concat KDF's other information (RFC 7518 § 4.6.2). With
// ECDH-1PU key wrapping the content tag follows the key length (draft-04 § 2.3);
// draft-03 did not have it, and must not open.
func fixedInfo(alg string, apu, apv, tag []byte, keyBits int) []byte {
	n := 4 + len(alg) + 4 + len(apu) + 4 + len(apv) + 4 + 4 + len(tag)
	b := make([]byte, 0, n)
	for _, part := range [][]byte{[]byte(alg), apu, apv} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(keyBits))
	if tag != nil {
		b = binary.BigEndian.AppendUint32(b, uint32(len(tag)))
		b = append(b, tag...)
	}
	return b
}

// concatKDF derives keyBits/8 octets, at most 32: one round of SHA-256.
func concatKDF(z []byte, alg string, apu, apv, tag []byte, keyBits int) []byte {
	h := sha256.New()
	h.Write([]byte{0, 0, 0, 1})
	h.Write(z)
	h.Write(fixedInfo(alg, apu, apv, tag, keyBits))
	return h.Sum(nil)[:keyBits/8]
}

// wrapKey and unwrapKey are AES key wrap (RFC 3394).
func wrapKey(kek, cek []byte) ([]byte, error) {
	block, err := aes.NewCipher(kek)
	if err != nil {
		return nil, fmt.Errorf("key wrap: %w", err)
	}
	if len(cek) < 16 {
		return nil, errCrypto
	}
	return josecipher.KeyWrap(block, cek)
}

func unwrapKey(kek, wrapped []byte) ([]byte, error) {
	if len(wrapped) < 24 || len(wrapped)%8 != 0 {
		return nil, errCrypto
	}
	block, err := aes.NewCipher(kek)
	if err != nil {
		return nil, errCrypto
	}
	return josecipher.KeyUnwrap(block, wrapped)
}

// content is what one content encryption needs: the length of its key, its tag,
// and how to make its AEAD.
type content struct {
	keySize, tagSize int
	aead             func(key []byte) (cipher.AEAD, error)
}

var contents = map[string]content{
	EncCBC:   {64, 32, func(k []byte) (cipher.AEAD, error) { return josecipher.NewCBCHMAC(k, aes.NewCipher) }},
	EncGCM:   {32, 16, newGCM},
	EncXC20P: {32, 16, chacha20poly1305.NewX},
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// partyV is the apv header: SHA-256 of the recipients' key ids, sorted and joined
// by dots (DIDComm v2 § ECDH-1PU key wrapping and common protected headers).
func partyV(kids []string) []byte {
	s := slices.Sorted(slices.Values(kids))
	h := sha256.Sum256([]byte(strings.Join(s, ".")))
	return h[:]
}
