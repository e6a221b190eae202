package store

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

// Reasons that the membership rules enter in the refused index themselves.
// Any other word comes from the caller of Refuse or Purge.
const (
	ReasonSuperseded = "superseded" // lost against another version; advisory, bounded
	ReasonExpired    = "expired"    // NIP-40; advisory, bounded
	ReasonDeleted    = "deleted"    // NIP-09 or NIP-62; advisory, the tombstones decide
	ReasonPurged     = "purged"     // by the operator; binding
	ReasonRetention  = "retention"  // by a retention rule or the quota; binding, bounded
)

// Binding says whether a reason alone keeps an event out. The words of the
// membership rules do not: they are hints for a sync, and every decision is made anew from
// the tombstones, so that forgetting a hint never changes the set.
func Binding(reason string) bool {
	switch reason {
	case ReasonSuperseded, ReasonExpired, ReasonDeleted:
		return false
	}
	return true
}

const (
	kindDeletion nostr.Kind = 5    // NIP-09
	kindVanish   nostr.Kind = 62   // NIP-62
	kindGiftWrap nostr.Kind = 1059 // NIP-59
)

// Version is the place of an event among those of its address.
type Version struct {
	CreatedAt int64
	ID        nostr.ID
}

// VersionOf returns the event's version.
func VersionOf(e *nostr.Event) Version { return Version{e.CreatedAt, e.ID} }

// Beats is nostr.Supersedes on versions: later wins, in a tie the lower id (NIP-01).
func (v Version) Beats(w Version) bool {
	if v.CreatedAt != w.CreatedAt {
		return v.CreatedAt > w.CreatedAt
	}
	return bytes.Compare(v.ID[:], w.ID[:]) < 0
}

// State is what a decision may look up. "Held" is what the engine
// has and has not dropped, expired or not. Engines answer from the state before the
// event but after every earlier event of the same batch.
type State interface {
	// Has says whether the id is held.
	Has(id nostr.ID) bool
	// Held returns the event, or nil.
	Held(id nostr.ID) (*nostr.Event, error)
	// Current returns the held version of an address.
	Current(a nostr.Address) (Held, bool)
	// RefusedAs returns the reason under which the id stands in the refused index.
	RefusedAs(id nostr.ID) (reason string, ok bool)
	// Asked says whether that key asked for the deletion of that id.
	Asked(id nostr.ID, by nostr.PubKey) bool
	// DeletedUpTo returns the newest created_at of the address's deletions by address.
	DeletedUpTo(a nostr.Address) (int64, bool)
	// Floor returns the best version of the address that was removed for good.
	Floor(a nostr.Address) (Version, bool)
	// VanishedUpTo returns the newest created_at of the key's vanish requests to us.
	VanishedUpTo(k nostr.PubKey) (int64, bool)
}

// Held is a held version of an address and the time at which it expires, or NoExpiry.
type Held struct {
	Version
	Expires int64
}

// NoExpiry is the Expires of an event without an expiration.
const NoExpiry = math.MaxInt64

// HeldOf returns what Current has to say of e.
func HeldOf(e *nostr.Event) Held {
	h := Held{VersionOf(e), NoExpiry}
	if at, ok := e.Expiration(); ok {
		h.Expires = at
	}
	return h
}

// Drop is the removal of a held event.
type Drop struct {
	ID     nostr.ID
	Reason string
}

// Change is what offering one event does to a store, in full. Engines
// apply it and log it; they add no rule of their own.
type Change struct {
	Event   *nostr.Event
	Outcome Outcome
	Drops   []Drop          // held events that go
	Refuse  string          // reason to enter for the event itself, "" for none
	Asked   []nostr.ID      // ids whose deletion Event.PubKey asks for
	Bounds  []nostr.Address // addresses deleted up to Event.CreatedAt
	Floors  []Floor         // floors to raise
	Vanish  bool            // Event.PubKey vanishes up to Event.CreatedAt: drop Vanishing events
}

