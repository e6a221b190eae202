package mediate

import (
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
)

// Mediator is the state. It is not safe for concurrent use.
type Mediator struct {
	did     string
	lim     Limits
	clients map[string]*client
	total   int64 // octets of all that waits
}

// New returns an empty mediator; did is where forwards are sent to.
func New(did string, lim Limits) *Mediator {
	return &Mediator{did: did, lim: lim, clients: map[string]*client{}}
}

// Bytes is how much waits for all clients together.
func (m *Mediator) Bytes() int64 { return m.total }

// Waiting is how many messages wait for a client, and how many of them were set
// aside.
func (m *Mediator) Waiting(clientDID string) (waiting, aside int) {
	c := m.clients[clientDID]
	if c == nil {
		return 0, 0
	}
	return len(c.items), c.aside.Len()
}

// Registered reports whether a DID is a client.
func (m *Mediator) Registered(clientDID string) bool { return m.clients[clientDID] != nil }

// Clients is how many are registered.
func (m *Mediator) Clients() int { return len(m.clients) }

// Live are the clients that want what comes at once, in a fixed order.
func (m *Mediator) Live() (clients []string) {
	for _, name := range m.names() {
		if m.clients[name].live {
			clients = append(clients, name)
		}
	}
	return clients
}

// Queued is what became of a forward.
type Queued struct {
	Client  string // whom it is for
	ID      string
	Known   bool // it waits already, or was delivered: nothing to do
	Live    bool // the client wants it at once: see LiveDelivery
	Records []Record
}

// Forward decides about an envelope to be passed on. Only encrypted envelopes come
// here: didcomm.ParseForward has seen to that. Errors are *Refusal.
func (m *Mediator) Forward(now time.Time, f didcomm.Forward) (Queued, error) {
	t := now.Unix()
	did := didcomm.DIDOf(f.Next)
	c := m.clients[did]
	if c == nil || !c.receives {
		return Queued{}, &Refusal{Code: NotRegistered}
	}
	if h, err := didcomm.Peek(f.Envelope); !m.lim.ShowSender && (err != nil || h.SenderKID != "") {
		return Queued{}, &Refusal{Code: SenderShown}
	}
	q := Queued{Client: did, ID: EnvelopeID(f.Envelope), Live: c.live}
	if c.items[q.ID] != nil || c.done.has(q.ID) {
		q.Known = true
		return q, nil
	}
	expires := t + int64(m.lim.MaxAge.Seconds())
	if f.ExpiresTime != 0 {
		expires = min(expires, f.ExpiresTime)
	}
	size := int64(len(f.Envelope))
	switch {
	case expires <= t:
		return Queued{}, &Refusal{Code: Expired}
	case size > m.lim.BatchBytes:
		return Queued{}, &Refusal{TooLarge, m.lim.BatchBytes}
	case len(c.items) >= m.lim.QueueMessages:
		return Queued{}, &Refusal{QueueFull, int64(m.lim.QueueMessages)}
	case c.bytes+size > m.lim.QueueBytes:
		return Queued{}, &Refusal{QueueFull, m.lim.QueueBytes}
	case m.total+size > m.lim.TotalBytes:
		return Queued{}, &Refusal{NoRoom, m.lim.TotalBytes}
	}
	q.Records = []Record{{Op: OpQueue, Time: t, Client: did, IDs: []string{q.ID}, Envelope: f.Envelope, Expires: expires}}
	return q, nil
}

// Connected starts a connection of a client: live delivery is off, and what the
// last connection left unanswered may be handed out again.
func (m *Mediator) Connected(clientDID string) { m.Disconnected(clientDID) }

// Disconnected ends it.
func (m *Mediator) Disconnected(clientDID string) {
	if c := m.clients[clientDID]; c != nil {
		c.live = false
		c.release(m.lim.Tries)
	}
}

// Expire returns the records that drop what is too old, and forgets old names.
func (m *Mediator) Expire(now time.Time) []Record {
	var out []Record
	t := now.Unix()
	for _, name := range m.names() {
		c := m.clients[name]
		c.done.expire(t)
		var ids []string
		for it := range c.all() {
			if it.expires <= t {
				ids = append(ids, it.id)
			}
		}
		if len(ids) > 0 {
			out = append(out, Record{Op: OpDrop, Time: t, Client: name, IDs: ids})
		}
	}
	return out
}
