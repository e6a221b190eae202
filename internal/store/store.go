// Package store keeps events: the port of protocol.txt § Replication
// (MeshStore) and what a relay needs beyond it. The default engine is the
// event log in package eventlog; Memory, beside this interface, serves unit tests
// and the simulator and is the oracle that adapters are compared with.
package store

import (
	"context"
	"errors"
	"iter"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("event not found")
	ErrReadOnly = errors.New("store is read-only") // set so by the operator, or after a failed write
	ErrFull     = errors.New("store is full")      // over its size quota, or the disk has no room
	ErrClosed   = errors.New("store is closed")
)

// Outcome is what became of one event offered to Insert.
type Outcome uint8

const (
	Stored     Outcome = iota + 1 // new, and durable when Insert returns
	Duplicate                     // already held
	Superseded                    // a replaceable event that loses against the one held (NIP-01)
	Deleted                       // tombstoned by its author's deletion (NIP-09) or vanish (NIP-62)
	Expired                       // past its NIP-40 expiration
	Ephemeral                     // never stored (20000 <= kind < 30000)
	Refused                       // in the durable known-and-refused index, or purged by the operator
)

// Refusal is an entry of the durable "known and refused" index: an id that was
// offered, and not kept, so that it is not fetched again (PAINS S1, S4).
type Refusal struct {
	ID     nostr.ID `json:"id"`
	Reason string   `json:"reason"` // short machine-readable word, e.g. "superseded", "expired", "policy", "purged", "deleted"
	At     int64    `json:"at"`     // unix seconds
}

// View says which events a reader may see. Events whose kind is in Hide are hidden
// unless every p tag they carry (and at least one) names a key in Reveal.
// The zero View hides nothing. Every read path applies one: it is the store's half of
// the one read gate.
type View struct {
	Hide   []nostr.Kind
	Reveal []nostr.PubKey
}

// Arrival is an event with its place in the order of arrival.
type Arrival struct {
	Seq   uint64 // strictly increasing; a late, back-dated event gets a later Seq
	Event *nostr.Event
}

// Store is an event store. Implementations are safe for concurrent use. now is unix seconds: an
// expired event (NIP-40) is in no answer, count or set, whether or not it is still on disk.
// Membership follows the four rules of protocol.txt § Replication.
type Store interface {
	// Get returns the event, or ErrNotFound.
	Get(ctx context.Context, id nostr.ID, now int64) (*nostr.Event, error)
	// Has says whether the event is in the set.
	Has(ctx context.Context, id nostr.ID, now int64) (bool, error)

	// Insert offers verified events, in order, and applies supersession, deletions (kind 5)
	// and vanish requests (kind 62) that they carry. It returns one Outcome an event; Stored means durable.
	// On error nothing of the batch counts as stored and the caller may offer it again.
	Insert(ctx context.Context, events []*nostr.Event, now int64) ([]Outcome, error)

	// Query yields the events that match any of the filters, each once, newest first and by the lower id
	// in a tie (NIP-01). Each filter's Limit holds for that filter alone; max bounds the whole answer (0: no bound). A filter's
	// Search is matched as the engine can (NIP-50); results keep the same order.
	Query(ctx context.Context, filters []nostr.Filter, view View, max int, now int64) iter.Seq2[*nostr.Event, error]
	// Count returns how many events match any of the filters, each counted once; limits are ignored.
	Count(ctx context.Context, filters []nostr.Filter, view View, now int64) (int, error)

	// Set freezes the events that match any of the filters as a negentropy set. Limits are ignored. release must be
	// called when the set is no longer used.
	Set(ctx context.Context, filters []nostr.Filter, view View, now int64) (set negentropy.Set, release func(), err error)
	// FingerprintRange is NIP-77's fingerprint over filter ∩ [since, until].
	FingerprintRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([16]byte, error)
	// EnumerateRange lists the ids over filter ∩ [since, until] in (created_at, id) order.
	EnumerateRange(ctx context.Context, f nostr.Filter, since, until, now int64) ([]nostr.ID, error)

	// Arrivals yields the live events with Seq > after in arrival order, and ends at the present.
	Arrivals(ctx context.Context, after uint64, now int64) iter.Seq2[Arrival, error]
	// LastSeq is the Seq of the newest arrival, 0 for an empty store.
	LastSeq(ctx context.Context) (uint64, error)

	// Purge removes the ids for good, as the operator: they enter the refused index with the reason. It returns how many were held.
	Purge(ctx context.Context, ids []nostr.ID, reason string, now int64) (int, error)
	// Refuse records ids as known and refused without having them.
	Refuse(ctx context.Context, refusals []Refusal) error
	// Refusal looks an id up in the refused index and the tombstones.
	Refusal(ctx context.Context, id nostr.ID) (Refusal, bool, error)
	// Refusals yields the whole refused index, in no particular order.
	Refusals(ctx context.Context) iter.Seq2[Refusal, error]

	// Stats reports sizes and counters.
	Stats(ctx context.Context) (Stats, error)
	// Close makes everything durable and ends the store. A second call is harmless.
	Close() error
}

// Prefetcher is a Store to which each Get is a question over a network. Prefetch brings events that are about to be asked for one by one, so that
// they cost one question together.
type Prefetcher interface {
	Prefetch(ctx context.Context, ids []nostr.ID, now int64) error
}

// Passer is a Store that several processes share. Pass hands ephemeral events, which no store keeps, to whoever listens at the others. It does not
// wait, and drops what is too much: nobody is owed an ephemeral event.
type Passer interface {
	Pass(events []*nostr.Event)
}

// Stats describes a store. Bytes are octets on disk (0 for Memory). Its JSON keys are stable.
type Stats struct {
	Events     int64  `json:"events"` // live events
	Tombstones int64  `json:"tombstones"`
	Refusals   int64  `json:"refusals"`
	Bytes      int64  `json:"bytes"`      // held on disk by the store
	DeadBytes  int64  `json:"dead_bytes"` // logically freed, not yet returned to the file system
	Returned   int64  `json:"returned"`   // returned to the file system since the store was made
	LastSeq    uint64 `json:"last_seq"`
	Damaged    int64  `json:"damaged"` // events known to be lost to damage and not yet healed; an export lacks them
}
