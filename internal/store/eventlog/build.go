package eventlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// scratch holds the term table while postings are written.
type scratch interface {
	io.Writer
	copyTo(w io.Writer) error
}

type memScratch struct{ bytes.Buffer }

func (m *memScratch) copyTo(w io.Writer) error {
	_, err := m.WriteTo(w)
	return err
}

// builder writes a segment in one pass: all documents in order, then all terms in order. It
// needs 37 bytes of memory a document.
type builder struct {
	out  io.Writer
	tmp  scratch
	n    uint32
	sum  negentropy.Sum
	sums []byte
	exps []byte
	ids  []nostr.ID
	np   uint64
	nt   uint64
	crc  [7]uint32
	buf  []byte
	err  error
	last doc
}

func newBuilder(out io.Writer, tmp scratch) *builder { return &builder{out: out, tmp: tmp} }

func (b *builder) write(section int, p []byte) {
	if b.err != nil {
		return
	}
	b.crc[section] = crc32.Update(b.crc[section], castagnoli, p)
	_, b.err = b.out.Write(p)
}

func (b *builder) appendSum() {
	for _, w := range b.sum {
		b.sums = binary.LittleEndian.AppendUint64(b.sums, w)
	}
}

// addDoc adds the next document.
func (b *builder) addDoc(d *doc) {
	if b.n > 0 && b.last.compare(d) >= 0 {
		b.err = errors.Join(b.err, errors.New("documents out of order"))
		return
	}
	b.last = *d
	if b.n%blockDocs == 0 {
		b.appendSum()
	}
	var flags uint16
	if d.expires != store.NoExpiry {
		flags |= docExpires
		b.exps = binary.LittleEndian.AppendUint32(b.exps, b.n)
		b.exps = binary.LittleEndian.AppendUint64(b.exps, uint64(d.expires))
	}
	p := append(b.buf[:0], d.id[:]...)
	p = binary.LittleEndian.AppendUint64(p, uint64(d.at))
	p = binary.LittleEndian.AppendUint64(p, d.lsn)
	p = binary.LittleEndian.AppendUint32(p, d.pos.file)
	p = binary.LittleEndian.AppendUint32(p, d.pos.off)
	p = binary.LittleEndian.AppendUint32(p, d.pos.size)
	p = binary.LittleEndian.AppendUint16(p, uint16(d.kind))
	p = binary.LittleEndian.AppendUint16(p, flags)
	b.buf = p
	b.write(0, p)
	b.sum.Add(&d.id)
	b.ids = append(b.ids, d.id)
	b.n++
}

// endDocs writes what follows from the documents. The order of arrival comes next.
func (b *builder) endDocs() {
	b.appendSum()
	b.write(1, b.sums)
	b.write(2, b.exps)
	b.write(3, b.slots())
	b.sums, b.ids = nil, nil
}

// addOrder adds the next document numbers in the order of arrival.
func (b *builder) addOrder(docs ...uint32) {
	p := b.buf[:0]
	for _, d := range docs {
		p = binary.LittleEndian.AppendUint32(p, d)
	}
	b.buf = p
	b.write(4, p)
}

// slots builds the hash table of ids, half full: a miss, which every insert is in every segment,
// should end at the first slot or two.
func (b *builder) slots() []byte {
	if b.n == 0 {
		return nil
	}
	n := len(b.ids)*2 + 2
	t := make([]byte, n*4)
	for d := range b.ids {
		i := idSlot(&b.ids[d], n)
		for binary.LittleEndian.Uint32(t[i*4:]) != 0 {
			if i++; i == n {
				i = 0
			}
		}
		binary.LittleEndian.PutUint32(t[i*4:], uint32(d+1))
	}
	return t
}

// addTerm adds the next term with its documents, ascending.
func (b *builder) addTerm(t term, docs []uint32) {
	if b.err != nil || len(docs) == 0 {
		return
	}
	p := b.buf[:0]
	for _, d := range docs {
		p = binary.LittleEndian.AppendUint32(p, d)
	}
	b.buf = p
	b.write(5, p)
	e := binary.LittleEndian.AppendUint64(make([]byte, 0, termSize), t.hi)
	e = binary.LittleEndian.AppendUint64(e, t.lo)
	e = binary.LittleEndian.AppendUint32(e, uint32(b.np))
	e = binary.LittleEndian.AppendUint32(e, uint32(len(docs)))
	b.crc[6] = crc32.Update(b.crc[6], castagnoli, e)
	if _, err := b.tmp.Write(e); err != nil {
		b.err = err
	}
	b.np += uint64(len(docs))
	b.nt++
	if b.np > 1<<32-1 {
		b.err = errors.New("too many postings for one segment")
	}
}

