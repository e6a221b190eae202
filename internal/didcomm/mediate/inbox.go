package mediate

// Verdict is what a leaf does with a delivered envelope.
type Verdict int

// What an Inbox says.
const (
	Process   Verdict = iota // open it; then call Done or Failed
	Duplicate                // it was processed: acknowledge it, no more
	Poison                   // it failed too often: set it aside, acknowledge it
)

// Inbox is a leaf's side: it tells apart what is new, what came twice (through two
// mediators, or again because an acknowledgement was lost) and what can never be
// read. It is bounded; not safe for concurrent use.
type Inbox struct {
	limit, tries int
	done, failed *bounded
}

// NewInbox remembers the last limit envelopes and lets each fail tries times.
func NewInbox(limit, tries int) *Inbox {
	return &Inbox{limit: limit, tries: tries, done: newBounded(), failed: newBounded()}
}

// Offer decides about an envelope.
func (b *Inbox) Offer(envelope []byte) Verdict {
	id := EnvelopeID(envelope)
	switch {
	case b.done.has(id):
		return Duplicate
	case b.failed.get(id) >= int64(b.tries):
		return Poison
	}
	return Process
}

// Done remembers an envelope as processed. Call it once the processing is durable.
func (b *Inbox) Done(envelope []byte) {
	id := EnvelopeID(envelope)
	b.failed.forget(id)
	b.done.set(id, 0, b.limit)
}

// Failed counts a failure and reports whether it was the last one: set the envelope
// aside where an operator can find it, and acknowledge it.
func (b *Inbox) Failed(envelope []byte) (poison bool) {
	id := EnvelopeID(envelope)
	n := b.failed.get(id) + 1
	b.failed.set(id, n, b.limit)
	return n >= int64(b.tries)
}
