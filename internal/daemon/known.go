package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// KnownNode is a node that this one has heard of, as its newest verified descriptor says.
type KnownNode struct {
	DID        string              `json:"did"`
	From       string              `json:"learned_from"` // "relay URL", "bootstrap URL", "dns seed URL", "peer DID", "this relay", "invitation", "operator"
	First      int64               `json:"first_seen"`   // unix seconds, as are those below
	Seen       int64               `json:"last_seen"`    // when its newest descriptor was seen first
	Heard      int64               `json:"last_heartbeat,omitempty"`
	Class      string              `json:"class"`
	Operator   string              `json:"operator,omitempty"`
	Endpoints  []identity.Endpoint `json:"endpoints"`
	Descriptor nostr.ID            `json:"descriptor"`
	Created    int64               `json:"created_at"`
	Expires    int64               `json:"expires_at"`
	Work       int                 `json:"pow_bits"`
	Digest     string              `json:"schema_digest"`
	Revoked    int64               `json:"revoked_at,omitempty"` // 0: not
	Reason     string              `json:"revoked_reason,omitempty"`
	Successor  string              `json:"successor,omitempty"` // advisory: it inherits nothing
	Live       bool                `json:"live"`                // at the time of the answer
	Peer       bool                `json:"peer"`                // a peering stands

	event  *nostr.Event // the descriptor, where it is at hand
	sought int64        // when a heartbeat last made us look for a newer one
}

// maxKnown bounds the table. Beyond it the node whose descriptor ended first goes; those that are revoked stay longest.
const maxKnown = 10_000

// knownNodes is the table of nodes, and its file. It is safe for concurrent use.
type knownNodes struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	nodes map[nostr.PubKey]*KnownNode
	dirty bool
}

// openKnown reads the table. A file that cannot be read is an error: it would be overwritten.
func openKnown(path string, log *slog.Logger) (*knownNodes, error) {
	k := &knownNodes{path: path, log: log, nodes: map[nostr.PubKey]*KnownNode{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the known nodes: %w", err)
	}
	var list []*KnownNode
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the known nodes: %s: %w", path, err)
	}
	for _, n := range list {
		key, err := identity.ParseDID(n.DID)
		if err != nil {
			return nil, fmt.Errorf("read the known nodes: %s: %w", path, err)
		}
		k.nodes[key] = n
	}
	return k, nil
}

// learn takes note of a verified descriptor. It reports whether it is new, and newer than what was known.
func (k *knownNodes) learn(d *identity.Descriptor, e *nostr.Event, from string, now int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[d.Subject]
	if n == nil {
		n = &KnownNode{DID: identity.FormatDID(d.Subject), From: from, First: now}
		k.makeRoom()
		k.nodes[d.Subject] = n
	}
	if n.Descriptor == e.ID || n.Created > d.CreatedAt {
		if n.event == nil && n.Descriptor == e.ID {
			n.event = e
		}
		return false
	}
	n.Seen, n.Class, n.Endpoints, n.Descriptor, n.Created, n.Expires = now, string(d.Class), slices.Clone(d.Endpoints), e.ID, d.CreatedAt, d.Expiration
	n.Work, n.Digest, n.event, n.Operator = min(d.Work, d.Committed), d.Digest, e, ""
	if d.Operator != (nostr.PubKey{}) {
		n.Operator = d.Operator.String()
	}
	k.dirty = true
	return true
}

// makeRoom drops the node whose descriptor ended first. k.mu is held.
func (k *knownNodes) makeRoom() {
	if len(k.nodes) < maxKnown {
		return
	}
	var worst nostr.PubKey
	var least *KnownNode
	for key, n := range k.nodes {
		if n.Revoked == 0 && (least == nil || n.Expires < least.Expires) {
			worst, least = key, n
		}
	}
	if least == nil {
		for key, n := range k.nodes {
			if least == nil || n.Revoked < least.Revoked {
				worst, least = key, n
			}
		}
	}
	delete(k.nodes, worst)
}

// revoke takes note of a verified revocation, and reports whether it was new.
func (k *knownNodes) revoke(r *identity.Revocation, from string, now int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[r.Subject]
	if n == nil {
		n = &KnownNode{DID: identity.FormatDID(r.Subject), From: from, First: now, Endpoints: []identity.Endpoint{}}
		k.makeRoom()
		k.nodes[r.Subject] = n
	}
	if n.Revoked != 0 {
		return false
	}
	n.Revoked, n.Reason, n.event = max(r.At, 1), r.Reason, nil
	if r.Successor != (nostr.PubKey{}) {
		n.Successor = identity.FormatDID(r.Successor)
	}
	k.dirty = true
	return true
}

// revoked reports whether a key was ever seen revoked.
func (k *knownNodes) revoked(key nostr.PubKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[key]
	return n != nil && n.Revoked != 0
}

// list returns the table, the nodes seen last first.
func (k *knownNodes) list(now int64) []KnownNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]KnownNode, 0, len(k.nodes))
	for _, n := range k.nodes {
		c := *n
		c.Live = c.Revoked == 0 && now < c.Expires
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b KnownNode) int { return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.DID, b.DID)) })
	return out
}

// descriptors returns up to limit live descriptors, the newest first: what a peer that asks is told.
func (k *knownNodes) descriptors(limit int, now int64) []*nostr.Event {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*KnownNode
	for _, n := range k.nodes {
		if n.event != nil && n.Revoked == 0 && now < n.Expires {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *KnownNode) int { return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(a.DID, b.DID)) })
	var out []*nostr.Event
	for _, n := range list[:min(limit, len(list))] {
		out = append(out, n.event)
	}
	return out
}

// save writes the table, if it changed.
func (k *knownNodes) save() {
	k.mu.Lock()
	if !k.dirty {
		k.mu.Unlock()
		return
	}
	k.dirty = false
	list := make([]*KnownNode, 0, len(k.nodes))
	for _, n := range k.nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *KnownNode) int { return cmp.Compare(a.DID, b.DID) })
	text, err := json.MarshalIndent(list, "", " ")
	k.mu.Unlock()
	if err == nil {
		err = writeFile(k.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		k.mu.Lock()
		k.dirty = true
		k.mu.Unlock()
		k.log.Warn("write the known nodes", "err", err)
	}
}
