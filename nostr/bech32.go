package nostr

import (
	"errors"
	"strings"
)

const bech32Alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

var bech32Digit = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte(bech32Alphabet) {
		t[c] = byte(i)
	}
	return t
}()

// bech32Step feeds one five-bit digit into the checksum (BIP-173).
func bech32Step(sum uint32, digit byte) uint32 {
	top := sum >> 25
	sum = sum&0x1ffffff<<5 ^ uint32(digit)
	for i, g := range [...]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
		if top>>i&1 != 0 {
			sum ^= g
		}
	}
	return sum
}

func bech32Start(prefix string) uint32 {
	sum := uint32(1)
	for _, c := range []byte(prefix) {
		sum = bech32Step(sum, c>>5)
	}
	sum = bech32Step(sum, 0)
	for _, c := range []byte(prefix) {
		sum = bech32Step(sum, c&31)
	}
	return sum
}

// encodeBech32 writes data in bech32 (not bech32m), of any length.
func encodeBech32(prefix string, data []byte) string {
	out := append(make([]byte, 0, len(prefix)+8+len(data)*8/5), prefix...)
	out = append(out, '1')
	sum := bech32Start(prefix)
	put := func(digit byte) {
		sum = bech32Step(sum, digit)
		out = append(out, bech32Alphabet[digit])
	}
	bits, n := uint32(0), 0
	for _, b := range data {
		bits, n = bits<<8|uint32(b), n+8
		for ; n >= 5; n -= 5 {
			put(byte(bits >> (n - 5) & 31))
		}
	}
	if n > 0 {
		put(byte(bits << (5 - n) & 31))
	}
	final := sum
	for range 6 {
		final = bech32Step(final, 0)
	}
	final ^= 1
	for i := range 6 {
		out = append(out, bech32Alphabet[final>>(5*(5-i))&31])
	}
	return string(out)
}

// decodeBech32 reads bech32 in all lower or all upper case.
func decodeBech32(s string) (prefix string, data []byte, err error) {
	lower := strings.ToLower(s)
	if lower != s && strings.ToUpper(s) != s {
		return "", nil, errors.New("bech32: mixed case")
	}
	at := strings.LastIndexByte(lower, '1')
	if at < 1 || len(lower)-at-1 < 6 {
		return "", nil, errors.New("bech32: no prefix, or too short")
	}
	prefix = lower[:at]
	sum := bech32Start(prefix)
	digits := lower[at+1:]
	bits, n := uint32(0), 0
	for i := range len(digits) {
		d := bech32Digit[digits[i]]
		if d > 31 {
			return "", nil, errors.New("bech32: a character outside the alphabet")
		}
		sum = bech32Step(sum, d)
		if i >= len(digits)-6 {
			continue
		}
		bits, n = bits<<5|uint32(d), n+5
		if n >= 8 {
			n -= 8
			data = append(data, byte(bits>>n))
		}
	}
	if sum != 1 {
		return "", nil, errors.New("bech32: wrong checksum")
	}
	if n >= 5 || bits&(1<<n-1) != 0 {
		return "", nil, errors.New("bech32: bad padding")
	}
	return prefix, data, nil
}
