// Package trail remembers what left this node, which event went to whom, when, and under which grant; and what happened between this node and its
// peers. It is for the operator who asks, and never leaves the machine.
package trail

import (
	"bytes"
	"encoding/json"
	"fmt"

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

// Book remembers departures in pages. A nil Book remembers nothing.
type Book struct{ pages *pages }

// Bounds of a book: a million departures, more or less.
const (
	fileBytes = 64 << 20
	oldFiles  = 3
)

// Open opens or makes a book.
func Open(dir string) (*Book, error) { return open(dir, fileBytes, oldFiles) }

func open(dir string, size int64, keep int) (*Book, error) {
	p, err := openPages(dir, "left", size, keep)
	if err != nil {
		return nil, fmt.Errorf("open the book of what left: %w", err)
	}
	return &Book{p}, nil
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
	if err := b.pages.add(text); err != nil {
		return fmt.Errorf("write down what left: %w", err)
	}
	return nil
}

// Of lists an event's departures, the earliest first. since is the time of the oldest line in the book, 0 for an empty one: what
// left before that is forgotten.
func (b *Book) Of(id nostr.ID) (list []Departure, since int64, err error) {
	if b == nil {
		return nil, 0, nil
	}
	word := []byte(id.String())
	err = b.pages.scan(func(line []byte) {
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
	return list, since, nil
}

// Window counts what went to a peer in one window of its grants, and names the last few of it.
func (b *Book) Window(to string, window int64, few int) (n int, last []Departure, err error) {
	if b == nil {
		return 0, nil, nil
	}
	word := fmt.Appendf(nil, `"window":%d,`, window)
	err = b.pages.scan(func(line []byte) {
		var d Departure
		if !bytes.Contains(line, word) || json.Unmarshal(line, &d) != nil || d.To != to || d.Window != window {
			return
		}
		n++
		if last = append(last, d); len(last) > few {
			last = last[1:]
		}
	})
	if err != nil {
		return 0, nil, fmt.Errorf("read what left: %w", err)
	}
	return n, last, nil
}

// Close closes the book. A second call is harmless.
func (b *Book) Close() error {
	if b == nil {
		return nil
	}
	return b.pages.close()
}
