//go:build lmdb && cgo

package lmdb

import (
	"encoding/binary"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// The index is one table of sorted keys: what an event is found by, and then its place in the order of answers. Its values are
// the arrival number and the kind.
const (
	byTime       = 't' // nothing more
	byKind       = 'k' // kind
	byAuthor     = 'a' // key
	byAuthorKind = 'b' // key, kind
	byTag        = 'g' // store.TagKey
	byWord       = 'w' // store.WordKeys
)

const (
	placeLen = 40 // newest first, then by the lower id
	entryLen = 10 // an index value
)

// place is the end of an index key, in the order of answers.
type place [placeLen]byte

func placeOf(at int64, id *nostr.ID) (p place) {
	binary.BigEndian.PutUint64(p[:8], ^(uint64(at) ^ 1<<63))
	copy(p[8:], id[:])
	return p
}

func (p *place) at() int64 { return int64(^binary.BigEndian.Uint64(p[:8]) ^ 1<<63) }

func (p *place) id() nostr.ID { return nostr.ID(p[8:]) }

func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// s64 keeps the order of signed numbers.
func s64(n int64) []byte { return u64(uint64(n) ^ 1<<63) }

func unS64(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }

func kindKey(k nostr.Kind) []byte { return binary.BigEndian.AppendUint16([]byte{byKind}, uint16(k)) }

func authorKey(k *nostr.PubKey) []byte { return append([]byte{byAuthor}, k[:]...) }

func authorKindKey(a *nostr.PubKey, k nostr.Kind) []byte {
	return binary.BigEndian.AppendUint16(append([]byte{byAuthorKind}, a[:]...), uint16(k))
}

func tagKey(letter byte, value string) []byte {
	key := store.TagKey(letter, value)
	return append([]byte{byTag}, key[:]...)
}

func wordKey(w uint64) []byte { return binary.BigEndian.AppendUint64([]byte{byWord}, w) }

// indexKeys lists what an event is found by, without its place.
func indexKeys(e *nostr.Event) [][]byte {
	out := [][]byte{{byTime}, kindKey(e.Kind), authorKey(&e.PubKey), authorKindKey(&e.PubKey, e.Kind)}
	for _, k := range store.TagKeys(e) {
		out = append(out, append([]byte{byTag}, k[:]...))
	}
	for _, w := range store.WordKeys(store.WordsOf(e)) {
		out = append(out, wordKey(w))
	}
	return out
}

func entry(seq uint64, k nostr.Kind) []byte {
	return binary.BigEndian.AppendUint16(u64(seq), uint16(k))
}
