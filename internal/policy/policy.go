// Package policy answers two questions for every door of a node: is this
// event welcome, and may this reader see that event. It decides and counts; it
// opens no socket and reads no clock but the one it is handed.
package policy

import (
	"context"
	"fmt"
	"net/netip"

	"fleetmesh.org/fleetmesh/nostr"
)

// Source says by which door an event comes in.
type Source uint8

const (
	FromClient Source = iota // EVENT over a client's socket
	FromSync                 // pulled from another relay
	FromImport               // read from a file by the operator
	FromMesh                 // delivered by a peer under a grant
	FromStream               // by a bridge or a gateway from a relay that it follows
	FromStore                // held here, and about to leave
)

// String names the door.
func (s Source) String() string {
	return [...]string{"client", "sync", "import", "mesh", "stream", "store"}[min(s, FromStore)]
}

// Prefix is a machine-readable word at the head of a refusal (NIP-01, NIP-42).
type Prefix string

// The prefixes in use. Unsupported is for what is switched off, so that nobody takes it
// for a limit (Blocked) or a mistake of the client (Invalid).
const (
	Invalid      Prefix = "invalid"
	PoW          Prefix = "pow"
	Blocked      Prefix = "blocked"
	RateLimited  Prefix = "rate-limited"
	Restricted   Prefix = "restricted"
	AuthRequired Prefix = "auth-required"
	Unsupported  Prefix = "unsupported"
	Closed       Prefix = "closed"
	Error        Prefix = "error"
	Duplicate    Prefix = "duplicate"
)

// Rejection is a refusal as a client reads it: a prefix and a sentence for a person.
// It is data, not a Go error. A nil *Rejection is consent.
type Rejection struct {
	Prefix Prefix
	Text   string
	Shadow bool // the sender is told that all is well
}

// Reject makes a Rejection.
func Reject(p Prefix, format string, args ...any) *Rejection {
	return &Rejection{Prefix: p, Text: fmt.Sprintf(format, args...)}
}

// String is the fourth element of an OK, or the third of a CLOSED: "prefix: text".
func (r *Rejection) String() string { return string(r.Prefix) + ": " + r.Text }

// Request is one event that asks to be let in.
type Request struct {
	Event  *nostr.Event
	Source Source
	Keys   []nostr.PubKey // with which the client has authenticated (NIP-42)
	Client netip.Addr     // of the client; not valid for other sources. It is for deciding, never for a log
	Info   string         // where the event comes from, or goes, when that is no client: a relay's URL, a peer's DID
	Now    int64          // unix seconds
}

// Policy decides whether an event is welcome. Implementations are safe for concurrent
// use. ctx ends when the sender is gone or the relay shuts down.
//
// Admit is asked after the signature was found good. A Policy that only looks at the
// event and the keys, and keeps no account, may also be asked before (see Static), which spares
// the signature check of what would be refused anyhow.
type Policy interface {
	Admit(ctx context.Context, r *Request) *Rejection
}

// Batched is a Policy that is better asked about several events at once. AdmitAll returns one answer a request, in order.
type Batched interface {
	Policy
	AdmitAll(ctx context.Context, list []*Request) []*Rejection
}

// Static marks a Policy whose answer depends on the request alone, so that it may be asked
// before the signature is checked.
type Static interface {
	Static() bool
}

// Described is a Policy that can say in numbers what it demands, for the information
// document (NIP-11).
type Described interface {
	Describe(*Demands)
}

// Demands are the rules for events as NIP-11's limitation block tells them. Zero means
// no such rule.
type Demands struct {
	MinPoW           int
	MaxContentRunes  int
	MaxTags          int
	OldestSeconds    int64 // created_at may lie that far back
	NewestSeconds    int64 // and that far ahead
	HasUpperBound    bool  // NewestSeconds counts, even if it is zero
	RestrictedWrites bool  // only chosen authors or kinds are let in
	AuthToWrite      bool
}

// Chain asks its policies in order; the first refusal counts.
type Chain []Policy

// Admit asks the policies that need a checked signature.
func (c Chain) Admit(ctx context.Context, r *Request) *Rejection {
	return c.ask(ctx, r, false)
}

// Precheck asks the static policies.
func (c Chain) Precheck(ctx context.Context, r *Request) *Rejection {
	return c.ask(ctx, r, true)
}

func (c Chain) ask(ctx context.Context, r *Request, static bool) *Rejection {
	for _, p := range c {
		if IsStatic(p) != static {
			continue
		}
		if no := p.Admit(ctx, r); no != nil {
			return no
		}
	}
	return nil
}

// AdmitAll asks the policies that need a checked signature about several events, and each policy only about
// those that the ones before let pass.
func (c Chain) AdmitAll(ctx context.Context, list []*Request) []*Rejection {
	out := make([]*Rejection, len(list))
	left := make([]int, len(list))
	for i := range left {
		left[i] = i
	}
	for _, p := range c {
		if IsStatic(p) || len(left) == 0 {
			continue
		}
		rest := make([]*Request, len(left))
		for k, i := range left {
			rest[k] = list[i]
		}
		pass := left[:0]
		for k, no := range admitAll(ctx, p, rest) {
			if i := left[k]; no != nil {
				out[i] = no
			} else {
				pass = append(pass, i)
			}
		}
		left = pass
	}
	return out
}

func admitAll(ctx context.Context, p Policy, list []*Request) []*Rejection {
	if b, ok := p.(Batched); ok {
		return b.AdmitAll(ctx, list)
	}
	out := make([]*Rejection, len(list))
	for i, r := range list {
		out[i] = p.Admit(ctx, r)
	}
	return out
}

// IsStatic says whether p may be asked before the signature is checked.
func IsStatic(p Policy) bool {
	s, ok := p.(Static)
	return ok && s.Static()
}

// Describe collects the demands of all policies.
func (c Chain) Describe(d *Demands) {
	for _, p := range c {
		if q, ok := p.(Described); ok {
			q.Describe(d)
		}
	}
}

// Func turns a function into a Policy that is asked after the signature check.
type Func func(ctx context.Context, r *Request) *Rejection

// Admit calls the function.
func (f Func) Admit(ctx context.Context, r *Request) *Rejection { return f(ctx, r) }
