package didcomm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Message is a plaintext message (DIDComm v2 § Plaintext Message Structure).
// Times are unix seconds, 0 when absent. Headers that have no field here are
// kept in Extra and written back.
type Message struct {
	ID             string            `json:"id"`
	Typ            string            `json:"typ,omitempty"`
	Type           string            `json:"type"`
	From           string            `json:"from,omitempty"`
	To             []string          `json:"to,omitempty"`
	ThreadID       string            `json:"thid,omitempty"`
	ParentThreadID string            `json:"pthid,omitempty"`
	CreatedTime    int64             `json:"created_time,omitzero"`
	ExpiresTime    int64             `json:"expires_time,omitzero"`
	FromPrior      string            `json:"from_prior,omitempty"`
	ReturnRoute    string            `json:"return_route,omitempty"` // "none", "all", "thread" (extension return_route)
	PleaseAck      []string          `json:"please_ack,omitempty"`
	Ack            []string          `json:"ack,omitempty"`
	Body           json.RawMessage   `json:"body"` // an object; {} when empty
	Attachments    []Attachment      `json:"attachments,omitempty"`
	Extra          map[string]RawAny `json:",embed"`
}

// RawAny is the JSON text of a header that this package does not know.
type RawAny = jsontext.Value

// Attachment is content that travels with a message (§ Attachments).
type Attachment struct {
	ID          string         `json:"id,omitempty"`
	Description string         `json:"description,omitempty"`
	Filename    string         `json:"filename,omitempty"`
	MediaType   string         `json:"media_type,omitempty"`
	Format      string         `json:"format,omitempty"`
	LastmodTime int64          `json:"lastmod_time,omitzero"`
	ByteCount   int64          `json:"byte_count,omitzero"`
	Data        AttachmentData `json:"data"`
}

// AttachmentData holds exactly one of JSON and Base64 for content that is
// inside the message, or Links with Hash for content that is elsewhere.
type AttachmentData struct {
	JWS    json.RawMessage `json:"jws,omitempty"`
	Hash   string          `json:"hash,omitempty"` // multihash
	Links  []string        `json:"links,omitempty"`
	Base64 string          `json:"base64,omitempty"` // base64url
	JSON   json.RawMessage `json:"json,omitempty"`
}

// JSONAttachment attaches a JSON value as it is.
func JSONAttachment(id string, value []byte) Attachment {
	return Attachment{ID: id, MediaType: "application/json", Data: AttachmentData{JSON: value}}
}

// BytesAttachment attaches octets as base64url.
func BytesAttachment(id, mediaType string, b []byte) Attachment {
	return Attachment{ID: id, MediaType: mediaType, ByteCount: int64(len(b)),
		Data: AttachmentData{Base64: b64.EncodeToString(b)}}
}

