package nostr

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"golang.org/x/crypto/chacha20"
)

// ErrDecrypt is wrapped by every error of Decrypt.
var ErrDecrypt = errors.New("decrypt")

const (
	nip44Version   = 2
	nip44NonceSize = 32
	nip44MACSize   = 32
	// nip44Long is the length from which a plaintext has the long length prefix.
	nip44Long = 1 << 16
)

// ConversationKey derives the key that two parties share (NIP-44 version 2).
// It is the same from either side.
func ConversationKey(sk SecretKey, pk PubKey) ([32]byte, error) {
	var key [32]byte
	if !sk.valid() {
		return key, errors.New("conversation key: the secret key is outside the group order")
	}
	pub, err := schnorr.ParsePubKey(pk[:])
	if err != nil {
		return key, fmt.Errorf("conversation key: %w", err)
	}
	priv := sk.private()
	defer priv.Zero()
	shared := btcec.GenerateSharedSecret(priv, pub)
	prk, err := hkdf.Extract(sha256.New, shared, []byte("nip44-v2"))
	if err != nil {
		return key, fmt.Errorf("conversation key: %w", err)
	}
	return [32]byte(prk), nil
}

// Encrypt encrypts a text of 1 to 2^32-1 bytes with a conversation key and a
// fresh nonce (NIP-44 version 2). The result is base64.
func Encrypt(plaintext string, key [32]byte) (string, error) {
	var nonce [nip44NonceSize]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return "", fmt.Errorf("encrypt: %w", err)
	}
	return encryptWithNonce(plaintext, key, nonce)
}

func encryptWithNonce(plaintext string, key, nonce [32]byte) (string, error) {
	if len(plaintext) == 0 || uint64(len(plaintext)) > math.MaxUint32 {
		return "", fmt.Errorf("encrypt: a plaintext of %d bytes", len(plaintext))
	}
	if !utf8.ValidString(plaintext) {
		return "", errors.New("encrypt: the plaintext is not UTF-8")
	}
	keys, err := deriveMessageKeys(key, nonce[:])
	if err != nil {
		return "", fmt.Errorf("encrypt: %w", err)
	}
	var prefix []byte
	if len(plaintext) < nip44Long {
		prefix = binary.BigEndian.AppendUint16(nil, uint16(len(plaintext)))
	} else {
		prefix = binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(len(plaintext)))
	}
	const head = 1 + nip44NonceSize
	end := head + len(prefix) + paddedLength(len(plaintext))
	out := make([]byte, end, end+nip44MACSize)
	out[0] = nip44Version
	copy(out[1:], nonce[:])
	copy(out[head:], prefix)
	copy(out[head+len(prefix):], plaintext)
	if err := keys.stream(out[head:]); err != nil {
		return "", fmt.Errorf("encrypt: %w", err)
	}
	out = append(out, keys.mac(out[1:])...)
	return base64.StdEncoding.EncodeToString(out), nil
}

// Decrypt opens what Encrypt made. Errors wrap ErrDecrypt. What is no base64,
// or a version other than 2, is refused before anything is computed.
func Decrypt(payload string, key [32]byte) (string, error) {
	data, err := decodePayload(payload)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDecrypt, err)
	}
	const head = 1 + nip44NonceSize
	keys, err := deriveMessageKeys(key, data[1:head])
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDecrypt, err)
	}
	end := len(data) - nip44MACSize
	if !hmac.Equal(keys.mac(data[1:end]), data[end:]) {
		return "", fmt.Errorf("%w: wrong MAC", ErrDecrypt)
	}
	padded := data[head:end]
	if err := keys.stream(padded); err != nil {
		return "", fmt.Errorf("%w: %w", ErrDecrypt, err)
	}
	plain, err := unpad(padded)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDecrypt, err)
	}
	return plain, nil
}

// decodePayload returns version, nonce, ciphertext and MAC in one slice of at
// least 99 bytes.
func decodePayload(payload string) ([]byte, error) {
	if strings.HasPrefix(payload, "#") {
		return nil, errors.New("the encryption version is not supported")
	}
	if len(payload) < 132 {
		return nil, errors.New("the payload is too short")
	}
	if strings.ContainsAny(payload, "\r\n") { // encoding/base64 would skip them
		return nil, errors.New("the payload is not base64")
	}
	data, err := base64.StdEncoding.Strict().DecodeString(payload)
	if err != nil {
		return nil, errors.New("the payload is not base64")
	}
	if len(data) < 99 {
		return nil, errors.New("the payload is too short")
	}
	if data[0] != nip44Version {
		return nil, fmt.Errorf("encryption version %d is not supported", data[0])
	}
	return data, nil
}

// messageKeys are the keys of one message: ChaCha20 key (32 bytes) and nonce
// (12), HMAC key (32).
type messageKeys []byte

func deriveMessageKeys(key [32]byte, nonce []byte) (messageKeys, error) {
	return hkdf.Expand(sha256.New, key[:], string(nonce), 76)
}

// stream encrypts or decrypts in place.
func (k messageKeys) stream(b []byte) error {
	c, err := chacha20.NewUnauthenticatedCipher(k[:32], k[32:44])
	if err != nil {
		return err
	}
	c.XORKeyStream(b, b)
	return nil
}

// mac is over nonce and ciphertext.
func (k messageKeys) mac(b []byte) []byte {
	h := hmac.New(sha256.New, k[44:])
	h.Write(b)
	return h.Sum(nil)
}

// paddedLength is the length to which a plaintext of n >= 1 bytes is padded.
func paddedLength(n int) int {
	if n <= 32 {
		return 32
	}
	chunk := 32
	if power := 1 << bits.Len(uint(n-1)); power > 256 {
		chunk = power / 8
	}
	return chunk * ((n-1)/chunk + 1)
}

func unpad(padded []byte) (string, error) {
	bad := errors.New("bad padding")
	n := uint64(binary.BigEndian.Uint16(padded))
	body := padded[2:]
	if n == 0 {
		n = uint64(binary.BigEndian.Uint32(body))
		body = body[4:]
		if n < nip44Long {
			return "", bad
		}
	}
	if n > uint64(len(body)) || len(body) != paddedLength(int(n)) {
		return "", bad
	}
	if !utf8.Valid(body[:n]) {
		return "", errors.New("the plaintext is not UTF-8")
	}
	return string(body[:n]), nil
}
