package spec

import "fmt"

// Names that the protocol fixes and that are compared byte for byte and never
// fetched (§ Governance, which name goes where).
const (
	// ProtocolName is the version name a descriptor's protocol tag carries
	// beside the digest (§ The node descriptor).
	ProtocolName = "fleetmesh/0.1-draft"
	// PIURIBase begins every fleetmesh protocol identifier (§ Control plane).
	PIURIBase = "https://fleetmesh.org/"
	// AnnounceTopic is the gossipsub topic descriptors are announced on
	// (§ Discovery, Bootstrap).
	AnnounceTopic = "/fleetmesh/announce/1"
	// StreamProtocol is the libp2p protocol id of the DIDComm stream (§ Transports).
	StreamProtocol = "/fleetmesh/didcomm/1"
	// ALPN is the application protocol on iroh and plain QUIC (§ Transports).
	ALPN = "fleetmesh/didcomm/1"
	// WebSocketSubprotocol is offered by the dialer of the wss binding. A face
	// that does not echo it is an ordinary relay (§ Control plane, Transport binding).
	WebSocketSubprotocol = "didcomm/v2"
	// EncryptedMediaType is the content type of the HTTPS binding.
	EncryptedMediaType = "application/didcomm-encrypted+json"
	// ControlProtocol names the operator's socket. It is local, so no digest
	// covers it (§ Operator surface).
	ControlProtocol = "meshnode-control/1"
	// ManifestAPIVersion is the apiVersion of every manifest (§ Operator
	// surface). It is local too.
	ManifestAPIVersion = "fleetmesh.org/v1alpha1"
)

// Class is a node's operational role, declared in its descriptor (§ Node classes).
type Class string

// The three node classes (§ Node classes).
const (
	ClassAnchor Class = "anchor" // public inbound
	ClassEdge   Class = "edge"   // no inbound promised
	ClassLeaf   Class = "leaf"   // no inbound; one wss to each of two mediators
)

// Tier is the standing a grant gives its subject (§ The grant).
type Tier string

// The tiers in ascending order, and the one a grant is left with after S4.
const (
	TierProbation Tier = "probation"
	TierMember    Tier = "member"
	TierTrusted   Tier = "trusted"
	TierAnchor    Tier = "anchor"
	TierRevoked   Tier = "revoked" // every ceiling is zero
)

// Limit names one line of a grant (§ The grant).
type Limit string

// The limits a grant sells, and dup_ratio, which the window evaluates against
// one ceiling for every tier.
const (
	LimitConnRate   Limit = "conn_rate"   // sessions a window
	LimitReq        Limit = "req"         // requests a window
	LimitEventsIn   Limit = "events_in"   // delivery envelopes a window
	LimitBytesIn    Limit = "bytes_in"    // octets of JWE a window
	LimitBytesOut   Limit = "bytes_out"   // octets of JWE a window
	LimitBlobBytes  Limit = "blob_bytes"  // octets of blob a window
	LimitSyncRanges Limit = "sync_ranges" // negentropy frames a window
	LimitErrors     Limit = "errors"      // faulty messages a window
	LimitDupRatio   Limit = "dup_ratio"   // a ratio, not a count
)

// Counter names one cumulative count of a receipt (§ The receipt).
type Counter string

// The counters a receipt carries. What each counts is in docs/spec-notes.md
// and in the counts lists of messages.json.
const (
	CounterConnOpen   Counter = "conn_open"
	CounterReq        Counter = "req"
	CounterEventsIn   Counter = "events_in"
	CounterBytesIn    Counter = "bytes_in"
	CounterBytesOut   Counter = "bytes_out"
	CounterBlobBytes  Counter = "blob_bytes"
	CounterErrors     Counter = "errors"
	CounterDupsSent   Counter = "dups_sent"
	CounterSyncRanges Counter = "sync_ranges"
)

// Severity is a step of the ladder; a greater value is more severe
// (§ Severity ladder). The scale is ordinal: only comparison has a meaning.
type Severity uint8

// The ladder (§ Severity ladder).
const (
	S0 Severity = iota // drift: no action
	S1                 // overrun
	S2                 // misreport
	S3                 // abuse
	S4                 // malice: found structurally, never by arithmetic
)

// String returns "S0" to "S4".
func (s Severity) String() string { return fmt.Sprintf("S%d", uint8(s)) }

// Worse returns the more severe of the two.
func (s Severity) Worse(t Severity) Severity { return max(s, t) }

// ParseSeverity reads "S0" to "S4" as an outcome or schedule tag writes them.
func ParseSeverity(s string) (Severity, error) {
	if len(s) == 2 && s[0] == 'S' && s[1] >= '0' && s[1] <= '4' {
		return Severity(s[1] - '0'), nil
	}
	return S0, fmt.Errorf("severity %q is not one of S0 to S4", s)
}

// MarshalText writes the severity as String does.
func (s Severity) MarshalText() ([]byte, error) {
	if s > S4 {
		return nil, fmt.Errorf("severity %d is not one of S0 to S4", uint8(s))
	}
	return []byte(s.String()), nil
}

// UnmarshalText is ParseSeverity.
func (s *Severity) UnmarshalText(b []byte) error {
	v, err := ParseSeverity(string(b))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Topic is one of the two independent domains of standing (§ Trust weighting).
type Topic string

// The domains of standing. A finding in one never moves the other.
const (
	TopicTransit Topic = "transit"
	TopicCompute Topic = "compute"
)

// Cause says why a grant was amended; only CauseRemedy is a finding
// (§ Grants & receipts, The node has a ceiling too).
type Cause string

// The causes of an amend.
const (
	CauseRemedy   Cause = "remedy"
	CauseCapacity Cause = "capacity"
	CauseOperator Cause = "operator"
	CauseDisuse   Cause = "disuse"
)
