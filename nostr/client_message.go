package nostr

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"
)

const (
	// MaxSubIDLength is the largest length of a subscription id, in characters
	// (NIP-01).
	MaxSubIDLength = 64
	// MaxFilters is the largest number of filters one message may hold. It only
	// keeps a message from growing in memory; relays may want fewer.
	MaxFilters = 512
)

// ClientMessage is what a client sends to a relay: one of *EventMessage,
// *ReqMessage, *CloseMessage, *CountMessage, *AuthMessage, *NegOpenMessage,
// *NegMsgMessage and *NegCloseMessage.
type ClientMessage interface {
	// Label is the message's first element, such as "REQ".
	Label() string
}

// EventMessage publishes an event (NIP-01). Where the event itself is bad, Event
// is nil and Err says why, and RawID names what the OK should name.
type EventMessage struct {
	Event *Event
	RawID string
	Err   error
}

// AuthMessage authenticates the client (NIP-42). Its fields are as in
// EventMessage.
type AuthMessage struct {
	Event *Event
	RawID string
	Err   error
}

// ReqMessage opens or replaces a subscription (NIP-01). It has at least one
// filter.
type ReqMessage struct {
	SubID   string
	Filters []Filter
}

// CountMessage asks for a count (NIP-45). It has at least one filter.
type CountMessage struct {
	QueryID string
	Filters []Filter
}

// CloseMessage ends a subscription (NIP-01).
type CloseMessage struct{ SubID string }

// NegOpenMessage opens a reconciliation (NIP-77).
type NegOpenMessage struct {
	SubID   string
	Filter  Filter
	Message []byte
}

// NegMsgMessage continues a reconciliation (NIP-77).
type NegMsgMessage struct {
	SubID   string
	Message []byte
}

// NegCloseMessage ends a reconciliation (NIP-77).
type NegCloseMessage struct{ SubID string }

// Label is "EVENT".
func (*EventMessage) Label() string { return "EVENT" }

// Label is "AUTH".
func (*AuthMessage) Label() string { return "AUTH" }

// Label is "REQ".
func (*ReqMessage) Label() string { return "REQ" }

// Label is "COUNT".
func (*CountMessage) Label() string { return "COUNT" }

// Label is "CLOSE".
func (*CloseMessage) Label() string { return "CLOSE" }

// Label is "NEG-OPEN".
func (*NegOpenMessage) Label() string { return "NEG-OPEN" }

// Label is "NEG-MSG".
func (*NegMsgMessage) Label() string { return "NEG-MSG" }

// Label is "NEG-CLOSE".
func (*NegCloseMessage) Label() string { return "NEG-CLOSE" }

// MessageError says why a text is no client message. Type and SubID are filled
// as far as they could be read, so that the answer can be the right one: CLOSED for
// REQ and COUNT, NEG-ERR for the NEG messages, NOTICE if Type or SubID is empty.
type MessageError struct {
	Type   string // "REQ" and so on, "" if not known
	SubID  string // as the client wrote it, even if that is too long
	Reason string // for a human, without prefix
	// Unsupported tells that a filter was refused only for a member that it
	// may have by a NIP which this package does not know.
	Unsupported bool
}

// Error returns the reason.
func (e *MessageError) Error() string { return e.Reason }

// ParseClientMessage reads one frame that a client sent. White space around it
// and a byte order mark before it are read over. The error is a *MessageError; a
// bad event inside EVENT or AUTH is no error of the message.
func ParseClientMessage(b []byte) (ClientMessage, error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	p := scanner{s: text(b)}
	label, err := p.label()
	if err != nil {
		return nil, &MessageError{Reason: "bad message: " + reason(err)}
	}
	switch label {
	case "EVENT":
		m := new(EventMessage)
		m.Event, m.RawID, m.Err = p.lastEvent(b)
		return m, nil
	case "AUTH":
		m := new(AuthMessage)
		m.Event, m.RawID, m.Err = p.lastEvent(b)
		return m, nil
	}
	// From here on strings are kept, so they must not be views of b.
	p.s = string(b)
	label = strings.Clone(label)
	r := &request{scanner: p, label: label}
	m, err := r.message()
	if err != nil {
		return nil, &MessageError{
			Type: r.label, SubID: r.sub, Reason: "bad message: " + reason(err),
			Unsupported: errors.Is(err, errUnknownMember),
		}
	}
	return m, nil
}

