package spec

import (
	"fmt"
	"slices"
)

// Code is a refusal: data for the other side, never an error's text. The list
// is closed. Outsiders see the code, operators see the cause.
type Code string

// Refusals of peering/1.0 (§ Control plane; § Governance for
// CodeUnsupportedProtocol, § Grants & receipts for CodeCapacityExceeded).
const (
	CodeUnsupportedProtocol Code = "UNSUPPORTED_PROTOCOL"
	CodeCapacityExceeded    Code = "CAPACITY_EXCEEDED"
	CodePolicy              Code = "POLICY"
	CodePoWRequired         Code = "POW_REQUIRED"
	CodeInvitationRequired  Code = "INVITATION_REQUIRED"
	CodeRevoked             Code = "REVOKED"
	CodeExpired             Code = "EXPIRED"
	CodeMalformed           Code = "MALFORMED"
)

// Refusals of sync/1.0, of a whole session or of one delivered event
// (§ Replication).
const (
	CodeNotGranted Code = "NOT_GRANTED"
	CodeOutOfScope Code = "OUT_OF_SCOPE"
	CodeOverBudget Code = "OVER_BUDGET"
	CodeTooMany    Code = "TOO_MANY"
	CodeNoEnvelope Code = "NO_ENVELOPE" // no verifying envelope covers the event
	CodeHopLimit   Code = "HOP_LIMIT"   // a path longer than max_hops
	CodeNever      Code = "NEVER"       // a kind that crosses on no transport (§ Never replicated)
	CodeDeleted    Code = "DELETED"     // its author's deletion is held
)

// Refusals of the relay face; each stands for the NIP-01 or NIP-42 prefix of
// its row in the table.
const (
	CodeInvalid      Code = "INVALID"
	CodeDuplicate    Code = "DUPLICATE"
	CodeBlocked      Code = "BLOCKED"
	CodeRateLimited  Code = "RATE_LIMITED"
	CodeAuthRequired Code = "AUTH_REQUIRED"
	CodeRestricted   Code = "RESTRICTED"
	CodePoW          Code = "POW"
	CodeMute         Code = "MUTE"
	CodeUnsupported  Code = "UNSUPPORTED"
	CodeError        Code = "ERROR" // the refusing side's own failure
)

// Refusals of the other protocols and bindings (§ Compute market, § Blobs,
// § Transports).
const (
	CodeNotFound        Code = "NOT_FOUND"
	CodeTooLarge        Code = "TOO_LARGE"
	CodePaymentRequired Code = "PAYMENT_REQUIRED"
	CodePrice           Code = "PRICE" // no agreement on the price
	CodeUnreachable     Code = "UNREACHABLE"
	CodeTimeout         Code = "TIMEOUT"
)

// Exit codes of command-line verbs. Refusals share them by what the caller
// should do next. A monitor's verbs use 0, 1 and 2 in their own sense.
const (
	ExitOK          = 0
	ExitFailure     = 1 // this side's or the other side's own failure
	ExitUsage       = 2 // the command line is wrong
	ExitRefused     = 3 // refused as a matter of policy: asking again is no use
	ExitRetry       = 4 // refused for now: ask less, or later
	ExitCredential  = 5 // something must be supplied first: a key, a grant, work, payment
	ExitInvalid     = 6 // what was sent is wrong
	ExitUnsupported = 7 // the other side does not do this
	ExitUnreachable = 8 // nobody answered
)

// Refusal is one row of the table: the forms a code takes on each surface.
type Refusal struct {
	Code    Code   `json:"code"`
	Prefix  string `json:"prefix"`  // machine-readable prefix of OK and CLOSED (NIP-01, NIP-42), without the colon
	Problem string `json:"problem"` // DIDComm problem-report code (report-problem/2.0)
	HTTP    int    `json:"http"`    // status
	Exit    int    `json:"exit"`    // exit code of a command-line verb
	Meaning string `json:"meaning"` // one plain sentence
}

