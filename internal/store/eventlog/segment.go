package eventlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"sync"
	"sync/atomic"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// A segment is immutable: a table of documents (events) in (created_at, id) order, which is
// negentropy's order, running sums of their ids, and for every term the documents that have
// it. Its sections, one after another:
//
//	docs      64 bytes a document: id 32, created_at int64, lsn uint64, log file uint32,
//	          offset uint32, size uint32, kind uint16, flags uint16 (1: expires)
//	sums      32 bytes a block of 64 documents: sum of the ids before the block; one more at the end: of all
//	expiries  12 bytes an expiring document: its number uint32, expiration int64
//	ids       hash table, 4 bytes a slot: number+1 of the document, 0 for a free slot
//	order     4 bytes a document: document numbers by lsn, the order of arrival
//	postings  4 bytes each: document numbers, ascending within a term
//	terms     24 bytes a term, ascending: hash hi, lo uint64, first posting uint32, count uint32
//	footer    96 bytes: see parseFooter
const (
	segMagic   = "FMEVSEG\n"
	docSize    = 64
	sumSize    = 32
	expirySize = 12
	termSize   = 24
	footerSize = 96
	blockDocs  = 64
	docExpires = 1
)

// doc is a document: what is known of an event without reading it.
type doc struct {
	id      nostr.ID
	at      int64
	lsn     uint64
	pos     pos
	kind    nostr.Kind
	expires int64 // store.NoExpiry if never
}

func (d *doc) compare(e *doc) int {
	if d.at != e.at {
		if d.at < e.at {
			return -1
		}
		return 1
	}
	return bytes.Compare(d.id[:], e.id[:])
}

// segment is an opened segment, of a file or in memory.
type segment struct {
	no    uint32 // of the file, 0 in memory
	uid   uint64 // unique in this process, for caches
	n     int
	docs  []byte
	sums  []byte
	exps  []byte
	ids   []byte
	order []byte
	posts []byte
	terms []byte
	size  int64
	maxAt int64
	minAt int64
	m     Mapping // empty in memory
	refs  atomic.Int32
	gone  func() // removes the file when the last reader is gone; nil to keep it

	dead  []uint64 // a bit a document, atomic
	ndead atomic.Int64
	mu    sync.RWMutex
	died  map[uint32]uint64 // lsn of the deaths of this process
}

var errSegment = errors.New("damaged segment")

var segmentUID atomic.Uint64

// parseSegment checks a segment's checksums and gives access to it.
func parseSegment(b []byte, no uint32) (*segment, error) {
	s := &segment{no: no, uid: segmentUID.Add(1), size: int64(len(b)), died: make(map[uint32]uint64)}
	if err := s.parseFooter(b); err != nil {
		return nil, err
	}
	s.dead = make([]uint64, (s.n+63)/64)
	if s.n > 0 {
		s.minAt, s.maxAt = s.at(0), s.at(uint32(s.n-1))
	}
	return s, nil
}

// parseFooter reads the footer: magic 8, version uint32, documents uint32, expiries uint32, id
// slots uint32, postings uint64, terms uint64, seven section checksums uint32 (CRC-32C), padding
// up to byte 92, checksum of the footer uint32.
func (s *segment) parseFooter(b []byte) error {
	if len(b) < footerSize {
		return fmt.Errorf("%w: too short", errSegment)
	}
	f := b[len(b)-footerSize:]
	if string(f[:8]) != segMagic {
		return fmt.Errorf("%w: not a segment", errSegment)
	}
	if crc32.Checksum(f[:92], castagnoli) != binary.LittleEndian.Uint32(f[92:]) {
		return fmt.Errorf("%w: footer checksum", errSegment)
	}
	if v := binary.LittleEndian.Uint32(f[8:]); v > FormatVersion {
		return fmt.Errorf("%w: segment version %d", ErrVersion, v)
	}
	n := uint64(binary.LittleEndian.Uint32(f[12:]))
	sizes := [7]uint64{
		n * docSize,
		((n+blockDocs-1)/blockDocs + 1) * sumSize,
		uint64(binary.LittleEndian.Uint32(f[16:])) * expirySize,
		uint64(binary.LittleEndian.Uint32(f[20:])) * 4,
		n * 4,
		binary.LittleEndian.Uint64(f[24:]) * 4,
		binary.LittleEndian.Uint64(f[32:]) * termSize,
	}
	secs := [7]*[]byte{&s.docs, &s.sums, &s.exps, &s.ids, &s.order, &s.posts, &s.terms}
	rest := b[:len(b)-footerSize]
	for i, size := range sizes {
		if size > uint64(len(rest)) {
			return fmt.Errorf("%w: section %d is cut off", errSegment, i)
		}
		*secs[i] = rest[:size:size]
		rest = rest[size:]
		if crc32.Checksum(*secs[i], castagnoli) != binary.LittleEndian.Uint32(f[40+4*i:]) {
			return fmt.Errorf("%w: checksum of section %d", errSegment, i)
		}
	}
	if len(rest) > 0 || n > 0 && (len(s.ids) == 0 || uint64(len(s.ids)/4) <= n) {
		return fmt.Errorf("%w: sizes do not fit", errSegment)
	}
	s.n = int(n)
	return s.sane()
}