// Floor is the best version of an address that was removed for good: what loses
// against it stays out, so that the set does not depend on whether the loser came first.
type Floor struct {
	Address nostr.Address
	Version Version
}

// Rules holds the membership rules of protocol.txt § Replication, NIP-01, NIP-09,
// NIP-40 and NIP-62. They are the only place where membership is decided, for every engine and
// every inbound path. The set they lead to is a function of the set of events
// offered (and of the time), never of their order or batching, because:
//
//   - a deletion binds whether it comes before or after its target, by the author who asked;
//   - a deleted version of a replaceable event still beats the older versions (Floor);
//   - a deletion request binds even when its author's vanish request removes it.
type Rules struct {
	// OwnURLs are the relay URLs by which a vanish request (NIP-62) can name us,
	// besides ALL_RELAYS. They are compared without case and trailing slash.
	OwnURLs []string
}

// Decide says what offering e at time now does. It changes nothing.
func (r *Rules) Decide(s State, e *nostr.Event, now int64) (Change, error) {
	c := Change{Event: e}
	if e.Kind.IsEphemeral() {
		c.Outcome = Ephemeral
		return c, nil
	}
	if e.ExpiredAt(now) {
		c.Outcome, c.Refuse = Expired, ReasonExpired
		return c, nil
	}
	if s.Has(e.ID) {
		c.Outcome = Duplicate
		return c, nil
	}
	if reason, ok := s.RefusedAs(e.ID); ok && Binding(reason) {
		c.Outcome = Refused
		return c, nil
	}
	if r.vanished(s, e) {
		c.Outcome, c.Refuse = Deleted, ReasonDeleted
		return c, r.deletions(s, &c, now)
	}
	return c, r.place(s, &c, now)
}

// place decides about an event that nobody's vanish request covers.
func (r *Rules) place(s State, c *Change, now int64) error {
	e := c.Event
	asked := deletable(e) && s.Asked(e.ID, e.PubKey)
	addr, replaceable := e.Address()
	if !replaceable {
		if asked {
			c.Outcome, c.Refuse = Deleted, ReasonDeleted
			return nil
		}
		c.Outcome = Stored
		r.vanish(c)
		return r.deletions(s, c, now)
	}
	if until, ok := s.DeletedUpTo(addr); ok && e.CreatedAt <= until {
		c.Outcome, c.Refuse = Deleted, ReasonDeleted
		return nil
	}
	if floor, ok := s.Floor(addr); ok && floor.Beats(VersionOf(e)) {
		c.Outcome, c.Refuse = Superseded, ReasonSuperseded
		return nil
	}
	cur, has := s.Current(addr)
	// An expired version is not in the set, so it beats nothing.
	wins := !has || cur.Expires <= now || VersionOf(e).Beats(cur.Version)
	if has && wins {
		reason := ReasonSuperseded
		if cur.Expires <= now {
			reason = ReasonExpired
		}
		c.Drops = append(c.Drops, Drop{cur.ID, reason})
	}
	switch {
	case asked:
		c.Outcome, c.Refuse = Deleted, ReasonDeleted
		c.Floors = append(c.Floors, Floor{addr, VersionOf(e)})
	case wins:
		c.Outcome = Stored
	default:
		c.Outcome, c.Refuse = Superseded, ReasonSuperseded
	}
	return nil
}

// vanished says whether a vanish request covers e. Vanish requests to us stay, as
// the record of why the rest is gone.
func (r *Rules) vanished(s State, e *nostr.Event) bool {
	if r.IsVanish(e) {
		return false
	}
	if until, ok := s.VanishedUpTo(e.PubKey); ok && e.CreatedAt <= until {
		return true
	}
	if e.Kind != kindGiftWrap {
		return false
	}
	for v := range e.TagValues("p") {
		k, err := parseKey(v)
		if err != nil {
			continue
		}
		if until, ok := s.VanishedUpTo(k); ok && e.CreatedAt <= until {
			return true
		}
	}
	return false
}

