package didcomm

import (
	"fmt"
	"net/url"
	"strings"
)

// Message types of out-of-band/2.0.
const (
	OutOfBand      = "https://didcomm.org/out-of-band/2.0"
	TypeInvitation = OutOfBand + "/invitation"
)

// Invitation is what a QR code or a link says: who invites, to what, and how the
// answer may travel.
type Invitation struct {
	GoalCode string   `json:"goal_code,omitempty"`
	Goal     string   `json:"goal,omitempty"`
	Accept   []string `json:"accept,omitempty"` // media type profiles, such as "didcomm/v2"
	// Endpoints are URLs at which the inviter can be met: of its own door or mediator first, then of relays that know it.
	Endpoints []string `json:"endpoints,omitempty"`
}

// NewInvitation invites whoever reads it. The answer's pthid is the id.
func NewInvitation(id, from string, now int64, inv Invitation) (*Message, error) {
	m := &Message{ID: id, Type: TypeInvitation, From: from, CreatedTime: now}
	return m, m.SetBody(inv)
}

// ParseInvitation reads an invitation message.
func ParseInvitation(m *Message) (Invitation, error) {
	var inv Invitation
	if m.Type != TypeInvitation {
		return inv, fmt.Errorf("%w: %.80q is not an invitation", ErrSyntax, m.Type)
	}
	if m.From == "" {
		return inv, fmt.Errorf("%w: an invitation must say who invites", ErrSyntax)
	}
	return inv, m.DecodeBody(&inv)
}

// InvitationURL puts an invitation into a link: its JSON in base64url as the query
// parameter _oob of base.
func InvitationURL(base string, m *Message) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("invitation link: %w", err)
	}
	if _, err := ParseInvitation(m); err != nil {
		return "", err
	}
	b, err := m.JSON()
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("_oob", b64.EncodeToString(b))
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// maxInvitation is how long a link may be: more fits no QR code anyway.
const maxInvitation = 16 << 10

// InvitationFromURL reads the link that InvitationURL makes, or the bare base64url
// text of its parameter. Nothing in it is proven.
func InvitationFromURL(link string) (*Message, error) {
	if len(link) > maxInvitation {
		return nil, fmt.Errorf("%w: invitation is longer than %d octets", ErrSyntax, maxInvitation)
	}
	text := link
	if strings.Contains(link, ":") {
		u, err := url.Parse(link)
		if err != nil {
			return nil, fmt.Errorf("%w: invitation link: %w", ErrSyntax, err)
		}
		if text = u.Query().Get("_oob"); text == "" {
			return nil, fmt.Errorf("%w: the link has no parameter _oob", ErrSyntax)
		}
	}
	b, err := unb64(strings.TrimRight(text, "="))
	if err != nil {
		return nil, err
	}
	m, err := ParseMessage(b)
	if err != nil {
		return nil, err
	}
	if _, err := ParseInvitation(m); err != nil {
		return nil, err
	}
	return m, nil
}
