package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
)

// Provenance remembers by which path each event came through the mesh: for the envelope when it is passed on, and for the
// operator who asks why an event is here. It is a file of JSON lines and an index of places in memory, about a
// hundred octets an event. It can be lost: events then count as ours.
type Provenance struct {
	mu   sync.Mutex
	f    *os.File
	at   map[nostr.ID]int64
	size int64
}

// Origin is one event's way to us.
type Origin struct {
	Event  nostr.ID     `json:"event"`
	From   nostr.PubKey `json:"from"`
	Grant  nostr.ID     `json:"grant"`
	Window int64        `json:"window"`
	At     int64        `json:"at"`
	Path   []Hop        `json:"path"`
}

// Hop is ledger.Hop in text form.
type Hop struct {
	Node nostr.PubKey `json:"node"`
	At   int64        `json:"at"`
	Sig  string       `json:"sig"`
}

// OpenProvenance opens or makes the file. A torn last line is cut off.
func OpenProvenance(path string) (*Provenance, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the provenance: %w", err)
	}
	p := &Provenance{f: f, at: map[nostr.ID]int64{}}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("read the provenance: %w", err)
		}
		var o struct {
			Event nostr.ID `json:"event"`
		}
		if json.Unmarshal(line, &o) == nil {
			p.at[o.Event] = p.size
		}
		p.size += int64(len(line))
	}
	if err := f.Truncate(p.size); err != nil {
		f.Close()
		return nil, fmt.Errorf("cut the torn end of the provenance: %w", err)
	}
	return p, nil
}

// Put remembers the ways of some events.
func (p *Provenance) Put(list []Origin) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text []byte
	places := make([]int64, len(list))
	for i, o := range list {
		places[i] = p.size + int64(len(text))
		line, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("encode a provenance: %w", err)
		}
		text = append(append(text, line...), '\n')
	}
	if _, err := p.f.WriteAt(text, p.size); err != nil {
		return fmt.Errorf("write the provenance: %w", err)
	}
	p.size += int64(len(text))
	for i, o := range list {
		p.at[o.Event] = places[i]
	}
	return nil
}

// Get returns an event's way; ok is false for what did not come through the mesh.
func (p *Provenance) Get(id nostr.ID) (o Origin, ok bool, err error) {
	p.mu.Lock()
	at, ok := p.at[id]
	size := p.size
	p.mu.Unlock()
	if !ok {
		return o, false, nil
	}
	line, err := bufio.NewReader(io.NewSectionReader(p.f, at, size-at)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		return o, false, fmt.Errorf("read the provenance: %w", err)
	}
	return o, true, nil
}

// Window counts the events that came from a peer and are charged to a window of our grant to it, and names the last few.
func (p *Provenance) Window(from nostr.PubKey, window int64, few int) (n int, last []Origin, err error) {
	p.mu.Lock()
	size := p.size
	p.mu.Unlock()
	word := fmt.Appendf(nil, `"window":%d,`, window)
	r := bufio.NewReader(io.NewSectionReader(p.f, 0, size))
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return n, last, nil
		}
		if err != nil {
			return 0, nil, fmt.Errorf("read the provenance: %w", err)
		}
		var o Origin
		if !bytes.Contains(line, word) || json.Unmarshal(line, &o) != nil || o.From != from || o.Window != window {
			continue
		}
		n++
		if last = append(last, o); len(last) > few {
			last = last[1:]
		}
	}
}

// Holds reports whether an event came through the mesh.
func (p *Provenance) Holds(id nostr.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.at[id]
	return ok
}

// Path returns the hops of an event, none for what did not come through the mesh.
func (p *Provenance) Path(id nostr.ID) ([]ledger.Hop, error) {
	o, ok, err := p.Get(id)
	if err != nil || !ok {
		return nil, err
	}
	var path []ledger.Hop
	for _, h := range o.Path {
		sig, err := parseSig(h.Sig)
		if err != nil {
			return nil, err
		}
		path = append(path, ledger.Hop{Node: h.Node, At: h.At, Sig: sig})
	}
	return path, nil
}

// Close makes it durable.
func (p *Provenance) Close() error {
	err := errors.Join(p.f.Sync(), p.f.Close())
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
