package identity

import (
	"slices"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Roster names every member of a gossip topic, kind 30804. A node grafts only while the event in
// force at the coordinate names its key; a new version without a member removes it.
type Roster struct {
	Admin      nostr.PubKey
	At         int64
	Topic      string // without the admin's prefix
	Members    []nostr.PubKey
	Expiration int64 // from then on it authorises nothing
}

// Coordinate is the d tag, scoped to the admin so that no other key can shadow the roster.
func (r *Roster) Coordinate() string { return r.Admin.String() + ":" + r.Topic }

// Event builds the unsigned roster, members sorted and without repeats.
func (r *Roster) Event() *nostr.Event {
	e := &nostr.Event{PubKey: r.Admin, CreatedAt: r.At, Kind: spec.KindGossipRoster}
	e.Tags = append(e.Tags, nostr.Tag{"d", r.Coordinate()})
	members := slices.Clone(r.Members)
	slices.SortFunc(members, func(a, b nostr.PubKey) int { return strings.Compare(string(a[:]), string(b[:])) })
	for _, m := range slices.Compact(members) {
		e.Tags = append(e.Tags, nostr.Tag{"member", m.String()})
	}
	e.Tags = append(e.Tags, nostr.Tag{"expiration", strconv.FormatInt(r.Expiration, 10)})
	return e
}

// ParseRoster reads a roster, whose signature is the caller's to verify.
func ParseRoster(e *nostr.Event) (*Roster, error) {
	if e.Kind != spec.KindGossipRoster {
		return nil, fault(WrongKind, strconv.Itoa(int(e.Kind)))
	}
	topic, ok := strings.CutPrefix(e.D(), e.PubKey.String()+":")
	if !ok || topic == "" {
		return nil, fault(BadRoster, "d is not <admin>:<topic>")
	}
	r := &Roster{Admin: e.PubKey, At: e.CreatedAt, Topic: topic}
	for _, t := range e.Tags {
		if len(t) < 2 {
			continue
		}
		switch t[0] {
		case "member":
			k, err := parseKey(t[1])
			if err != nil {
				return nil, fault(BadMember, t[1])
			}
			r.Members = append(r.Members, k)
		case "expiration":
			var err error
			if r.Expiration, err = parseSeconds("expiration", t[1]); err != nil {
				return nil, err
			}
		}
	}
	if r.Expiration == 0 {
		return nil, fault(NoExpiration, "")
	}
	return r, nil
}

// Authorises reports whether the roster lets a key graft at now.
func (r *Roster) Authorises(k nostr.PubKey, now int64) bool {
	return now < r.Expiration && slices.Contains(r.Members, k)
}
