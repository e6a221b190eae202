package nostr

import (
	"encoding/hex"
	"strings"
	"testing"
)

// Each byte value at each place of the eight that are decoded together.
func TestDecodeHexEveryByte(t *testing.T) {
	base := []byte("0123456789abcdef")
	for at := range base {
		for c := range 256 {
			s := append([]byte(nil), base...)
			s[at] = byte(c)
			var got [8]byte
			ok := decodeHex(got[:], string(s))
			want, err := hex.DecodeString(string(s))
			wantOK := err == nil && strings.ToLower(string(s)) == string(s)
			if ok != wantOK {
				t.Fatalf("%q: ok=%v, want %v", s, ok, wantOK)
			}
			if ok && string(got[:]) != string(want) {
				t.Fatalf("%q: got %x", s, got)
			}
		}
	}
}
