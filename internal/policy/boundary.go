package policy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Why an event does not cross from one network to another. These words stand in reports, in counters and in what is
// remembered of an id.
const (
	StopNever     = "never"        // of a kind that never crosses
	StopWrap      = "wrap"         // a gift wrap, and the place is not among the recipient's kind 10050
	StopProtected = "protected"    // NIP-70: it carries "-", or carries one inside
	StopExpired   = "expired"      // NIP-40
	StopPrivate   = "private-list" // a list whose content is encrypted to its author
	StopSecret    = "secret-key"   // it has a secret key in it
)

// Boundary is what never crosses between two networks, whatever filters and plugins say. Every road asks it
// on both sides of the plugin, so that no plugin and no configuration can let through what it stops.
type Boundary struct {
	// Mailbox says whether the place where an event would go is a relay that the recipient of a gift wrap names in
	// its kind 10050. nil: no wrap crosses.
	Mailbox func(ctx context.Context, recipient nostr.PubKey) bool
}

// Stops says why e may not cross at now (unix seconds), "" if it may. It looks at nothing but the event, and, for a gift
// wrap, at the recipient's own list of relays.
func (b *Boundary) Stops(ctx context.Context, e *nostr.Event, now int64) string {
	switch {
	case spec.C().Boundary.Never(e.Kind):
		return StopNever
	case private.Private(e.Kind) && (b == nil || b.Mailbox == nil || !b.addressed(ctx, e)):
		return StopWrap
	case e.Protected():
		return StopProtected
	case e.ExpiredAt(now):
		return StopExpired
	case privateList(e):
		return StopPrivate
	case carriesSecret(e):
		return StopSecret
	case e.Kind == kindRepost || e.Kind == kindGenericRepost:
		return b.inside(ctx, e, now)
	}
	return ""
}

var private = NewGate(PrivateKinds, true)

// inside looks at the event that a repost carries: a copy in a wrapper is a copy.
func (b *Boundary) inside(ctx context.Context, e *nostr.Event, now int64) string {
	if embedsProtected(e.Content) {
		return StopProtected
	}
	var inner struct {
		Kind *nostr.Kind `json:"kind"`
		Tags []nostr.Tag `json:"tags"`
	}
	if !strings.HasPrefix(strings.TrimSpace(e.Content), "{") || json.Unmarshal([]byte(e.Content), &inner) != nil || inner.Kind == nil {
		return ""
	}
	if k := *inner.Kind; k == kindRepost || k == kindGenericRepost {
		return "" // its content is what a client shows, and that is one level down
	}
	return b.Stops(ctx, &nostr.Event{Kind: *inner.Kind, Tags: inner.Tags, CreatedAt: e.CreatedAt}, now)
}

func (b *Boundary) addressed(ctx context.Context, e *nostr.Event) bool {
	some := false
	for v := range e.TagValues("p") {
		k, err := nostr.ParsePubKey(v)
		if err != nil || !b.Mailbox(ctx, k) {
			return false
		}
		some = true
	}
	return some
}

// privateList says whether e is one of NIP-51's lists with a private half: its content is a NIP-44 or NIP-04 ciphertext.
func privateList(e *nostr.Event) bool {
	if _, ours := spec.LookupKind(e.Kind); ours || !e.Kind.IsReplaceable() && !e.Kind.IsAddressable() {
		return false // a grant is encrypted to its subject, and is made to travel
	}
	text := e.Content
	if cipher, iv, ok := strings.Cut(text, "?iv="); ok { // NIP-04
		return isBase64(cipher, 16) && isBase64(iv, 16)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(raw) >= 99 && raw[0] == 2 // NIP-44: version, 32 of nonce, at least 34 of text, 32 of MAC
}

func isBase64(s string, least int) bool {
	raw, err := base64.StdEncoding.DecodeString(s)
	return err == nil && len(raw) >= least
}

// carriesSecret says whether a valid nsec, or an ncryptsec, stands in the content or in a tag.
func carriesSecret(e *nostr.Event) bool {
	if secretIn(e.Content) {
		return true
	}
	for _, t := range e.Tags {
		for _, v := range t {
			if secretIn(v) {
				return true
			}
		}
	}
	return false
}

const bech32Chars = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

func secretIn(text string) bool {
	for _, hrp := range []string{"nsec1", "ncryptsec1"} {
		for rest := text; ; {
			at := strings.Index(rest, hrp)
			if at < 0 {
				break
			}
			end := at + len(hrp)
			for end < len(rest) && strings.IndexByte(bech32Chars, rest[end]) >= 0 {
				end++
			}
			if word := rest[at:end]; hrp == "ncryptsec1" && len(word) > 100 || hrp == "nsec1" && validSecret(word) {
				return true
			}
			rest = rest[end:]
		}
	}
	return false
}

func validSecret(word string) bool {
	_, err := nostr.ParseSecretKey(word)
	return err == nil
}
