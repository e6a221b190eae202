package border

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// Origin is where in the mesh an event came from. It is written down before the event is kept, so that nothing is in
// quarantine without it.
type Origin struct {
	Event nostr.ID `json:"event"`
	Relay string   `json:"relay"`          // the mesh node's relay URL
	Node  string   `json:"node,omitempty"` // its DID, as its information document (NIP-11 self) says
	At    int64    `json:"at"`             // unix seconds
}

// origins is a file of JSON lines, and the same in memory. What is no longer held is left out when it is opened.
type origins struct {
	mu    sync.Mutex
	f     *os.File
	known map[nostr.ID]Origin
}

func openOrigins(path string, held func(nostr.ID) bool) (*origins, error) {
	o := &origins{known: map[nostr.ID]Origin{}}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the origins: %w", err)
	}
	var keep []byte
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var one Origin
		if json.Unmarshal(lines.Bytes(), &one) != nil || !held(one.Event) {
			continue // torn, or gone
		}
		if _, twice := o.known[one.Event]; !twice {
			o.known[one.Event] = one
			keep = append(append(keep, lines.Bytes()...), '\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the origins: %w", err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, keep, 0o600); err != nil {
		return nil, fmt.Errorf("rewrite the origins: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, fmt.Errorf("rewrite the origins: %w", err)
	}
	if o.f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("open the origins: %w", err)
	}
	return o, nil
}

// add writes down where events came from; the first origin of an event stands.
func (o *origins) add(list []Origin) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var text []byte
	fresh := list[:0:0]
	for _, one := range list {
		if _, known := o.known[one.Event]; known {
			continue
		}
		line, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("write an origin: %w", err)
		}
		fresh = append(fresh, one)
		text = append(append(text, line...), '\n')
	}
	if len(text) == 0 {
		return nil
	}
	if _, err := o.f.Write(text); err != nil {
		return fmt.Errorf("write an origin: %w", err)
	}
	if err := o.f.Sync(); err != nil {
		return fmt.Errorf("write an origin: %w", err)
	}
	for _, one := range fresh {
		o.known[one.Event] = one
	}
	return nil
}

func (o *origins) get(id nostr.ID) (Origin, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok := o.known[id]
	return one, ok
}

func (o *origins) close() error { return o.f.Close() }
