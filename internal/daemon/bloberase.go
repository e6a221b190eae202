package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"fleetmesh.org/fleetmesh/internal/blossom"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Why a blob went with an event.
const (
	blobDeleted  = "deleted"  // its author deleted the event that named it (NIP-09)
	blobVanished = "vanished" // its owner asked to vanish (NIP-62)
)

// blobFollow is how many deletions may wait for their blobs to be looked through.
const blobFollow = 4096

// followErasures lets blobs go with the events that named them: where an author deletes events, the blobs that it owns here and that no event
// names any more; where it vanishes, all that it owns here.
func (n *node) followErasures(ctx context.Context) {
	if n.blobs.server == nil {
		return
	}
	feed := n.relay.Follow([]nostr.Filter{{Kinds: []nostr.Kind{5, 62}}}, blobFollow)
	defer feed.Close()
	rules := store.Rules{OwnURLs: append([]string{n.url}, n.cfg().Spec.Relay.PublicURLs...)}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-feed.Events():
			reason := blobDeleted
			if e.Kind == 62 {
				if reason = blobVanished; !rules.IsVanish(e) {
					continue
				}
			}
			if err := n.releaseBlobs(ctx, e, reason); err != nil && ctx.Err() == nil {
				n.log.Error("let blobs go with a deleted event", "err", err)
			}
			if lost := feed.Lost(); lost > 0 {
				n.log.Warn("deletions came faster than blobs could be looked through; use blobs.erase for what was missed", "deletions", lost)
			}
		}
	}
}

// releaseBlobs looks through what the author of a deletion or vanish request owns.
func (n *node) releaseBlobs(ctx context.Context, e *nostr.Event, reason string) error {
	owned, err := n.blobs.store.List(ctx, e.PubKey)
	if err != nil {
		return fmt.Errorf("list the author's blobs: %w", err)
	}
	for _, m := range owned {
		if reason == blobDeleted {
			// Blobs that need no event may never have had one.
			if n.cfg().Spec.Blobs.WithoutEvent {
				return nil
			}
			named, err := n.blobHasEvent(ctx, m.Hash, e.PubKey)
			if err != nil {
				return err
			}
			if named {
				continue
			}
		}
		a, err := n.blobs.server.Release(ctx, e.PubKey, blossom.Erasure{Hash: m.Hash, Event: e.ID.String(), Reason: reason})
		if a != nil {
			err = errors.Join(err, n.blobs.answers.add(a))
		}
		if err != nil {
			return fmt.Errorf("let a blob go: %w", err)
		}
	}
	return nil
}

// blobAnswers is the book of this place's signed answers about erasures: a line of JSON each, in the order in which they were given.
type blobAnswers struct {
	path string
	mu   sync.Mutex
}

func newBlobAnswers(dir string) *blobAnswers {
	return &blobAnswers{path: filepath.Join(dir, "erasures.jsonl")}
}

// add writes an answer down durably.
func (b *blobAnswers) add(a *blossom.Answer) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write down the answer about an erasure: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write down the answer about an erasure: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write down the answer about an erasure: %w", err)
	}
	return nil
}

// ErasuresParams choose answers: those about one blob (hash or CID) or one event, or all.
type ErasuresParams struct {
	Blob  string `json:"blob,omitempty"`
	Event string `json:"event,omitempty"`
}

// list reads the answers, the oldest first. A line that a crash cut is left out.
func (b *blobAnswers) list(p ErasuresParams) ([]blossom.Answer, error) {
	out := []blossom.Answer{}
	f, err := os.Open(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the answers about erasures: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var a blossom.Answer
		if json.Unmarshal(lines.Bytes(), &a) != nil || (p.Blob != "" && p.Blob != a.SHA256 && p.Blob != a.CID) || (p.Event != "" && p.Event != a.Event) {
			continue
		}
		out = append(out, a)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the answers about erasures: %w", err)
	}
	return out, nil
}

func (b *blobFace) erasures(_ context.Context, p ErasuresParams) ([]blossom.Answer, error) {
	if b.server == nil {
		return nil, errNoBlobs
	}
	return b.answers.list(p)
}
