package policy

import (
	"context"
	"slices"
	"strconv"
	"unicode/utf8"

	"fleetmesh.org/fleetmesh/nostr"
)

// static is embedded in rules that look at the request alone.
type static struct{}

// Static says that the rule may be asked before the signature check.
func (static) Static() bool { return true }

// Kinds lets in, or keeps out, events by kind.
type Kinds struct {
	static
	allow, deny map[nostr.Kind]struct{}
	knob        string
}

// NewKinds makes the rule. An empty allow list allows every kind; deny wins over allow.
func NewKinds(allow, deny []nostr.Kind) *Kinds {
	return &Kinds{allow: setOf(allow), deny: setOf(deny), knob: "relay"}
}

func setOf[T comparable](list []T) map[T]struct{} {
	m := make(map[T]struct{}, len(list))
	for _, v := range list {
		m[v] = struct{}{}
	}
	return m
}

// Admit implements Policy.
func (k *Kinds) Admit(_ context.Context, r *Request) *Rejection {
	if _, no := k.deny[r.Event.Kind]; no {
		return Reject(Blocked, "kind %d is not taken here (%s.denyKinds)", r.Event.Kind, k.knob)
	}
	if _, yes := k.allow[r.Event.Kind]; !yes && len(k.allow) > 0 {
		return Reject(Blocked, "kind %d is not among the kinds taken here (%s.allowKinds)", r.Event.Kind, k.knob)
	}
	return nil
}

// Describe implements Described.
func (k *Kinds) Describe(d *Demands) { d.RestrictedWrites = d.RestrictedWrites || len(k.allow) > 0 }

// Authors lets in, or keeps out, events by author.
type Authors struct {
	static
	allow, deny map[nostr.PubKey]struct{}
	knob        string
}

// NewAuthors makes the rule. An empty allow list allows everybody; deny wins over allow.
func NewAuthors(allow, deny []nostr.PubKey) *Authors {
	return &Authors{allow: setOf(allow), deny: setOf(deny), knob: "relay"}
}

// Admit implements Policy. A request to vanish (NIP-62) is heard from anybody: relays
// that restrict writing must follow it too.
func (a *Authors) Admit(_ context.Context, r *Request) *Rejection {
	if r.Event.Kind == kindVanish {
		return nil
	}
	if _, no := a.deny[r.Event.PubKey]; no {
		return Reject(Blocked, "this author may not write here (%s.denyPubkeys)", a.knob)
	}
	if _, yes := a.allow[r.Event.PubKey]; !yes && len(a.allow) > 0 {
		return Reject(Restricted, "only listed authors may write here (%s.allowPubkeys)", a.knob)
	}
	return nil
}

// Describe implements Described.
func (a *Authors) Describe(d *Demands) { d.RestrictedWrites = d.RestrictedWrites || len(a.allow) > 0 }

// MinPoW demands NIP-13 proof of work: that many leading zero bits of the id, and a
// committed target not below it where the event commits to one.
type MinPoW struct {
	static
	Bits int
	All  bool   // of whatever comes, not of clients alone
	Knob string // named in refusals; "" means "relay"
}

// Admit implements Policy.
func (m MinPoW) Admit(_ context.Context, r *Request) *Rejection {
	if m.Bits <= 0 || !m.All && r.Source != FromClient {
		return nil
	}
	knob := m.Knob
	if knob == "" {
		knob = "relay"
	}
	if got := nostr.PoWDifficulty(r.Event.ID); got < m.Bits {
		return Reject(PoW, "difficulty %d is less than %d (%s.minPow)", got, m.Bits, knob)
	}
	for _, t := range r.Event.Tags {
		if len(t) > 2 && t[0] == "nonce" {
			// A miner who aimed lower was lucky, and luck is what a flood relies on.
			if target, err := strconv.Atoi(t[2]); err == nil && target < m.Bits {
				return Reject(PoW, "the committed target %d is less than %d (%s.minPow)", target, m.Bits, knob)
			}
			break
		}
	}
	return nil
}

