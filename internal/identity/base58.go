package identity

import (
	"errors"
	"strings"
)

const base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// What is decoded is bounded, since the algorithm is quadratic: keys are short, and
// the document inside a did:peer:4 fits an invitation.
const (
	maxBase58Key      = 128
	maxBase58Document = 8192
)

func encodeBase58(b []byte) string {
	zeros := 0
	for zeros < len(b) && b[zeros] == 0 {
		zeros++
	}
	var digits []byte // little-endian, base 58
	for _, c := range b {
		carry := int(c)
		for i := range digits {
			carry += int(digits[i]) << 8
			digits[i] = byte(carry % 58)
			carry /= 58
		}
		for ; carry > 0; carry /= 58 {
			digits = append(digits, byte(carry%58))
		}
	}
	var out strings.Builder
	out.WriteString(strings.Repeat("1", zeros))
	for i := len(digits) - 1; i >= 0; i-- {
		out.WriteByte(base58Alphabet[digits[i]])
	}
	return out.String()
}

func decodeBase58(s string, most int) ([]byte, error) {
	if len(s) > most {
		return nil, errors.New("base58 text is too long")
	}
	zeros := 0
	for zeros < len(s) && s[zeros] == '1' {
		zeros++
	}
	var bytesLE []byte
	for i := range len(s) {
		carry := strings.IndexByte(base58Alphabet, s[i])
		if carry < 0 {
			return nil, errors.New("base58 text holds a foreign character")
		}
		for j := range bytesLE {
			carry += int(bytesLE[j]) * 58
			bytesLE[j] = byte(carry)
			carry >>= 8
		}
		for ; carry > 0; carry >>= 8 {
			bytesLE = append(bytesLE, byte(carry))
		}
	}
	out := make([]byte, zeros, zeros+len(bytesLE))
	for i := len(bytesLE) - 1; i >= 0; i-- {
		out = append(out, bytesLE[i])
	}
	return out, nil
}
