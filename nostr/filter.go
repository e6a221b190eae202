package nostr

// TagFilter is one "#x" condition of a filter: a single ASCII letter and the
// values of which an event must carry at least one as the tag's first value.
type TagFilter struct {
	Letter byte
	Values []string
}

// Filter is a NIP-01 filter. A nil list is no condition; a list that is
// present but empty matches nothing.
type Filter struct {
	IDs     []ID
	Authors []PubKey
	Kinds   []Kind
	Tags    []TagFilter // in the order of the JSON text; NIP-45's HLL offset depends on it
	Since   *int64      // inclusive, unix seconds
	Until   *int64      // inclusive, unix seconds
	Limit   *int
	Search  string // NIP-50
}
