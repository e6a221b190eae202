package trail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
)

// Entry is one thing that happened between this node and a peer.
type Entry struct {
	At       int64  `json:"at"`   // unix seconds
	Peer     string `json:"peer"` // DID
	What     string `json:"what"`
	Window   int64  `json:"window,omitempty"`
	Severity string `json:"severity,omitempty"`
	Code     string `json:"code,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Slip     *Slip  `json:"slip,omitempty"`
}

// Slip is a receipt, or the answer to one.
type Slip struct {
	Way      string           `json:"way"`                // "sent": ours, of the peer's grant; "received": the peer's, of ours
	Head     string           `json:"head"`               // link of the receipt, 64 hex digits
	Receipt  json.RawMessage  `json:"receipt,omitempty"`  // as it travelled; of one that was made or taken
	Status   string           `json:"status,omitempty"`   // of an answer: accepted, divergent or final
	Measured map[string]int64 `json:"measured,omitempty"` // of an answer: what the issuer had counted
}

// Diary remembers entries in pages, about 300 octets each and a receipt's 1,000. A nil Diary remembers nothing.
type Diary struct {
	pages *pages

	mu     sync.Mutex
	minute int64
	said   map[string]int // entries of a peer in this minute
}

// Bounds of a diary. A peer that makes much ado must not push out what is remembered of the others: beyond so many entries of one peer in a minute
// the rest is left out, and receipts have an allowance of their own, since a chain with holes proves less.
const (
	diaryBytes     = 16 << 20
	diaryFiles     = 3
	mostEntries    = 120
	mostSlips      = 600
	mostRemembered = 20_000 // entries that one question is answered with, the newest
)

// OpenDiary opens or makes a diary.
func OpenDiary(dir string) (*Diary, error) { return openDiary(dir, diaryBytes, diaryFiles) }

func openDiary(dir string, size int64, keep int) (*Diary, error) {
	p, err := openPages(dir, "happened", size, keep)
	if err != nil {
		return nil, fmt.Errorf("open the diary of peers: %w", err)
	}
	return &Diary{pages: p, said: map[string]int{}}, nil
}

// Add writes an entry down.
func (d *Diary) Add(e Entry) error {
	if d == nil || !d.room(&e) {
		return nil
	}
	line, err := json.Marshal(e)
	if err == nil {
		err = d.pages.add(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write down what happened: %w", err)
	}
	return nil
}

func (d *Diary) room(e *Entry) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := e.At / 60; m != d.minute {
		d.minute, d.said = m, map[string]int{}
	}
	key, most := e.Peer, mostEntries
	if e.Slip != nil {
		key, most = "receipts of "+e.Peer, mostSlips
	}
	d.said[key]++
	return d.said[key] <= most
}

// Of lists what happened with a peer that keep says yes to, the earliest first and the newest 20,000 at most. since is the time of the oldest line in the
// diary, 0 for an empty one: what happened before that is forgotten. An empty peer stands for all.
func (d *Diary) Of(peer string, keep func(*Entry) bool) (list []Entry, since int64, err error) {
	if d == nil {
		return nil, 0, nil
	}
	word := []byte(peer)
	err = d.pages.scan(func(line []byte) {
		if since != 0 && !bytes.Contains(line, word) {
			return
		}
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			return // torn
		}
		if since == 0 {
			since = e.At
		}
		if (peer == "" || e.Peer == peer) && keep(&e) {
			if list = append(list, e); len(list) > mostRemembered {
				list = append(list[:0:0], list[mostRemembered/4:]...)
			}
		}
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read what happened: %w", err)
	}
	return list, since, nil
}

// Close closes the diary. A second call is harmless.
func (d *Diary) Close() error {
	if d == nil {
		return nil
	}
	return d.pages.close()
}
