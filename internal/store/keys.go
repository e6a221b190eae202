package store

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"slices"

	"fleetmesh.org/fleetmesh/nostr"
)

// TagKey is what the engines on a foreign database find a tag value by: a hash, since the length of a value has no bound but that of an index
// entry has.
func TagKey(letter byte, value string) [16]byte {
	h := sha256.New()
	h.Write([]byte{letter})
	h.Write([]byte(value))
	return [16]byte(h.Sum(nil)[:16])
}

// TagKeys lists the keys of an event's single-letter tags, each once.
func TagKeys(e *nostr.Event) [][16]byte {
	var out [][16]byte
	seen := make(map[[16]byte]bool)
	for _, t := range e.Tags {
		if len(t) < 2 || len(t[0]) != 1 || !letter(t[0][0]) {
			continue
		}
		if key := TagKey(t[0][0], t[1]); !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// AddressKey is the key of an address, of bounded length too.
func AddressKey(a nostr.Address) [32]byte {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint16(nil, uint16(a.Kind)))
	h.Write(a.PubKey[:])
	h.Write([]byte(a.D))
	return [32]byte(h.Sum(nil))
}

// WordKeys are the keys of words, each once. Two words may have the same.
func WordKeys(words iter.Seq[string]) []uint64 {
	seen := make(map[string]struct{})
	var out []uint64
	for w := range words {
		if _, ok := seen[w]; ok {
			continue
		}
		seen[w] = struct{}{}
		h := sha256.Sum256([]byte(w))
		out = append(out, binary.BigEndian.Uint64(h[:]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
