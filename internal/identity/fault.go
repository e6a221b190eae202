package identity

import "errors"

// Code names one rule that a document can break. Codes are stable: vectors, logs
// and operators' tools use them.
type Code string

// The rules, in the order in which they are tried.
const (
	WrongKind       Code = "wrong-kind"            // the event is of another kind
	WrongSubject    Code = "wrong-subject"         // signed by another key than the one asked for
	BadSignature    Code = "bad-signature"         // the event's signature does not hold
	OffCurve        Code = "off-curve-key"         // a key that is no point of its curve, or one of small order
	DuplicateTag    Code = "duplicate-tag"         // a tag that says one thing appears twice
	BadTag          Code = "bad-tag"               // a tag lacks a value or its value has the wrong shape
	NoClass         Code = "no-class"              // no class tag
	UnknownClass    Code = "unknown-class"         // a class that this version does not define
	NoProtocol      Code = "no-protocol"           // no protocol tag: not a fleetmesh descriptor at all
	BadDigest       Code = "bad-digest"            // a digest that is not 64 lower-case hex digits
	BadMultikey     Code = "bad-multikey"          // a key tag that is not a base16 multikey of the curve its role needs
	NoAgreement     Code = "no-agreement-key"      // no agreement key: nobody can write to the node
	StaleAgreement  Code = "stale-agreement-key"   // every agreement key is past its time
	NoTransport     Code = "no-transport-key"      // no transport key
	NoPeering       Code = "no-peering-protocol"   // the required c tag for peering is missing
	NoBudget        Code = "no-budget-protocol"    // the required c tag for budget is missing
	NoExpiration    Code = "no-expiration"         // the mandatory NIP-40 expiration is missing
	Expired         Code = "expired"               // its time has passed
	Overlong        Code = "over-lifetime"         // it lives longer than its class allows
	NotYet          Code = "not-yet"               // made in the reader's future, beyond the skew allowed
	AnchorNoWSS     Code = "anchor-without-wss"    // an anchor needs a public wss endpoint
	LeafEndpoint    Code = "leaf-with-endpoint"    // a leaf has no inbound door
	LeafNoMediator  Code = "leaf-no-mediator"      // a leaf is reached through mediators alone
	LeafCoverage    Code = "leaf-with-coverage"    // a leaf claims no coverage
	ClassMediates   Code = "class-mediates"        // only an anchor may offer mediation
	SelfMediator    Code = "self-mediator"         // a node cannot be its own mediator
	NoPoW           Code = "pow-missing"           // work is required and there is no nonce tag
	UncommittedPoW  Code = "pow-uncommitted"       // the nonce tag commits to less than is required
	ShortPoW        Code = "pow-short"             // the id has fewer leading zero bits than required
	UnknownWire     Code = "unknown-transport-key" // no live descriptor names the key that dialled
	LeafHeartbeat   Code = "leaf-heartbeat"        // a leaf must not announce its waking hours
	ClassMismatch   Code = "class-mismatch"        // a heartbeat contradicts the live descriptor
	StaleEndpoints  Code = "stale-endpoints"       // a heartbeat's endpoint digest is not the descriptor's
	SelfSuccessor   Code = "self-successor"        // a revocation names itself as successor
	BadDID          Code = "bad-did"               // not a DID of a method that is understood here
	BadCompleteness Code = "bad-completeness"      // neither asserted nor best-effort
	MeshOnly        Code = "held-through-mesh"     // asserted over data that came through the mesh alone
	BadRoster       Code = "bad-roster"            // the d tag is not scoped to the admin's key
	BadMember       Code = "bad-member"            // a roster member that is no key
	BadShard        Code = "bad-shard"             // a coverage claim without a shard, filter or range
	BadPeerDID      Code = "bad-peer-did"          // a did:peer whose parts do not hold together
)

// Fault is the breach of one rule.
type Fault struct {
	Code   Code
	Detail string // for an operator; names the tag or value at fault
}

// Error says the code and the detail.
func (f *Fault) Error() string {
	if f.Detail == "" {
		return string(f.Code)
	}
	return string(f.Code) + ": " + f.Detail
}

func fault(c Code, detail string) error { return &Fault{Code: c, Detail: detail} }

// CodeOf finds the code of an error from this package, "" if it has none.
func CodeOf(err error) Code {
	var f *Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}
