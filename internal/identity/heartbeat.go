package identity

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Heartbeat says that a node is up and what it currently looks like, kind 21801, and on
// purpose nothing about its peers.
type Heartbeat struct {
	Subject   nostr.PubKey
	At        int64
	Class     spec.Class
	Endpoints string // EndpointsDigest of what the node serves now, "" if not said
	Load      string // advisory, for people; nothing may be reported against it
}

// EndpointsDigest is SHA-256 over the canonical JSON of the sorted [scheme, address]
// pairs, preference left out, as 64 hex digits (§ Discovery, "Liveness").
func EndpointsDigest(endpoints []Endpoint) string {
	pairs := make([][2]string, 0, len(endpoints))
	for _, p := range endpoints {
		pairs = append(pairs, [2]string{p.Scheme, p.Address})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	pairs = slices.Compact(pairs)
	text, err := spec.Canonical(pairs)
	if err != nil {
		return "" // an address that is not UTF-8 has no digest; no event can carry it
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Event builds the unsigned heartbeat.
func (h *Heartbeat) Event() *nostr.Event {
	e := &nostr.Event{PubKey: h.Subject, CreatedAt: h.At, Kind: spec.KindHeartbeat}
	e.Tags = append(e.Tags, nostr.Tag{"class", string(h.Class)})
	if h.Endpoints != "" {
		e.Tags = append(e.Tags, nostr.Tag{"endpoints", h.Endpoints})
	}
	if h.Load != "" {
		e.Tags = append(e.Tags, nostr.Tag{"load", h.Load})
	}
	return e
}

// ParseHeartbeat reads a heartbeat, whose signature is the caller's to verify.
func ParseHeartbeat(e *nostr.Event) (*Heartbeat, error) {
	if e.Kind != spec.KindHeartbeat {
		return nil, fault(WrongKind, strconv.Itoa(int(e.Kind)))
	}
	h := &Heartbeat{Subject: e.PubKey, At: e.CreatedAt}
	for _, t := range e.Tags {
		if len(t) < 2 {
			continue
		}
		switch t[0] {
		case "class":
			if h.Class != "" {
				return nil, fault(DuplicateTag, "class")
			}
			h.Class = spec.Class(t[1])
		case "endpoints":
			if err := checkDigest("endpoints", t[1]); err != nil {
				return nil, err
			}
			h.Endpoints = t[1]
		case "load":
			h.Load = t[1]
		}
	}
	switch {
	case h.Class == "":
		return nil, fault(NoClass, "")
	case !knownClass(h.Class):
		return nil, fault(UnknownClass, string(h.Class))
	case h.Class == spec.ClassLeaf:
		return nil, fault(LeafHeartbeat, "")
	}
	return h, nil
}

// Against compares a heartbeat with the live descriptor of its node. ClassMismatch is a misreport of
// the node about itself (S2); StaleEndpoints only says that the descriptor should be fetched anew.
func (h *Heartbeat) Against(d *Descriptor) error {
	switch {
	case h.Subject != d.Subject:
		return fault(WrongSubject, h.Subject.String())
	case d.Class == spec.ClassLeaf:
		return fault(LeafHeartbeat, "")
	case h.Class != d.Class:
		return fault(ClassMismatch, string(h.Class)+" in the heartbeat, "+string(d.Class)+" in the descriptor")
	case h.Endpoints != "" && h.Endpoints != EndpointsDigest(d.Endpoints):
		return fault(StaleEndpoints, h.Endpoints)
	}
	return nil
}

// HeartbeatEvery is how often an anchor must send one: hourly, or once per its shortest active
// grant window if that is shorter. Seconds; shortest 0 means no grant.
func HeartbeatEvery(shortest int64) int64 {
	most := spec.C().Lifetimes.HeartbeatMaxIntervalSeconds
	if shortest > 0 && shortest < most {
		return shortest
	}
	return most
}
