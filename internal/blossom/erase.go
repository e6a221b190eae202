package blossom

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Outcome is what became of an erasure at one place.
type Outcome string

// The outcomes. Unanswered is what whoever asked writes down for a place that gave no answer; a place never signs it.
const (
	Erased     Outcome = "erased"   // the bytes were here and are gone
	NotHeld    Outcome = "not-held" // they were not here
	Failed     Outcome = "failed"   // they are still on the disk, though nobody can read them here any more, or may be
	Unanswered Outcome = "unanswered"
)

// Erasure asks for a blob to be erased, and says which event led to it.
type Erasure struct {
	Hash   Hash
	Event  string // id of the event that led to it, such as a deletion (NIP-09), or ""
	Reason string // one short word: deleted, vanished, takedown, operator
	Block  bool   // the blob may not come back
}

// Answer is a place's signed statement about an erasure. Its signature is BIP-340 over the SHA-256 of the canonical form of
// all other fields, like a receipt's.
type Answer struct {
	Place    string  `json:"place"` // the place's public key, hex
	SHA256   string  `json:"sha256"`
	CID      string  `json:"cid"`
	Event    string  `json:"event,omitempty"`
	Reason   string  `json:"reason"`
	Outcome  Outcome `json:"outcome"`
	Size     int64   `json:"size"`     // octets that went
	Uploaded int64   `json:"uploaded"` // unix seconds since when the place had it, 0 if it did not
	Owners   int64   `json:"owners"`   // how many keys had uploaded it here; they are not named
	Blocked  bool    `json:"blocked"`
	At       int64   `json:"at"` // unix seconds
	Sig      string  `json:"sig,omitempty"`
}

// digest is what is signed.
func (a Answer) digest() ([32]byte, error) {
	a.Sig = ""
	text, err := spec.Canonical(a)
	if err != nil {
		return [32]byte{}, fmt.Errorf("write the answer: %w", err)
	}
	return sha256.Sum256(text), nil
}

// Erase removes a blob whoever owns it and answers for this place. The answer is signed also where nothing was held or
// where the removal failed; then the error comes with it. The error alone means that there is no answer.
func (s *Server) Erase(ctx context.Context, e Erasure) (*Answer, error) {
	if s.cfg.Signer == nil {
		return nil, errors.New("erase a blob: there is no key to answer with")
	}
	a := &Answer{SHA256: e.Hash.String(), CID: e.Hash.CID(), Event: e.Event, Reason: e.Reason, Blocked: e.Block, At: s.cfg.Now(), Outcome: Erased}
	m, err := s.cfg.Store.Remove(ctx, e.Hash, e.Block)
	switch {
	case errors.Is(err, ErrNotFound):
		a.Outcome, err = NotHeld, nil
	case err != nil:
		a.Outcome = Failed
	}
	if a.Outcome != NotHeld {
		a.Size, a.Uploaded, a.Owners = m.Size, m.Uploaded, int64(len(m.Owners))
	}
	if serr := s.sign(a); serr != nil {
		return nil, errors.Join(err, serr)
	}
	return a, err
}

// Release takes an owner away because an event of its own asked for it, and answers for this place if the blob went with it. The answer is
// nil where the blob stays, since other keys own it, or was not this key's.
func (s *Server) Release(ctx context.Context, k nostr.PubKey, e Erasure) (*Answer, error) {
	m, err := s.cfg.Store.Stat(ctx, e.Hash)
	switch _, owned := m.OwnedBy(k); {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrBlocked), err == nil && !owned:
		return nil, nil
	case err == nil && len(m.Owners) == 1:
		return s.Erase(ctx, e)
	case err != nil && !errors.Is(err, ErrCorrupt):
		return nil, fmt.Errorf("release a blob: %w", err)
	}
	if _, err := s.cfg.Store.Disown(ctx, e.Hash, k); err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("release a blob: %w", err)
	}
	return nil, nil
}

// sign names the place in an answer and signs it.
func (s *Server) sign(a *Answer) error {
	a.Place = s.cfg.Signer.PubKey().String()
	digest, err := a.digest()
	if err != nil {
		return err
	}
	sig, err := s.cfg.Signer.Sign(digest)
	if err != nil {
		return fmt.Errorf("sign the answer: %w", err)
	}
	a.Sig = sig.String()
	return nil
}

// Verify tells why an answer proves nothing about its place.
func (a *Answer) Verify(v nostr.Verifier) error {
	place, err := nostr.ParsePubKey(a.Place)
	if err != nil {
		return fmt.Errorf("the answer names no place: %w", err)
	}
	digest, err := a.digest()
	if err != nil {
		return err
	}
	e := &nostr.Event{ID: digest, PubKey: place}
	if n, err := hex.Decode(e.Sig[:], []byte(a.Sig)); err != nil || n != len(e.Sig) || len(a.Sig) != 2*n {
		return errors.New("the answer carries no signature")
	}
	if !v.Verify([]*nostr.Event{e})[0] {
		return errors.New("the answer's signature is wrong")
	}
	return nil
}
