package relay

import (
	"errors"
	"unicode/utf8"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// handle takes one message in the reader's goroutine. p is good until handle returns.
func (c *conn) handle(p []byte) {
	if no := c.takeBytes(len(p)); no != nil {
		c.refuseRaw(p, no)
		return
	}
	if n := c.r.lim.Load().MaxMessageBytes; len(p) > n {
		c.refuseRaw(p, over(policy.Invalid, "maxMessageBytes", n, len(p)))
		return
	}
	msg, err := nostr.ParseClientMessage(p)
	if err != nil {
		c.malformed(err)
		return
	}
	switch m := msg.(type) {
	case *nostr.EventMessage:
		c.onEvent(m, len(p))
	case *nostr.ReqMessage:
		c.onReq(m)
	case *nostr.CloseMessage:
		c.dropSub(m.SubID)
	case *nostr.CountMessage:
		c.onCount(m)
	case *nostr.AuthMessage:
		c.onAuth(m)
	case *nostr.NegOpenMessage:
		c.onNegOpen(m)
	case *nostr.NegMsgMessage:
		c.onNegMsg(m)
	case *nostr.NegCloseMessage:
		c.dropNeg(m.SubID)
	}
}

// takeBytes charges the client for what it sent.
func (c *conn) takeBytes(n int) *policy.Rejection {
	if c.exempt {
		return nil
	}
	ok, wait, enough := c.r.bytes.Take(c.key, float64(n), c.r.now())
	if ok {
		return nil
	}
	return overRate("bytesPerSecond", c.r.bytes.Rate(), wait, enough)
}

// takeRequest charges the client for one question.
func (c *conn) takeRequest() *policy.Rejection {
	if c.exempt {
		return nil
	}
	ok, wait, enough := c.r.requests.Take(c.key, 1, c.r.now())
	if ok {
		return nil
	}
	return overRate("requestsPerSecond", c.r.requests.Rate(), wait, enough)
}

// refuseRaw answers a message that was not parsed: an EVENT or AUTH with its OK, the others by a
// message that names their subscription where it can be read.
func (c *conn) refuseRaw(p []byte, no *policy.Rejection) {
	label, rest := peekLabel(p)
	switch label {
	case "EVENT", "AUTH":
		c.r.m.refused(no.Prefix)
		c.ok(nostr.PeekID(rest), false, no.String())
	case "REQ", "COUNT", "NEG-OPEN", "NEG-MSG":
		if sub, ok := peekString(rest); ok {
			c.refuseSub(label, sub, no)
			return
		}
		fallthrough
	default:
		c.notice(no)
	}
}

// malformed answers a message that could not be read.
func (c *conn) malformed(err error) {
	no := policy.Reject(policy.Invalid, "%s", err)
	var m *nostr.MessageError
	if !errors.As(err, &m) || m.SubID == "" {
		c.notice(no)
		return
	}
	if utf8.RuneCountInString(m.SubID) > c.r.lim.Load().MaxSubIDLength {
		c.r.m.badSubID(c.agent)
		n := utf8.RuneCountInString(m.SubID)
		no = over(policy.Invalid, "maxSubIdLength", c.r.lim.Load().MaxSubIDLength, n)
	}
	c.refuseSub(m.Type, m.SubID, no)
}

// refuseSub answers a REQ or COUNT with CLOSED, a NEG message with NEG-ERR. Whatever had that id is over.
func (c *conn) refuseSub(label, sub string, no *policy.Rejection) {
	switch label {
	case "REQ":
		c.r.m.refused(no.Prefix)
		c.dropSub(sub)
		c.send(nostr.AppendClosed(nil, sub, no.String()))
	case "COUNT":
		c.r.m.refused(no.Prefix)
		c.send(nostr.AppendClosed(nil, sub, no.String()))
	case "NEG-OPEN", "NEG-MSG":
		c.dropNeg(sub)
		c.negErr(sub, no)
	default:
		c.notice(no)
	}
}

// ask goes through what every question must pass: rate, authentication, the number of filters, switched-off
// search, and the read gate.
func (c *conn) ask(subID string, filters []nostr.Filter) *policy.Rejection {
	if no := c.takeRequest(); no != nil {
		return no
	}
	if n := utf8.RuneCountInString(subID); n > c.r.lim.Load().MaxSubIDLength {
		c.r.m.badSubID(c.agent)
		return over(policy.Invalid, "maxSubIdLength", c.r.lim.Load().MaxSubIDLength, n)
	}
	if c.r.cfg.AuthToRead && len(c.readers()) == 0 {
		return policy.Reject(policy.AuthRequired, "reading here needs authentication")
	}
	if n := len(filters); n > c.r.lim.Load().MaxFilters {
		return over(policy.Blocked, "maxFilters", c.r.lim.Load().MaxFilters, n)
	}
	for i := range filters {
		if filters[i].Search != "" && c.r.cfg.Off.Search {
			return policy.Reject(policy.Unsupported, "search is switched off here")
		}
	}
	return c.r.gate.Check(c.readers(), filters)
}

// onEvent sends an event into the pipeline. Every EVENT gets exactly one OK.
func (c *conn) onEvent(m *nostr.EventMessage, size int) {
	c.r.m.EventsIn.Add(1)
	if !c.exempt {
		if ok, wait, enough := c.r.events.Take(c.key, 1, c.r.now()); !ok {
			no := overRate("eventsPerSecond", c.r.events.Rate(), wait, enough)
			c.ok(m.RawID, false, c.r.refuse(no).Reason)
			return
		}
	}
	if m.Err != nil {
		no := policy.Reject(policy.Invalid, "%s", m.Err)
		c.ok(m.RawID, false, c.r.refuse(no).Reason)
		return
	}
	o := &offer{event: m.Event, size: size, from: c, ctx: c.ctx, answer: answerClient}
	o.Request = policy.Request{Event: m.Event, Source: policy.FromClient, Keys: c.readers(), Client: c.client, Now: c.r.now().Unix()}
	if v, done := c.r.precheck(o); done {
		c.ok(m.RawID, v.OK, v.Reason)
		return
	}
	c.mu.Lock()
	c.inFlight++
	c.mu.Unlock()
	if c.r.submit(c.ctx, o) != nil {
		c.mu.Lock()
		c.inFlight--
		c.mu.Unlock()
	}
}

func answerClient(o *offer, v Verdict) {
	c := o.from
	msg := nostr.AppendOK(nil, o.event.ID.String(), v.OK, v.Reason)
	c.mu.Lock()
	c.inFlight--
	c.enqueue(outItem{head: msg})
	if !o.together {
		c.nudge()
	}
	c.room.Broadcast()
	c.mu.Unlock()
}

// peekLabel reads the first element of a message that is not parsed, and what follows.
func peekLabel(p []byte) (string, []byte) {
	p = trimSpace(p)
	if len(p) == 0 || p[0] != '[' {
		return "", nil
	}
	p = trimSpace(p[1:])
	s, ok := peekString(p)
	if !ok {
		return "", nil
	}
	p = trimSpace(p[len(s)+2:])
	if len(p) == 0 || p[0] != ',' {
		return s, nil
	}
	return s, p[1:]
}

// peekString reads a short string without escapes.
func peekString(p []byte) (string, bool) {
	p = trimSpace(p)
	if len(p) == 0 || p[0] != '"' {
		return "", false
	}
	for i := 1; i < len(p) && i < 512; i++ {
		switch p[i] {
		case '\\':
			return "", false
		case '"':
			return string(p[1:i]), i > 1
		}
	}
	return "", false
}

func trimSpace(p []byte) []byte {
	for len(p) > 0 && (p[0] == ' ' || p[0] == '\t' || p[0] == '\r' || p[0] == '\n') {
		p = p[1:]
	}
	return p
}
