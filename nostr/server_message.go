package nostr

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// ServerMessage is what a relay sends to a client: one of *ServerEvent,
// *ServerOK, *ServerEOSE, *ServerClosed, *ServerNotice, *ServerAuth,
// *ServerCount, *ServerNegMsg and *ServerNegErr.
type ServerMessage interface {
	// Label is the message's first element, such as "EOSE".
	Label() string
}

// ServerEvent brings an event of a subscription (NIP-01). Its signature is
// not checked.
type ServerEvent struct {
	SubID string
	Event *Event
}

// ServerOK answers EVENT or AUTH (NIP-01, NIP-42).
type ServerOK struct {
	ID     string
	OK     bool
	Reason string // with its machine-readable prefix
}

// ServerEOSE ends the stored events of a subscription (NIP-01). Hints are
// those of NIP-67, nil if there were none.
type ServerEOSE struct {
	SubID string
	Hints []string
}

// ServerClosed tells that a subscription or count was refused or ended
// (NIP-01).
type ServerClosed struct {
	SubID  string
	Reason string // with its machine-readable prefix
}

// ServerNotice is a text for humans (NIP-01).
type ServerNotice struct{ Text string }

// ServerAuth brings a challenge (NIP-42).
type ServerAuth struct{ Challenge string }

// ServerCount answers COUNT (NIP-45). HLL is nil or 256 registers.
type ServerCount struct {
	QueryID     string
	Count       int64
	Approximate bool
	HLL         []byte
}

// ServerNegMsg continues a reconciliation (NIP-77).
type ServerNegMsg struct {
	SubID   string
	Message []byte
}

// ServerNegErr refuses or ends a reconciliation (NIP-77).
type ServerNegErr struct {
	SubID  string
	Reason string // with its machine-readable prefix
	// MaxRecords is the number of records the relay would process, 0 if it did
	// not say.
	MaxRecords int64
}

// Label is "EVENT".
func (*ServerEvent) Label() string { return "EVENT" }

// Label is "OK".
func (*ServerOK) Label() string { return "OK" }

// Label is "EOSE".
func (*ServerEOSE) Label() string { return "EOSE" }

// Label is "CLOSED".
func (*ServerClosed) Label() string { return "CLOSED" }

// Label is "NOTICE".
func (*ServerNotice) Label() string { return "NOTICE" }

// Label is "AUTH".
func (*ServerAuth) Label() string { return "AUTH" }

// Label is "COUNT".
func (*ServerCount) Label() string { return "COUNT" }

// Label is "NEG-MSG".
func (*ServerNegMsg) Label() string { return "NEG-MSG" }

// Label is "NEG-ERR".
func (*ServerNegErr) Label() string { return "NEG-ERR" }

// ParseServerMessage reads one frame that a relay sent. It is lenient where
// relays differ: the reason may be missing, elements after those known are read
// over. Errors wrap ErrSyntax, or ErrID for an event whose id is wrong.
func ParseServerMessage(b []byte) (ServerMessage, error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	p := scanner{s: text(b)}
	label, err := p.label()
	if err != nil {
		return nil, fmt.Errorf("relay message: %w", err)
	}
	if label == "EVENT" {
		m, err := p.serverEvent(b)
		if err != nil {
			return nil, fmt.Errorf("relay message EVENT: %w", err)
		}
		return m, nil
	}
	at := p.i
	p = scanner{s: string(b), i: at}
	m, err := p.serverMessage(label)
	if err == nil {
		err = p.rest()
	}
	if err != nil {
		return nil, fmt.Errorf("relay message %.10s: %w", label, err)
	}
	return m, nil
}

func (p *scanner) serverEvent(b []byte) (*ServerEvent, error) {
	sub, err := p.element()
	if err != nil {
		return nil, err
	}
	m := &ServerEvent{SubID: strings.Clone(sub)}
	m.Event, _, err = p.lastEvent(b)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p *scanner) serverMessage(label string) (ServerMessage, error) {
	first, err := p.element()
	if err != nil {
		return nil, err
	}
	switch label {
	case "NOTICE":
		return &ServerNotice{Text: first}, nil
	case "AUTH":
		return &ServerAuth{Challenge: first}, nil
	case "OK":
		return p.serverOK(first)
	case "EOSE":
		return p.serverEOSE(first)
	case "CLOSED":
		reason, err := p.optional()
		return &ServerClosed{SubID: first, Reason: reason}, err
	case "COUNT":
		return p.serverCount(first)
	case "NEG-MSG":
		msg, err := p.hexMessage()
		return &ServerNegMsg{SubID: first, Message: msg}, err
	case "NEG-ERR":
		return p.serverNegErr(first)
	}
	return nil, syntaxError("unknown message type")
}

// element takes a comma and a string.
func (p *scanner) element() (string, error) {
	if err := p.want(','); err != nil {
		return "", err
	}
	return p.str()
}

// optional takes a comma and a string, if there are any.
func (p *scanner) optional() (string, error) {
	if !p.next(',') {
		return "", nil
	}
	return p.str()
}

// rest takes further elements, the closing bracket and the end.
func (p *scanner) rest() error {
	for p.next(',') {
		if err := p.skip(1); err != nil {
			return err
		}
	}
	if err := p.want(']'); err != nil {
		return err
	}
	return p.end()
}

func (p *scanner) boolean() (bool, error) {
	switch {
	case p.literal("true"):
		return true, nil
	case p.literal("false"):
		return false, nil
	}
	return false, syntaxError("expected true or false %s", p.where())
}

func (p *scanner) serverOK(id string) (*ServerOK, error) {
	m := &ServerOK{ID: id}
	if err := p.want(','); err != nil {
		return nil, err
	}
	var err error
	if m.OK, err = p.boolean(); err != nil {
		return nil, err
	}
	m.Reason, err = p.optional()
	return m, err
}

func (p *scanner) serverEOSE(sub string) (*ServerEOSE, error) {
	m := &ServerEOSE{SubID: sub}
	if !p.next(',') {
		return m, nil
	}
	if p.peek() != '[' {
		return m, p.skip(1)
	}
	err := p.array(func() error {
		if p.peek() != '"' {
			return p.skip(2)
		}
		hint, err := p.str()
		m.Hints = append(m.Hints, hint)
		return err
	})
	return m, err
}

func (p *scanner) serverCount(id string) (*ServerCount, error) {
	m := &ServerCount{QueryID: id, Count: -1}
	if err := p.want(','); err != nil {
		return nil, err
	}
	err := p.object(func(key string) (err error) {
		switch key {
		case "count":
			m.Count, err = p.number(MaxCreatedAt)
		case "approximate":
			m.Approximate, err = p.boolean()
		case "hll":
			var s string
			if s, err = p.str(); err != nil {
				return err
			}
			if m.HLL, err = hex.DecodeString(s); err != nil || len(m.HLL) != len(HLL{}) {
				return syntaxError("hll is not %d hex digits", 2*len(HLL{}))
			}
		default:
			err = p.skip(2)
		}
		return err
	})
	if err == nil && m.Count < 0 {
		err = syntaxError("the answer has no count")
	}
	return m, err
}

func (p *scanner) serverNegErr(sub string) (*ServerNegErr, error) {
	m := &ServerNegErr{SubID: sub}
	var err error
	if m.Reason, err = p.optional(); err != nil {
		return nil, err
	}
	if !p.next(',') {
		return m, nil
	}
	if p.peek()-'0' < 10 {
		m.MaxRecords, err = p.number(MaxCreatedAt)
		return m, err
	}
	return m, p.skip(1)
}
