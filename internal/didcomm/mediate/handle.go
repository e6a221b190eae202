package mediate

import (
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
)

// Reply is the answer to a client's message: send Message once Records are durable
// and applied.
type Reply struct {
	Message *didcomm.Message
	Records []Record
}

// Handle answers a message of coordinate-mediation or messagepickup from an
// authenticated sender; id becomes the answer's. admit says whether the caller
// would take the sender as a client, which matters to a mediate-request alone.
//
// live says whether the connection can deliver at once (it is no single POST).
// Errors are *Refusal or wrap didcomm.ErrSyntax.
func (m *Mediator) Handle(now time.Time, id string, msg *didcomm.Message, admit, live bool) (Reply, error) {
	t, from := now.Unix(), didcomm.DIDOf(msg.From)
	if from == "" {
		return Reply{}, &Refusal{Code: NotForYou}
	}
	if msg.Type == didcomm.TypeMediateRequest {
		return m.request(t, id, msg, from, admit)
	}
	c := m.clients[from]
	if c == nil {
		return Reply{}, &Refusal{Code: NotForYou}
	}
	switch msg.Type {
	case didcomm.TypeKeylistUpdate:
		return m.keylistUpdate(t, id, msg, c)
	case didcomm.TypeKeylistQuery:
		return m.keylist(t, id, msg, c)
	case didcomm.TypeStatusRequest:
		r, err := didcomm.ParsePickupRequest(msg)
		if err != nil {
			return Reply{}, err
		}
		return m.status(t, id, msg, c, r.RecipientDID, nil)
	case didcomm.TypeDeliveryRequest:
		return m.deliver(t, id, msg, c)
	case didcomm.TypeMessagesReceived:
		return m.received(t, id, msg, c)
	case didcomm.TypeLiveDeliveryChange:
		return m.liveChange(t, id, msg, c, live)
	}
	return Reply{}, fmt.Errorf("%w: a mediator does not answer %.80q", didcomm.ErrSyntax, msg.Type)
}

func (m *Mediator) request(now int64, id string, msg *didcomm.Message, from string, admit bool) (Reply, error) {
	known := m.clients[from] != nil
	if !admit || !known && len(m.clients) >= m.lim.Clients {
		return Reply{Message: didcomm.NewMediateDeny(id, m.did, now, msg)}, nil
	}
	grant, err := didcomm.NewMediateGrant(id, m.did, now, msg, m.did)
	if err != nil {
		return Reply{}, err
	}
	r := Reply{Message: grant}
	if !known {
		r.Records = []Record{{Op: OpRegister, Time: now, Client: from}}
	}
	return r, nil
}

// keylistUpdate lets a client receive for its own DID and no other, or one could
// take another's messages.
func (m *Mediator) keylistUpdate(now int64, id string, msg *didcomm.Message, c *client) (Reply, error) {
	items, err := didcomm.ParseKeylist(msg)
	if err != nil {
		return Reply{}, err
	}
	var r Reply
	receives := c.receives
	for i := range items {
		it := &items[i]
		want := it.Action == didcomm.KeylistAdd
		switch {
		case didcomm.DIDOf(it.RecipientDID) != c.name:
			it.Result = didcomm.ResultClientError
		case want == receives:
			it.Result = didcomm.ResultNoChange
		default:
			it.Result, receives = didcomm.ResultSuccess, want
			op := OpRemove
			if want {
				op = OpAdd
			}
			r.Records = append(r.Records, Record{Op: op, Time: now, Client: c.name})
		}
	}
	r.Message, err = didcomm.NewKeylistUpdateResponse(id, m.did, now, msg, items...)
	return r, err
}

func (m *Mediator) keylist(now int64, id string, msg *didcomm.Message, c *client) (Reply, error) {
	page, err := didcomm.ParseKeylistQuery(msg)
	if err != nil {
		return Reply{}, err
	}
	var dids []string
	if c.receives {
		dids = []string{c.name}
	}
	if page != nil {
		dids = dids[min(page.Offset, len(dids)):]
		page = &didcomm.Page{Count: len(dids), Offset: page.Offset}
	}
	out, err := didcomm.NewKeylist(id, m.did, now, msg, page, dids...)
	return Reply{Message: out}, err
}

