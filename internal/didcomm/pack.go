package didcomm

import (
	"fmt"
	"slices"
)

// PackOptions says how a message is to be sealed.
type PackOptions struct {
	From *Sender     // nil seals from nobody (anoncrypt)
	Sign *Signer     // also sign, for a message that a third party may have to judge
	To   []PublicKey // the recipients' keys, all on one curve
	// ShowSender leaves the authcrypt layer bare. By default an anoncrypt layer
	// goes round it, so that no relay or mediator on the way reads who sent it.
	// Bare is half the work, and right where the frame goes straight to the peer.
	ShowSender bool
	// Zip compresses the plaintext of the authcrypt layer where that makes it smaller. DIDComm v2 has no such thing: only for recipients that
	// said that they read it.
	Zip bool
	// Via names the mediators on the way, in the order of routingKeys in a
	// service: the first is the one that we send to, the last the one nearest to
	// the recipient. The message is wrapped in a forward for each.
	Via []PublicKey
	// ForwardID makes the id of each forward message; needed with Via.
	ForwardID func() string
}

// Pack writes a message as one envelope ready for a carrier. It fills in nothing
// but typ: ids and times are the caller's. It refuses a message whose headers
// the receiver's Unpack would refuse.
func Pack(m *Message, o PackOptions) ([]byte, error) {
	if err := checkAddressing(m, o); err != nil {
		return nil, err
	}
	b, err := m.JSON()
	if err != nil {
		return nil, err
	}
	if o.Sign != nil {
		if b, err = Sign(b, *o.Sign); err != nil {
			return nil, err
		}
	}
	if o.From != nil {
		seal := Authcrypt
		if o.Zip {
			seal = AuthcryptZipped
		}
		if b, err = seal(b, *o.From, o.To); err != nil {
			return nil, err
		}
	}
	if o.From == nil || !o.ShowSender {
		if b, err = Anoncrypt(b, o.To); err != nil {
			return nil, err
		}
	}
	if len(o.Via) == 0 {
		return b, nil
	}
	return forwardVia(b, m, o)
}

// forwardVia wraps b for each mediator, from the recipient back to us: the last
// one's next is the recipient, each other's the mediator after it.
func forwardVia(b []byte, m *Message, o PackOptions) ([]byte, error) {
	if o.ForwardID == nil {
		return nil, fmt.Errorf("%w: ForwardID is needed to forward", ErrSyntax)
	}
	next := DIDOf(o.To[0].KID)
	for _, hop := range slices.Backward(o.Via) {
		f := Forward{Next: next, Envelope: b, ExpiresTime: m.ExpiresTime}
		var err error
		if b, err = f.Wrap(o.ForwardID(), hop); err != nil {
			return nil, err
		}
		next = hop.KID
	}
	return b, nil
}

func checkAddressing(m *Message, o PackOptions) error {
	if o.From != nil && DIDOf(m.From) != DIDOf(o.From.KID) {
		return fmt.Errorf("%w: from is %q, the sender's key %q", ErrAddressing, m.From, o.From.KID)
	}
	if o.Sign != nil && DIDOf(m.From) != DIDOf(o.Sign.KID) {
		return fmt.Errorf("%w: from is %q, the signer's key %q", ErrAddressing, m.From, o.Sign.KID)
	}
	if o.Sign != nil && len(m.To) == 0 {
		return fmt.Errorf("%w: a signed message that will be sealed must name its addressees", ErrAddressing)
	}
	if len(o.To) == 0 {
		return fmt.Errorf("%w: no recipient", ErrSyntax)
	}
	for _, k := range o.To {
		if len(m.To) > 0 && !slices.ContainsFunc(m.To, func(to string) bool { return DIDOf(to) == DIDOf(k.KID) }) {
			return fmt.Errorf("%w: %q is not in to", ErrAddressing, k.KID)
		}
	}
	if len(o.Via) > 0 {
		for _, k := range o.To {
			if DIDOf(k.KID) != DIDOf(o.To[0].KID) {
				return fmt.Errorf("%w: a forward has one recipient", ErrAddressing)
			}
		}
	}
	return nil
}
