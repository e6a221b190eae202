package nostr

import (
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/scrypt"
	"golang.org/x/text/unicode/norm"
)

const (
	nip49Prefix  = "ncryptsec"
	nip49Version = 2
	nip49Size    = 1 + 1 + 16 + chacha20poly1305.NonceSizeX + 1 + 32 + chacha20poly1305.Overhead

	// maxScryptLogN bounds the memory that a foreign text can claim: 2^(10+20) octets.
	maxScryptLogN = 20
)

// KeySecurity says how a secret key was handled before it was encrypted (NIP-49).
type KeySecurity byte

// What is known of a key.
const (
	KeySecurityBad     KeySecurity = 0 // it was stored or pasted unencrypted
	KeySecurityGood    KeySecurity = 1 // it was not
	KeySecurityUnknown KeySecurity = 2
)

// ErrPassphrase says that an encrypted key does not open: the passphrase is another, or the text was changed.
var ErrPassphrase = errors.New("the passphrase does not open the key")

// EncryptSecretKey encrypts a key with a passphrase (NIP-49); logN is scrypt's cost, 16 for 64 MiB and about 100 ms.
func EncryptSecretKey(k SecretKey, passphrase string, logN uint8, how KeySecurity) (string, error) {
	if !k.valid() {
		return "", errors.New("encrypt a key: it is outside the group order")
	}
	if logN < 1 || logN > maxScryptLogN {
		return "", fmt.Errorf("encrypt a key: cost %d, want 1 to %d", logN, maxScryptLogN)
	}
	out := make([]byte, 0, nip49Size)
	out = append(out, nip49Version, logN)
	var random [16 + chacha20poly1305.NonceSizeX]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("encrypt a key: %w", err)
	}
	out = append(out, random[:]...)
	out = append(out, byte(how))
	key, err := scrypt.Key(norm.NFKC.Bytes([]byte(passphrase)), random[:16], 1<<logN, 8, 1, 32)
	if err != nil {
		return "", fmt.Errorf("encrypt a key: %w", err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return "", fmt.Errorf("encrypt a key: %w", err)
	}
	return encodeBech32(nip49Prefix, aead.Seal(out, random[16:], k[:], []byte{byte(how)})), nil
}

// DecryptSecretKey opens an ncryptsec (NIP-49). A wrong passphrase is ErrPassphrase.
func DecryptSecretKey(text, passphrase string) (k SecretKey, how KeySecurity, err error) {
	prefix, data, err := decodeBech32(text)
	if err != nil {
		return k, 0, fmt.Errorf("decrypt a key: %w", err)
	}
	switch {
	case prefix != nip49Prefix:
		return k, 0, fmt.Errorf("decrypt a key: a text of the kind %q, want %s", prefix, nip49Prefix)
	case len(data) != nip49Size || data[0] != nip49Version:
		return k, 0, fmt.Errorf("decrypt a key: not version %d with %d octets", nip49Version, nip49Size)
	case data[1] < 1 || data[1] > maxScryptLogN:
		return k, 0, fmt.Errorf("decrypt a key: scrypt cost %d, at most %d is worked", data[1], maxScryptLogN)
	}
	salt, nonce, ad, sealed := data[2:18], data[18:42], data[42:43], data[43:]
	key, err := scrypt.Key(norm.NFKC.Bytes([]byte(passphrase)), salt, 1<<data[1], 8, 1, 32)
	if err != nil {
		return k, 0, fmt.Errorf("decrypt a key: %w", err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return k, 0, fmt.Errorf("decrypt a key: %w", err)
	}
	plain, err := aead.Open(nil, nonce, sealed, ad)
	if err != nil {
		return k, 0, ErrPassphrase
	}
	k = SecretKey(plain)
	if !k.valid() {
		return SecretKey{}, 0, errors.New("decrypt a key: what it holds is no secret key")
	}
	return k, KeySecurity(ad[0]), nil
}
