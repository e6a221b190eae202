package didcomm

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Unpacked is a message and what its layers prove about it.
type Unpacked struct {
	Message *Message
	// Encrypted: someone sealed it for us. RecipientKID is our key that opened it.
	Encrypted    bool
	RecipientKID string
	// SenderKID is the key of the authcrypt layer: from is proven, to us alone.
	SenderKID string
	// SignerKID is the key of the signed layer: from is proven, to anybody.
	SignerKID string
	// SenderHidden: an anoncrypt layer was outermost.
	SenderHidden bool
	// Prior is the proven rotation that the message brings. Compare it with the
	// last one accepted by Prior.Follows before acting on it.
	Prior *Prior
}

// Authenticated reports whether from is proven.
func (u *Unpacked) Authenticated() bool { return u.SenderKID != "" || u.SignerKID != "" }

// Unpack opens all layers of a packed message and checks that they belong
// together: from is the sender's and the signer's DID, our key's DID is in to, a
// from_prior proves what it says. Allowed are plaintext, signed, anoncrypt,
// authcrypt, anoncrypt round authcrypt, and each encryption round a signed
// message. What may be done with an unauthenticated message is the caller's
// decision, as are expiry and replay (see Replay).
//
// Errors wrap ErrTooLarge, ErrSyntax, ErrOpen, ErrAddressing or ErrRotation. None
// but ErrOpen can be caused by anything that a key protects, except by whoever
// sealed the message.
func Unpack(packed []byte, keys Keyring, resolve Resolver) (*Unpacked, error) {
	if len(packed) > MaxEnvelope {
		return nil, ErrTooLarge
	}
	u := &Unpacked{}
	b := packed
	for range MaxLayers + 1 {
		var err error
		switch layerOf(b) {
		case layerPlain:
			if err := u.finish(b, resolve); err != nil {
				return nil, err
			}
			return u, nil
		case layerSigned:
			if u.SignerKID != "" {
				return nil, fmt.Errorf("%w: signed twice", ErrSyntax)
			}
			b, u.SignerKID, err = verifySigned(b, resolve)
		case layerEncrypted:
			b, err = u.openLayer(b, keys, resolve)
		default:
			return nil, fmt.Errorf("%w: neither plaintext nor signed nor encrypted", ErrSyntax)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: more than %d layers", ErrSyntax, MaxLayers)
}

func (u *Unpacked) openLayer(b []byte, keys Keyring, resolve Resolver) ([]byte, error) {
	e, err := parseJWE(b)
	if err != nil {
		return nil, err
	}
	auth := e.head.Alg == AlgAuthcrypt
	if u.SignerKID != "" || u.SenderKID != "" || u.Encrypted && !auth {
		return nil, fmt.Errorf("%w: layers in an order that DIDComm does not have", ErrSyntax)
	}
	o, err := e.open(keys, resolve)
	if err != nil {
		return nil, err
	}
	if u.Encrypted && DIDOf(o.kid) != DIDOf(u.RecipientKID) {
		return nil, ErrAddressing
	}
	u.SenderHidden = u.SenderHidden || !auth
	u.Encrypted, u.RecipientKID, u.SenderKID = true, o.kid, o.senderKID
	return o.plain, nil
}

// finish reads the plaintext and holds it to the layers (§ Message Layer
// Addressing Consistency).
func (u *Unpacked) finish(b []byte, resolve Resolver) error {
	m, err := ParseMessage(b)
	if err != nil {
		return err
	}
	u.Message = m
	for _, kid := range []string{u.SenderKID, u.SignerKID} {
		if kid != "" && (m.From == "" || DIDOf(kid) != DIDOf(m.From)) {
			return fmt.Errorf("%w: from is not the DID of the key that sent it", ErrAddressing)
		}
	}
	if u.Encrypted && len(m.To) > 0 && !slices.ContainsFunc(m.To, func(to string) bool { return DIDOf(to) == DIDOf(u.RecipientKID) }) {
		return fmt.Errorf("%w: we are not in to", ErrAddressing)
	}
	if u.Encrypted && u.SignerKID != "" && len(m.To) == 0 {
		// Else the one who got it could seal it for another and pass it on.
		return fmt.Errorf("%w: signed and sealed, but names no addressee", ErrAddressing)
	}
	if m.FromPrior != "" {
		if u.Prior, err = verifyPrior(m.FromPrior, m.From, resolve); err != nil {
			return err
		}
	}
	return nil
}

type layer int

const (
	layerUnknown layer = iota
	layerPlain
	layerSigned
	layerEncrypted
)

// layerOf tells by its members what a JSON object is. It looks no further than it
// must; the parsers check the rest.
func layerOf(b []byte) layer {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return layerUnknown
	}
	for {
		t, err := d.ReadToken()
		if err != nil || t.Kind() != '"' {
			return layerUnknown
		}
		switch t.String() {
		case "ciphertext", "recipients", "encrypted_key":
			return layerEncrypted
		case "signatures", "signature", "payload":
			return layerSigned
		case "type", "id", "body":
			return layerPlain
		}
		if err := d.SkipValue(); err != nil {
			return layerUnknown
		}
	}
}