// Vanishing says whether the vanish of key k up to that time removes the held event e.
// Candidates are the events of k and the gift wraps with a p tag of k.
func (r *Rules) Vanishing(e *nostr.Event, k nostr.PubKey, until int64) bool {
	if e.CreatedAt > until || r.IsVanish(e) {
		return false
	}
	if e.PubKey == k {
		return true
	}
	if e.Kind != kindGiftWrap {
		return false
	}
	for v := range e.TagValues("p") {
		if p, err := parseKey(v); err == nil && p == k {
			return true
		}
	}
	return false
}

// IsVanish says whether e is a vanish request that names us (NIP-62).
func (r *Rules) IsVanish(e *nostr.Event) bool {
	if e.Kind != kindVanish {
		return false
	}
	for v := range e.TagValues("relay") {
		if v == "ALL_RELAYS" {
			return true
		}
		for _, own := range r.OwnURLs {
			if strings.EqualFold(strings.TrimRight(v, "/"), strings.TrimRight(own, "/")) {
				return true
			}
		}
	}
	return false
}

func (r *Rules) vanish(c *Change) {
	if r.IsVanish(c.Event) {
		c.Vanish = true
	}
}

// deletions adds what a deletion request asks for (NIP-09).
func (r *Rules) deletions(s State, c *Change, now int64) error {
	e := c.Event
	if e.Kind != kindDeletion {
		return nil
	}
	dropped := make(map[nostr.ID]bool)
	for v := range e.TagValues("e") {
		id, err := parseID(v)
		if err != nil || id == e.ID {
			continue
		}
		c.Asked = append(c.Asked, id)
		target, err := s.Held(id)
		if err != nil {
			return err
		}
		if target == nil || target.PubKey != e.PubKey || !deletable(target) || dropped[id] {
			continue
		}
		dropped[id] = true
		c.Drops = append(c.Drops, Drop{id, goneAs(HeldOf(target), now)})
		if a, ok := target.Address(); ok && !target.ExpiredAt(now) {
			c.Floors = append(c.Floors, Floor{a, VersionOf(target)})
		}
	}
	for v := range e.TagValues("a") {
		a, ok := deletedAddress(v, e.PubKey)
		if !ok {
			continue
		}
		c.Bounds = append(c.Bounds, a)
		if cur, ok := s.Current(a); ok && cur.CreatedAt <= e.CreatedAt && !dropped[cur.ID] {
			dropped[cur.ID] = true
			c.Drops = append(c.Drops, Drop{cur.ID, goneAs(cur, now)})
		}
	}
	return nil
}

// goneAs is the reason for dropping a deleted event: one that has expired was not in the set
// any more, whether or not the engine had removed it yet.
func goneAs(h Held, now int64) string {
	if h.Expires <= now {
		return ReasonExpired
	}
	return ReasonDeleted
}

// deletable says whether a deletion request can remove e: not against a deletion request
// (NIP-09) and not against a vanish request (NIP-62).
func deletable(e *nostr.Event) bool { return e.Kind != kindDeletion && e.Kind != kindVanish }

// deletedAddress reads an a tag of a deletion request by that author.
func deletedAddress(v string, author nostr.PubKey) (nostr.Address, bool) {
	a, err := nostr.ParseAddress(v)
	if err != nil || a.PubKey != author {
		return nostr.Address{}, false
	}
	if a.Kind.IsReplaceable() {
		return a, a.D == "" // a replaceable kind has one address, without a d
	}
	return a, a.Kind.IsAddressable()
}

// parseID reads 64 lower-case hex digits.
func parseID(v string) (id nostr.ID, err error) {
	if !lowerHex64(v) {
		return id, errNotHex
	}
	_, err = hex.Decode(id[:], []byte(v))
	return id, err
}

func parseKey(v string) (nostr.PubKey, error) {
	id, err := parseID(v)
	return nostr.PubKey(id), err
}

func lowerHex64(v string) bool {
	if len(v) != 64 {
		return false
	}
	for i := range len(v) {
		if c := v[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
