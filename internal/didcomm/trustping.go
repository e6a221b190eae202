package didcomm

import "fmt"

// Message types of trust-ping/2.0.
const (
	TrustPing        = "https://didcomm.org/trust-ping/2.0"
	TypePing         = TrustPing + "/ping"
	TypePingResponse = TrustPing + "/ping-response"
)

type pingBody struct {
	ResponseRequested *bool `json:"response_requested,omitempty"`
}

// NewPing asks the other end whether it is there.
func NewPing(id, from, to string, now int64, wantResponse bool) (*Message, error) {
	m := &Message{ID: id, Type: TypePing, From: from, To: []string{to}, CreatedTime: now}
	return m, m.SetBody(pingBody{&wantResponse})
}

// ParsePing reports whether a ping wants an answer; it does unless it says no.
func ParsePing(m *Message) (wantResponse bool, err error) {
	if m.Type != TypePing {
		return false, fmt.Errorf("%w: %.80q is not a ping", ErrSyntax, m.Type)
	}
	var b pingBody
	if err := m.DecodeBody(&b); err != nil {
		return false, err
	}
	return b.ResponseRequested == nil || *b.ResponseRequested, nil
}

// NewPingResponse answers a ping in its thread.
func NewPingResponse(id, from string, now int64, ping *Message) *Message {
	return &Message{ID: id, Type: TypePingResponse, From: from, To: answerTo(ping), ThreadID: ping.Thread(), CreatedTime: now}
}

// answerTo is the addressee of an answer.
func answerTo(m *Message) []string {
	if m.From == "" {
		return nil
	}
	return []string{m.From}
}
