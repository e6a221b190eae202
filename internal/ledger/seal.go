package ledger

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// BlindTag derives the d tag that only a pair can compute, from the x coordinate of their
// ECDH point: HKDF-SHA256 under the two labels of the constants, 64 hex digits.
func BlindTag(sharedX [32]byte, labels spec.Labels) string {
	out, err := hkdf.Key(sha256.New, sharedX[:], []byte(labels.Salt), labels.Info, spec.C().Blinding.Length)
	if err != nil {
		panic("ledger: HKDF of 32 bytes: " + err.Error())
	}
	return hex.EncodeToString(out)
}

// GrantTag is the d tag of the grant between an agent's key and another, from either side. The
// subject queries the issuer's kind 30801 for it.
func GrantTag(a identity.Agent, other nostr.PubKey) (string, error) {
	x, err := a.SharedX(other)
	if err != nil {
		return "", fmt.Errorf("blind the pair: %w", err)
	}
	return BlindTag(x, spec.C().Blinding.Grant), nil
}

// Commit is SHA-256(blinding ‖ canonical): binding, hiding, and opened later by showing both.
func Commit(blinding [32]byte, canonical []byte) [32]byte {
	h := sha256.New()
	h.Write(blinding[:])
	h.Write(canonical)
	return [32]byte(h.Sum(nil))
}

// conversationKey is NIP-44's, from a shared x coordinate that an agent gave.
func conversationKey(sharedX [32]byte) ([32]byte, error) {
	key, err := hkdf.Extract(sha256.New, sharedX[:], []byte("nip44-v2"))
	if err != nil {
		return [32]byte{}, fmt.Errorf("conversation key: %w", err)
	}
	return [32]byte(key), nil
}

// Seal draws a fresh blinding from random, commits to the grant, encrypts it to the subject and signs the event.
// It fills in the grant's ID, Issuer and Blinding. random is crypto/rand's Reader outside tests: hiding
// rests on the blinding alone, so it is never derived and never used again.
func Seal(issuer identity.Agent, g *Grant, random io.Reader) (*nostr.Event, error) {
	if _, err := io.ReadFull(random, g.Blinding[:]); err != nil {
		return nil, fmt.Errorf("draw the blinding: %w", err)
	}
	g.Issuer = issuer.PubKey()
	if err := g.Check(); err != nil {
		return nil, fmt.Errorf("seal grant: %w", err)
	}
	body, err := g.body()
	if err != nil {
		return nil, fmt.Errorf("seal grant: %w", err)
	}
	o, err := parseGrantObject(body)
	if err != nil {
		return nil, err
	}
	canonical, err := o.canonical()
	if err != nil {
		return nil, fmt.Errorf("seal grant: %w", err)
	}
	x, err := issuer.SharedX(g.Subject)
	if err != nil {
		return nil, fmt.Errorf("seal grant: %w", err)
	}
	key, err := conversationKey(x)
	if err != nil {
		return nil, err
	}
	content, err := nostr.Encrypt(string(body), key)
	if err != nil {
		return nil, fmt.Errorf("seal grant: %w", err)
	}
	commit := Commit(g.Blinding, canonical)
	e := &nostr.Event{Kind: spec.KindGrant, CreatedAt: g.CreatedAt, Content: content, Tags: []nostr.Tag{
		{"d", BlindTag(x, spec.C().Blinding.Grant)},
		{"commit", hex.EncodeToString(commit[:])},
		{"scheme", spec.C().Commitment.Scheme, spec.C().Commitment.ContentScheme},
		{"window", strconv.FormatInt(g.Window, 10)},
		{"epoch", strconv.FormatInt(WindowAt(g.CreatedAt, g.Window).Epoch, 10)},
		{"expiration", strconv.FormatInt(g.Expiration, 10)},
	}}
	if err := identity.SignEvent(issuer, e); err != nil {
		return nil, fmt.Errorf("sign grant: %w", err)
	}
	g.ID = e.ID
	return e, nil
}

// Frame is what everybody sees of a grant: that it exists, until when, and a commitment.
type Frame struct {
	ID         nostr.ID
	Issuer     nostr.PubKey
	CreatedAt  int64
	D          string
	Commit     [32]byte
	Window     int64
	Epoch      int64
	Expiration int64
}

