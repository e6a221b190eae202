// Package mesh is every fleet protocol as one pure state machine: peering, budget, sync, complaint and
// standing, a file each. Node.Step is its only door. It knows no socket, no ciphertext, no store and no clock:
// inputs carry the time, effects ask the host to act, and the same inputs always make the same effects.
package mesh

import (
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Input is something that happened. The set is closed.
type Input interface{ input() }

// Woken says that a time asked for by WakeAt has come.
type Woken struct{}

// Stopping says that the node is about to stop: it says what it used before it goes.
type Stopping struct{}

// AddPeer is the operator's wish to peer, or to change what is wanted of a peer. It repeats harmlessly.
type AddPeer struct {
	Peer  nostr.PubKey
	Tier  spec.Tier // what our grant to the peer opens at; a person may seed any tier
	Wants []Want
	// Invitation is the id of an out-of-band invitation of the peer's, "" if there is none.
	Invitation string
	Shadow     bool // verdicts about this peer cost it nothing
	// Budget are the limits that the operator sets for the peer, all of them: they open where they are set, and conduct raises them no further. nil leaves
	// what is set, an empty one gives all back.
	Budget ledger.Limits
}

// EndPeer is the operator's wish to end a peering.
type EndPeer struct {
	Peer   nostr.PubKey
	Reason string
}

// Described brings a peer's verified, live descriptor.
type Described struct{ Descriptor *identity.Descriptor }

// GrantSeen brings a grant that a peer issued to us, opened and checked against its commitment.
type GrantSeen struct {
	Issuer nostr.PubKey
	Grant  *ledger.Grant
}

// GrantIssued answers IssueGrant: the grant is sealed, signed and published. Event is what was published: a report lays it open.
type GrantIssued struct {
	Subject nostr.PubKey
	Grant   *ledger.Grant
	Event   *nostr.Event
}

// ReceiptSigned answers SignReceipt.
type ReceiptSigned struct {
	Issuer  nostr.PubKey // of the grant that the receipt is about: who it goes to
	Receipt *ledger.Receipt
}

// Received brings a message, opened and of a known form. Sealed says who is proven to have written it:
// a first contact is anonymous, and From is then only what it claims.
type Received struct {
	From      nostr.PubKey
	Anonymous bool
	Type      spec.MessageType
	ID        string
	Thread    string
	Created   int64 // the message's created_time, 0 if it has none
	Octets    int64 // of the JWE as carried
	Envelopes int64 // attachments of a deliver
	Invited   bool  // a proposal that names an invitation of ours which is good for its sender
	Body      json.RawMessage
}

// Sending asks whether a bulk message of a session may go out; the answer is Permit or Withhold. The budget is taken
// before the message leaves, so that parallel sessions can never exceed it together.
type Sending struct {
	Peer      nostr.PubKey
	Session   string
	Type      spec.MessageType
	Created   int64
	Octets    int64
	Envelopes int64
}

// Connected says that a transport session with the peer was opened, by us or by the peer. It belongs to the window of the first
// message that its dialler sent on it, so that both ends count it alike.
type Connected struct {
	Peer    nostr.PubKey
	Inbound bool
	Created int64 // created_time of that message
}

// Dialling asks whether a transport session may be opened to the peer; the answer is Permit or Withhold. A network that tears
// connections must not make an honest dialler exceed conn_rate.
type Dialling struct {
	Peer    nostr.PubKey
	Created int64 // created_time of the message that waits to be sent first
}

// Found brings a structural finding about the peer that the host can prove, such as a hop whose signature does not hold.
type Found struct {
	Peer    nostr.PubKey
	Finding ledger.Structural
	Created int64 // created_time of the message that showed it
	Detail  string
	// Evidence is what the peer signed that shows it, nil where nothing proves it to others.
	Evidence []Exhibit
}

// Faulted says that a message of the peer's failed to parse or verify, or was answered with a problem report.
type Faulted struct {
	Peer   nostr.PubKey
	Thread string // of the message, if it could be read
	Code   spec.Code
}

// Problem says that the peer answered a message of ours with a problem report.
type Problem struct {
	Peer    nostr.PubKey
	Code    spec.Code
	Created int64 // created_time of the report
}

// Taken says what became of the events of one deliver that the peer sent us.
type Taken struct {
	Peer              nostr.PubKey
	Session           string
	Window            int64 // window that the deliver was metered in, as Permit said
	Stored, Duplicate int64
	Refused           int64
	Sample            json.RawMessage // one of the envelopes, a small one
}

// Fate says what the peer told us of the events of one deliver that we sent.
type Fate struct {
	Peer              nostr.PubKey
	Session           string
	Window            int64
	Stored, Duplicate int64
	Refused           int64
}

// SyncLive says that the reconciliation of a sync is over and that its session goes on: what is stored at one end from now on is delivered to
// the other. Such a session is no longer under way, and others may begin beside it.
type SyncLive struct {
	Peer    nostr.PubKey
	Session string
	Have    int64 // events delivered to the peer so far
	Need    int64 // events taken from the peer so far
}

// SyncEnded says that a sync that we began or served is over.
type SyncEnded struct {
	Peer    nostr.PubKey
	Session string
	Code    spec.Code // "" when it ended well
	Have    int64     // events delivered to the peer
	Need    int64     // events taken from the peer
}

// Effect is something the host must do, in order. The set is closed.
type Effect interface{ effect() }

// Persist makes a record durable. If it fails, the effects after it are dropped and the state is rebuilt from the
// journal. Records reach the disk in the order of their effects. Lazy ones need not reach the disk before the next effect: they
// must only survive the process.
type Persist struct {
	Key    string // what the record replaces; Restore takes the last record of each key
	Record json.RawMessage
	Lazy   bool
}

// Send seals a message to the peer and sends it. A message that the peer must get even when it is away is Durable.
type Send struct {
	To      nostr.PubKey
	Type    spec.MessageType
	ID      string
	Thread  string
	Body    any
	Grants  []nostr.ID // our grant events that travel along
	First   bool       // anonymous: the peer does not know us yet; our descriptor travels along
	Durable bool
}

// SendProblem answers a message that could not be used with a problem report, so that both ends count the error.
type SendProblem struct {
	To      nostr.PubKey
	Thread  string
	Code    spec.Code
	Created int64
}

// IssueGrant seals, signs, stores and publishes a grant, and answers with GrantIssued.
type IssueGrant struct {
	Subject nostr.PubKey
	Grant   *ledger.Grant
}

// SignReceipt signs the receipt's link and answers with ReceiptSigned.
type SignReceipt struct {
	Issuer  nostr.PubKey
	Receipt *ledger.Receipt
}

// StartSync begins a sync as the initiator.
type StartSync struct {
	Peer    nostr.PubKey
	Session string
	Want    Want
}

// ServeSync answers an open that was accepted.
type ServeSync struct {
	Peer    nostr.PubKey
	Session string
	Open    OpenBody
}

// Pass lets a received bulk message through to its session.
type Pass struct {
	Window int64 // that it was metered in
}

// Permit lets a bulk message out.
type Permit struct {
	Window int64    // it was metered in this window of the peer's grant
	Grant  nostr.ID // the peer's grant, which deliveries name
}

// Withhold keeps a bulk message back: the budget of the limit does not suffice until the unix second Until. In a received message's case
// it says that the message is refused with the code.
type Withhold struct {
	Code  spec.Code
	Limit spec.Limit
	Until int64
}

// Tell reports what happened, for `why`, watch and the log; it names no content.
type Tell struct {
	Peer     nostr.PubKey
	What     string // a short machine-readable word
	Window   int64
	Severity spec.Severity
	Code     spec.Code
	Detail   string
	Slip     *Slip // of a receipt that was made, taken or answered
}

// WakeAt asks to be woken at a unix second; a later WakeAt replaces an earlier.
type WakeAt struct{ At int64 }

func (Woken) input()         {}
func (Stopping) input()      {}
func (AddPeer) input()       {}
func (EndPeer) input()       {}
func (Described) input()     {}
func (GrantSeen) input()     {}
func (GrantIssued) input()   {}
func (ReceiptSigned) input() {}
func (Received) input()      {}
func (Sending) input()       {}
func (Connected) input()     {}
func (Dialling) input()      {}
func (Found) input()         {}
func (Faulted) input()       {}
func (Problem) input()       {}
func (Taken) input()         {}
func (Fate) input()          {}
func (SyncLive) input()      {}
func (SyncEnded) input()     {}

func (Persist) effect()     {}
func (Send) effect()        {}
func (SendProblem) effect() {}
func (IssueGrant) effect()  {}
func (SignReceipt) effect() {}
func (StartSync) effect()   {}
func (ServeSync) effect()   {}
func (Pass) effect()        {}
func (Permit) effect()      {}
func (Withhold) effect()    {}
func (Tell) effect()        {}
func (WakeAt) effect()      {}