// Content returns what is inside the attachment: the JSON text or the decoded
// octets. Attachments by link are an error: nothing is fetched.
func (a *Attachment) Content() ([]byte, error) {
	switch {
	case len(a.Data.JSON) > 0 && a.Data.Base64 != "":
		return nil, fmt.Errorf("%w: attachment %q has both json and base64", ErrSyntax, a.ID)
	case len(a.Data.JSON) > 0:
		return a.Data.JSON, nil
	case a.Data.Base64 != "":
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(a.Data.Base64, "="))
		if err != nil {
			return nil, fmt.Errorf("%w: attachment %q: %w", ErrSyntax, a.ID, err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("%w: attachment %q has no content inside the message", ErrSyntax, a.ID)
}

// strict is how all JSON is read: no name twice, names in their own case, UTF-8.
var strict = jsonv2.JoinOptions(
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
	jsonv2.MatchCaseInsensitiveNames(false),
)

// ParseMessage reads a plaintext message and checks its form: JSON without
// duplicate names, the limits of this package, and the headers' syntax. Errors
// wrap ErrSyntax or ErrTooLarge.
func ParseMessage(b []byte) (*Message, error) {
	if len(b) > MaxEnvelope {
		return nil, ErrTooLarge
	}
	var m Message
	if err := jsonv2.Unmarshal(b, &m, strict); err != nil {
		return nil, fmt.Errorf("%w: plaintext: %w", ErrSyntax, err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

// JSON writes the message after the checks of Validate. Typ is filled in.
func (m *Message) JSON() ([]byte, error) {
	c := *m
	c.Typ = TypPlain
	if len(c.Body) == 0 {
		c.Body = json.RawMessage("{}")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b, err := jsonv2.Marshal(&c, strict, jsonv2.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("%w: write plaintext: %w", ErrSyntax, err)
	}
	if len(b) > MaxEnvelope {
		return nil, ErrTooLarge
	}
	return b, nil
}

// Validate checks what ParseMessage checks of a message already in hand.
func (m *Message) Validate() error {
	if m.Typ != "" && m.Typ != TypPlain && m.Typ != strings.TrimPrefix(TypPlain, "application/") {
		return fmt.Errorf("%w: typ is %.80q, not %q", ErrSyntax, m.Typ, TypPlain)
	}
	if m.ID == "" {
		return fmt.Errorf("%w: id is missing", ErrSyntax)
	}
	if !strings.Contains(m.Type, "/") {
		return fmt.Errorf("%w: type %.80q is not a message type URI", ErrSyntax, m.Type)
	}
	for _, f := range []struct{ name, value string }{
		{"id", m.ID}, {"type", m.Type}, {"from", m.From}, {"thid", m.ThreadID}, {"pthid", m.ParentThreadID},
	} {
		if len(f.value) > MaxIDLength || !utf8.ValidString(f.value) {
			return fmt.Errorf("%w: %s is longer than %d octets or not UTF-8", ErrSyntax, f.name, MaxIDLength)
		}
	}
	if m.From != "" && !isDID(m.From) {
		return fmt.Errorf("%w: from %.80q is not a DID", ErrSyntax, m.From)
	}
	return m.validateRest()
}

func (m *Message) validateRest() error {
	if len(m.To) > MaxTo {
		return fmt.Errorf("%w: %d addressees, at most %d", ErrSyntax, len(m.To), MaxTo)
	}
	for _, to := range m.To {
		if !isDID(to) || len(to) > MaxIDLength {
			return fmt.Errorf("%w: to holds %.80q, which is not a DID", ErrSyntax, to)
		}
	}
	if m.CreatedTime < 0 || m.ExpiresTime < 0 {
		return fmt.Errorf("%w: a time is negative", ErrSyntax)
	}
	if m.ExpiresTime != 0 && m.ExpiresTime < m.CreatedTime {
		return fmt.Errorf("%w: expires_time %d lies before created_time %d", ErrSyntax, m.ExpiresTime, m.CreatedTime)
	}
	if len(m.Attachments) > MaxAttachments {
		return fmt.Errorf("%w: %d attachments, at most %d", ErrSyntax, len(m.Attachments), MaxAttachments)
	}
	if len(m.FromPrior) > maxPrior {
		return fmt.Errorf("%w: from_prior is longer than %d octets", ErrSyntax, maxPrior)
	}
	if b := bytes.TrimLeft(m.Body, " \t\r\n"); len(b) > 0 && b[0] != '{' {
		return fmt.Errorf("%w: body is not an object", ErrSyntax)
	}
	return nil
}

// Thread is the thread the message belongs to: thid, or its own id when it
// starts one (§ Threads).
func (m *Message) Thread() string {
	if m.ThreadID != "" {
		return m.ThreadID
	}
	return m.ID
}

// ExpiredAt reports whether expires_time has come. A message without one never
// expires.
func (m *Message) ExpiredAt(now time.Time) bool {
	return m.ExpiresTime != 0 && m.ExpiresTime <= now.Unix()
}

// DecodeBody reads the body into v by the strict rules of ParseMessage; members
// that v does not name are ignored. Errors wrap ErrSyntax.
func (m *Message) DecodeBody(v any) error {
	b := []byte(m.Body)
	if len(b) == 0 {
		b = []byte("{}")
	}
	if err := jsonv2.Unmarshal(b, v, strict); err != nil {
		return fmt.Errorf("%w: body of %s: %w", ErrSyntax, m.Type, err)
	}
	return nil
}

// SetBody writes v as the body.
func (m *Message) SetBody(v any) error {
	b, err := jsonv2.Marshal(v, strict, jsonv2.Deterministic(true))
	if err != nil {
		return fmt.Errorf("write body of %s: %w", m.Type, err)
	}
	m.Body = b
	return nil
}

// SplitType divides a message type URI into protocol URI and message name:
// "https://didcomm.org/trust-ping/2.0" and "ping". URIs are opaque and compared
// byte for byte.
func SplitType(uri string) (protocol, name string) {
	i := strings.LastIndexByte(uri, '/')
	if i < 0 {
		return "", uri
	}
	return uri[:i], uri[i+1:]
}

// DIDOf cuts a DID URL to its DID: what stands before the first of / ? #.
func DIDOf(url string) string {
	if i := strings.IndexAny(url, "/?#"); i >= 0 {
		return url[:i]
	}
	return url
}

// isDID accepts any DID or DID URL: did:method:rest (DID Core § 3.1), without
// judging the method.
func isDID(s string) bool {
	rest, ok := strings.CutPrefix(s, "did:")
	if !ok {
		return false
	}
	method, id, ok := strings.Cut(rest, ":")
	return ok && method != "" && id != "" && !strings.ContainsAny(s, " \t\r\n\"\\")
}
