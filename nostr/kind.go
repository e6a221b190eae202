package nostr

// Kinds that the rules of relays themselves speak about.
const (
	KindMetadata          Kind = 0     // profile (NIP-01)
	KindNote              Kind = 1     // short text note (NIP-01)
	KindFollows           Kind = 3     // follow list (NIP-02)
	KindDeletion          Kind = 5     // deletion request (NIP-09)
	KindRepost            Kind = 6     // repost of a note (NIP-18)
	KindReaction          Kind = 7     // reaction (NIP-25)
	KindSeal              Kind = 13    // seal (NIP-59)
	KindGenericRepost     Kind = 16    // repost of anything (NIP-18)
	KindVanish            Kind = 62    // request to vanish (NIP-62)
	KindGiftWrap          Kind = 1059  // gift wrap (NIP-59)
	KindRelayList         Kind = 10002 // relay list (NIP-65)
	KindEphemeralGiftWrap Kind = 21059 // gift wrap that is not stored (NIP-59)
	KindClientAuth        Kind = 22242 // client authentication (NIP-42)
)

// IsReplaceable tells whether only the latest event of a kind and author is
// kept (NIP-01): 0, 3 and 10000 to 19999.
func (k Kind) IsReplaceable() bool {
	return k == KindMetadata || k == KindFollows || k >= 10000 && k < 20000
}

// IsEphemeral tells whether events of the kind are passed on but not stored
// (NIP-01): 20000 to 29999.
func (k Kind) IsEphemeral() bool { return k >= 20000 && k < 30000 }

// IsAddressable tells whether only the latest event of a kind, author and d
// tag is kept (NIP-01): 30000 to 39999.
func (k Kind) IsAddressable() bool { return k >= 30000 && k < 40000 }

// IsRegular tells whether every event of the kind is kept. Kinds that NIP-01
// puts in no range count as regular.
func (k Kind) IsRegular() bool {
	return !k.IsReplaceable() && !k.IsEphemeral() && !k.IsAddressable()
}