// reason is a syntax error's text without the sentinel's.
func reason(err error) string {
	return strings.ReplaceAll(err.Error(), ErrSyntax.Error()+": ", "")
}

// label takes the opening bracket and the first element.
func (p *scanner) label() (string, error) {
	if !p.next('[') {
		return "", syntaxError("a message must be a JSON array")
	}
	if p.next(']') {
		return "", syntaxError("the array is empty")
	}
	label, err := p.str()
	if err != nil {
		return "", syntaxError("the first element must be a string")
	}
	return label, nil
}

// lastEvent reads the event that must be the rest of the frame b but for the
// closing bracket. p must scan b.
func (p *scanner) lastEvent(b []byte) (*Event, string, error) {
	if !p.next(',') {
		return nil, PeekID(b[p.i:]), syntaxError("the message has no event")
	}
	body := bytes.TrimRight(b[p.i:], " \t\r\n")
	n := len(body) - 1
	if n < 0 || body[n] != ']' {
		return nil, PeekID(body), syntaxError("the message is not closed")
	}
	e, id, err := parseEvent(string(body[:n]), demand{needed: seenAll})
	if err != nil {
		return nil, PeekID(body), err
	}
	return e, id, nil
}

// request reads the messages that carry a subscription id.
type request struct {
	scanner
	label string
	sub   string
}

var errNotCommand = errors.New("unknown message type")

func (r *request) message() (ClientMessage, error) {
	switch r.label {
	case "REQ", "COUNT", "CLOSE", "NEG-OPEN", "NEG-MSG", "NEG-CLOSE":
	default:
		r.label = ""
		return nil, errNotCommand
	}
	if err := r.subID(); err != nil {
		return nil, err
	}
	m, err := r.body()
	if err != nil {
		return nil, err
	}
	if err := r.want(']'); err != nil {
		return nil, err
	}
	if err := r.end(); err != nil {
		// Two messages in one frame: neither counts, nor does what the first names.
		r.label, r.sub = "", ""
		return nil, err
	}
	return m, nil
}

// body takes what follows the subscription id, up to the closing bracket.
func (r *request) body() (ClientMessage, error) {
	switch r.label {
	case "REQ":
		filters, err := r.filters()
		return &ReqMessage{SubID: r.sub, Filters: filters}, err
	case "COUNT":
		filters, err := r.filters()
		return &CountMessage{QueryID: r.sub, Filters: filters}, err
	case "CLOSE":
		return &CloseMessage{SubID: r.sub}, nil
	case "NEG-OPEN":
		if err := r.want(','); err != nil {
			return nil, err
		}
		f, err := r.filter()
		if err != nil {
			return nil, err
		}
		msg, err := r.hexMessage()
		return &NegOpenMessage{SubID: r.sub, Filter: f, Message: msg}, err
	case "NEG-MSG":
		msg, err := r.hexMessage()
		return &NegMsgMessage{SubID: r.sub, Message: msg}, err
	default:
		return &NegCloseMessage{SubID: r.sub}, nil
	}
}

func (r *request) subID() error {
	if err := r.want(','); err != nil {
		return err
	}
	s, err := r.str()
	if err != nil {
		return syntaxError("the subscription id must be a string")
	}
	r.sub = s
	if s == "" {
		return syntaxError("the subscription id is empty")
	}
	if utf8.RuneCountInString(s) > MaxSubIDLength {
		return syntaxError("the subscription id is longer than %d characters", MaxSubIDLength)
	}
	return nil
}

func (r *request) filters() ([]Filter, error) {
	var out []Filter
	for r.next(',') {
		if len(out) == MaxFilters {
			return nil, syntaxError("more than %d filters", MaxFilters)
		}
		f, err := r.filter()
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, syntaxError("the message has no filter")
	}
	return out, nil
}

// hexMessage takes a comma and a negentropy message in hex of either case.
func (p *scanner) hexMessage() ([]byte, error) {
	if err := p.want(','); err != nil {
		return nil, err
	}
	s, err := p.str()
	if err != nil {
		return nil, err
	}
	msg, err := hex.DecodeString(s)
	if err != nil {
		return nil, syntaxError("the negentropy message is not hex")
	}
	return msg, nil
}
