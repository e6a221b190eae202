package negentropy

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"fleetmesh.org/fleetmesh/nostr"
)

// FingerprintSize is the length of a range fingerprint in bytes.
const FingerprintSize = 16

// SumOf returns an id as a sum of one member.
func SumOf(id *nostr.ID) Sum {
	return Sum{
		binary.LittleEndian.Uint64(id[0:8]),
		binary.LittleEndian.Uint64(id[8:16]),
		binary.LittleEndian.Uint64(id[16:24]),
		binary.LittleEndian.Uint64(id[24:32]),
	}
}

// Plus returns s + t modulo 2^256.
func (s Sum) Plus(t Sum) Sum {
	var r Sum
	var c uint64
	r[0], c = bits.Add64(s[0], t[0], 0)
	r[1], c = bits.Add64(s[1], t[1], c)
	r[2], c = bits.Add64(s[2], t[2], c)
	r[3], _ = bits.Add64(s[3], t[3], c)
	return r
}

// Minus returns s - t modulo 2^256.
func (s Sum) Minus(t Sum) Sum {
	var r Sum
	var b uint64
	r[0], b = bits.Sub64(s[0], t[0], 0)
	r[1], b = bits.Sub64(s[1], t[1], b)
	r[2], b = bits.Sub64(s[2], t[2], b)
	r[3], _ = bits.Sub64(s[3], t[3], b)
	return r
}

// Add takes an id into the sum.
func (s *Sum) Add(id *nostr.ID) { *s = s.Plus(SumOf(id)) }

// Sub takes an id out of the sum.
func (s *Sum) Sub(id *nostr.ID) { *s = s.Minus(SumOf(id)) }

// Fingerprint returns the fingerprint of a range: the first 16 bytes of the
// SHA-256 of its sum as 32 little-endian bytes followed by the number of its
// members as a varint (NIP-77, appendix, Fingerprint Algorithm).
func Fingerprint(sum Sum, count int) [FingerprintSize]byte {
	var buf [32 + maxVarint]byte
	b := buf[:0]
	for _, w := range sum {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	b = appendVarint(b, uint64(count))
	h := sha256.Sum256(b)
	return [FingerprintSize]byte(h[:])
}

// RangeFingerprint returns the fingerprint of the items lo <= i < hi of a set.
func RangeFingerprint(set Set, lo, hi int) [FingerprintSize]byte {
	return Fingerprint(set.Sum(lo, hi), hi-lo)
}
