package ledger

import "fleetmesh.org/fleetmesh/internal/identity"

// Code names one rule that an artefact can break; an error of this package wraps an
// identity.Fault that carries it, and identity.CodeOf finds it.
type Code = identity.Code

// Faults of grants.
const (
	BadJSON        Code = "bad-json"           // not the JSON that the artefact is made of
	BadField       Code = "bad-field"          // a field is missing or has the wrong shape
	BadCommit      Code = "bad-commitment"     // the content does not open the public commitment
	BadScheme      Code = "bad-scheme"         // a commitment or content scheme of another version
	BadWindow      Code = "bad-window"         // a window outside 60 s to 86,400 s
	BadEpoch       Code = "bad-epoch"          // the epoch is not the clock's
	NotForMe       Code = "not-for-subject"    // the content does not decrypt, or names another subject
	WrongBlind     Code = "wrong-blind-tag"    // the d tag is not the pair's
	AboveCeiling   Code = "above-ceiling"      // a limit above the ceiling of its tier
	UnknownTier    Code = "unknown-tier"       // a tier this version does not define
	UnknownLimit   Code = "unknown-limit"      // a limit this version does not define
	MissingLimit   Code = "missing-limit"      // a node grant states every limit
	BadSchedule    Code = "bad-schedule"       // the schedule is not the one of the constants
	BadScope       Code = "bad-scope"          // a scope that is no filter or no direction
	BadSettlement  Code = "bad-settlement"     // anything but none
	BadSubject     Code = "bad-subject"        // neither node nor author, or no key
	GrantExpired   Code = "grant-expired"      // its time has passed
	NotInForce     Code = "not-in-force"       // made in the reader's future
	NoReason       Code = "no-reason"          // an author entry without a source or a reason
	DerivedSupport Code = "derived-no-support" // an entry that only repeats another's list
)

// Faults of receipts.
const (
	ReceiptSig     Code = "receipt-signature" // not signed by the subject over its link
	ReceiptGrant   Code = "receipt-grant"     // for another grant
	ReceiptWindow  Code = "receipt-window"    // for another window
	ReceiptGap     Code = "receipt-gap"       // one before it has not arrived
	ReceiptStale   Code = "receipt-stale"     // older than the head; no news
	ReceiptFork    Code = "receipt-fork"      // two signed receipts claim one place: S4
	ReceiptRegress Code = "receipt-regress"   // a signed counter went down: S4
	ReceiptFuture  Code = "receipt-future"    // dated beyond the skew allowed
)

// Faults of delivery envelopes.
const (
	EmptyPath     Code = "empty-path"      // no hop: no provenance
	HopLimit      Code = "hop-limit"       // more than three hops: S3 if a peer keeps at it
	HopSignature  Code = "hop-signature"   // a hop's signature does not hold
	HopOrder      Code = "hop-order"       // a hop older than the one before it
	HopLoop       Code = "hop-loop"        // a node twice in one path, or the reader itself
	HopFuture     Code = "hop-future"      // dated beyond the skew allowed
	LastHop       Code = "last-hop"        // the last hop is not the peer that delivered
	WrongGrant    Code = "wrong-grant"     // charged to another grant than the one in force
	WrongWindow   Code = "wrong-window"    // charged to another window
	BadEvent      Code = "bad-event"       // the event does not parse or its id is not its hash
	EventSig      Code = "event-signature" // the event's signature does not hold
	OutOfScope    Code = "out-of-scope"    // outside every filter of its direction: S3
	NeverCrosses  Code = "never-crosses"   // a kind that crosses on no transport
	ExpiredEvent  Code = "expired-event"   // NIP-40 time has passed
	ProtectedHere Code = "protected-event" // NIP-70: only its author may publish it
)

// Faults of reports, and why a reader does not count one.
const (
	ReportOutcome    Code = "report-outcome"    // not S1 to S4
	ReportExpired    Code = "report-expired"    // its time has passed
	ReportSelf       Code = "report-self"       // a node reports itself
	EvidenceMissing  Code = "evidence-missing"  // a digest that resolves to nothing
	EvidenceHash     Code = "evidence-hash"     // an artefact that is not what its digest says
	EvidenceUnsigned Code = "evidence-unsigned" // the subject did not sign it
	EvidenceForeign  Code = "evidence-foreign"  // of another grant or window than the report's
	ClaimMismatch    Code = "claim-mismatch"    // the report states other counters than the receipt
	GrantMismatch    Code = "grant-mismatch"    // stated limits are not the disclosed grant's
	DoesNotFollow    Code = "does-not-follow"   // the classifier gives another outcome
)

func fault(c Code, detail string) error { return &identity.Fault{Code: c, Detail: detail} }
