package nostr

import (
	"errors"
	"fmt"
	"strings"
)

// hexDigit holds the value of each lower-case hex digit and 0xff elsewhere:
// NIP-01 knows no other case, so encoding/hex is too lenient.
var hexDigit = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// decodeHex fills dst from exactly 2*len(dst) lower-case hex digits.
func decodeHex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	var bad byte
	for i := range dst {
		hi, lo := hexDigit[s[2*i]], hexDigit[s[2*i+1]]
		bad |= hi | lo
		dst[i] = hi<<4 | lo
	}
	return bad < 16
}

const hexDigits = "0123456789abcdef"

func appendHex(dst, src []byte) []byte {
	for _, b := range src {
		dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
	}
	return dst
}

// ParseID reads an event id from 64 lower-case hex digits.
func ParseID(s string) (ID, error) {
	var id ID
	if !decodeHex(id[:], s) {
		return ID{}, errors.New("event id is not 64 lower-case hex digits")
	}
	return id, nil
}

// ParsePubKey reads a public key from 64 lower-case hex digits or from its npub
// form (NIP-19). It does not check that the point is on the curve.
func ParsePubKey(s string) (PubKey, error) {
	var k PubKey
	if strings.HasPrefix(s, "npub1") {
		ent, err := DecodeNIP19(s)
		if err != nil {
			return PubKey{}, fmt.Errorf("public key: %w", err)
		}
		return ent.PubKey, nil
	}
	if !decodeHex(k[:], s) {
		return PubKey{}, errors.New("public key is neither 64 lower-case hex digits nor an npub")
	}
	return k, nil
}
