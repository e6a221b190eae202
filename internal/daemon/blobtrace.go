package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/internal/blossom"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// TraceParams name an event whose blobs are looked for.
type TraceParams struct {
	Event string `json:"event"` // id, hex
}

// BlobPlace says of one place whether it has one blob.
type BlobPlace struct {
	SHA256 string `json:"sha256"`
	CID    string `json:"cid"`
	Place  string `json:"place"`           // "here", or the server's URL
	Holds  string `json:"holds"`           // yes, no, unanswered
	Cause  string `json:"cause,omitempty"` // of unanswered
}

// trace follows an event to the blobs that it names, and these to the places where they may be: here, and the servers of its author's
// list (BUD-03). It asks each place, and names those that do not answer. The event must be held here, so trace before it is purged.
func (n *node) trace(ctx context.Context, p TraceParams) ([]BlobPlace, error) {
	if n.blobs.server == nil {
		return nil, errNoBlobs
	}
	id, err := nostr.ParseID(p.Event)
	if err != nil {
		return nil, fmt.Errorf("event is no event id: %w", err)
	}
	now := time.Now().Unix()
	e, err := n.store.Get(ctx, id, now)
	if err != nil {
		return nil, fmt.Errorf("look the event up: %w", err)
	}
	servers, err := n.blobServers(ctx, e.PubKey, now)
	if err != nil {
		return nil, err
	}
	out := []BlobPlace{}
	for _, h := range blossom.Named(e) {
		at := func(place string, holds bool, err error) {
			line := BlobPlace{SHA256: h.String(), CID: h.CID(), Place: place, Holds: "no"}
			if holds {
				line.Holds = "yes"
			}
			if err != nil {
				line.Holds, line.Cause = "unanswered", err.Error()
			}
			out = append(out, line)
		}
		_, err := n.blobs.store.Stat(ctx, h)
		held := err == nil
		if errors.Is(err, blossom.ErrNotFound) || errors.Is(err, blossom.ErrBlocked) || errors.Is(err, blossom.ErrCorrupt) {
			err = nil
		}
		at("here", held, err)
		for _, s := range servers {
			holds, err := n.blobs.fetch.Holds(ctx, s, h)
			at(s, holds, err)
		}
	}
	return out, nil
}

// blobServers are the servers that a key says it keeps its blobs at.
func (n *node) blobServers(ctx context.Context, k nostr.PubKey, now int64) ([]string, error) {
	f := nostr.Filter{Authors: []nostr.PubKey{k}, Kinds: []nostr.Kind{blossom.KindServerList}}
	for e, err := range n.store.Query(ctx, []nostr.Filter{f}, store.View{}, 1, now) {
		if err != nil {
			return nil, fmt.Errorf("look for the author's servers: %w", err)
		}
		return blossom.Servers(e), nil
	}
	return nil, nil
}