// finish writes the rest.
func (b *builder) finish() error {
	if b.err != nil {
		return fmt.Errorf("write segment: %w", b.err)
	}
	if err := b.tmp.copyTo(b.out); err != nil {
		return fmt.Errorf("write segment: %w", err)
	}
	slots := uint32(0)
	if b.n > 0 {
		slots = b.n*2 + 2
	}
	f := append(make([]byte, 0, footerSize), segMagic...)
	f = binary.LittleEndian.AppendUint32(f, FormatVersion)
	f = binary.LittleEndian.AppendUint32(f, b.n)
	f = binary.LittleEndian.AppendUint32(f, uint32(len(b.exps)/expirySize))
	f = binary.LittleEndian.AppendUint32(f, slots)
	f = binary.LittleEndian.AppendUint64(f, b.np)
	f = binary.LittleEndian.AppendUint64(f, b.nt)
	for _, c := range b.crc {
		f = binary.LittleEndian.AppendUint32(f, c)
	}
	f = append(f, make([]byte, 92-len(f))...)
	f = binary.LittleEndian.AppendUint32(f, crc32.Checksum(f, castagnoli))
	if _, err := b.out.Write(f); err != nil {
		return fmt.Errorf("write segment: %w", err)
	}
	return nil
}

// input is a segment to be merged, with the documents to leave out.
type input struct {
	s    *segment
	dead []uint64
	next uint32   // document
	term int      // term
	to   []uint32 // new numbers, ^0 for those left out
}

func (in *input) skip() {
	for in.next < uint32(in.s.n) && in.dead[in.next/64]>>(in.next%64)&1 == 1 {
		in.to[in.next] = ^uint32(0)
		in.next++
	}
}

// merge writes the documents of the inputs, without the dead, as one segment. place gives a
// record's position today. stop is asked now and then.
func merge(b *builder, ins []*input, place func(pos) pos, stop func() bool) error {
	for _, in := range ins {
		in.to = make([]uint32, in.s.n)
		in.skip()
	}
	for n := 0; ; n++ {
		if n%4096 == 0 && stop() {
			return store.ErrClosed
		}
		var best *input
		for _, in := range ins {
			if in.next < uint32(in.s.n) && (best == nil || lessDoc(in, best)) {
				best = in
			}
		}
		if best == nil {
			break
		}
		d := best.s.doc(best.next)
		d.pos = place(d.pos)
		best.to[best.next] = b.n
		b.addDoc(&d)
		best.next++
		best.skip()
	}
	b.endDocs()
	mergeOrder(b, ins)
	return mergeTerms(b, ins, stop)
}

func mergeOrder(b *builder, ins []*input) {
	at := make([]int, len(ins))
	chunk := make([]uint32, 0, 1024)
	for {
		best := -1
		var lsn uint64
		for i, in := range ins {
			for at[i] < in.s.n && in.to[in.s.arrived(at[i])] == ^uint32(0) {
				at[i]++
			}
			if at[i] < in.s.n {
				if l := in.s.lsn(in.s.arrived(at[i])); best < 0 || l < lsn {
					best, lsn = i, l
				}
			}
		}
		if best >= 0 {
			in := ins[best]
			chunk = append(chunk, in.to[in.s.arrived(at[best])])
			at[best]++
		}
		if len(chunk) == cap(chunk) || best < 0 {
			b.addOrder(chunk...)
			chunk = chunk[:0]
		}
		if best < 0 {
			return
		}
	}
}

func lessDoc(a, b *input) bool {
	x, y := a.s.at(a.next), b.s.at(b.next)
	if x != y {
		return x < y
	}
	return bytes.Compare(a.s.id(a.next)[:], b.s.id(b.next)[:]) < 0
}

func mergeTerms(b *builder, ins []*input, stop func() bool) error {
	var docs, other, merged []uint32
	for n := 0; ; n++ {
		if n%4096 == 0 && stop() {
			return store.ErrClosed
		}
		var min term
		found := false
		for _, in := range ins {
			if in.term < len(in.s.terms)/termSize {
				if t := in.s.term(in.term); !found || t.less(min) {
					min, found = t, true
				}
			}
		}
		if !found {
			return b.finish()
		}
		docs = docs[:0]
		for _, in := range ins {
			if in.term >= len(in.s.terms)/termSize || in.s.term(in.term) != min {
				continue
			}
			other = in.renumber(other[:0], in.s.termPostings(in.term))
			in.term++
			merged = mergeNumbers(merged[:0], docs, other)
			docs, merged = merged, docs
		}
		b.addTerm(min, docs)
	}
}

// renumber appends the new numbers of a list's documents.
func (in *input) renumber(dst []uint32, l list) []uint32 {
	for i := range l.len() {
		if d := in.to[l.get(i)]; d != ^uint32(0) {
			dst = append(dst, d)
		}
	}
	return dst
}

// mergeNumbers appends the union of two ascending lists.
func mergeNumbers(dst, a, b []uint32) []uint32 {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			dst, a = append(dst, a[0]), a[1:]
		case a[0] > b[0]:
			dst, b = append(dst, b[0]), b[1:]
		default:
			dst, a, b = append(dst, a[0]), a[1:], b[1:]
		}
	}
	return append(append(dst, a...), b...)
}
