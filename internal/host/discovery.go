package host

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// errRevoked is why nothing more is sent to a peer whose key its holder retired.
var errRevoked = errors.New("the peer's key was revoked by its holder")

// Learn takes up a descriptor that came from outside, such as a relay. It is verified here.
func (h *Host) Learn(e *nostr.Event) error {
	_, err := h.learn(e)
	return err
}

// Revoke ends everything with a key that its holder retired: the grant, the sessions, the streams, and what is queued. The caller has verified
// the revocation.
func (h *Host) Revoke(peer nostr.PubKey, reason string) {
	h.mu.Lock()
	h.makeRoom()
	h.revoked[peer] = true
	delete(h.peers, peer)
	h.stepLocked(mesh.Revoked{Peer: peer, Reason: reason})
	l := h.links[peer]
	for _, s := range h.sessions {
		if s.peer == peer {
			s.cancel()
		}
	}
	h.mu.Unlock()
	if l != nil {
		l.abandon()
	}
}

// maxAtHand bounds each of what is kept at hand about nodes that are no peers: descriptors, revocations, where to look. Keys are free.
const maxAtHand = 8192

// makeRoom drops what is kept about strangers where there is too much of it. Their descriptors are found again in the store, and whoever calls
// Revoke knows what it has revoked. h.mu is held.
func (h *Host) makeRoom() {
	if max(len(h.peers), len(h.revoked), len(h.hints), len(h.sought)) < maxAtHand {
		return
	}
	near := map[nostr.PubKey]bool{}
	for _, p := range h.node.Peers(Now()) {
		near[p.Key] = p.Stage != "known" || len(p.Wants) > 0
	}
	for key := range h.links {
		near[key] = true
	}
	for _, key := range h.mediators() {
		near[key] = true
	}
	stranger := func(key nostr.PubKey) bool { return !near[key] }
	forget(h.peers, stranger)
	forget(h.revoked, stranger)
	forget(h.hints, stranger)
	forget(h.sought, stranger)
}

// forget drops what is too much.
func forget[V any](m map[nostr.PubKey]V, stranger func(nostr.PubKey) bool) {
	if len(m) >= maxAtHand {
		maps.DeleteFunc(m, func(key nostr.PubKey, _ V) bool { return stranger(key) })
	}
}

// abandon closes the stream and drops what is queued.
func (l *link) abandon() {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	if len(queue) > 0 {
		close(l.idle)
	}
	l.mu.Unlock()
	for _, o := range queue {
		o.tell(errRevoked)
		l.h.sent(o)
	}
	l.close()
}

// gone reports whether a peer's key was revoked.
func (h *Host) gone(peer nostr.PubKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revoked[peer]
}

// AskPeers asks an active peer which other nodes it knows.
func (h *Host) AskPeers(peer nostr.PubKey, limit int) {
	h.step(mesh.AskPeers{Peer: peer, Limit: limit})
}

// Descriptor returns a node's live descriptor, looking elsewhere if it is not at hand.
func (h *Host) Descriptor(ctx context.Context, peer nostr.PubKey) (*identity.Descriptor, error) {
	return h.descriptor(ctx, peer, true)
}

// servePeers answers a peers-query. h.mu is held.
func (h *Host) servePeers(eff mesh.ServePeers) {
	answer := mesh.PeersBody{Descriptors: []json.RawMessage{}}
	if h.cfg.Known != nil {
		for _, e := range h.cfg.Known(eff.Limit) {
			if e.PubKey != eff.To {
				answer.Descriptors = append(answer.Descriptors, json.RawMessage(e.JSON()))
			}
		}
	}
	h.link(eff.To).enqueue(h.message(mesh.Send{To: eff.To, Type: spec.MsgPeeringPeers, ID: newID(), Thread: eff.Thread, Body: answer}), false)
}

// told hands the descriptors of an answer to the node, which verifies them. h.mu is held.
func (h *Host) told(eff mesh.PeersTold) {
	if h.cfg.Told == nil {
		return
	}
	var list []*nostr.Event
	for _, raw := range eff.Descriptors {
		if e, err := nostr.ParseEvent(raw); err == nil && e.Kind == spec.KindDescriptor {
			list = append(list, e)
		}
	}
	h.work.Go(func() { h.cfg.Told(h.ctx, eff.From, list) })
}

