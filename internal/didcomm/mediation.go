package didcomm

import "fmt"

// Message types of coordinate-mediation/2.0.
const (
	CoordinateMediation = "https://didcomm.org/coordinate-mediation/2.0"

	TypeMediateRequest        = CoordinateMediation + "/mediate-request"
	TypeMediateGrant          = CoordinateMediation + "/mediate-grant"
	TypeMediateDeny           = CoordinateMediation + "/mediate-deny"
	TypeKeylistUpdate         = CoordinateMediation + "/keylist-update"
	TypeKeylistUpdateResponse = CoordinateMediation + "/keylist-update-response"
	TypeKeylistQuery          = CoordinateMediation + "/keylist-query"
	TypeKeylist               = CoordinateMediation + "/keylist"
)

// What a keylist update does and how it went.
const (
	KeylistAdd    = "add"
	KeylistRemove = "remove"

	ResultSuccess     = "success"
	ResultNoChange    = "no_change"
	ResultClientError = "client_error"
	ResultServerError = "server_error"
)

const maxKeylist = 256

// KeylistItem is one DID to register or to drop, and in a response what became of
// it.
type KeylistItem struct {
	RecipientDID string `json:"recipient_did"`
	Action       string `json:"action,omitempty"`
	Result       string `json:"result,omitempty"`
}

// Page is a part of a keylist: Limit and Offset in a query, Count, Offset and
// Remaining in its answer.
type Page struct {
	Limit     int `json:"limit,omitzero"`
	Count     int `json:"count,omitzero"`
	Offset    int `json:"offset"`
	Remaining int `json:"remaining,omitzero"`
}

type grantBody struct {
	RoutingDID string `json:"routing_did"`
}

type keylistBody struct {
	Updates    []KeylistItem `json:"updates,omitempty"`
	Updated    []KeylistItem `json:"updated,omitempty"`
	Keys       []KeylistItem `json:"keys,omitempty"`
	Paginate   *Page         `json:"paginate,omitempty"`
	Pagination *Page         `json:"pagination,omitempty"`
}

// NewMediateRequest asks a mediator to hold messages for us.
func NewMediateRequest(id, from, to string, now int64) *Message {
	return &Message{ID: id, Type: TypeMediateRequest, From: from, To: []string{to}, CreatedTime: now, ReturnRoute: "all"}
}

// NewMediateGrant agrees; routingDID is where forwards are to be sent.
func NewMediateGrant(id, from string, now int64, request *Message, routingDID string) (*Message, error) {
	m := answer(id, TypeMediateGrant, from, now, request)
	return m, m.SetBody(grantBody{routingDID})
}

// NewMediateDeny declines without a reason.
func NewMediateDeny(id, from string, now int64, request *Message) *Message {
	return answer(id, TypeMediateDeny, from, now, request)
}

// ParseMediateGrant returns the routing DID.
func ParseMediateGrant(m *Message) (routingDID string, err error) {
	var b grantBody
	if m.Type != TypeMediateGrant {
		return "", fmt.Errorf("%w: %.80q is not a mediate-grant", ErrSyntax, m.Type)
	}
	if err := m.DecodeBody(&b); err != nil {
		return "", err
	}
	if !isDID(b.RoutingDID) {
		return "", fmt.Errorf("%w: mediate-grant: routing_did %.80q is not a DID", ErrSyntax, b.RoutingDID)
	}
	return b.RoutingDID, nil
}

// NewKeylistUpdate registers and drops DIDs that the mediator is to hold
// messages for.
func NewKeylistUpdate(id, from, to string, now int64, items ...KeylistItem) (*Message, error) {
	m := &Message{ID: id, Type: TypeKeylistUpdate, From: from, To: []string{to}, CreatedTime: now, ReturnRoute: "all"}
	return m, m.SetBody(keylistBody{Updates: items})
}

// NewKeylistUpdateResponse answers an update; each item has its Result.
func NewKeylistUpdateResponse(id, from string, now int64, update *Message, items ...KeylistItem) (*Message, error) {
	m := answer(id, TypeKeylistUpdateResponse, from, now, update)
	return m, m.SetBody(keylistBody{Updated: items})
}

// NewKeylistQuery asks what is registered.
func NewKeylistQuery(id, from, to string, now int64, page *Page) (*Message, error) {
	m := &Message{ID: id, Type: TypeKeylistQuery, From: from, To: []string{to}, CreatedTime: now, ReturnRoute: "all"}
	return m, m.SetBody(keylistBody{Paginate: page})
}

// NewKeylist answers a query.
func NewKeylist(id, from string, now int64, query *Message, page *Page, dids ...string) (*Message, error) {
	b := keylistBody{Pagination: page, Keys: make([]KeylistItem, len(dids))}
	for i, did := range dids {
		b.Keys[i].RecipientDID = did
	}
	m := answer(id, TypeKeylist, from, now, query)
	return m, m.SetBody(b)
}

// ParseKeylist reads the items of a keylist-update, a keylist-update-response or a
// keylist.
func ParseKeylist(m *Message) ([]KeylistItem, error) {
	var b keylistBody
	if err := m.DecodeBody(&b); err != nil {
		return nil, err
	}
	var items []KeylistItem
	switch m.Type {
	case TypeKeylistUpdate:
		items = b.Updates
	case TypeKeylistUpdateResponse:
		items = b.Updated
	case TypeKeylist:
		items = b.Keys
	default:
		return nil, fmt.Errorf("%w: %.80q has no list of keys", ErrSyntax, m.Type)
	}
	if len(items) > maxKeylist {
		return nil, fmt.Errorf("%w: %d keys, at most %d", ErrSyntax, len(items), maxKeylist)
	}
	for _, it := range items {
		if !isDID(it.RecipientDID) || len(it.RecipientDID) > MaxIDLength {
			return nil, fmt.Errorf("%w: recipient_did %.80q is not a DID", ErrSyntax, it.RecipientDID)
		}
		if m.Type == TypeKeylistUpdate && it.Action != KeylistAdd && it.Action != KeylistRemove {
			return nil, fmt.Errorf("%w: keylist action %.20q", ErrSyntax, it.Action)
		}
	}
	return items, nil
}

// ParseKeylistQuery returns the page asked for, nil for everything.
func ParseKeylistQuery(m *Message) (*Page, error) {
	var b keylistBody
	if m.Type != TypeKeylistQuery {
		return nil, fmt.Errorf("%w: %.80q is not a keylist-query", ErrSyntax, m.Type)
	}
	if err := m.DecodeBody(&b); err != nil {
		return nil, err
	}
	if p := b.Paginate; p != nil && (p.Limit <= 0 || p.Offset < 0) {
		return nil, fmt.Errorf("%w: keylist-query: limit %d, offset %d", ErrSyntax, p.Limit, p.Offset)
	}
	return b.Paginate, nil
}

// answer starts a message in another's thread, back to its sender.
func answer(id, typ, from string, now int64, to *Message) *Message {
	return &Message{ID: id, Type: typ, From: from, To: answerTo(to), ThreadID: to.Thread(), CreatedTime: now}
}
