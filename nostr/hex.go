package nostr

import (
	"encoding/binary"
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

// decodeHex fills dst, whose length must be a multiple of four, from exactly
// 2*len(dst) lower-case hex digits.
//
// It takes eight digits at once, in their order in memory. In each byte of letter
// there is a 1 where the digit is one of 0x60 to 0x6f (or shares that bit). bad stays
// 0 if each digit can be restored from its value, and that value is right for
// its class: 0 to 9, or from 0x61 to 0x66.
func decodeHex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	src := bytesOf(s)
	var bad uint64
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
		w := binary.LittleEndian.Uint64(src)
		letter := w >> 6 & swarLow
		low := w & (swarLow * 0x0f)
		nibble := low + letter*9
		bad |= (low + swarLow*0x30 + letter*0x30) ^ w         // the upper half is 3 or 6
		bad |= (low + swarLow*6 + letter*3) & (swarLow * 16)  // at most 9, or at most 6
		bad |= (low+swarLow*15)&(letter*16) ^ letter*16       // at least 1 if a letter
		pairs := (nibble<<4 | nibble>>8) & 0x00ff00ff00ff00ff // then close the gaps
		pairs = (pairs | pairs>>8) & 0x0000ffff0000ffff
		binary.LittleEndian.PutUint32(dst, uint32(pairs|pairs>>16))
	}
	return bad == 0 && len(dst) == 0
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