// sane checks the numbers that reads trust, so that even a file with right checksums and
// wrong content cannot make a read go astray.
func (s *segment) sane() error {
	for i := 0; i < len(s.ids); i += 4 {
		if binary.LittleEndian.Uint32(s.ids[i:]) > uint32(s.n) {
			return fmt.Errorf("%w: id table", errSegment)
		}
	}
	for i := 0; i < len(s.order); i += 4 {
		if binary.LittleEndian.Uint32(s.order[i:]) >= uint32(s.n) {
			return fmt.Errorf("%w: order", errSegment)
		}
	}
	np := uint64(len(s.posts) / 4)
	for i := 0; i < len(s.posts); i += 4 {
		if binary.LittleEndian.Uint32(s.posts[i:]) >= uint32(s.n) {
			return fmt.Errorf("%w: posting", errSegment)
		}
	}
	for i := 0; i < len(s.terms); i += termSize {
		if uint64(binary.LittleEndian.Uint32(s.terms[i+16:]))+uint64(binary.LittleEndian.Uint32(s.terms[i+20:])) > np {
			return fmt.Errorf("%w: term", errSegment)
		}
	}
	return nil
}

func (s *segment) at(d uint32) int64 {
	return int64(binary.LittleEndian.Uint64(s.docs[int(d)*docSize+32:]))
}

func (s *segment) lsn(d uint32) uint64 {
	return binary.LittleEndian.Uint64(s.docs[int(d)*docSize+40:])
}

func (s *segment) kind(d uint32) nostr.Kind {
	return nostr.Kind(binary.LittleEndian.Uint16(s.docs[int(d)*docSize+60:]))
}

func (s *segment) id(d uint32) *nostr.ID {
	return (*nostr.ID)(s.docs[int(d)*docSize:])
}

func (s *segment) pos(d uint32) pos {
	b := s.docs[int(d)*docSize+48:]
	return pos{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])}
}