// ParseFrame reads the public part of a grant, whose signature is the caller's to verify.
func ParseFrame(e *nostr.Event) (*Frame, error) {
	if e.Kind != spec.KindGrant {
		return nil, fault(identity.WrongKind, strconv.Itoa(int(e.Kind)))
	}
	f := &Frame{ID: e.ID, Issuer: e.PubKey, CreatedAt: e.CreatedAt}
	seen := map[string]bool{}
	for _, t := range e.Tags {
		if len(t) < 2 {
			continue
		}
		if seen[t[0]] {
			return nil, fault(identity.DuplicateTag, t[0])
		}
		seen[t[0]] = true
		if err := f.readTag(t); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"d", "commit", "scheme", "window", "epoch", "expiration"} {
		if !seen[name] {
			return nil, fault(BadField, name+" is missing")
		}
	}
	if err := CheckWindowLength(f.Window); err != nil {
		return nil, err
	}
	if f.Epoch != WindowAt(f.CreatedAt, f.Window).Epoch {
		return nil, fault(BadEpoch, strconv.FormatInt(f.Epoch, 10))
	}
	return f, nil
}

func (f *Frame) readTag(t nostr.Tag) (err error) {
	switch t[0] {
	case "d":
		f.D = t[1]
		if _, ok := parseHex32(t[1]); !ok {
			return fault(BadField, "d is not blinded")
		}
	case "commit":
		var ok bool
		if f.Commit, ok = parseHex32(t[1]); !ok {
			return fault(BadField, "commit")
		}
	case "scheme":
		if len(t) < 3 || t[1] != spec.C().Commitment.Scheme || t[2] != spec.C().Commitment.ContentScheme {
			return fault(BadScheme, t[1])
		}
	case "window":
		f.Window, err = parseCount(t[1])
	case "epoch":
		f.Epoch, err = parseCount(t[1])
	case "expiration":
		f.Expiration, err = parseCount(t[1])
	}
	return err
}

// Open decrypts a grant with the subject's or the issuer's key, verifies it against its public commitment and tries
// every rule. The event's signature is the caller's to verify. Whether the grant is live is for LiveAt.
func Open(holder identity.Agent, e *nostr.Event) (*Grant, error) {
	f, err := ParseFrame(e)
	if err != nil {
		return nil, err
	}
	if holder.PubKey() == f.Issuer {
		return nil, fault(NotForMe, "the issuer knows what it granted; use OpenOwn")
	}
	return open(holder, f.Issuer, f, e.Content)
}

// OpenOwn opens a grant that this key issued, given its subject: how an issuer gets its books
// back from the relays alone.
func OpenOwn(issuer identity.Agent, subject nostr.PubKey, e *nostr.Event) (*Grant, error) {
	f, err := ParseFrame(e)
	if err != nil {
		return nil, err
	}
	if issuer.PubKey() != f.Issuer {
		return nil, fault(NotForMe, "issued by another key")
	}
	return open(issuer, subject, f, e.Content)
}

func open(holder identity.Agent, other nostr.PubKey, f *Frame, content string) (*Grant, error) {
	x, err := holder.SharedX(other)
	if err != nil {
		return nil, fmt.Errorf("open grant: %w", err)
	}
	if BlindTag(x, spec.C().Blinding.Grant) != f.D {
		return nil, fault(WrongBlind, f.D)
	}
	key, err := conversationKey(x)
	if err != nil {
		return nil, err
	}
	text, err := nostr.Decrypt(content, key)
	if err != nil {
		return nil, fault(NotForMe, err.Error())
	}
	g, err := f.Unveil([]byte(text))
	if err != nil {
		return nil, err
	}
	if g.Subject != holder.PubKey() && g.Subject != other {
		return nil, fault(NotForMe, "names subject "+g.Subject.String())
	}
	if g.Subject == g.Issuer {
		return nil, fault(BadSubject, "a grant to oneself")
	}
	return g, nil
}

// Unveil checks a disclosed grant body, blinding and all, against the frame's commitment. It is how a third
// party reads a grant that a report lays open.
func (f *Frame) Unveil(body []byte) (*Grant, error) {
	o, err := parseGrantObject(body)
	if err != nil {
		return nil, err
	}
	g := &Grant{ID: f.ID, Issuer: f.Issuer, CreatedAt: f.CreatedAt, Window: f.Window, Expiration: f.Expiration}
	if err := g.readBody(o.tags); err != nil {
		return nil, err
	}
	canonical, err := o.canonical()
	if err != nil {
		return nil, fault(BadJSON, err.Error())
	}
	if Commit(g.Blinding, canonical) != f.Commit {
		return nil, fault(BadCommit, "")
	}
	return g, g.Check()
}

// Disclosure is the body of a grant with its blinding, as a report lays it open.
func (g *Grant) Disclosure() ([]byte, error) { return g.body() }
