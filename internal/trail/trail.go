// Package trail remembers what left this node: which event went to whom, when, and under which grant. It is for the
// operator who asks, and never leaves the machine.
package trail

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// Departure is one event's going to one place.
type Departure struct {
	Event  nostr.ID  `json:"event"`
	Road   string    `json:"road"`             // "mesh", "bridge", "sync", "gateway"
	To     string    `json:"to"`               // a peer's DID or a relay's URL
	Grant  *nostr.ID `json:"grant,omitempty"`  // the peer's grant that it was charged to; mesh only
	Window int64     `json:"window,omitempty"` // of that grant
	At     int64     `json:"at"`               // unix seconds
}

// Book is a directory of text files, a JSON object a line, about 250 octets a departure: the current one, and older ones up to a
// number. When the current one is full the oldest goes, so that the book never grows beyond its bound. It is not synced at every
// line: a power cut may cost the last ones. A nil Book remembers nothing.
type Book struct {
	dir  string
	size int64 // octets of one file
	keep int   // files beside the current one

	mu   sync.Mutex
	f    *os.File
	used int64
}

// Bounds of a book: a million departures, more or less.
const (
	fileBytes = 64 << 20
	oldFiles  = 3
)

// Open opens or makes a book.
func Open(dir string) (*Book, error) { return open(dir, fileBytes, oldFiles) }

func open(dir string, size int64, keep int) (*Book, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the book of what left: %w", err)
	}
	b := &Book{dir: dir, size: size, keep: keep}
	if err := b.begin(); err != nil {
		return nil, fmt.Errorf("open the book of what left: %w", err)
	}
	return b, nil
}

func (b *Book) path(age int) string {
	if age == 0 {
		return filepath.Join(b.dir, "left.jsonl")
	}
	return filepath.Join(b.dir, fmt.Sprintf("left.%d.jsonl", age))
}

// begin opens the current file. A torn last line gets its end, so that the next one stands by itself.
func (b *Book) begin() error {
	f, err := os.OpenFile(b.path(0), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			_, err = f.Write([]byte("\n"))
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	b.f, b.used = f, st.Size()
	return nil
}

// Add writes departures down.
func (b *Book) Add(list ...Departure) error {
	if b == nil || len(list) == 0 {
		return nil
	}
	var text []byte
	for _, d := range list {
		line, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("write down what left: %w", err)
		}
		text = append(append(text, line...), '\n')
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used > 0 && b.used+int64(len(text)) > b.size {
		if err := b.turn(); err != nil {
			return fmt.Errorf("begin a new file of what left: %w", err)
		}
	}
	n, err := b.f.Write(text)
	b.used += int64(n)
	if err != nil {
		return fmt.Errorf("write down what left: %w", err)
	}
	return nil
}

// turn begins a new file; the oldest goes.
func (b *Book) turn() error {
	if err := b.f.Close(); err != nil {
		return err
	}
	for age := b.keep; age > 0; age-- {
		if err := os.Rename(b.path(age-1), b.path(age)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return b.begin()
}

// Of lists an event's departures, the earliest first. since is the time of the oldest line in the book, 0 for an empty one: what
// left before that is forgotten.
func (b *Book) Of(id nostr.ID) (list []Departure, since int64, err error) {
	if b == nil {
		return nil, 0, nil
	}
	word := []byte(id.String())
	for age := b.keep; age >= 0; age-- {
		err := b.scan(age, func(line []byte) {
			if since != 0 && !bytes.Contains(line, word) {
				return
			}
			var d Departure
			if json.Unmarshal(line, &d) != nil {
				return // torn
			}
			if since == 0 {
				since = d.At
			}
			if d.Event == id {
				list = append(list, d)
			}
		})
		if err != nil {
			return nil, 0, fmt.Errorf("read what left: %w", err)
		}
	}
	return list, since, nil
}

func (b *Book) scan(age int, line func([]byte)) error {
	f, err := os.Open(b.path(age))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		text, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // no line of ours is that long
		}
		if len(text) > 0 && err == nil {
			line(text)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Close closes the book. A second call is harmless.
func (b *Book) Close() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.f.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
