// Package negentropy implements range-based set reconciliation as NIP-77
// pins it (negentropy protocol V1): range fingerprints, messages, and both
// roles of a session. It knows no store and no wire.
package negentropy

import "fleetmesh.org/fleetmesh/nostr"

// Item is one member of a set: a timestamp in unix seconds and an event id.
// Items are ordered by (Time, ID).
type Item struct {
	Time uint64
	ID   nostr.ID
}

// Sum is the running sum of a set of ids: each id read as a 32-byte
// little-endian unsigned integer, added modulo 2^256. The four words are
// little-endian too: Sum[0] is the least significant.
type Sum [4]uint64

// Set is a frozen, ordered view of the items to reconcile. A Set may be read by one
// goroutine at a time, and must not change while a session uses it.
type Set interface {
	// Len is the number of items.
	Len() int
	// Item returns the i-th item in (Time, ID) order, 0 <= i < Len().
	Item(i int) Item
	// Search returns the smallest i such that Item(i) is not below b, or Len().
	Search(b Item) int
	// Sum returns the sum of the ids of the items lo <= i < hi.
	Sum(lo, hi int) Sum
}