func (s *segment) expires(d uint32) int64 {
	if s.docs[int(d)*docSize+62]&docExpires == 0 {
		return store.NoExpiry
	}
	lo, hi := 0, len(s.exps)/expirySize
	for lo < hi {
		m := (lo + hi) / 2
		if binary.LittleEndian.Uint32(s.exps[m*expirySize:]) < d {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo == len(s.exps)/expirySize {
		return store.NoExpiry
	}
	return int64(binary.LittleEndian.Uint64(s.exps[lo*expirySize+4:]))
}

func (s *segment) doc(d uint32) doc {
	return doc{*s.id(d), s.at(d), s.lsn(d), s.pos(d), s.kind(d), s.expires(d)}
}

// sum returns the sum of the ids before block b.
func (s *segment) sum(b int) (out negentropy.Sum) {
	p := s.sums[b*sumSize:]
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(p[8*i:])
	}
	return out
}

// idSlot is where the search for an id in a hash table of n slots starts.
func idSlot(id *nostr.ID, n int) int {
	return int(binary.LittleEndian.Uint64(id[8:]) % uint64(n))
}

// find returns the document of an id.
func (s *segment) find(id *nostr.ID) (uint32, bool) {
	n := len(s.ids) / 4
	if n == 0 {
		return 0, false
	}
	for i, tries := idSlot(id, n), 0; tries < n; tries++ {
		d := binary.LittleEndian.Uint32(s.ids[i*4:])
		if d == 0 {
			return 0, false
		}
		if *s.id(d - 1) == *id {
			return d - 1, true
		}
		if i++; i == n {
			i = 0
		}
	}
	return 0, false
}

// lowerAt returns the number of documents with created_at below t.
func (s *segment) lowerAt(t int64) uint32 {
	lo, hi := 0, s.n
	for lo < hi {
		m := (lo + hi) / 2
		if s.at(uint32(m)) < t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return uint32(lo)
}

// list is a list of document numbers, ascending: of a segment or of a head.
type list struct {
	b []byte
	u []uint32
}

func (l list) len() int {
	if l.u != nil {
		return len(l.u)
	}
	return len(l.b) / 4
}

func (l list) get(i int) uint32 {
	if l.u != nil {
		return l.u[i]
	}
	return binary.LittleEndian.Uint32(l.b[i*4:])
}

// lower returns how many of the list's numbers are below d.
func (l list) lower(d uint32) int {
	lo, hi := 0, l.len()
	for lo < hi {
		m := (lo + hi) / 2
		if l.get(m) < d {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (l list) contains(d uint32) bool {
	i := l.lower(d)
	return i < l.len() && l.get(i) == d
}

// postings returns the documents that have a term.
func (s *segment) postings(t term) list {
	n := len(s.terms) / termSize
	lo, hi := 0, n
	// Hashes are spread evenly, so the first guess is close.
	if n > 64 {
		g := int(uint64(t.hi>>32) * uint64(n) >> 32)
		for step := 8; ; step *= 2 {
			a, b := max(0, g-step), min(n, g+step)
			if (a == 0 || s.term(a-1).less(t)) && (b == n || !s.term(b).less(t)) {
				lo, hi = a, b
				break
			}
		}
	}
	for lo < hi {
		m := (lo + hi) / 2
		if s.term(m).less(t) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo == n || s.term(lo) != t {
		return list{}
	}
	return s.termPostings(lo)
}

func (s *segment) term(i int) term {
	b := s.terms[i*termSize:]
	return term{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

func (s *segment) termPostings(i int) list {
	b := s.terms[i*termSize+16:]
	from, n := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
	return list{b: s.posts[from*4 : (from+n)*4]}
}

// arrived returns the i-th document in the order of arrival.
func (s *segment) arrived(i int) uint32 { return binary.LittleEndian.Uint32(s.order[i*4:]) }

// arrivedAfter returns the first place in the order of arrival with an lsn above that.
func (s *segment) arrivedAfter(lsn uint64) int {
	lo, hi := 0, s.n
	for lo < hi {
		m := (lo + hi) / 2
		if s.lsn(s.arrived(m)) <= lsn {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// isDead says whether the document's death bit is set.
func (s *segment) isDead(d uint32) bool {
	return atomic.LoadUint64(&s.dead[d/64])>>(d%64)&1 == 1
}

// live says whether a reader at vis sees the document. (All documents of a segment are older
// than every reader that sees the segment.)
func (s *segment) live(d uint32, vis uint64) bool {
	if !s.isDead(d) {
		return true
	}
	s.mu.RLock()
	at, ok := s.died[d]
	s.mu.RUnlock()
	return ok && at > vis
}

// kill marks a document dead from lsn on.
func (s *segment) kill(d uint32, lsn uint64) {
	if s.isDead(d) {
		return
	}
	s.mu.Lock()
	s.died[d] = lsn
	s.mu.Unlock()
	atomic.OrUint64(&s.dead[d/64], 1<<(d%64))
	s.ndead.Add(1)
}

// deaths returns a copy of the death bits.
func (s *segment) deaths() []uint64 {
	out := make([]uint64, len(s.dead))
	for i := range s.dead {
		out[i] = atomic.LoadUint64(&s.dead[i])
	}
	return out
}

func (s *segment) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	_ = s.m.Close() // nothing reads it any more; an error would leave address space behind, no more
	if s.gone != nil {
		s.gone()
	}
}

// expiredBy yields the documents that have expired at that time.
func (s *segment) expiredBy(now int64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := 0; i < len(s.exps); i += expirySize {
			if int64(binary.LittleEndian.Uint64(s.exps[i+4:])) <= now && !yield(binary.LittleEndian.Uint32(s.exps[i:])) {
				return
			}
		}
	}
}
