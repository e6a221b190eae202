// Package nostr holds the Nostr vocabulary: events, filters and client
// messages, how they are parsed, put in canonical form, signed, verified and
// matched (NIP-01 and the NIPs it leans on).
package nostr

// ID is an event id: SHA-256 of the canonical serialisation (NIP-01).
type ID [32]byte

// PubKey is an x-only secp256k1 public key (BIP-340).
type PubKey [32]byte

// Sig is a BIP-340 signature over an event's ID.
type Sig [64]byte

// Kind is an event kind, 0 to 65535 (NIP-01).
type Kind uint16

// String returns the id as 64 lower-case hex digits.
func (id ID) String() string { return text(appendHex(make([]byte, 0, 2*len(id)), id[:])) }

// String returns the key as 64 lower-case hex digits.
func (k PubKey) String() string { return text(appendHex(make([]byte, 0, 2*len(k)), k[:])) }

// String returns the signature as 128 lower-case hex digits.
func (s Sig) String() string { return text(appendHex(make([]byte, 0, 2*len(s)), s[:])) }

// Tag is one tag: a name and its values.
type Tag []string

// Event is a Nostr event (NIP-01). An event that came out of ParseEvent keeps
// the text it was parsed from: treat it as immutable.
type Event struct {
	ID        ID
	PubKey    PubKey
	CreatedAt int64 // unix seconds, never negative once parsed
	Kind      Kind
	Tags      []Tag
	Content   string
	Sig       Sig

	raw []byte // what JSON returns; nil for an event built in code
}

// Copy returns a deep copy that may be changed: it keeps no text.
func (e *Event) Copy() *Event {
	c := *e
	c.raw = nil
	c.Tags = make([]Tag, len(e.Tags))
	for i, t := range e.Tags {
		c.Tags[i] = append(Tag(nil), t...)
	}
	return &c
}
