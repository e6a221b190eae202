package didcomm

import (
	"encoding/json"
	"fmt"
)

// Message types of messagepickup/3.0.
const (
	MessagePickup = "https://didcomm.org/messagepickup/3.0"

	TypeStatusRequest      = MessagePickup + "/status-request"
	TypeStatus             = MessagePickup + "/status"
	TypeDeliveryRequest    = MessagePickup + "/delivery-request"
	TypeDelivery           = MessagePickup + "/delivery"
	TypeMessagesReceived   = MessagePickup + "/messages-received"
	TypeLiveDeliveryChange = MessagePickup + "/live-delivery-change"
)

// MaxPickup bounds one delivery and one acknowledgement.
const MaxPickup = 1024

// Status is the state of a queue. Times are unix seconds.
type Status struct {
	RecipientDID         string `json:"recipient_did,omitempty"`
	MessageCount         int    `json:"message_count"`
	LongestWaitedSeconds int64  `json:"longest_waited_seconds,omitzero"`
	NewestReceivedTime   int64  `json:"newest_received_time,omitzero"`
	OldestReceivedTime   int64  `json:"oldest_received_time,omitzero"`
	TotalBytes           int64  `json:"total_bytes,omitzero"`
	LiveDelivery         bool   `json:"live_delivery"`
}

// Delivered is one queued envelope and the mediator's name for it.
type Delivered struct {
	ID       string
	Envelope []byte
}

// PickupRequest is a status-request or a delivery-request. RecipientDID empty
// means all that is held for the asker.
type PickupRequest struct {
	RecipientDID string `json:"recipient_did,omitempty"`
	Limit        int    `json:"limit,omitzero"`
}

type receivedBody struct {
	MessageIDList []string `json:"message_id_list"`
}

type liveBody struct {
	LiveDelivery bool `json:"live_delivery"`
}

func pickupMessage(id, typ, from, to string, now int64, body any) (*Message, error) {
	m := &Message{ID: id, Type: typ, From: from, To: []string{to}, CreatedTime: now, ReturnRoute: "all"}
	return m, m.SetBody(body)
}

// NewStatusRequest asks how much is waiting.
func NewStatusRequest(id, from, to string, now int64, recipientDID string) (*Message, error) {
	return pickupMessage(id, TypeStatusRequest, from, to, now, PickupRequest{RecipientDID: recipientDID})
}

// NewDeliveryRequest asks for at most limit messages.
func NewDeliveryRequest(id, from, to string, now int64, recipientDID string, limit int) (*Message, error) {
	return pickupMessage(id, TypeDeliveryRequest, from, to, now, PickupRequest{recipientDID, limit})
}

// NewMessagesReceived says which delivered messages are safe: the mediator drops
// them.
func NewMessagesReceived(id, from, to string, now int64, ids []string) (*Message, error) {
	return pickupMessage(id, TypeMessagesReceived, from, to, now, receivedBody{ids})
}

// NewLiveDeliveryChange turns live delivery on or off for this connection.
func NewLiveDeliveryChange(id, from, to string, now int64, live bool) (*Message, error) {
	return pickupMessage(id, TypeLiveDeliveryChange, from, to, now, liveBody{live})
}

// NewStatus answers any pickup message. It goes out on a live connection only,
// never into a queue.
func NewStatus(id, from string, now int64, request *Message, s Status) (*Message, error) {
	m := answer(id, TypeStatus, from, now, request)
	return m, m.SetBody(s)
}

// NewDelivery hands messages over. request is nil for live delivery, which starts
// a thread of its own to the DID to.
func NewDelivery(id, from, to string, now int64, request *Message, recipientDID string, messages []Delivered) (*Message, error) {
	m := &Message{ID: id, Type: TypeDelivery, From: from, To: []string{to}, CreatedTime: now}
	if request != nil {
		m.ThreadID = request.Thread()
	}
	for _, d := range messages {
		m.Attachments = append(m.Attachments, BytesAttachment(d.ID, TypEncrypted, d.Envelope))
	}
	return m, m.SetBody(PickupRequest{RecipientDID: recipientDID})
}

// ParsePickupRequest reads a status-request or a delivery-request.
func ParsePickupRequest(m *Message) (PickupRequest, error) {
	var r PickupRequest
	if m.Type != TypeStatusRequest && m.Type != TypeDeliveryRequest {
		return r, fmt.Errorf("%w: %.80q is no pickup request", ErrSyntax, m.Type)
	}
	if err := m.DecodeBody(&r); err != nil {
		return r, err
	}
	if m.Type == TypeDeliveryRequest && (r.Limit < 1 || r.Limit > MaxPickup) {
		return r, fmt.Errorf("%w: delivery-request: limit %d, wanted 1 to %d", ErrSyntax, r.Limit, MaxPickup)
	}
	return r, nil
}

// ParseStatus reads a status.
func ParseStatus(m *Message) (Status, error) {
	var s Status
	if m.Type != TypeStatus {
		return s, fmt.Errorf("%w: %.80q is not a status", ErrSyntax, m.Type)
	}
	return s, m.DecodeBody(&s)
}

// ParseDelivery returns the envelopes of a delivery. One whose content cannot be
// read has a nil Envelope: it is still to be acknowledged, or it would come for
// ever and block those behind it.
func ParseDelivery(m *Message) ([]Delivered, error) {
	if m.Type != TypeDelivery {
		return nil, fmt.Errorf("%w: %.80q is not a delivery", ErrSyntax, m.Type)
	}
	if len(m.Attachments) > MaxPickup {
		return nil, fmt.Errorf("%w: delivery of %d messages, at most %d", ErrSyntax, len(m.Attachments), MaxPickup)
	}
	out := make([]Delivered, 0, len(m.Attachments))
	for i := range m.Attachments {
		a := &m.Attachments[i]
		if a.ID == "" {
			return nil, fmt.Errorf("%w: a delivered message has no id", ErrSyntax)
		}
		b, err := a.Content()
		if err != nil || !json.Valid(b) {
			b = nil
		}
		out = append(out, Delivered{a.ID, b})
	}
	return out, nil
}

// ParseMessagesReceived returns the ids acknowledged.
func ParseMessagesReceived(m *Message) ([]string, error) {
	var b receivedBody
	if m.Type != TypeMessagesReceived {
		return nil, fmt.Errorf("%w: %.80q is not messages-received", ErrSyntax, m.Type)
	}
	if err := m.DecodeBody(&b); err != nil {
		return nil, err
	}
	if len(b.MessageIDList) > MaxPickup {
		return nil, fmt.Errorf("%w: %d ids acknowledged at once, at most %d", ErrSyntax, len(b.MessageIDList), MaxPickup)
	}
	return b.MessageIDList, nil
}

// ParseLiveDeliveryChange reports what live delivery is to be.
func ParseLiveDeliveryChange(m *Message) (bool, error) {
	var b liveBody
	if m.Type != TypeLiveDeliveryChange {
		return false, fmt.Errorf("%w: %.80q is not live-delivery-change", ErrSyntax, m.Type)
	}
	err := m.DecodeBody(&b)
	return b.LiveDelivery, err
}
