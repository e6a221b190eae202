package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// A record of the log is a header of 20 bytes and a payload:
//
//	0  magic   uint16  0x4d46
//	2  type    uint8   1
//	3  flags   uint8   1: an event's JSON, 2: effects
//	4  length  uint32  of the payload
//	8  lsn     uint64  place in the order of everything that ever happened to the store
//	16 crc     uint32  CRC-32C of bytes 0 to 15 and the payload
//
// The payload is the effects, with their length as a varint before them, if flag 2 is
// set, then the event's JSON as it came. One record is one change, so a torn write never leaves
// half a change.
const (
	recordHeader = 20
	recordMagic  = 0x4d46
	recordType   = 1
	flagEvent    = 1
	flagEffects  = 2
	maxPayload   = 1 << 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errRecord  = errors.New("damaged record")
	errEffects = errors.New("damaged effects")
)

// record is a decoded record. json points into the buffer it was read from.
type record struct {
	lsn     uint64
	json    []byte
	effects effects
	size    int // with the header
}

// effects is everything a change does besides storing an event.
type effects struct {
	at       int64 // unix seconds
	drops    []dropped
	refused  []store.Refusal
	asked    []asked
	bounds   []bound
	floors   []store.Floor
	vanished []vanish
}

type dropped struct {
	lsn    uint64 // of the event's record
	file   uint32 // log file that had it
	id     nostr.ID
	reason string // "" leaves no refusal
}

type asked struct {
	id nostr.ID
	by nostr.PubKey
}

type bound struct {
	addr  nostr.Address
	until int64
}

type vanish struct {
	key   nostr.PubKey
	until int64
}

func (e *effects) empty() bool {
	return len(e.drops)+len(e.refused)+len(e.asked)+len(e.bounds)+len(e.floors)+len(e.vanished) == 0
}

// appendRecord appends a whole record.
func appendRecord(dst []byte, lsn uint64, json []byte, fx *effects) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, recordHeader)...)
	var flags byte
	if !fx.empty() {
		flags |= flagEffects
		body := fx.append(nil)
		dst = binary.AppendUvarint(dst, uint64(len(body)))
		dst = append(dst, body...)
	}
	if json != nil {
		flags |= flagEvent
		dst = append(dst, json...)
	}
	h := dst[start:]
	binary.LittleEndian.PutUint16(h, recordMagic)
	h[2], h[3] = recordType, flags
	binary.LittleEndian.PutUint32(h[4:], uint32(len(h)-recordHeader))
	binary.LittleEndian.PutUint64(h[8:], lsn)
	binary.LittleEndian.PutUint32(h[16:], recordSum(h))
	return dst
}

func recordSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:16], castagnoli), castagnoli, b[recordHeader:])
}

// parseRecord reads the record that b begins with. It returns errRecord if there is no
// whole and undamaged one.
func parseRecord(b []byte) (record, error) {
	if len(b) < recordHeader || binary.LittleEndian.Uint16(b) != recordMagic || b[2] != recordType {
		return record{}, errRecord
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if n > maxPayload || int(n) > len(b)-recordHeader {
		return record{}, errRecord
	}
	b = b[:recordHeader+int(n)]
	if recordSum(b) != binary.LittleEndian.Uint32(b[16:]) {
		return record{}, errRecord
	}
	r := record{lsn: binary.LittleEndian.Uint64(b[8:]), size: len(b)}
	body := b[recordHeader:]
	if b[3]&flagEffects != 0 {
		n, k := binary.Uvarint(body)
		if k <= 0 || n > uint64(len(body)-k) {
			return record{}, errEffects
		}
		if err := r.effects.parse(body[k : k+int(n)]); err != nil {
			return record{}, err
		}
		body = body[k+int(n):]
	}
	if b[3]&flagEvent != 0 {
		r.json = body
	}
	return r, nil
}

// Tags of the effects' fields. A field is its tag and its parts; a list is its fields one
// after another.
const (
	fxAt = iota + 1
	fxDrop
	fxRefused
	fxAsked
	fxBound
	fxFloor
	fxVanish
)

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendAddress(b []byte, a nostr.Address) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(a.Kind))
	return appendText(append(b, a.PubKey[:]...), a.D)
}

func (e *effects) append(b []byte) []byte {
	b = binary.AppendVarint(append(b, fxAt), e.at)
	for i := range e.drops {
		d := &e.drops[i]
		b = binary.AppendUvarint(append(b, fxDrop), d.lsn)
		b = binary.AppendUvarint(b, uint64(d.file))
		b = appendText(append(b, d.id[:]...), d.reason)
	}
	for i := range e.refused {
		r := &e.refused[i]
		b = append(append(b, fxRefused), r.ID[:]...)
		b = binary.AppendVarint(appendText(b, r.Reason), r.At)
	}
	for i := range e.asked {
		b = append(append(append(b, fxAsked), e.asked[i].id[:]...), e.asked[i].by[:]...)
	}
	for i := range e.bounds {
		b = binary.AppendVarint(appendAddress(append(b, fxBound), e.bounds[i].addr), e.bounds[i].until)
	}
	for i := range e.floors {
		b = binary.AppendVarint(appendAddress(append(b, fxFloor), e.floors[i].Address), e.floors[i].Version.CreatedAt)
		b = append(b, e.floors[i].Version.ID[:]...)
	}
	for i := range e.vanished {
		b = binary.AppendVarint(append(append(b, fxVanish), e.vanished[i].key[:]...), e.vanished[i].until)
	}
	return b
}

// reader takes fields off a buffer. After a failure everything is zero and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) id() (id [32]byte) {
	copy(id[:], r.take(32))
	return id
}

func (r *reader) uvarint() uint64 {
	v, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return v
}

func (r *reader) varint() int64 {
	v, k := binary.Varint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) address() (a nostr.Address) {
	if k := r.take(2); k != nil {
		a.Kind = nostr.Kind(binary.LittleEndian.Uint16(k))
	}
	a.PubKey = r.id()
	a.D = r.text()
	return a
}

func (e *effects) parse(b []byte) error {
	r := reader{b: b}
	for len(r.b) > 0 && !r.bad {
		switch tag := r.take(1)[0]; tag {
		case fxAt:
			e.at = r.varint()
		case fxDrop:
			e.drops = append(e.drops, dropped{r.uvarint(), uint32(r.uvarint()), r.id(), r.text()})
		case fxRefused:
			e.refused = append(e.refused, store.Refusal{ID: r.id(), Reason: r.text(), At: r.varint()})
		case fxAsked:
			e.asked = append(e.asked, asked{r.id(), r.id()})
		case fxBound:
			e.bounds = append(e.bounds, bound{r.address(), r.varint()})
		case fxFloor:
			e.floors = append(e.floors, store.Floor{Address: r.address(), Version: store.Version{CreatedAt: r.varint(), ID: r.id()}})
		case fxVanish:
			e.vanished = append(e.vanished, vanish{r.id(), r.varint()})
		default:
			return fmt.Errorf("%w: field %d", errEffects, tag)
		}
	}
	if r.bad {
		return errEffects
	}
	return nil
}
