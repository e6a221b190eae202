package gateway

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// PeerMemory remembers, for one relay, which ids need not cross the wire again: events that the relay
// refused for good, and ids under which it served what we cannot use. It is a file of its own, so that
// one relay's answers never decide what others are offered, or what is taken from others. Losing it
// costs bandwidth, nothing else. A nil PeerMemory remembers nothing.
//
// The file is text, a line a fact: CRC-32C (8 hex digits) of what follows, "u" (upload) or "d" (download), the id,
// the unix second, a word. Lines are appended and synced; a torn or damaged line is ignored.
type PeerMemory struct {
	path string
	open func(path string) (peerFile, error)

	mu     sync.Mutex
	facts  map[peerKey]peerFact
	file   peerFile
	broken bool // the last write failed: what stands at the end of the file is unknown
}

type peerFile interface {
	io.WriteCloser
	Sync() error
}

type peerKey struct {
	way Way
	id  nostr.ID
}

type peerFact struct {
	word string
	at   int64
}

// Way is the direction of a transfer.
type Way byte

// The two ways.
const (
	Upload   Way = 'u'
	Download Way = 'd'
)

// peerMemory is how long a fact is believed, in seconds: relays change their minds and their disks.
const peerMemory = 30 * 24 * 3600

// PeerFact is one entry.
type PeerFact struct {
	Way  Way
	ID   nostr.ID
	Word string // short and machine-readable: "invalid", "blocked", "not-kept", "bad-signature"…
	At   int64  // unix seconds
}

// OpenPeerMemory opens the memory of one relay in a directory, which it makes if need be. now is the
// unix second; facts older than 30 days are dropped.
func OpenPeerMemory(dir, relay string, now int64) (*PeerMemory, error) {
	norm, err := nostr.NormalizeRelayURL(relay)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open peer memory: %w", err)
	}
	sum := sha256.Sum256([]byte(norm))
	m := &PeerMemory{
		path:  filepath.Join(dir, hex.EncodeToString(sum[:12])+".facts"),
		facts: map[peerKey]peerFact{},
		open: func(path string) (peerFile, error) {
			return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		},
	}
	if err := m.load(now); err != nil {
		return nil, fmt.Errorf("open peer memory: %w", err)
	}
	return m, nil
}

func (m *PeerMemory) load(now int64) error {
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines, bad := 0, len(text) > 0 && text[len(text)-1] != '\n'
	sc := bufio.NewScanner(bytes.NewReader(text))
	for sc.Scan() {
		lines++
		f, ok := parseFact(sc.Bytes())
		if !ok {
			bad = true
			continue
		}
		if f.At > now-peerMemory {
			m.facts[peerKey{f.Way, f.ID}] = peerFact{f.Word, f.At}
		}
	}
	if bad || sc.Err() != nil || lines > 2*len(m.facts)+100 {
		return m.rewrite()
	}
	return nil
}

// rewrite puts a clean file in the place of the old one.
func (m *PeerMemory) rewrite() error {
	var text []byte
	for k, f := range m.facts {
		text = appendFact(text, PeerFact{k.way, k.id, f.word, f.at})
	}
	tmp, err := os.CreateTemp(filepath.Dir(m.path), ".facts-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), m.path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return err
	}
	d, err := os.Open(filepath.Dir(m.path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendFact(dst []byte, f PeerFact) []byte {
	body := fmt.Appendf(nil, "%c %s %d %s", f.Way, f.ID, f.At, f.Word)
	return fmt.Appendf(dst, "%08x %s\n", crc32.Checksum(body, castagnoli), body)
}

func parseFact(line []byte) (f PeerFact, ok bool) {
	sum, body, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(sum) != 8 {
		return f, false
	}
	n, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || crc32.Checksum(body, castagnoli) != uint32(n) {
		return f, false
	}
	parts := bytes.SplitN(body, []byte(" "), 4)
	if len(parts) != 4 || len(parts[0]) != 1 || len(parts[3]) == 0 {
		return f, false
	}
	f.Way = Way(parts[0][0])
	if f.Way != Upload && f.Way != Download {
		return f, false
	}
	if f.ID, err = nostr.ParseID(string(parts[1])); err != nil {
		return f, false
	}
	if f.At, err = strconv.ParseInt(string(parts[2]), 10, 64); err != nil {
		return f, false
	}
	f.Word = string(parts[3])
	return f, true
}

// Known returns the word remembered for an id.
func (m *PeerMemory) Known(way Way, id nostr.ID) (word string, ok bool) {
	if m == nil {
		return "", false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.facts[peerKey{way, id}]
	return f.word, ok
}

// Len is the number of facts.
func (m *PeerMemory) Len() int {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.facts)
}

// Remember adds facts. When it returns nil they are on disk; when it returns an error they hold for as long as
// the process lives, and may or may not be on disk.
func (m *PeerMemory) Remember(facts ...PeerFact) error {
	if m == nil || len(facts) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var text []byte
	if m.broken {
		text = append(text, '\n') // ends whatever half a line the failed write left
	}
	for _, f := range facts {
		f.Word = cleanWord(f.Word)
		m.facts[peerKey{f.Way, f.ID}] = peerFact{f.Word, f.At}
		text = appendFact(text, f)
	}
	if err := m.append(text); err != nil {
		m.broken = true
		return fmt.Errorf("write peer memory: %w", err)
	}
	m.broken = false
	return nil
}

func (m *PeerMemory) append(text []byte) error {
	if m.file == nil {
		f, err := m.open(m.path)
		if err != nil {
			return err
		}
		m.file = f
	}
	if _, err := m.file.Write(text); err != nil {
		return err
	}
	return m.file.Sync()
}

// cleanWord keeps a word to one line and a sane length.
func cleanWord(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s) && len(b) < 32; i++ {
		if c := s[i]; c > ' ' && c < 0x7f {
			b = append(b, c)
		}
	}
	if len(b) == 0 {
		return "refused"
	}
	return string(b)
}

// Close closes the file.
func (m *PeerMemory) Close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}
