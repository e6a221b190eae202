package eventlog

import (
	"encoding/binary"
	"math/bits"

	"fleetmesh.org/fleetmesh/nostr"
)

// term is a 128-bit keyed hash (SipHash-2-4-128) of something that an event can be found by. The
// key is the store's secret, so nobody can make two terms collide on purpose, and by chance
// they will not: a term is as good as what it stands for.
type term struct{ hi, lo uint64 }

func (t term) less(u term) bool { return t.hi < u.hi || t.hi == u.hi && t.lo < u.lo }

func (t term) compare(u term) int {
	switch {
	case t.less(u):
		return -1
	case t == u:
		return 0
	}
	return 1
}

// hasher makes the terms of a store.
type hasher struct{ k0, k1 uint64 }

func newHasher(key [16]byte) hasher {
	return hasher{binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])}
}

func (h hasher) kind(k nostr.Kind) term {
	return h.sum([]byte{'k', byte(k), byte(k >> 8)})
}

func (h hasher) author(p *nostr.PubKey) term {
	var b [33]byte
	b[0] = 'a'
	copy(b[1:], p[:])
	return h.sum(b[:])
}

func (h hasher) authorKind(p *nostr.PubKey, k nostr.Kind) term {
	var b [35]byte
	b[0], b[1], b[2] = 'b', byte(k), byte(k>>8)
	copy(b[3:], p[:])
	return h.sum(b[:])
}

func (h hasher) tag(letter byte, value string) term {
	var buf [128]byte
	return h.sum(append(append(buf[:0], 't', letter), value...))
}

func (h hasher) address(a *nostr.Address) term {
	var buf [128]byte
	b := append(buf[:0], 'd', byte(a.Kind), byte(a.Kind>>8))
	return h.sum(append(append(b, a.PubKey[:]...), a.D...))
}

// terms appends the terms of an event, each once.
func (h hasher) terms(dst []term, e *nostr.Event) []term {
	dst = append(dst[:0], h.kind(e.Kind), h.author(&e.PubKey), h.authorKind(&e.PubKey, e.Kind))
	if a, ok := e.Address(); ok {
		dst = append(dst, h.address(&a))
	}
	fixed := len(dst)
	var seen map[term]struct{}
	for _, t := range e.Tags {
		if len(t) < 2 || len(t[0]) != 1 || !isLetter(t[0][0]) {
			continue
		}
		k := h.tag(t[0][0], t[1])
		if len(dst)-fixed > 16 && seen == nil {
			seen = make(map[term]struct{}, len(e.Tags))
			for _, s := range dst[fixed:] {
				seen[s] = struct{}{}
			}
		}
		if has(dst[fixed:], seen, k) {
			continue
		}
		if seen != nil {
			seen[k] = struct{}{}
		}
		dst = append(dst, k)
	}
	return dst
}

func has(list []term, set map[term]struct{}, k term) bool {
	if set != nil {
		_, ok := set[k]
		return ok
	}
	for _, s := range list {
		if s == k {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// sum is SipHash-2-4 with 128 bits of output.
func (h hasher) sum(b []byte) term {
	v0 := h.k0 ^ 0x736f6d6570736575
	v1 := h.k1 ^ 0x646f72616e646f6d ^ 0xee
	v2 := h.k0 ^ 0x6c7967656e657261
	v3 := h.k1 ^ 0x7465646279746573
	last := uint64(len(b)) << 56
	for len(b) >= 8 {
		m := binary.LittleEndian.Uint64(b)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
		b = b[8:]
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xee
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	t := term{hi: v0 ^ v1 ^ v2 ^ v3}
	v1 ^= 0xdd
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	t.lo = v0 ^ v1 ^ v2 ^ v3
	return t
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
