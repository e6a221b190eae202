package eventlog

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

// manifest names the files that make up the store as of the last checkpoint. The file is one line of
// JSON and a line with the CRC-32C of the first in hex; it is replaced as a whole.
type manifest struct {
	Version     int      `json:"version"`
	Key         string   `json:"key"`      // of the term hash, 32 hex digits
	LSN         uint64   `json:"lsn"`      // of the last change the checkpoint covers
	LastSeq     uint64   `json:"last_seq"` // of the newest arrival it covers
	Segments    []uint32 `json:"segments"`
	State       uint32   `json:"state"`        // number of the state file, 0 for none
	Logs        []logRef `json:"logs"`         // log files that the checkpoint needs
	CoveredFile uint32   `json:"covered_file"` // the log from here on is read at Open
	CoveredSize int64    `json:"covered_size"`
	NextSegment uint32   `json:"next_segment"`
	NextLog     uint32   `json:"next_log"`
	Returned    int64    `json:"returned"` // bytes given back to the file system
	Clock       int64    `json:"clock"`    // the latest time that was heard of, unix seconds
	Quota       int64    `json:"quota"`    // bytes, 0 for none
	Horizon     int64    `json:"horizon"`  // created_at up to which the quota has removed events
}

type logRef struct {
	No     uint32 `json:"no"`
	Dead   int64  `json:"dead"`             // bytes
	Size   int64  `json:"size"`             // bytes that were durable then
	Origin uint32 `json:"origin,omitempty"` // file it is a rewrite of
}

const manifestName = "MANIFEST"

var errManifest = errors.New("damaged manifest")

func (m *manifest) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return fmt.Appendf(b, "\n%08x\n", crc32.Checksum(b, castagnoli)), nil
}

func (m *manifest) decode(b []byte) error {
	line, sum, ok := strings.Cut(string(b), "\n")
	if !ok || strings.TrimSpace(sum) != fmt.Sprintf("%08x", crc32.Checksum([]byte(line), castagnoli)) {
		return errManifest
	}
	if err := json.Unmarshal([]byte(line), m); err != nil {
		return fmt.Errorf("%w: %v", errManifest, err)
	}
	if m.Version > FormatVersion {
		return fmt.Errorf("%w: version %d, this program knows %d", ErrVersion, m.Version, FormatVersion)
	}
	return nil
}

// horizon is the horizon that still holds under a quota: none if there is more room now.
func (m *manifest) horizon(quota int64) int64 {
	if quota == 0 || quota > m.Quota {
		return 0
	}
	return m.Horizon
}

func (m *manifest) key() (k [16]byte, err error) {
	b, err := hex.DecodeString(m.Key)
	if err != nil || len(b) != 16 {
		return k, fmt.Errorf("%w: key", errManifest)
	}
	return [16]byte(b), nil
}

// The state file holds what a checkpoint knows besides segments: 8 bytes magic, version uint32,
// then lists, each a varint count and its entries: death bits of the segments, moves of log
// records, damaged ids, and the tables as effects with a varint length each (0 ends them). The last
// 4 bytes are the CRC-32C of all before.
const stateMagic = "FMEVSTA\n"

var errState = errors.New("damaged state file")

func segName(no uint32) string   { return fmt.Sprintf("seg-%08d", no) }
func stateName(no uint32) string { return fmt.Sprintf("sta-%08d", no) }

// encodeState returns the state file for a version.
func (s *Store) encodeState(v *version) []byte {
	b := append([]byte(nil), stateMagic...)
	b = binary.LittleEndian.AppendUint32(b, FormatVersion)
	b = binary.AppendUvarint(b, uint64(len(v.disk)))
	for _, seg := range v.disk {
		b = binary.AppendUvarint(b, uint64(seg.no))
		dead := seg.deaths()
		b = binary.AppendUvarint(b, uint64(len(dead)))
		for _, w := range dead {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(v.moved)))
	for _, no := range slices.Sorted(maps.Keys(v.moved)) {
		m := v.moved[no]
		b = binary.AppendUvarint(b, uint64(no))
		b = binary.AppendUvarint(b, uint64(len(m.offs)))
		for i, off := range m.offs {
			b = binary.AppendUvarint(b, uint64(off))
			b = binary.AppendUvarint(b, uint64(m.to[i].file))
			b = binary.AppendUvarint(b, uint64(m.to[i].off))
			b = binary.AppendUvarint(b, uint64(m.to[i].size))
		}
	}
	ids := s.Damaged()
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	s.tables.all(1024, func(fx *effects) {
		body := fx.append(nil)
		b = append(binary.AppendUvarint(b, uint64(len(body))), body...)
	})
	b = binary.AppendUvarint(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodedState is a state file's content.
type decodedState struct {
	dead    map[uint32][]uint64
	moved   map[uint32]*moves
	damaged []nostr.ID
	tables  []effects
}

func decodeState(b []byte) (*decodedState, error) {
	if len(b) < 16 || string(b[:8]) != stateMagic {
		return nil, errState
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: checksum", errState)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > FormatVersion {
		return nil, fmt.Errorf("%w: state version %d", ErrVersion, v)
	}
	r := &reader{b: body[12:]}
	st := &decodedState{dead: make(map[uint32][]uint64), moved: make(map[uint32]*moves)}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		no := uint32(r.uvarint())
		words := r.take(int(min(r.uvarint(), 1<<32)) * 8)
		dead := make([]uint64, len(words)/8)
		for i := range dead {
			dead[i] = binary.LittleEndian.Uint64(words[i*8:])
		}
		st.dead[no] = dead
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		no, m := uint32(r.uvarint()), &moves{}
		for k := r.uvarint(); k > 0 && !r.bad; k-- {
			m.offs = append(m.offs, uint32(r.uvarint()))
			m.to = append(m.to, pos{uint32(r.uvarint()), uint32(r.uvarint()), uint32(r.uvarint())})
		}
		st.moved[no] = m
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		st.damaged = append(st.damaged, r.id())
	}
	for n := r.uvarint(); n > 0 && !r.bad; n = r.uvarint() {
		var fx effects
		if err := fx.parse(r.take(int(min(n, 1<<32)))); err != nil {
			return nil, fmt.Errorf("%w: %v", errState, err)
		}
		st.tables = append(st.tables, fx)
	}
	if r.bad {
		return nil, errState
	}
	return st, nil
}

// save writes the state file and the manifest for a version: from then on it is what Open finds.
// The caller holds wmu.
func (s *Store) save(v *version) error {
	old := s.man.State
	m := s.man
	m.Version = FormatVersion
	m.State = old + 1
	m.Segments, m.Logs = nil, nil
	for _, seg := range v.disk {
		m.Segments = append(m.Segments, seg.no)
	}
	for _, no := range slices.Sorted(maps.Keys(v.files)) {
		l := v.files[no]
		m.Logs = append(m.Logs, logRef{no, l.dead.Load(), l.size.Load(), l.origin})
	}
	m.Returned, m.Clock = s.returned.Load(), s.clock
	m.Quota, m.Horizon = s.opts.MaxBytes, s.horizon
	state := s.encodeState(v)
	if err := replaceFile(s.fs, stateName(m.State), state); err != nil {
		return err
	}
	b, err := m.encode()
	if err != nil {
		return err
	}
	if err := replaceFile(s.fs, manifestName, b); err != nil {
		return err
	}
	s.man = m
	size := int64(len(state) + len(b))
	for _, seg := range v.disk {
		size += seg.size
	}
	s.other.Store(size)
	if old != 0 {
		s.fs.Remove(stateName(old)) // if it fails, Open removes it
	}
	return nil
}
