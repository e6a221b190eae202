package policy

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

const (
	kindRepost        nostr.Kind = 6
	kindGenericRepost nostr.Kind = 16
	kindVanish        nostr.Kind = 62
	kindAuth          nostr.Kind = 22242
)

// Protected keeps NIP-70: an event with the "-" tag comes only from its authenticated
// author, and no repost carries one inside. A file that the operator imports is taken as it is.
type Protected struct {
	static
	NoAuth bool // authentication is switched off: such events are always refused
}

// Admit implements Policy.
func (p Protected) Admit(_ context.Context, r *Request) *Rejection {
	e := r.Event
	if e.Protected() && r.Source != FromImport {
		switch {
		case r.Source != FromClient:
			return Reject(Restricted, "a protected event comes only from its author (NIP-70)")
		case p.NoAuth:
			return Reject(Blocked, "protected events are not taken here (NIP-70)")
		case slices.Contains(r.Keys, e.PubKey):
		case len(r.Keys) == 0:
			return Reject(AuthRequired, "this event may only be published by its author (NIP-70)")
		default:
			return Reject(Restricted, "this event may only be published by its author (NIP-70)")
		}
	}
	if (e.Kind == kindRepost || e.Kind == kindGenericRepost) && embedsProtected(e.Content) {
		return Reject(Blocked, "a repost must not carry a protected event inside (NIP-70)")
	}
	return nil
}

// embedsProtected looks for a protected event in the content of a repost. The signature
// does not matter, and neither does the id: a copy that was tampered with is still a copy.
func embedsProtected(content string) bool {
	if !strings.HasPrefix(strings.TrimSpace(content), "{") {
		return false
	}
	var e struct {
		Tags []json.RawMessage `json:"tags"`
	}
	if json.Unmarshal([]byte(content), &e) != nil {
		return false
	}
	for _, raw := range e.Tags {
		var tag []any
		if json.Unmarshal(raw, &tag) == nil && len(tag) > 0 && tag[0] == "-" {
			return true
		}
	}
	return false
}

// Auth keeps kind 22242 (NIP-42) out: it is for AUTH and is never stored or passed on.
type Auth struct{ static }

// Admit implements Policy.
func (Auth) Admit(_ context.Context, r *Request) *Rejection {
	if r.Event.Kind == kindAuth {
		return Reject(Invalid, "kind 22242 is for AUTH and is not published (NIP-42)")
	}
	return nil
}

// Vanish keeps out requests to vanish (NIP-62) that name no relay. They ask nobody for anything, and an OK would let
// their author believe that the relay had done it.
type Vanish struct{ static }

// Admit implements Policy.
func (Vanish) Admit(_ context.Context, r *Request) *Rejection {
	if r.Event.Kind != kindVanish {
		return nil
	}
	for relay := range r.Event.TagValues("relay") {
		if relay != "" {
			return nil
		}
	}
	return Reject(Invalid, "a request to vanish needs a relay tag, with this relay's URL or ALL_RELAYS (NIP-62)")
}
