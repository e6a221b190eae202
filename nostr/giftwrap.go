package nostr

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxBackdate is how far seals and wraps are dated back at most, in seconds
// (NIP-59: two days).
const maxBackdate = 2 * 24 * 60 * 60

// Wrap seals a rumor and wraps the seal for one recipient (NIP-59). kind is
// KindGiftWrap or KindEphemeralGiftWrap. It sets the rumor's PubKey, to from's,
// and its ID, and clears its Sig.
//
// now is the unix second; seal and wrap are each dated back from it by up to two
// days, by amounts that random supplies: nil means crypto/rand. Keys and nonces come
// from crypto/rand always. The wrap carries the tag p of the recipient, then extra.
func Wrap(rumor *Event, from SecretKey, to PubKey, kind Kind, now int64, random io.Reader, extra ...Tag) (*Event, error) {
	if kind != KindGiftWrap && kind != KindEphemeralGiftWrap {
		return nil, fmt.Errorf("gift wrap: kind %d is no gift wrap", kind)
	}
	sealed, err := Seal(rumor, from, to, now, random)
	if err != nil {
		return nil, fmt.Errorf("gift wrap: %w", err)
	}
	once, err := GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("gift wrap: %w", err)
	}
	wrap := &Event{Kind: kind, Tags: append([]Tag{{"p", to.String()}}, extra...)}
	if wrap.CreatedAt, err = backdate(now, random); err != nil {
		return nil, fmt.Errorf("gift wrap: %w", err)
	}
	if err := encloseAndSign(wrap, string(sealed.JSON()), once, to); err != nil {
		return nil, fmt.Errorf("gift wrap: %w", err)
	}
	return wrap, nil
}

// Seal makes the kind 13 event around a rumor (NIP-59). See Wrap for its
// arguments.
func Seal(rumor *Event, from SecretKey, to PubKey, now int64, random io.Reader) (*Event, error) {
	if !from.valid() {
		return nil, errors.New("seal: secret key is outside the group order")
	}
	rumor.raw = nil
	rumor.PubKey = from.PubKey()
	rumor.ID = rumor.ComputeID()
	rumor.Sig = Sig{}
	seal := &Event{Kind: KindSeal, Tags: []Tag{}}
	var err error
	if seal.CreatedAt, err = backdate(now, random); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	if err := encloseAndSign(seal, string(rumor.RumorJSON()), from, to); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return seal, nil
}

func encloseAndSign(e *Event, inner string, from SecretKey, to PubKey) error {
	key, err := ConversationKey(from, to)
	if err != nil {
		return err
	}
	if e.Content, err = Encrypt(inner, key); err != nil {
		return err
	}
	return e.Sign(from)
}

// backdate returns now less up to two days, but not below 0.
func backdate(now int64, random io.Reader) (int64, error) {
	if random == nil {
		random = rand.Reader
	}
	var b [8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return 0, fmt.Errorf("read randomness: %w", err)
	}
	return max(0, now-int64(binary.BigEndian.Uint64(b[:])%maxBackdate)), nil
}

// Unwrap opens a gift wrap and the seal inside it and returns the rumor
// (NIP-59). It checks both signatures, that the rumor's id is right, that the seal has no tags, and
// that rumor and seal name the same author: nobody else vouches for the rumor.
func Unwrap(wrap *Event, sk SecretKey) (*Event, error) {
	if wrap.Kind != KindGiftWrap && wrap.Kind != KindEphemeralGiftWrap {
		return nil, fmt.Errorf("unwrap: kind %d is no gift wrap", wrap.Kind)
	}
	inner, err := openSigned(wrap, sk)
	if err != nil {
		return nil, fmt.Errorf("unwrap: %w", err)
	}
	seal, err := ParseEvent([]byte(inner))
	if err != nil {
		return nil, fmt.Errorf("unwrap: seal: %w", err)
	}
	rumor, err := Unseal(seal, sk)
	if err != nil {
		return nil, fmt.Errorf("unwrap: %w", err)
	}
	return rumor, nil
}

// Unseal opens a seal. See Unwrap for what it checks.
func Unseal(seal *Event, sk SecretKey) (*Event, error) {
	if seal.Kind != KindSeal {
		return nil, fmt.Errorf("unseal: kind %d is no seal", seal.Kind)
	}
	if len(seal.Tags) != 0 {
		return nil, errors.New("unseal: a seal must have no tags")
	}
	inner, err := openSigned(seal, sk)
	if err != nil {
		return nil, fmt.Errorf("unseal: %w", err)
	}
	rumor, err := ParseRumor([]byte(inner))
	if err != nil {
		return nil, fmt.Errorf("unseal: rumor: %w", err)
	}
	if rumor.PubKey != seal.PubKey {
		return nil, errors.New("unseal: the rumor names another author than the seal")
	}
	return rumor, nil
}

// openSigned checks an event's id and signature, then decrypts its content.
func openSigned(e *Event, sk SecretKey) (string, error) {
	if e.ComputeID() != e.ID {
		return "", ErrID
	}
	if !verifyOne(e) {
		return "", errors.New("wrong signature")
	}
	key, err := ConversationKey(sk, e.PubKey)
	if err != nil {
		return "", err
	}
	return Decrypt(e.Content, key)
}
