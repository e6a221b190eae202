package eventlog

import (
	"bytes"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

func FuzzRecord(f *testing.F) {
	fx := effects{
		at:       5,
		drops:    []dropped{{7, 1, nostr.ID{1}, store.ReasonDeleted}},
		refused:  []store.Refusal{{ID: nostr.ID{2}, Reason: "policy", At: 9}},
		asked:    []asked{{nostr.ID{3}, nostr.PubKey{4}}},
		bounds:   []bound{{nostr.Address{Kind: 30023, D: "x"}, 11}},
		floors:   []store.Floor{{Address: nostr.Address{Kind: 0}, Version: store.Version{CreatedAt: 12}}},
		vanished: []vanish{{nostr.PubKey{5}, 13}},
	}
	f.Add(appendRecord(nil, 1, []byte(`{"id":"x"}`), &effects{}))
	f.Add(appendRecord(nil, 1<<63, []byte(`{}`), &fx))
	f.Add(appendRecord(nil, 2, nil, &fx))
	f.Add([]byte("FM"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		again, err := parseRecord(appendRecord(nil, r.lsn, r.json, &r.effects))
		if err != nil || again.lsn != r.lsn || !bytes.Equal(again.json, r.json) {
			t.Fatalf("a record does not survive: %v", err)
		}
	})
}

func FuzzEffects(f *testing.F) {
	fx := effects{at: -3, asked: []asked{{nostr.ID{3}, nostr.PubKey{4}}}, bounds: []bound{{nostr.Address{Kind: 30023, D: "x"}, 11}}}
	f.Add(fx.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fx effects
		if fx.parse(b) != nil {
			return
		}
		var again effects
		if err := again.parse(fx.append(nil)); err != nil {
			t.Fatal(err)
		}
	})
}

func seedSegment(f *testing.F) []byte {
	h := newHead()
	hash := newHasher([16]byte{1})
	for i := range 70 {
		e := &nostr.Event{CreatedAt: int64(i / 3), Kind: 1, Tags: []nostr.Tag{{"t", "x"}, {"expiration", "99"}}}
		e.PubKey[0] = byte(i % 5)
		e.ID[0], e.ID[9] = byte(i), byte(i)
		h.add(doc{id: e.ID, at: e.CreatedAt, lsn: uint64(i + 1), kind: 1, expires: 99}, e, hash.terms(nil, e))
	}
	var out bytes.Buffer
	seg, err := h.segment()
	if err != nil {
		f.Fatal(err)
	}
	in := &input{s: seg, dead: seg.deaths()}
	if err := merge(newBuilder(&out, &memScratch{}), []*input{in}, func(p pos) pos { return p }, func() bool { return false }); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}

// FuzzSegment reads a segment with any content; its checksums are made right, so that what is behind
// them is reached.
func FuzzSegment(f *testing.F) {
	good := seedSegment(f)
	f.Add(good, false)
	f.Add(good[len(good)-footerSize:], true)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		b = bytes.Clone(b)
		if mend {
			mendSums(b)
		}
		s, err := parseSegment(b, 1)
		if err != nil {
			return
		}
		for d := range uint32(s.n) {
			x := s.doc(d)
			s.find(&x.id)
			s.live(d, 5)
		}
		for i := range len(s.terms) / termSize {
			l := s.postings(s.term(i))
			for k := range l.len() {
				s.kind(l.get(k))
			}
		}
		for i := range s.n {
			s.lsn(s.arrived(i))
		}
		s.arrivedAfter(3)
		s.lowerAt(5)
	})
}

func FuzzState(f *testing.F) {
	s := &Store{tables: newTables(10), damaged: map[nostr.ID]struct{}{{1}: {}}}
	s.tables.apply(&effects{asked: []asked{{nostr.ID{3}, nostr.PubKey{4}}}})
	v := emptyVersion()
	v.moved[3] = &moves{offs: []uint32{32}, to: []pos{{4, 32, 100}}}
	b := s.encodeState(v)
	f.Add(b[:len(b)-4])
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeState(sealed(b))
	})
}

func FuzzManifest(f *testing.F) {
	m := manifest{Version: 1, Key: "00112233445566778899aabbccddeeff", Segments: []uint32{1}}
	b, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m manifest
		if m.decode(b) == nil {
			m.key()
		}
	})
}

// FuzzLogFile opens and scans a log file with any content, with its header made right or as it is.
func FuzzLogFile(f *testing.F) {
	good := appendRecord(appendLogHeader(nil, 1, 0), 1, []byte(`{"id":"x"}`), &effects{at: 5})
	f.Add(good, false)
	f.Add(appendRecord(good, 2, nil, &effects{refused: []store.Refusal{{Reason: "policy"}}}), true)
	f.Add(make([]byte, logHeader), false)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		d := newFaultFS(1)
		b = bytes.Clone(b)
		if mend && len(b) >= logHeader {
			copy(b, appendLogHeader(nil, 1, 0))
		}
		d.names[logName(1)] = &node{data: b}
		l, err := openLog(d, 1, nil)
		if err != nil {
			return
		}
		end := int64(logHeader)
		l.scan(logHeader, func(r *record, p pos) error {
			if int64(p.off) < end || int64(p.off)+int64(p.size) > int64(len(b)) {
				t.Fatalf("a record at %d of %d bytes after %d", p.off, p.size, end)
			}
			end = int64(p.off) + int64(p.size)
			return nil
		})
	})
}
