package host

import (
	"context"
	"crypto"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// agreementFragment names the agreement key in a did:nostr document (§ Identity).
const agreementFragment = "#agree"

// Ids of attachments, so that a receiver knows what it holds.
const (
	attachDescriptor = "descriptor"
	attachGrant      = "grant"
	attachEnvelope   = "envelope"
)

// newID draws a message id.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// message builds what mesh wants sent. An error in it is a bug of ours, so it is logged and the message left out.
func (h *Host) message(s mesh.Send) *didcomm.Message {
	m := &didcomm.Message{ID: s.ID, Type: string(s.Type), From: h.self, To: []string{identity.FormatDID(s.To)}, ThreadID: s.Thread, CreatedTime: Now().Unix()}
	raw, err := body(s.Body)
	if err != nil {
		h.cfg.Log.Error("build a message", "type", s.Type, "err", err)
		return nil
	}
	m.Body = raw
	if s.First {
		if d := h.cfg.Descriptor(); d != nil {
			m.Attachments = append(m.Attachments, didcomm.JSONAttachment(attachDescriptor, d.JSON()))
		}
	}
	for _, id := range s.Grants {
		e, err := h.cfg.Store.Get(h.ctx, id, Now().Unix())
		if err != nil {
			h.cfg.Log.Error("attach a grant", "grant", id.String(), "err", err)
			continue
		}
		m.Attachments = append(m.Attachments, didcomm.JSONAttachment(attachGrant, e.JSON()))
	}
	return m
}

func (h *Host) problem(s mesh.SendProblem) *didcomm.Message {
	cause := &didcomm.Message{ID: "", From: identity.FormatDID(s.To), ThreadID: s.Thread}
	if s.Thread == "" {
		cause.ThreadID = newID()
	}
	m, err := didcomm.NewProblemReport(newID(), h.self, s.Created, cause, didcomm.Problem{Code: s.Code.Refusal().Problem, Comment: s.Code.Refusal().Meaning})
	if err != nil {
		h.cfg.Log.Error("build a problem report", "code", s.Code, "err", err)
		return nil
	}
	m.To = []string{identity.FormatDID(s.To)}
	return m
}

// pack seals a message to a peer. An anonymous one is for a first contact.
func (h *Host) pack(ctx context.Context, peer nostr.PubKey, m *didcomm.Message, anonymous bool) ([]byte, error) {
	if anonymous {
		return h.sealAs(ctx, peer, m, didcomm.PackOptions{})
	}
	return h.seal(ctx, peer, m, didcomm.PackOptions{})
}

// seal seals a message from us to a peer.
func (h *Host) seal(ctx context.Context, peer nostr.PubKey, m *didcomm.Message, opt didcomm.PackOptions) ([]byte, error) {
	opt.From = &didcomm.Sender{KID: h.self + agreementFragment, Key: h.agreement()}
	opt.ShowSender = len(h.via(ctx, peer)) == 0 // else a mediator reads who sent it
	return h.sealAs(ctx, peer, m, opt)
}

// sealAs seals a message to a peer from whoever opt says.
func (h *Host) sealAs(ctx context.Context, peer nostr.PubKey, m *didcomm.Message, opt didcomm.PackOptions) ([]byte, error) {
	d, err := h.descriptor(ctx, peer, false)
	if err != nil {
		return nil, err
	}
	to, err := agreementOf(d, Now().Unix())
	if err != nil {
		return nil, err
	}
	opt.To = []didcomm.PublicKey{to}
	frame, err := didcomm.Pack(m, opt)
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", m.Type, err)
	}
	return frame, nil
}

func agreementOf(d *identity.Descriptor, now int64) (didcomm.PublicKey, error) {
	k, ok := d.AgreementAt(now)
	if !ok {
		return didcomm.PublicKey{}, errors.New("the peer's descriptor has no live agreement key")
	}
	pub, err := ecdh.X25519().NewPublicKey(k[:])
	if err != nil {
		return didcomm.PublicKey{}, fmt.Errorf("the peer's agreement key: %w", err)
	}
	return didcomm.PublicKey{KID: identity.FormatDID(d.Subject) + agreementFragment, Key: pub}, nil
}

// agreementsOf returns every live agreement key: during a rotation a peer may still seal with the former one.
func agreementsOf(d *identity.Descriptor, now int64) (keys []didcomm.PublicKey, err error) {
	for _, k := range d.Agreement {
		if k.Expires != 0 && now >= k.Expires {
			continue
		}
		one := *d
		one.Agreement = []identity.BoundKey{k}
		pub, err := agreementOf(&one, now)
		if err != nil {
			return nil, err
		}
		keys = append(keys, pub)
	}
	if len(keys) == 0 {
		_, err = agreementOf(d, now)
	}
	return keys, err
}

