package policy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// TrustConfig says whom a Trust lets in: the roots, those whom they follow (NIP-02), those whom these follow, and so on.
type TrustConfig struct {
	Roots []nostr.PubKey
	Depth int     // steps from a root; 0 means the roots alone
	Keep  float64 // the share of the list in force that a new one must have, or it is not taken up; 0 takes up every list
	Path  string  // where the list in force is kept over a restart; "" keeps it nowhere
	Knob  string  // named in refusals, such as "spec.pluginIn"
}

// Trust is a web of trust from a follow graph. Its list is made by Refresh, and replaced as a whole. A list
// that shrinks more than Keep allows is not taken up: follow lists that could not be fetched must not lock
// out those who are on them.
type Trust struct {
	cfg  TrustConfig
	list atomic.Pointer[map[nostr.PubKey]struct{}]
	busy sync.Mutex // one Refresh at a time
	last atomic.Pointer[TrustReport]
}

// TrustReport says what a Refresh did.
type TrustReport struct {
	At     int64 `json:"at"`     // unix seconds
	Before int   `json:"before"` // keys on the list in force before
	Found  int   `json:"found"`  // keys found now
	Lists  int   `json:"lists"`  // follow lists read
	Shrunk bool  `json:"shrunk"` // the old list stays in force: what was found is too little of it
}

const kindFollows nostr.Kind = 3

// maxTrusted bounds a list: a million keys are 32 MiB.
const maxTrusted = 1_000_000

// NewTrust makes the policy with the list that was kept, else with the roots alone.
func NewTrust(cfg TrustConfig) (*Trust, error) {
	t := &Trust{cfg: cfg}
	list := make(map[nostr.PubKey]struct{})
	if cfg.Path != "" {
		if err := readKeys(cfg.Path, list); err != nil {
			return nil, fmt.Errorf("read the web of trust: %w", err)
		}
	}
	for _, k := range cfg.Roots {
		list[k] = struct{}{}
	}
	t.list.Store(&list)
	t.last.Store(new(TrustReport))
	return t, nil
}

// Admit implements Policy. A request to vanish (NIP-62) is heard from anybody.
func (t *Trust) Admit(_ context.Context, r *Request) *Rejection {
	if _, ok := (*t.list.Load())[r.Event.PubKey]; ok || r.Event.Kind == kindVanish {
		return nil
	}
	return Reject(Restricted, "the author is not within %d steps of the keys that are trusted here (%s.trust)", t.cfg.Depth, t.cfg.Knob)
}

// Static says that Trust may be asked before the signature is checked.
func (t *Trust) Static() bool { return true }

// Describe implements Described.
func (t *Trust) Describe(d *Demands) { d.RestrictedWrites = true }

// Len is the number of keys on the list in force.
func (t *Trust) Len() int { return len(*t.list.Load()) }

// Last tells of the latest Refresh; its zero value says that there was none yet.
func (t *Trust) Last() TrustReport { return *t.last.Load() }

// Refresh makes the list anew from the follow lists in the store. Shrunk in the report is for an alarm.
func (t *Trust) Refresh(ctx context.Context, s store.Store, now int64) (TrustReport, error) {
	t.busy.Lock()
	defer t.busy.Unlock()
	found := make(map[nostr.PubKey]struct{}, t.Len())
	rep := TrustReport{At: now, Before: t.Len()}
	level := t.cfg.Roots
	for _, k := range level {
		found[k] = struct{}{}
	}
	for range t.cfg.Depth {
		var next []nostr.PubKey
		for len(level) > 0 {
			n := min(len(level), 500)
			f := nostr.Filter{Kinds: []nostr.Kind{kindFollows}, Authors: level[:n]}
			level = level[n:]
			for e, err := range s.Query(ctx, []nostr.Filter{f}, store.View{}, 0, now) {
				if err != nil {
					return rep, fmt.Errorf("read follow lists: %w", err)
				}
				rep.Lists++
				for v := range e.TagValues("p") {
					k, err := nostr.ParsePubKey(v)
					if _, known := found[k]; err != nil || known || len(found) >= maxTrusted {
						continue
					}
					found[k] = struct{}{}
					next = append(next, k)
				}
			}
		}
		level = next
	}
	rep.Found = len(found)
	rep.Shrunk = float64(rep.Found) < t.cfg.Keep*float64(rep.Before)
	t.last.Store(&rep)
	if rep.Shrunk {
		return rep, nil
	}
	t.list.Store(&found)
	if t.cfg.Path == "" {
		return rep, nil
	}
	if err := writeKeys(t.cfg.Path, found); err != nil {
		return rep, fmt.Errorf("keep the web of trust: %w", err)
	}
	return rep, nil
}

func readKeys(path string, into map[nostr.PubKey]struct{}) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for no := 1; lines.Scan(); no++ {
		k, err := nostr.ParsePubKey(lines.Text())
		if err != nil {
			return fmt.Errorf("%s, line %d: %w: delete the file to begin anew", path, no, err)
		}
		into[k] = struct{}{}
	}
	return lines.Err()
}

// writeKeys replaces the file whole, or leaves it as it was.
func writeKeys(path string, keys map[nostr.PubKey]struct{}) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriter(f)
	for k := range keys {
		fmt.Fprintln(w, k) // the error stays until Flush
	}
	if err := errors.Join(w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
