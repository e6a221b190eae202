package didcomm

import (
	"encoding/json"
	"fmt"
)

// Routing is the protocol URI of routing/2.0.
const Routing = "https://didcomm.org/routing/2.0"

// TypeForward asks a mediator to pass an envelope on.
const TypeForward = Routing + "/forward"

// Forward is the request to pass Envelope on to Next, a DID or a key id. A
// mediator learns nothing else: the message comes from nobody.
type Forward struct {
	Next        string
	Envelope    []byte // an encrypted message, JSON
	ExpiresTime int64  // unix seconds; 0: the mediator's own limit
}

type forwardBody struct {
	Next string `json:"next"`
}

// Wrap seals the forward for a mediator, from nobody.
func (f Forward) Wrap(id string, mediator PublicKey) ([]byte, error) {
	m := &Message{
		ID:          id,
		Type:        TypeForward,
		To:          []string{DIDOf(mediator.KID)},
		ExpiresTime: f.ExpiresTime,
		Attachments: []Attachment{{ID: "0", MediaType: TypEncrypted, Data: AttachmentData{JSON: json.RawMessage(f.Envelope)}}},
	}
	if err := m.SetBody(forwardBody{Next: f.Next}); err != nil {
		return nil, err
	}
	b, err := m.JSON()
	if err != nil {
		return nil, err
	}
	return Anoncrypt(b, []PublicKey{mediator})
}

// ParseForward reads a forward message that was unpacked. The envelope inside
// must itself be encrypted, or the mediator would be shown a message.
func ParseForward(m *Message) (Forward, error) {
	if m.Type != TypeForward {
		return Forward{}, fmt.Errorf("%w: %.80q is not a forward", ErrSyntax, m.Type)
	}
	var body forwardBody
	if err := m.DecodeBody(&body); err != nil {
		return Forward{}, err
	}
	if body.Next == "" || len(body.Next) > MaxIDLength {
		return Forward{}, fmt.Errorf("%w: forward: next is missing or too long", ErrSyntax)
	}
	if len(m.Attachments) != 1 {
		return Forward{}, fmt.Errorf("%w: forward: %d attachments, wanted one", ErrSyntax, len(m.Attachments))
	}
	inner, err := m.Attachments[0].Content()
	if err != nil {
		return Forward{}, err
	}
	if _, err := parseJWE(inner); err != nil {
		return Forward{}, fmt.Errorf("forward: %w", err)
	}
	return Forward{Next: body.Next, Envelope: inner, ExpiresTime: m.ExpiresTime}, nil
}