// resolver answers from live descriptors alone.
type resolver struct {
	h      *Host
	former int // how many of a sender's keys are passed over: an envelope does not say by which of them it is sealed
}

// AgreementKeys implements didcomm.Resolver.
func (r resolver) AgreementKeys(didOrKID string) ([]didcomm.PublicKey, error) {
	key, fragment, err := identity.ParseDIDURL(didOrKID)
	if err != nil {
		return nil, err
	}
	if fragment != "" && fragment != strings.TrimPrefix(agreementFragment, "#") {
		return nil, fmt.Errorf("no agreement key %q", fragment)
	}
	d, err := r.h.descriptor(r.h.ctx, key, false)
	if err != nil {
		return nil, err
	}
	keys, err := agreementsOf(d, Now().Unix())
	if err != nil {
		return nil, err
	}
	return keys[min(r.former, len(keys)):], nil
}

// VerificationKey implements didcomm.Resolver; nothing of ours is signed for third parties by DIDComm.
func (resolver) VerificationKey(kid string) (crypto.PublicKey, error) {
	return nil, errors.New("signed messages are not used between nodes")
}

// descriptor returns a peer's live descriptor: remembered, from the store, or, if seek, found elsewhere. What is new goes to mesh.
func (h *Host) descriptor(ctx context.Context, peer nostr.PubKey, seek bool) (*identity.Descriptor, error) {
	now := Now().Unix()
	h.mu.Lock()
	d, hints, gone := h.peers[peer], h.hints[peer], h.revoked[peer]
	h.mu.Unlock()
	if gone {
		return nil, errRevoked
	}
	if d != nil && d.LiveAt(now) && !seek {
		return d, nil
	}
	filter := nostr.Filter{Kinds: []nostr.Kind{spec.KindDescriptor}, Authors: []nostr.PubKey{peer}}
	for e, err := range h.cfg.Store.Query(ctx, []nostr.Filter{filter}, store.View{}, 1, now) {
		if err != nil {
			return nil, fmt.Errorf("look for a descriptor: %w", err)
		}
		if d, err := h.learn(e); err == nil {
			return d, nil
		}
	}
	if !seek || h.cfg.Find == nil {
		return nil, fmt.Errorf("no live descriptor of %s is known", identity.FormatDID(peer))
	}
	e, err := h.cfg.Find(ctx, peer, hints)
	if err != nil {
		return nil, fmt.Errorf("find the descriptor of %s: %w", identity.FormatDID(peer), err)
	}
	d, err = h.learn(e)
	if err != nil {
		return nil, fmt.Errorf("the descriptor of %s: %w", identity.FormatDID(peer), err)
	}
	if _, err := h.cfg.Take(ctx, []*nostr.Event{e}); err != nil {
		return nil, fmt.Errorf("keep a descriptor: %w", err)
	}
	return d, nil
}