// status answers with the queue as it will be once records are applied.
func (m *Mediator) status(now int64, id string, msg *didcomm.Message, c *client, recipient string, acked map[string]bool) (Reply, error) {
	s := didcomm.Status{RecipientDID: recipient, LiveDelivery: c.live}
	if recipient == "" || didcomm.DIDOf(recipient) == c.name {
		for it := range c.all() {
			if acked[it.id] || it.expires <= now {
				continue
			}
			s.MessageCount++
			s.TotalBytes += int64(len(it.envelope))
			if s.OldestReceivedTime == 0 || it.received < s.OldestReceivedTime {
				s.OldestReceivedTime = it.received
			}
			s.NewestReceivedTime = max(s.NewestReceivedTime, it.received)
		}
		if s.MessageCount > 0 {
			s.LongestWaitedSeconds = max(0, now-s.OldestReceivedTime)
		}
	}
	out, err := didcomm.NewStatus(id, m.did, now, msg, s)
	return Reply{Message: out}, err
}

func (m *Mediator) deliver(now int64, id string, msg *didcomm.Message, c *client) (Reply, error) {
	r, err := didcomm.ParsePickupRequest(msg)
	if err != nil {
		return Reply{}, err
	}
	var batch []*item
	if r.RecipientDID == "" || didcomm.DIDOf(r.RecipientDID) == c.name {
		batch = c.batch(now, r.Limit, m.lim)
	}
	if len(batch) == 0 {
		return m.status(now, id, msg, c, r.RecipientDID, nil)
	}
	return m.delivery(now, id, c, msg, r.RecipientDID, batch)
}

func (m *Mediator) delivery(now int64, id string, c *client, request *didcomm.Message, recipient string, batch []*item) (Reply, error) {
	out := make([]didcomm.Delivered, len(batch))
	ids := make([]string, len(batch))
	for i, it := range batch {
		out[i], ids[i] = didcomm.Delivered{ID: it.id, Envelope: it.envelope}, it.id
	}
	msg, err := didcomm.NewDelivery(id, m.did, c.name, now, request, recipient, out)
	return Reply{Message: msg, Records: []Record{{Op: OpTry, Time: now, Client: c.name, IDs: ids}}}, err
}

// LiveDelivery hands a client in live mode what it has not been handed yet on this
// connection; ok is false when there is nothing to send.
func (m *Mediator) LiveDelivery(now time.Time, id, clientDID string) (r Reply, ok bool, err error) {
	c := m.clients[clientDID]
	if c == nil || !c.live {
		return Reply{}, false, nil
	}
	batch := c.batch(now.Unix(), didcomm.MaxPickup, m.lim)
	if len(batch) == 0 {
		return Reply{}, false, nil
	}
	r, err = m.delivery(now.Unix(), id, c, nil, "", batch)
	return r, err == nil, err
}

func (m *Mediator) received(now int64, id string, msg *didcomm.Message, c *client) (Reply, error) {
	ids, err := didcomm.ParseMessagesReceived(msg)
	if err != nil {
		return Reply{}, err
	}
	acked := make(map[string]bool, len(ids))
	held := make([]string, 0, len(ids))
	for _, i := range ids {
		if c.items[i] != nil && !acked[i] {
			acked[i] = true
			held = append(held, i)
		}
	}
	r, err := m.status(now, id, msg, c, "", acked)
	if len(held) > 0 {
		r.Records = []Record{{Op: OpAck, Time: now, Client: c.name, IDs: held}}
	}
	return r, err
}

// liveChange is not journaled: live mode ends with the connection.
func (m *Mediator) liveChange(now int64, id string, msg *didcomm.Message, c *client, able bool) (Reply, error) {
	want, err := didcomm.ParseLiveDeliveryChange(msg)
	if err != nil {
		return Reply{}, err
	}
	if want && !able {
		out, err := didcomm.NewProblemReport(id, m.did, now, msg, didcomm.Problem{Code: "e.m.live-mode-not-supported",
			Comment: "This connection does not support live delivery."})
		return Reply{Message: out}, err
	}
	c.live = want
	return m.status(now, id, msg, c, "", nil)
}
