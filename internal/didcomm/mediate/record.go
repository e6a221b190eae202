package mediate

import (
	"errors"
	"fmt"
	"slices"
)

// Op is what a record does.
type Op string

// The operations of a journal.
const (
	OpRegister Op = "register" // Client may be mediated for
	OpAdd      Op = "add"      // Client receives for its own DID from now on
	OpRemove   Op = "remove"   // and no more; what waits still waits
	OpQueue    Op = "queue"    // Envelope waits for Client under IDs[0]
	OpTry      Op = "try"      // IDs were handed to Client
	OpAck      Op = "ack"      // Client has IDs; they are forgotten but for their names
	OpDrop     Op = "drop"     // IDs got too old
)

// Record is one change, for the caller's journal. Times are unix seconds.
type Record struct {
	Op       Op       `json:"op"`
	Time     int64    `json:"time"`
	Client   string   `json:"client"`
	IDs      []string `json:"ids,omitempty"`
	Envelope []byte   `json:"envelope,omitempty"`
	Expires  int64    `json:"expires,omitempty"`
	Tries    int      `json:"tries,omitempty"` // with queue, in Records
}

var errRecord = errors.New("mediation record does not fit the state")

// Apply makes a change real. Records that were applied before do no harm: queue
// and ack are idempotent by id.
func (m *Mediator) Apply(records ...Record) error {
	for _, r := range records {
		if err := m.apply(r); err != nil {
			return fmt.Errorf("apply %q for %s: %w", r.Op, r.Client, err)
		}
	}
	return nil
}

func (m *Mediator) apply(r Record) error {
	c := m.clients[r.Client]
	if r.Op == OpRegister {
		if c == nil {
			m.clients[r.Client] = newClient(r.Client)
		}
		return nil
	}
	if c == nil {
		return fmt.Errorf("%w: unknown client", errRecord)
	}
	switch r.Op {
	case OpAdd:
		c.receives = true
	case OpRemove:
		c.receives = false
	case OpQueue:
		if len(r.IDs) != 1 || len(r.Envelope) == 0 {
			return fmt.Errorf("%w: queue without id or envelope", errRecord)
		}
		m.total += c.queue(&item{id: r.IDs[0], envelope: r.Envelope, received: r.Time, expires: r.Expires, tries: r.Tries}, m.lim.Tries)
	case OpTry:
		c.tried(r.IDs, r.Time, m.lim)
	case OpAck:
		m.total -= c.ack(r.IDs, r.Time+int64(m.lim.MaxAge.Seconds()), m.lim.QueueMessages)
	case OpDrop:
		m.total -= c.drop(r.IDs)
	default:
		return fmt.Errorf("%w: unknown operation", errRecord)
	}
	return nil
}

// Records returns what rebuilds the present state: a journal without its history.
func (m *Mediator) Records() []Record {
	var out []Record
	for _, name := range m.names() {
		c := m.clients[name]
		out = append(out, Record{Op: OpRegister, Client: name})
		if c.receives {
			out = append(out, Record{Op: OpAdd, Client: name})
		}
		for it := range c.all() {
			out = append(out, Record{Op: OpQueue, Client: name, Time: it.received, IDs: []string{it.id}, Envelope: it.envelope,
				Expires: it.expires, Tries: it.tries})
		}
		for id, until := range c.done.all() {
			out = append(out, Record{Op: OpAck, Client: name, Time: until - int64(m.lim.MaxAge.Seconds()), IDs: []string{id}})
		}
	}
	return out
}

// names are the clients in a fixed order.
func (m *Mediator) names() []string {
	names := make([]string, 0, len(m.clients))
	for name := range m.clients {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