// learn checks a descriptor and takes note of it.
func (h *Host) learn(e *nostr.Event) (*identity.Descriptor, error) {
	d, err := identity.CheckDescriptor(e, identity.Rules{Now: Now().Unix()})
	if err != nil {
		return nil, err
	}
	if d.Subject == h.cfg.Agent.PubKey() {
		return nil, errors.New("it is our own")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revoked[d.Subject] {
		return nil, errRevoked
	}
	if old := h.peers[d.Subject]; old != nil && old.CreatedAt > d.CreatedAt {
		return old, nil
	}
	h.makeRoom()
	h.peers[d.Subject] = d
	h.stepLocked(mesh.Described{Descriptor: d})
	return d, nil
}

// rediscover brings a known peer's descriptor to mesh after a restart.
func (h *Host) rediscover(peer nostr.PubKey) {
	if _, err := h.descriptor(h.ctx, peer, true); err != nil {
		h.cfg.Log.Info("a peer's descriptor is not at hand", "peer", peer.String()[:12], "err", err)
	}
}

// arrival is a message that was opened, on the stream it came by.
type arrival struct {
	from      nostr.PubKey
	anonymous bool
	octets    int64
	carrier   string // "" for what came out of a mailbox
	m         *didcomm.Message
}

// open unseals a frame and admits each message once.
func (h *Host) open(frame []byte) (*arrival, error) {
	u, err := h.unseal(frame)
	if err != nil {
		return nil, err
	}
	if u.Message.Type == didcomm.TypeForward { // from nobody: the mediator's memory tells copies apart
		return &arrival{anonymous: true, octets: int64(len(frame)), m: u.Message}, nil
	}
	from, err := identity.ParseDID(didcomm.DIDOf(u.Message.From))
	if err != nil {
		return nil, fmt.Errorf("the sender is no node: %w", err)
	}
	a := &arrival{from: from, anonymous: u.SenderKID == "", octets: int64(len(frame)), m: u.Message}
	h.mu.Lock()
	defer h.mu.Unlock()
	sender := u.Message.From
	if !u.Authenticated() {
		sender = "" // a name that nobody proved must not fill that node's memory
	}
	if err := h.replay.Admit(Now(), sender, u.Message); err != nil {
		return nil, err
	}
	if _, before := h.seen[seenName(from, a.m.ID)]; before && weighty(a) {
		return nil, didcomm.ErrReplay
	}
	return a, nil
}

// attached takes up the descriptor and the grants that travel with a message, before mesh hears of it.
func (h *Host) attached(a *arrival) error {
	for i := range a.m.Attachments {
		id := a.m.Attachments[i].ID
		if id != attachDescriptor && id != attachGrant {
			continue
		}
		text, err := a.m.Attachments[i].Content()
		if err != nil {
			return err
		}
		e, err := nostr.ParseEvent(text)
		if err != nil {
			return fmt.Errorf("attached %s: %w", id, err)
		}
		if e.PubKey != a.from {
			return fmt.Errorf("attached %s: it is not the sender's", id)
		}
		if id == attachDescriptor {
			if _, err := h.learn(e); err != nil {
				return fmt.Errorf("attached descriptor: %w", err)
			}
		} else if err := h.grant(e); err != nil {
			return err
		}
		if _, err := h.cfg.Take(h.ctx, []*nostr.Event{e}); err != nil {
			return fmt.Errorf("keep what was attached: %w", err)
		}
	}
	return nil
}

// grant opens a grant to us and brings it to mesh.
func (h *Host) grant(e *nostr.Event) error {
	if !identity.Verify(e.PubKey, e.ID, e.Sig) {
		return errors.New("attached grant: the signature does not hold")
	}
	g, err := ledger.Open(h.cfg.Agent, e)
	if err != nil {
		return fmt.Errorf("attached grant: %w", err)
	}
	if g.Subject != h.cfg.Agent.PubKey() || g.SubjectType != ledger.NodeSubject {
		return errors.New("attached grant: it is not to this node")
	}
	if err := g.LiveAt(Now().Unix()); err != nil {
		return fmt.Errorf("attached grant: %w", err)
	}
	h.cfg.tamper.believes(g)
	h.step(mesh.GrantSeen{Issuer: e.PubKey, Grant: g})
	return nil
}

// take handles one opened message.
func (h *Host) take(a *arrival) {
	if h.cfg.observe != nil {
		h.cfg.observe(a)
	}
	if h.takeStandard(a) {
		return
	}
	if err := h.attached(a); err != nil {
		h.cfg.Log.Info("a message with unusable attachments", "type", a.m.Type, "err", err)
		if !a.anonymous {
			h.step(mesh.Faulted{Peer: a.from, Thread: a.m.Thread(), Code: spec.CodeMalformed})
		}
		return
	}
	if err := spec.ValidateMessage(spec.MessageType(a.m.Type), a.m.Body); err != nil {
		h.cfg.Log.Info("a message that does not fit its schema", "type", a.m.Type, "err", err)
		if !a.anonymous {
			h.step(mesh.Faulted{Peer: a.from, Thread: a.m.Thread(), Code: spec.CodeMalformed})
		}
		return
	}
	envelopes := int64(0)
	for i := range a.m.Attachments {
		if a.m.Attachments[i].ID == attachEnvelope {
			envelopes++
		}
	}
	defer h.handled(a)
	answers := h.step(h.cfg.tamper.hears(mesh.Received{
		From: a.from, Anonymous: a.anonymous, Type: spec.MessageType(a.m.Type), ID: a.m.ID, Thread: a.m.Thread(),
		Created: a.m.CreatedTime, Octets: a.octets, Envelopes: envelopes, Body: a.m.Body, Invited: h.invited(a),
	}))
	for _, eff := range answers {
		switch eff := eff.(type) {
		case mesh.Pass:
			h.route(a, eff.Window)
		case mesh.Withhold:
			h.refuseSession(a, eff.Code)
		}
	}
}
