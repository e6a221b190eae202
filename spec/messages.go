package spec

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
)

//go:embed messages.json
var messagesJSON []byte

// MessageType is a DIDComm message's type: a protocol identifier, a slash and a
// name. It is opaque and compared byte for byte (§ Control plane).
type MessageType string

// Standard DIDComm protocols used unmodified (§ Control plane).
const (
	PIURIRouting                         = "https://didcomm.org/routing/2.0"
	PIURICoordinateMediation             = "https://didcomm.org/coordinate-mediation/2.0"
	PIURIMessagePickup                   = "https://didcomm.org/messagepickup/3.0"
	PIURITrustPing                       = "https://didcomm.org/trust-ping/2.0"
	PIURIDiscoverFeatures                = "https://didcomm.org/discover-features/2.0"
	PIURIOutOfBand                       = "https://didcomm.org/out-of-band/2.0"
	PIURIReportProblem                   = "https://didcomm.org/report-problem/2.0"
	MsgForward               MessageType = PIURIRouting + "/forward"
	MsgProblemReport         MessageType = PIURIReportProblem + "/problem-report"
)

// MessageSpec is one message of a protocol. Its body's schema is $defs/<Name>
// of the protocol's schema file.
type MessageSpec struct {
	Name       string     `json:"name"`
	Seal       string     `json:"seal"`                // authcrypt; anoncrypt for first contact
	Wrap       string     `json:"wrap"`                // live (21059) or stored (1059) on the gift-wrap binding
	Counts     []Counter  `json:"counts"`              // counters one such message moves, besides its octets; events_in by its attachments
	Replies    []string   `json:"replies"`             // names of the messages that may answer it
	Attachment *SchemaRef `json:"attachment,omitzero"` // of each attachment, where it may carry any
}

// ProtocolSpec is one protocol block of messages.json. A change to its wire
// moves its version (§ Governance, A version is a digest).
type ProtocolSpec struct {
	PIURI    string        `json:"piuri"`
	Name     string        `json:"name"`
	Version  string        `json:"version"`
	Required bool          `json:"required"` // a peer without it is declined
	Metered  bool          `json:"metered"`  // whether its octets count as bytes_in and bytes_out
	Codes    []Code        `json:"codes"`    // refusals its messages may carry
	Schema   SchemaRef     `json:"schema"`
	Messages []MessageSpec `json:"messages"`
}

// Message returns the protocol's message of that name.
func (p *ProtocolSpec) Message(name string) (m *MessageSpec, ok bool) {
	i := slices.IndexFunc(p.Messages, func(m MessageSpec) bool { return m.Name == name })
	if i < 0 {
		return nil, false
	}
	return &p.Messages[i], true
}

// Type returns the type of the protocol's message of that name.
func (p *ProtocolSpec) Type(name string) MessageType { return MessageType(p.PIURI + "/" + name) }

// MessagesFile is messages.json.
type MessagesFile struct {
	Protocols []ProtocolSpec `json:"protocols"`
	Standard  []string       `json:"standard"` // identifiers of the DIDComm protocols used unmodified
}

var messages = sync.OnceValue(func() *MessagesFile {
	f := new(MessagesFile)
	if err := json.Unmarshal(messagesJSON, f, json.RejectUnknownMembers(true)); err != nil {
		panic(fmt.Sprintf("spec: messages.json: %v", err)) // our own file
	}
	return f
})

// Messages returns messages.json. The value is shared: do not modify it.
func Messages() *MessagesFile { return messages() }

// LookupProtocol returns the block of a fleetmesh protocol identifier.
func LookupProtocol(piuri string) (p *ProtocolSpec, ok bool) {
	all := messages().Protocols
	for i := range all {
		if all[i].PIURI == piuri {
			return &all[i], true
		}
	}
	return nil, false
}

// LookupMessage returns the entry of a fleetmesh message type and the protocol
// it belongs to; ok is false for an unknown type and for the standard protocols'.
func LookupMessage(t MessageType) (p *ProtocolSpec, m *MessageSpec, ok bool) {
	i := strings.LastIndexByte(string(t), '/')
	if i < 0 {
		return nil, nil, false
	}
	if p, ok = LookupProtocol(string(t[:i])); !ok {
		return nil, nil, false
	}
	m, ok = p.Message(string(t[i+1:]))
	return p, m, ok
}
