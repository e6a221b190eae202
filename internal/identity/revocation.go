package identity

import (
	"fmt"
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Reasons that a revocation commonly names; any other text is as good.
const (
	Retired       = "retired"
	KeyCompromise = "key-compromise"
	Migrated      = "migrated"
)

// Revocation retires a node key, kind 11802. It proves that whoever holds the key asked
// for it and nothing more, so grants to the subject go to zero and nothing passes on.
type Revocation struct {
	Subject   nostr.PubKey
	At        int64
	Reason    string
	Successor nostr.PubKey // advisory, zero if none: it starts on probation like any stranger
	Note      string
}

// Event builds the unsigned revocation.
func (r *Revocation) Event() *nostr.Event {
	e := &nostr.Event{PubKey: r.Subject, CreatedAt: r.At, Kind: spec.KindRevocation, Content: r.Note}
	if r.Reason != "" {
		e.Tags = append(e.Tags, nostr.Tag{"reason", r.Reason})
	}
	if r.Successor != (nostr.PubKey{}) {
		e.Tags = append(e.Tags, nostr.Tag{"successor", r.Successor.String()})
	}
	return e
}

// CheckRevocation reads a revocation. subject is the key it should retire, nil for whoever signed;
// held says that the signature was verified before. A successor that is no key does not
// save the key: it is dropped, because refusing the whole would leave a stolen key alive.
func CheckRevocation(e *nostr.Event, subject *nostr.PubKey, held bool) (*Revocation, error) {
	switch {
	case e.Kind != spec.KindRevocation:
		return nil, fault(WrongKind, strconv.Itoa(int(e.Kind)))
	case subject != nil && *subject != e.PubKey:
		return nil, fault(WrongSubject, e.PubKey.String())
	case !OnCurve(e.PubKey):
		return nil, fault(OffCurve, "secp256k1 "+e.PubKey.String())
	case !held && (e.ComputeID() != e.ID || !Verify(e.PubKey, e.ID, e.Sig)):
		return nil, fault(BadSignature, e.ID.String())
	}
	r := &Revocation{Subject: e.PubKey, At: e.CreatedAt, Note: e.Content}
	for _, t := range e.Tags {
		if len(t) < 2 {
			continue
		}
		switch t[0] {
		case "reason":
			r.Reason = t[1]
		case "successor":
			if k, err := parseKey(t[1]); err == nil && k != e.PubKey {
				r.Successor = k
			}
		}
	}
	return r, nil
}

// NewRevocation makes a revocation, refusing a successor that is the subject itself or no key.
func NewRevocation(subject nostr.PubKey, at int64, reason string, successor nostr.PubKey, note string) (*Revocation, error) {
	if successor == subject {
		return nil, fault(SelfSuccessor, "")
	}
	if successor != (nostr.PubKey{}) && !OnCurve(successor) {
		return nil, fmt.Errorf("successor: %w", fault(OffCurve, "secp256k1 "+successor.String()))
	}
	return &Revocation{Subject: subject, At: at, Reason: reason, Successor: successor, Note: note}, nil
}
