package negentropy

import (
	"errors"
	"fmt"
	"math"
)

// Version is the first byte of every message: protocol version 1.
const Version = 0x61

// Modes of a range (NIP-77, appendix, Range).
const (
	modeSkip        = 0
	modeFingerprint = 1
	modeIDList      = 2
)

// infinity is the timestamp above every item.
const infinity = math.MaxUint64

// maxVarint is the length of the longest varint of 64 bits.
const maxVarint = 10

// ErrSyntax is wrapped by the error for every message that cannot be read.
var ErrSyntax = errors.New("malformed negentropy message")

// bound is the exclusive upper end of a range. prefix is how many bytes of the
// id travel; the others are zero.
type bound struct {
	item   Item
	prefix int
}

// appendVarint appends v in base 128, most significant digit first.
func appendVarint(dst []byte, v uint64) []byte {
	var buf [maxVarint]byte
	i := len(buf) - 1
	buf[i] = byte(v & 0x7f)
	for v >>= 7; v != 0; v >>= 7 {
		i--
		buf[i] = byte(v&0x7f) | 0x80
	}
	return append(dst, buf[i:]...)
}

// decoder reads a message. Timestamps are offsets from the one before, so it
// remembers the last bound; bounds must not descend.
type decoder struct {
	rest []byte
	last Item
}

func (d *decoder) fail(what string) error { return fmt.Errorf("%w: %s", ErrSyntax, what) }

func (d *decoder) varint() (uint64, error) {
	var v uint64
	for i, c := range d.rest {
		if i == 0 && c == 0x80 {
			return 0, d.fail("varint with a leading zero digit")
		}
		if v > math.MaxUint64>>7 {
			return 0, d.fail("varint over 64 bits")
		}
		v = v<<7 | uint64(c&0x7f)
		if c < 0x80 {
			d.rest = d.rest[i+1:]
			return v, nil
		}
	}
	return 0, d.fail("varint ends early")
}

// bytes takes n bytes off the message. They alias it.
func (d *decoder) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(d.rest)) {
		return nil, d.fail("message ends early")
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b, nil
}

func (d *decoder) bound() (bound, error) {
	var b bound
	t, err := d.varint()
	if err != nil {
		return b, err
	}
	switch {
	case d.last.Time == infinity:
		return b, d.fail("range after the last one")
	case t == 0:
		b.item.Time = infinity
	case t-1 >= infinity-d.last.Time:
		return b, d.fail("timestamp over 64 bits")
	default:
		b.item.Time = d.last.Time + t - 1
	}
	n, err := d.varint()
	if err != nil {
		return b, err
	}
	if n > uint64(len(b.item.ID)) {
		return b, d.fail("id prefix over 32 bytes")
	}
	p, err := d.bytes(n)
	if err != nil {
		return b, err
	}
	b.prefix = copy(b.item.ID[:], p)
	if b.item.Compare(d.last) < 0 {
		return b, d.fail("bounds descend")
	}
	d.last = b.item
	return b, nil
}

// idList reads the count and the ids of an IdList; the ids alias the message.
func (d *decoder) idList() ([]byte, error) {
	n, err := d.varint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.rest))/32 {
		return nil, d.fail("id list ends early")
	}
	return d.bytes(n * 32)
}

// encoder writes a message; last is the timestamp that the next bound counts from.
type encoder struct {
	out  []byte
	last uint64
}

func (e *encoder) bound(b bound) {
	if b.item.Time == infinity {
		e.last = infinity
		e.out = append(e.out, 0)
	} else {
		e.out = appendVarint(e.out, b.item.Time-e.last+1)
		e.last = b.item.Time
	}
	e.out = appendVarint(e.out, uint64(b.prefix))
	e.out = append(e.out, b.item.ID[:b.prefix]...)
}

func (e *encoder) skip(b bound) {
	e.bound(b)
	e.out = append(e.out, modeSkip)
}

func (e *encoder) fingerprint(b bound, fp [FingerprintSize]byte) {
	e.bound(b)
	e.out = append(e.out, modeFingerprint)
	e.out = append(e.out, fp[:]...)
}

// idList writes the ids of set[lo:hi] under the bound b.
func (e *encoder) idList(b bound, set Set, lo, hi int) {
	e.bound(b)
	e.out = append(e.out, modeIDList)
	e.out = appendVarint(e.out, uint64(hi-lo))
	for i := lo; i < hi; i++ {
		it := set.Item(i)
		e.out = append(e.out, it.ID[:]...)
	}
}

// boundBetween returns the shortest bound that separates two neighbours: prev
// is below it and next is not.
func boundBetween(prev, next Item) bound {
	if prev.Time != next.Time {
		return bound{item: Item{Time: next.Time}}
	}
	n := 0
	for n < len(next.ID)-1 && prev.ID[n] == next.ID[n] {
		n++
	}
	b := bound{item: Item{Time: next.Time}, prefix: n + 1}
	copy(b.item.ID[:], next.ID[:n+1])
	return b
}
