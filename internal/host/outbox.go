package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// outKey begins the journal keys of messages that must survive a restart: they are the host's, and mesh never sees them.
const outKey = "out/"

// durableLife is how long a durable message is worth delivering, as long as relays are asked to keep a stored gift wrap.
const durableLife = 7 * 24 * time.Hour

// outRecord is a durable message in the journal.
type outRecord struct {
	To        nostr.PubKey    `json:"to"`
	Anonymous bool            `json:"anonymous,omitempty"`
	Message   json.RawMessage `json:"message"`
}

// wayKey begins the journal keys of the rungs that carried the last session with a peer: nodes remember them (§ Transports).
const wayKey = "way/"

// takeWays removes the remembered rungs from the records that mesh is restored from.
func takeWays(records map[string]json.RawMessage) map[nostr.PubKey]transport.Endpoint {
	ways := map[nostr.PubKey]transport.Endpoint{}
	for key, record := range records {
		name, ok := strings.CutPrefix(key, wayKey)
		if !ok {
			continue
		}
		delete(records, key)
		var ep transport.Endpoint
		if peer, err := nostr.ParsePubKey(name); err == nil && json.Unmarshal(record, &ep) == nil {
			ways[peer] = ep
		}
	}
	return ways
}

// remember notes which rung held, across restarts for a peer.
func (l *link) remember(ep transport.Endpoint) {
	l.mu.Lock()
	l.last = ep
	l.mu.Unlock()
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	peer := slices.ContainsFunc(h.node.Peers(Now()), func(p mesh.Peer) bool { return p.Key == l.peer && p.Stage == "active" })
	if !peer || h.ways[l.peer] == ep || h.failed != nil {
		return
	}
	h.ways[l.peer] = ep
	record, err := json.Marshal(ep)
	if err == nil {
		err = h.journal.Put(wayKey+l.peer.String(), record, false)
	}
	if err != nil {
		h.cfg.Log.Error("remember a rung; the state is taken up from the journal", "err", err)
		h.recover()
	}
}

// takeOut removes the durable messages from the records that mesh is restored from.
func takeOut(records map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for key, record := range records {
		if strings.HasPrefix(key, outKey) {
			out[key] = record
			delete(records, key)
		}
	}
	return out
}

// post queues what mesh wants sent. A durable message is in the journal before it is queued, and leaves it when a carrier has taken it: sent
// twice after a crash, which the receiver notices, but never lost. h.mu is held.
func (h *Host) post(s mesh.Send) error {
	m := h.message(s)
	if m == nil {
		return nil
	}
	o := &outgoing{m: m, anonymous: s.First, created: m.CreatedTime}
	if s.Durable {
		m.ExpiresTime = m.CreatedTime + int64(durableLife.Seconds())
		o.until = m.ExpiresTime
		text, err := m.JSON()
		if err != nil {
			return fmt.Errorf("keep a message: %w", err)
		}
		record, err := json.Marshal(outRecord{To: s.To, Anonymous: s.First, Message: text})
		if err != nil {
			return fmt.Errorf("keep a message: %w", err)
		}
		o.key = outKey + m.ID
		if err := h.journal.Put(o.key, record, true); err != nil {
			return fmt.Errorf("keep a message: %w", err)
		}
	}
	h.link(s.To).push(o)
	return nil
}

// postAgain takes up a durable message whose record failed, now that the journal is open again: what mesh decided before it stands, so it has to
// be said. h.mu is held.
func (h *Host) postAgain(eff mesh.Effect) {
	s, ok := eff.(mesh.Send)
	if !ok || !s.Durable || h.failed != nil || h.queued(s.To, outKey+s.ID) {
		return
	}
	if err := h.post(s); err != nil {
		h.cfg.Log.Error("a message is lost with the journal's record of it", "type", s.Type, "err", err)
	}
}

func (h *Host) queued(peer nostr.PubKey, key string) bool {
	l := h.links[peer]
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.queue, func(o *outgoing) bool { return o.key == key })
}

// requeue queues the durable messages that the journal holds and nobody has queued yet. h.mu is held.
func (h *Host) requeue() {
	list := make([]*outgoing, 0, len(h.waiting))
	to := map[*outgoing]nostr.PubKey{}
	for _, key := range slices.Sorted(maps.Keys(h.waiting)) {
		var r outRecord
		if err := json.Unmarshal(h.waiting[key], &r); err != nil {
			h.cfg.Log.Error("a message in the journal cannot be read", "key", key, "err", err)
			continue
		}
		m, err := didcomm.ParseMessage(r.Message)
		if err != nil {
			h.cfg.Log.Error("a message in the journal cannot be read", "key", key, "err", err)
			continue
		}
		if !h.queued(r.To, key) {
			o := &outgoing{m: m, anonymous: r.Anonymous, created: m.CreatedTime, key: key, until: m.ExpiresTime}
			list, to[o] = append(list, o), r.To
		}
	}
	h.waiting = nil
	slices.SortStableFunc(list, func(a, b *outgoing) int { return int(a.created - b.created) })
	for _, o := range list {
		h.link(to[o]).push(o)
	}
}

// sent forgets a message that a carrier has taken, or that never will be. It is not made durable: at worst it is sent once more.
func (h *Host) sent(o *outgoing) {
	if o.key == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		return
	}
	if err := h.journal.Put(o.key, nil, false); err != nil {
		h.cfg.Log.Error("forget a message that was sent; the state is taken up from the journal", "err", err)
		h.recover()
	}
}

// undeliverable lets a message go that no carrier takes, and says so: nothing behind it has to wait.
func (h *Host) undeliverable(peer nostr.PubKey, o *outgoing, err error) {
	h.sent(o)
	what := "a frame"
	if o.m != nil {
		what = o.m.Type
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(mesh.Tell{Peer: peer, What: "undeliverable", Detail: fmt.Sprintf("%s: %v", what, err)})
}