// invited says whether a proposal brings an invitation of ours that is good for its sender.
func (h *Host) invited(a *arrival) bool {
	if h.cfg.Invited == nil || spec.MessageType(a.m.Type) != spec.MsgPeeringPropose {
		return false
	}
	var body struct {
		Invitation string `json:"invitation"`
	}
	return a.m.DecodeBody(&body) == nil && body.Invitation != "" && h.cfg.Invited(body.Invitation, a.from)
}

// SetAgreement replaces the key that envelopes are sealed with. Envelopes to the former keys are opened still.
func (h *Host) SetAgreement(current *ecdh.PrivateKey, former []*ecdh.PrivateKey) {
	rings := make([]didcomm.Keys, 0, 1+len(former))
	for _, k := range append([]*ecdh.PrivateKey{current}, former...) {
		rings = append(rings, didcomm.Keys{h.self + agreementFragment: k})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cfg.Agreement, h.rings = current, rings
}

func (h *Host) agreement() *ecdh.PrivateKey {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cfg.Agreement
}

// unseal opens a frame with the present key or a former one. Where neither does and the sender says who it is, its descriptor is looked for anew:
// it may have changed its keys.
func (h *Host) unseal(frame []byte) (*didcomm.Unpacked, error) {
	u, err := h.tryKeys(frame)
	if err == nil || errors.Is(err, didcomm.ErrSyntax) {
		return u, err
	}
	if from, ok := senderOf(frame); ok && !h.gone(from) && h.seekAnew(h.ctx, from) {
		return h.tryKeys(frame)
	}
	return nil, err
}

func (h *Host) tryKeys(frame []byte) (u *didcomm.Unpacked, err error) {
	h.mu.Lock()
	rings := h.rings
	h.mu.Unlock()
	for _, keys := range rings {
		for former := range 2 {
			if u, err = didcomm.Unpack(frame, keys, resolver{h, former}); err == nil {
				return u, nil
			}
		}
	}
	return nil, err
}

// senderOf reads whom an envelope says it is from; nothing proves it.
func senderOf(frame []byte) (key nostr.PubKey, ok bool) {
	var outer struct {
		Protected string `json:"protected"`
	}
	var head struct {
		SKID string `json:"skid"`
	}
	if json.Unmarshal(frame, &outer) != nil {
		return key, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(outer.Protected)
	if err != nil || json.Unmarshal(raw, &head) != nil || head.SKID == "" {
		return key, false
	}
	key, _, err = identity.ParseDIDURL(head.SKID)
	return key, err == nil
}

// seekPause is how long after a search for a peer's descriptor the next one may begin.
const seekPause = 15 * time.Second

// seekAnew looks for a peer's descriptor elsewhere although one is at hand, and reports whether it found a newer one. It does so for peers and
// not more often than every seekPause.
func (h *Host) seekAnew(ctx context.Context, peer nostr.PubKey) bool {
	h.mu.Lock()
	old, hints := h.peers[peer], h.hints[peer]
	now := Now()
	known := old != nil || slices.ContainsFunc(h.node.Peers(now), func(p mesh.Peer) bool { return p.Key == peer })
	if !known || now.Sub(h.sought[peer]) < seekPause || h.cfg.Find == nil || h.revoked[peer] {
		h.mu.Unlock()
		return false
	}
	h.sought[peer] = now
	h.mu.Unlock()
	e, err := h.cfg.Find(ctx, peer, hints)
	if err != nil || e.PubKey != peer {
		return false
	}
	d, err := h.learn(e)
	if err != nil || (old != nil && d.CreatedAt <= old.CreatedAt) {
		return false
	}
	_, err = h.cfg.Take(ctx, []*nostr.Event{e})
	return err == nil
}

// Announce tells every peer of our new descriptor: an anonymous ping that has it attached, ahead of what is sealed with new keys or comes from a
// new address.
func (h *Host) Announce() {
	d := h.cfg.Descriptor()
	if d == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.node.Peers(Now()) {
		if p.Stage != "active" || h.revoked[p.Key] {
			continue
		}
		m, err := didcomm.NewPing(newID(), h.self, identity.FormatDID(p.Key), Now().Unix(), false)
		if err != nil {
			h.cfg.Log.Error("build a ping", "err", err)
			return
		}
		m.Attachments = append(m.Attachments, didcomm.JSONAttachment(attachDescriptor, d.JSON()))
		h.link(p.Key).enqueue(m, true)
	}
}
