package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Envelope wraps an event that crosses between nodes, and says who put it into federation and
// who passed it on, when, and against which grant.
type Envelope struct {
	Event  *nostr.Event
	Path   []Hop // first to last; the last is who delivers
	Grant  nostr.ID
	Window int64 // epoch
}

// Hop is one node's signature over (event, hop before, time).
type Hop struct {
	Node nostr.PubKey
	At   int64 // unix seconds
	Sig  nostr.Sig
}

// HopMessage is what a hop signs: SHA-256 of "fleetmesh/hop/1|event id|hop before|time", the hop before being its DID
// as written and empty for the first, the time in decimal.
func HopMessage(event nostr.ID, before string, at int64) [32]byte {
	f := spec.C().Forwarding
	return sha256.Sum256([]byte(strings.Join([]string{f.HopLabel, event.String(), before, strconv.FormatInt(at, 10)}, f.HopSeparator)))
}

// SignHop appends a node's hop. It refuses a fourth, and a node that is in the path already.
func (e *Envelope) SignHop(a identity.Agent, at int64) error {
	if len(e.Path) >= spec.C().Forwarding.MaxHops {
		return fault(HopLimit, strconv.Itoa(len(e.Path)+1))
	}
	before := ""
	for _, h := range e.Path {
		if h.Node == a.PubKey() {
			return fault(HopLoop, identity.FormatDID(h.Node))
		}
		before = identity.FormatDID(h.Node)
		at = max(at, h.At)
	}
	sig, err := a.Sign(HopMessage(e.Event.ID, before, at))
	if err != nil {
		return err
	}
	e.Path = append(e.Path, Hop{a.PubKey(), at, sig})
	return nil
}

// Forward is the envelope as the next node sends it on: the same event and path, charged to another grant, to be signed.
func (e *Envelope) Forward(grant nostr.ID, window int64) *Envelope {
	return &Envelope{Event: e.Event, Path: append([]Hop{}, e.Path...), Grant: grant, Window: window}
}

// Triples are the signatures of the hops, in order. The event's own signature is an event's and is
// verified as one.
func (e *Envelope) Triples() []Triple {
	out := make([]Triple, 0, len(e.Path))
	before := ""
	for _, h := range e.Path {
		out = append(out, Triple{h.Node, HopMessage(e.Event.ID, before, h.At), h.Sig})
		before = identity.FormatDID(h.Node)
	}
	return out
}

// Origin is the node that first put the event into federation.
func (e *Envelope) Origin() nostr.PubKey { return e.Path[0].Node }

// Deliverer is the node of the last hop.
func (e *Envelope) Deliverer() nostr.PubKey { return e.Path[len(e.Path)-1].Node }

type hopJSON struct {
	Node string `json:"node"`
	At   int64  `json:"at"`
	Sig  string `json:"sig"`
}

type envelopeJSON struct {
	Event  jsontext.Value `json:"event"`
	Path   []hopJSON      `json:"path"`
	Grant  string         `json:"grant"`
	Window int64          `json:"window"`
}

// JSON is the envelope as it travels, the event's text as it came.
func (e *Envelope) JSON() []byte {
	text := e.Event.JSON()
	b := make([]byte, 0, len(text)+300*(len(e.Path)+1))
	b = append(b, `{"event":`...)
	b = append(b, text...)
	b = append(b, `,"grant":"`...)
	b = append(b, e.Grant.String()...)
	b = append(b, `","path":[`...)
	for i, h := range e.Path {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"at":`...)
		b = strconv.AppendInt(b, h.At, 10)
		b = append(b, `,"node":"`...)
		b = append(b, identity.FormatDID(h.Node)...)
		b = append(b, `","sig":"`...)
		b = append(b, h.Sig.String()...)
		b = append(b, `"}`...)
	}
	b = append(b, `],"window":`...)
	b = strconv.AppendInt(b, e.Window, 10)
	return append(b, '}')
}