var refusals = []Refusal{
	{CodeUnsupportedProtocol, "unsupported", "e.p.msg.unsupported-protocol", 501, ExitUnsupported, "A protocol that this side requires is missing or of another version."},
	{CodeCapacityExceeded, "rate-limited", "e.p.me.res.capacity", 503, ExitRetry, "This node has no capacity for another peering now."},
	{CodePolicy, "blocked", "e.p.req.policy", 403, ExitRefused, "The operator's policy does not allow it."},
	{CodePoWRequired, "pow", "e.p.req.pow-required", 403, ExitCredential, "The descriptor lacks the proof of work that this node asks of strangers."},
	{CodeInvitationRequired, "restricted", "e.p.req.invitation-required", 403, ExitCredential, "This node peers by invitation only."},
	{CodeRevoked, "blocked", "e.p.trust.revoked", 403, ExitRefused, "The key, the grant or the invitation has been revoked."},
	{CodeExpired, "invalid", "e.p.req.time.expired", 410, ExitInvalid, "It has expired."},
	{CodeMalformed, "invalid", "e.p.msg.malformed", 400, ExitInvalid, "The message cannot be read."},

	{CodeNotGranted, "restricted", "e.p.trust.not-granted", 403, ExitCredential, "No grant in force allows it."},
	{CodeOutOfScope, "restricted", "e.p.req.out-of-scope", 403, ExitRefused, "It lies outside the scope of the grant."},
	{CodeOverBudget, "rate-limited", "e.p.me.res.over-budget", 429, ExitRetry, "The grant's budget for this window is used up."},
	{CodeTooMany, "blocked", "e.p.me.res.too-many", 413, ExitRetry, "The set is too large for one session: ask for a narrower range."},
	{CodeNoEnvelope, "invalid", "e.p.msg.no-envelope", 422, ExitInvalid, "No verifying delivery envelope covers the event."},
	{CodeHopLimit, "invalid", "e.p.msg.hop-limit", 422, ExitInvalid, "The delivery path is longer than allowed."},
	{CodeNever, "blocked", "e.p.req.never", 403, ExitRefused, "Events of this kind are never replicated."},
	{CodeDeleted, "blocked", "e.p.req.deleted", 410, ExitRefused, "Its author deleted it."},

	{CodeInvalid, "invalid", "e.p.msg.invalid", 400, ExitInvalid, "It does not verify or breaks a rule of its kind."},
	{CodeDuplicate, "duplicate", "e.p.req.duplicate", 409, ExitOK, "It is held already."},
	{CodeBlocked, "blocked", "e.p.req.blocked", 403, ExitRefused, "The author or the address is not welcome."},
	{CodeRateLimited, "rate-limited", "e.p.me.res.rate-limited", 429, ExitRetry, "Too much at once: slow down."},
	{CodeAuthRequired, "auth-required", "e.p.trust.auth-required", 401, ExitCredential, "Authenticate first."},
	{CodeRestricted, "restricted", "e.p.trust.restricted", 403, ExitRefused, "The authenticated key may not do this."},
	{CodePoW, "pow", "e.p.req.pow", 403, ExitCredential, "The event lacks the proof of work asked for."},
	{CodeMute, "mute", "e.p.req.mute", 403, ExitRefused, "Nobody would be shown the event, so it is not kept."},
	{CodeUnsupported, "unsupported", "e.p.msg.unsupported", 501, ExitUnsupported, "This side does not do that."},
	{CodeError, "error", "e.p.me.internal", 500, ExitFailure, "The refusing side failed; the request may be fine."},

	{CodeNotFound, "error", "e.p.req.not-found", 404, ExitRefused, "There is no such thing here."},
	{CodeTooLarge, "invalid", "e.p.msg.too-large", 413, ExitInvalid, "It is larger than this side accepts."},
	{CodePaymentRequired, "restricted", "e.p.req.payment-required", 402, ExitCredential, "It must be paid for first."},
	{CodePrice, "restricted", "e.p.req.price", 409, ExitRefused, "The price offered and the price asked do not meet."},
	{CodeUnreachable, "error", "e.p.xfer.unreachable", 502, ExitUnreachable, "The next node cannot be reached by any transport."},
	{CodeTimeout, "error", "e.p.req.time.timeout", 504, ExitUnreachable, "No answer came in time."},
}

// Refusals returns the whole table, in a fixed order.
func Refusals() []Refusal { return slices.Clone(refusals) }

// Refusal returns the code's row. An unknown code, such as one from a newer
// peer, gets the row of CodeError with its own name.
func (c Code) Refusal() Refusal {
	for _, r := range refusals {
		if r.Code == c {
			return r
		}
	}
	r := CodeError.Refusal()
	r.Code = c
	return r
}

// Known reports whether the code is in the closed list.
func (c Code) Known() bool {
	return slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Code == c })
}

// Reason returns the text of an OK, CLOSED or NEG-ERR: the NIP-01 prefix and a
// sentence. An empty detail gives the code's own.
func (c Code) Reason(detail string) string {
	r := c.Refusal()
	if detail == "" {
		detail = r.Meaning
	}
	return fmt.Sprintf("%s: %s", r.Prefix, detail)
}

// CodeOfProblem returns the code that a DIDComm problem-report code stands for;
// ok is false where it is none of the table's.
func CodeOfProblem(problem string) (c Code, ok bool) {
	for _, r := range refusals {
		if r.Problem == problem {
			return r.Code, true
		}
	}
	return "", false
}
