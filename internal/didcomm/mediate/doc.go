// Package mediate is a mediator's memory and its decisions: who is registered,
// what waits for whom, what may be forgotten (coordinate-mediation/2.0,
// messagepickup/3.0, routing/2.0). It is pure: it opens no envelope, reads no
// clock and writes no file.
//
// Every decision comes as [Record]s. The caller makes them durable, then applies
// them, then sends the answer; a record that could not be written is not applied,
// and the decision never happened. Applying the records of a journal in order
// gives the same state back, so a mediator that was killed loses nothing that it
// had acknowledged.
//
// The memory holds envelopes and recipients. It holds no sender: forwards come
// from nobody, and an envelope that shows its sender's key is refused unless the
// limits allow it.
package mediate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// Limits bounds a mediator. Zero values are not limits: start from
// DefaultLimits.
type Limits struct {
	Clients       int           // registrations
	QueueMessages int           // waiting for one client
	QueueBytes    int64         // waiting for one client
	TotalBytes    int64         // waiting for all
	MaxAge        time.Duration // how long a message waits at most
	Tries         int           // deliveries without an acknowledgement before a message is set aside
	Lease         time.Duration // how long a delivered message is not delivered again on one connection
	BatchBytes    int64         // of envelopes in one delivery, and so of one envelope
	ShowSender    bool          // also take envelopes that show their sender's key
}

// DefaultLimits is for an anchor with some hundred leaves: 1,000 clients, 20,000
// messages and 64 MiB each, 4 GiB in all, 14 days, 3 tries.
func DefaultLimits() Limits {
	return Limits{Clients: 1000, QueueMessages: 20_000, QueueBytes: 64 << 20, TotalBytes: 4 << 30, MaxAge: 14 * 24 * time.Hour,
		Tries: 3, Lease: time.Minute, BatchBytes: 2 << 20}
}

// Code says why something was refused.
type Code string

// The reasons for which a mediator refuses.
const (
	NotRegistered Code = "not-registered" // nobody here takes messages for this DID
	QueueFull     Code = "queue-full"     // the client's quota is used up
	NoRoom        Code = "no-room"        // the mediator's memory is used up
	TooLarge      Code = "too-large"      // it would fit in no delivery
	Expired       Code = "expired"        // it would be dropped at once
	SenderShown   Code = "sender-shown"   // the envelope names its sender's key
	NotForYou     Code = "not-for-you"    // pickup by somebody who is not registered
)

// Refusal is an error that the other side may be told.
type Refusal struct {
	Code  Code
	Limit int64 // the limit that was met, when there is one
}

func (r *Refusal) Error() string {
	if r.Limit != 0 {
		return fmt.Sprintf("mediation refused: %s (limit %d)", r.Code, r.Limit)
	}
	return fmt.Sprintf("mediation refused: %s", r.Code)
}

// EnvelopeID names an envelope. It does not depend on the mediator: the same
// envelope sent twice, or through two mediators, has one name.
func EnvelopeID(envelope []byte) string {
	h := sha256.Sum256(envelope)
	return hex.EncodeToString(h[:16])
}
