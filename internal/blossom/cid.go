package blossom

import (
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strings"
)

// The bytes before the digest in the CID of a blob (§ Transports, "Content Addressing & CIDs"): CID version 1, codec raw,
// multihash sha2-256 of 32 bytes. Each number is a varint of one byte.
var cidHead = [4]byte{0x01, 0x55, 0x12, 0x20}

var cidBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// CID is the blob's IPFS content identifier: CIDv1, raw, sha2-256, in multibase b (lower-case base32 without padding).
// IPFS itself needs nothing more for a blob that is one block.
func (h Hash) CID() string {
	b := append(cidHead[:], h[:]...)
	return "b" + cidBase32.EncodeToString(b)
}

// Errors of ParseCID, each a sentence for whoever sent the text.
var (
	errCIDv0    = errors.New("a CIDv0 names a dag-pb node and never a blob: ask for the CIDv1 with codec raw")
	errCIDBase  = errors.New("a CID is read in the multibases b and B (base32) and f and F (base16)")
	errCIDText  = errors.New("the CID's text is no well-formed multibase")
	errCIDWhich = errors.New("only CIDv1 with codec raw and a sha2-256 of 32 bytes names a blob")
)

// ParseCID reads a CID that names a blob: version 1, raw, sha2-256, in multibase b, B, f or F. There is one text
// a blob in each base: other spellings of the same bits are refused.
func ParseCID(s string) (h Hash, err error) {
	if len(s) == 46 && strings.HasPrefix(s, "Qm") {
		return h, errCIDv0
	}
	if s == "" {
		return h, errCIDText
	}
	var b []byte
	switch text := s[1:]; s[0] {
	case 'b', 'B':
		if s[0] == 'B' {
			if text != strings.ToUpper(text) {
				return h, errCIDText
			}
			text = strings.ToLower(text)
		}
		b, err = cidBase32.DecodeString(text)
		if err != nil || cidBase32.EncodeToString(b) != text {
			return h, errCIDText // also for spare bits that are not zero, and for line breaks, which the decoder reads over
		}
	case 'f', 'F':
		if s[0] == 'f' && text != strings.ToLower(text) || s[0] == 'F' && text != strings.ToUpper(text) {
			return h, errCIDText
		}
		if b, err = hex.DecodeString(text); err != nil {
			return h, errCIDText
		}
	default:
		return h, errCIDBase
	}
	if len(b) != len(cidHead)+len(h) || [4]byte(b) != cidHead {
		return h, errCIDWhich
	}
	return Hash(b[len(cidHead):]), nil
}