// Describe implements Described.
func (m MinPoW) Describe(d *Demands) { d.MinPoW = max(d.MinPoW, m.Bits) }

// CreatedAt bounds created_at against the clock, in seconds. Zero is no bound. Only
// clients are held to it: what comes by sync or import may be old.
type CreatedAt struct {
	static
	Oldest, Newest int64
}

// Admit implements Policy.
func (c CreatedAt) Admit(_ context.Context, r *Request) *Rejection {
	if r.Source != FromClient && r.Source != FromMesh {
		return nil
	}
	if ahead := r.Event.CreatedAt - r.Now; c.Newest > 0 && ahead > c.Newest {
		return Reject(Invalid, "created_at is %d s ahead; relay.createdAtNewest is %d", ahead, c.Newest)
	}
	if back := r.Now - r.Event.CreatedAt; c.Oldest > 0 && back > c.Oldest {
		return Reject(Invalid, "created_at is %d s back; relay.createdAtOldest is %d", back, c.Oldest)
	}
	return nil
}

// Describe implements Described.
func (c CreatedAt) Describe(d *Demands) {
	d.OldestSeconds = c.Oldest
	d.NewestSeconds, d.HasUpperBound = c.Newest, c.Newest > 0
}

// Size bounds what one event may hold. Zero is no bound.
type Size struct {
	static
	ContentRunes int // Unicode characters of the content
	Tags         int // number of tags
	TagBytes     int // octets of one tag value
	EventBytes   int // octets of the JSON text
}

// Admit implements Policy.
func (s Size) Admit(_ context.Context, r *Request) *Rejection {
	e := r.Event
	if n := len(e.Tags); s.Tags > 0 && n > s.Tags {
		return Reject(Invalid, "%d tags; relay.maxTags is %d", n, s.Tags)
	}
	if s.EventBytes > 0 {
		if n := len(e.JSON()); n > s.EventBytes {
			return Reject(Invalid, "the event has %d bytes; relay.maxEventBytes is %d", n, s.EventBytes)
		}
	}
	if s.ContentRunes > 0 && len(e.Content) > s.ContentRunes {
		if n := utf8.RuneCountInString(e.Content); n > s.ContentRunes {
			return Reject(Invalid, "the content has %d characters; relay.maxContent is %d", n, s.ContentRunes)
		}
	}
	if s.TagBytes > 0 {
		for _, t := range e.Tags {
			for _, v := range t {
				if len(v) > s.TagBytes {
					return Reject(Invalid, "a tag value has %d bytes; relay.maxTagBytes is %d", len(v), s.TagBytes)
				}
			}
		}
	}
	return nil
}

// Describe implements Described.
func (s Size) Describe(d *Demands) { d.MaxContentRunes, d.MaxTags = s.ContentRunes, s.Tags }

// AuthToWrite lets clients write only after they have authenticated; if Author, only as
// the author of what they write.
type AuthToWrite struct {
	static
	Author bool
}

// Admit implements Policy.
func (a AuthToWrite) Admit(_ context.Context, r *Request) *Rejection {
	switch {
	case r.Source != FromClient:
		return nil
	case len(r.Keys) == 0:
		return Reject(AuthRequired, "writing here needs authentication (relay.authToWrite)")
	case a.Author && !slices.Contains(r.Keys, r.Event.PubKey):
		return Reject(Restricted, "only the author may write an event (relay.authToWrite)")
	}
	return nil
}

// Describe implements Described.
func (a AuthToWrite) Describe(d *Demands) { d.AuthToWrite = true }

// ReadOnly lets no client write.
type ReadOnly struct{ static }

// Admit implements Policy.
func (ReadOnly) Admit(_ context.Context, r *Request) *Rejection {
	if r.Source == FromClient {
		return Reject(Blocked, "this relay takes no events from clients (relay.readOnly)")
	}
	return nil
}

// Describe implements Described.
func (ReadOnly) Describe(d *Demands) { d.RestrictedWrites = true }