// ParseEnvelope reads an envelope: the event must be one and its id its hash, the path one to three
// hops of well-formed DIDs. Signatures are for Triples, rules of the moment for Check.
func ParseEnvelope(b []byte) (*Envelope, error) {
	var w envelopeJSON
	if err := decodeStrict(b, &w); err != nil {
		return nil, fault(BadJSON, err.Error())
	}
	if len(w.Path) == 0 {
		return nil, fault(EmptyPath, "")
	}
	ev, err := nostr.ParseEvent(w.Event)
	if err != nil {
		return nil, fault(BadEvent, err.Error())
	}
	grant, ok := parseHex32(w.Grant)
	if !ok || !isCount(w.Window) {
		return nil, fault(BadField, "grant or window")
	}
	e := &Envelope{Event: ev, Grant: grant, Window: w.Window}
	for _, h := range w.Path {
		k, err := identity.ParseSignerDID(h.Node)
		if err != nil {
			return nil, err
		}
		sig, err := hex.DecodeString(h.Sig)
		if err != nil || len(sig) != len(nostr.Sig{}) || h.Sig != strings.ToLower(h.Sig) || !isCount(h.At) {
			return nil, fault(BadField, "hop")
		}
		e.Path = append(e.Path, Hop{k, h.At, nostr.Sig(sig)})
	}
	if len(e.Path) > spec.C().Forwarding.MaxHops {
		// Parsed all the same, so that a caller can show what it refused.
		return e, fault(HopLimit, strconv.Itoa(len(e.Path)))
	}
	return e, nil
}

// Delivery is what a receiver holds an envelope against.
type Delivery struct {
	Self   nostr.PubKey // the receiver
	Peer   nostr.PubKey // the node at the other end of the session
	Grant  *Grant       // in force, issued by Self to Peer for a push, by Peer to Self for a pull
	Way    Direction    // seen from the grant's subject
	Window Window       // of the deliver message
	Now    int64
}

// Check tries every rule of an envelope but signatures: path, grant, window, scope. An event that no
// envelope covers in this sense and in its signatures must not be stored.
func (e *Envelope) Check(d Delivery) error {
	if err := e.checkPath(d); err != nil {
		return err
	}
	switch {
	case e.Grant != d.Grant.ID:
		return fault(WrongGrant, e.Grant.String())
	case e.Window != d.Window.Epoch:
		return fault(WrongWindow, strconv.FormatInt(e.Window, 10))
	}
	return CheckScope(d.Grant.Scopes, d.Way, e.Event, d.Now)
}

func (e *Envelope) checkPath(d Delivery) error {
	switch {
	case len(e.Path) == 0:
		return fault(EmptyPath, "")
	case len(e.Path) > spec.C().Forwarding.MaxHops:
		return fault(HopLimit, strconv.Itoa(len(e.Path)))
	case e.Deliverer() != d.Peer:
		return fault(LastHop, identity.FormatDID(e.Deliverer()))
	}
	skew := spec.C().Window.SkewSeconds
	seen := map[nostr.PubKey]bool{d.Self: true}
	for i, h := range e.Path {
		switch {
		case seen[h.Node]:
			return fault(HopLoop, identity.FormatDID(h.Node))
		case h.At > d.Now+skew:
			return fault(HopFuture, strconv.FormatInt(h.At, 10))
		case i > 0 && h.At < e.Path[i-1].At-skew: // clocks of strangers differ by the skew, no more
			return fault(HopOrder, strconv.FormatInt(h.At, 10))
		}
		seen[h.Node] = true
	}
	return nil
}

// VerifyEnvelopes checks every signature of a group of envelopes, those of their events among them, in one call
// of the verifier. The answer has one error an envelope, nil where all hold. Hops of one session share keys, which
// a verifier that remembers keys is quick with.
func VerifyEnvelopes(v nostr.Verifier, envelopes []*Envelope) []error {
	var all []*nostr.Event
	for _, e := range envelopes {
		all = append(all, e.Event)
		for _, t := range e.Triples() {
			all = append(all, t.asEvent())
		}
	}
	ok := v.Verify(all)
	out := make([]error, len(envelopes))
	at := 0
	for i, e := range envelopes {
		if !ok[at] {
			out[i] = fault(EventSig, e.Event.ID.String())
		}
		at++
		for hop := range e.Path {
			if !ok[at] && out[i] == nil {
				out[i] = fault(HopSignature, strconv.Itoa(hop))
			}
			at++
		}
	}
	return out
}

// asEvent dresses a triple as the event whose id was signed, which is all that a verifier looks at.
func (t Triple) asEvent() *nostr.Event {
	return &nostr.Event{ID: t.Digest, PubKey: t.Key, Sig: t.Sig}
}

// VerifyEnvelope checks every signature of one envelope.
func VerifyEnvelope(e *Envelope) error {
	return VerifyEnvelopes(nostr.NewVerifier(), []*Envelope{e})[0]
}
