// Package host drives mesh: it seals and opens messages, performs effects in order, journals what must
// be durable, and streams syncs. It decides nothing.
package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Journal keeps the newest record of each key, durably: a file of lines, each the CRC-32C of the rest in
// eight hex digits, a space and {"k":key,"v":record}. A torn last line, as a crash leaves it, is cut off; damage
// before it is an error. A failed write or sync breaks the journal: what reached the disk is then unknown, so it takes
// nothing more and must be opened again, which reads what is really there.
type Journal struct {
	path   string
	open   func(path string) (journalFile, error)
	f      journalFile
	live   map[string]json.RawMessage
	size   int64 // of the file
	broken error
}

// journalFile is the part of os.File that the journal uses; tests put one in that fails.
type journalFile interface {
	io.Writer
	Sync() error
	Close() error
}

type journalLine struct {
	Key    string          `json:"k"`
	Record json.RawMessage `json:"v"` // null deletes the key
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// compactAt is the size above which a journal of mostly superseded records is written anew.
const compactAt = 1 << 20

// OpenJournal opens or makes the journal at path.
func OpenJournal(path string) (*Journal, error) { return openJournal(path, appendTo) }

func appendTo(path string) (journalFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// CheckJournal reads a journal whole and changes nothing. A torn end, which the next start cuts off, is no error.
func CheckJournal(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	j := &Journal{live: map[string]json.RawMessage{}}
	if _, err := j.replay(text); err != nil {
		return fmt.Errorf("read the journal %s: %w", path, err)
	}
	return nil
}

func openJournal(path string, open func(string) (journalFile, error)) (*Journal, error) {
	j := &Journal{path: path, open: open, live: map[string]json.RawMessage{}}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	whole, err := j.replay(text)
	if err != nil {
		return nil, fmt.Errorf("read the journal %s: %w", path, err)
	}
	if whole < len(text) {
		if err := os.Truncate(path, int64(whole)); err != nil {
			return nil, fmt.Errorf("cut the torn end of the journal: %w", err)
		}
	}
	if j.f, err = open(path); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	j.size = int64(whole)
	return j, nil
}

// replay reads the lines and returns how many octets of them are whole.
func (j *Journal) replay(text []byte) (whole int, err error) {
	for whole < len(text) {
		n := bytes.IndexByte(text[whole:], '\n')
		if n < 0 {
			return whole, nil // torn
		}
		line, err := readJournalLine(text[whole : whole+n])
		if err != nil {
			if whole+n+1 == len(text) {
				return whole, nil // the last write reached the disk in part
			}
			return 0, fmt.Errorf("at octet %d: %w: restore the file from a backup, or move it away to start without peers", whole, err)
		}
		j.keep(line)
		whole += n + 1
	}
	return whole, nil
}

func (j *Journal) keep(line journalLine) {
	if line.Record == nil {
		delete(j.live, line.Key)
		return
	}
	j.live[line.Key] = line.Record
}

func readJournalLine(b []byte) (line journalLine, err error) {
	if len(b) < 10 || b[8] != ' ' {
		return line, errors.New("not a journal line")
	}
	if want := fmt.Sprintf("%08x", crc32.Checksum(b[9:], castagnoli)); want != string(b[:8]) {
		return line, errors.New("the checksum does not hold")
	}
	if err := json.Unmarshal(b[9:], &line); err != nil {
		return line, err
	}
	if bytes.Equal(line.Record, []byte("null")) {
		line.Record = nil
	}
	return line, nil
}

func appendJournalLine(dst []byte, line journalLine) ([]byte, error) {
	if line.Record == nil {
		line.Record = json.RawMessage("null")
	}
	body, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	dst = fmt.Appendf(dst, "%08x ", crc32.Checksum(body, castagnoli))
	return append(append(dst, body...), '\n'), nil
}

// Put replaces the record of a key; a nil record deletes it. With sync it is durable when Put returns; without, it survives the process
// but perhaps not the machine.
func (j *Journal) Put(key string, record json.RawMessage, sync bool) error {
	if j.broken != nil {
		return fmt.Errorf("the journal is broken: %w", j.broken)
	}
	line, err := appendJournalLine(nil, journalLine{key, record})
	if err != nil {
		return fmt.Errorf("encode a journal record: %w", err)
	}
	if _, err := j.f.Write(line); err != nil {
		return j.fail("write", err)
	}
	if sync {
		if err := j.f.Sync(); err != nil {
			return j.fail("sync", err)
		}
	}
	j.size += int64(len(line))
	j.keep(journalLine{key, record})
	if j.size > compactAt && j.size > 8*j.liveSize() {
		return j.compact()
	}
	return nil
}

func (j *Journal) fail(what string, err error) error {
	j.broken = fmt.Errorf("%s the journal: %w", what, err)
	return j.broken
}

func (j *Journal) liveSize() (n int64) {
	for k, v := range j.live {
		n += int64(len(k) + len(v) + 32)
	}
	return n
}

// compact writes the live records to a new file that replaces the old one whole.
func (j *Journal) compact() error {
	next := j.path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return j.fail("compact", err)
	}
	f, err := j.open(next)
	if err != nil {
		return j.fail("compact", err)
	}
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(j.live)) {
		if text, err = appendJournalLine(text, journalLine{key, j.live[key]}); err != nil {
			f.Close()
			return j.fail("compact", err)
		}
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync()); err == nil {
		err = os.Rename(next, j.path)
	}
	if err != nil {
		f.Close()
		return j.fail("compact", err)
	}
	j.f.Close()
	j.f, j.size = f, int64(len(text))
	if err := syncDir(filepath.Dir(j.path)); err != nil {
		return j.fail("compact", err)
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Records returns the newest record of each key.
func (j *Journal) Records() map[string]json.RawMessage { return maps.Clone(j.live) }

// Close makes everything durable.
func (j *Journal) Close() error {
	var err error
	if j.broken == nil {
		err = j.f.Sync()
	}
	if err = errors.Join(err, j.f.Close()); err != nil {
		return fmt.Errorf("close the journal: %w", err)
	}
	j.broken = errors.New("it is closed")
	return nil
}
