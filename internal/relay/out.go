package relay

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// outItem is one frame to be sent. An event is the subscription's head, the event's stored text and a
// closing bracket, so that many clients share one text.
type outItem struct {
	op   ws.OpCode // zero: text
	head []byte
	body []byte // of an event; nil for any other message
}

// itemCost is what an item costs beside its text: its place in the queue and its frame header.
const itemCost = 64

func (i *outItem) size() int { return len(i.head) + len(i.body) + itemCost }

// send queues a message.
func (c *conn) send(msg []byte) { c.push(outItem{head: msg}) }

// push queues a frame. A client that is owed too much is shed.
func (c *conn) push(i outItem) {
	c.mu.Lock()
	ok := c.enqueue(i)
	c.mu.Unlock()
	if ok {
		c.writeNow()
	}
}

// enqueue queues a frame without waking the writer. The caller holds mu.
func (c *conn) enqueue(i outItem) bool {
	if c.closing {
		return false
	}
	n := i.size()
	if c.tooMuch(n) {
		return false
	}
	c.owe(n)
	c.queue = append(c.queue, i)
	return true
}

// owe books octets in the queue, keep those held for after an EOSE. The caller holds mu.
func (c *conn) owe(n int) {
	c.owed += n
	c.r.owed.Add(int64(n))
}

func (c *conn) keep(n int) {
	c.kept += n
	c.r.owed.Add(int64(n))
}

// tooMuch sheds the client if n octets more are over its cap, or over that of all while it is owed more
// than its share. The caller holds mu.
func (c *conn) tooMuch(n int) bool {
	l, mine, all := c.r.lim.Load(), c.owed+c.kept+n, int(c.r.owed.Load())+n
	switch {
	case mine > l.MaxOutboundBytes:
		c.shed("maxOutboundBytes", l.MaxOutboundBytes, mine)
	case all > l.MaxOutboundInAll && mine-n > max(l.StreamWindow, all/int(max(1, c.r.m.Open.Load()))):
		c.shed("maxOutboundInAll", l.MaxOutboundInAll, all)
	default:
		return false
	}
	return true
}

// nudge starts the writer if there is something for it and nobody writes. The caller holds mu.
func (c *conn) nudge() {
	if !c.writing && (len(c.queue) > 0 || len(c.rest) > 0 || c.closing) {
		c.writing = true
		go c.write()
	}
}

func (c *conn) ok(id string, ok bool, reason string) { c.send(nostr.AppendOK(nil, id, ok, reason)) }

func (c *conn) notice(no *policy.Rejection) {
	c.r.m.refused(no.Prefix)
	c.r.m.Notices.Add(1)
	c.send(nostr.AppendNotice(nil, no.String()))
}

// flushSize is how much is gathered before a write.
const flushSize = 64 << 10

var flushBuffers = sync.Pool{New: func() any { b := make([]byte, 0, flushSize); return &b }}

// write is the writer goroutine: it sends all that is queued in as few writes as it can, and ends. It lives only
// while a client takes less than we have for it: what can be sent at once is sent by writeNow.
func (c *conn) write() {
	for {
		c.mu.Lock()
		items, rest, restOwed := c.queue, c.rest, c.restOwed
		closing, discard := c.closing, c.discard
		if len(items) == 0 && len(rest) == 0 && !closing {
			c.writing = false
			c.mu.Unlock()
			return
		}
		c.queue, c.rest, c.restOwed = nil, nil, 0
		c.mu.Unlock()
		healthy := len(rest) == 0 // or else the line ends within a frame
		if !closing || !discard {
			healthy = c.writeItems(rest, restOwed, items)
		}
		if closing || !healthy {
			c.finish(healthy)
			close(c.gone)
			return
		}
		c.recycle(items)
	}
}

// keepItems is how many places a queue keeps when it is empty.
const keepItems = 4

// recycle keeps the memory of a queue that was written, if it is small.
func (c *conn) recycle(items []outItem) {
	if cap(items) > keepItems {
		return
	}
	clear(items)
	c.mu.Lock()
	if c.queue == nil {
		c.queue = items[:0]
	}
	c.mu.Unlock()
}

// writeItems sends the rest of what was begun and the frames. It returns false when the client can no longer be written to.
func (c *conn) writeItems(rest []byte, owed int, items []outItem) bool {
	bp := flushBuffers.Get().(*[]byte)
	buf := append((*bp)[:0], rest...)
	ok := true
	from := 0 // items before it are in buf or sent
	size := len(buf)
	for i := range items {
		it := &items[i]
		n := len(it.head) + len(it.body)
		if size > 0 && size+n > flushSize {
			buf = c.appendItems(buf, items[from:i])
			if ok = c.flush(buf, owed); !ok {
				break
			}
			buf, owed, from, size = buf[:0], 0, i, 0
		}
		owed += it.size()
		size += n
	}
	if ok {
		buf = c.appendItems(buf, items[from:])
	}
	ok = ok && c.flush(buf, owed)
	if cap(buf) <= 2*flushSize {
		*bp = buf[:0]
		flushBuffers.Put(bp)
	}
	return ok
}

// appendItems appends frames.
func (c *conn) appendItems(buf []byte, items []outItem) []byte {
	events := int64(0)
	for i := range items {
		if items[i].body != nil {
			events++
		}
		buf = items[i].append(buf)
	}
	if events > 0 {
		c.r.m.EventsOut.Add(events)
	}
	return buf
}

// append appends the frame.
func (it *outItem) append(buf []byte) []byte {
	n := len(it.head) + len(it.body)
	op := it.op
	if op == 0 {
		op = ws.OpText
	}
	if it.body == nil {
		return append(appendFrameHeader(buf, op, n), it.head...)
	}
	buf = append(appendFrameHeader(buf, op, n+1), it.head...)
	return append(append(buf, it.body...), ']')
}

// flush writes once and settles what was owed.
func (c *conn) flush(buf []byte, owed int) bool {
	if len(buf) == 0 {
		return true
	}
	c.mu.Lock()
	if !c.closing {
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.r.lim.Load().WriteTimeout))
	}
	c.mu.Unlock()
	n, err := c.nc.Write(buf)
	c.r.m.BytesOut.Add(int64(n))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owe(-owed)
	c.room.Broadcast()
	if err == nil {
		return true
	}
	if isTimeout(err) && !c.closing {
		c.r.m.Shed.Add(1)
		c.r.log.Info("a client that takes nothing was shed", "writeTimeout", c.r.lim.Load().WriteTimeout)
	}
	c.endLocked(0, "", true)
	return false
}

// finish ends the writing side: a close frame if the line is clean, and no more. The
// reader is given a moment to see the client's answer.
func (c *conn) finish(healthy bool) {
	c.mu.Lock()
	code, reason := c.code, c.reason
	c.queue = nil
	c.mu.Unlock()
	if healthy && code != 0 {
		body := ws.NewCloseFrameBody(code, cut(reason, ws.MaxControlFramePayloadSize-2))
		_ = c.nc.SetWriteDeadline(time.Now().Add(lingering))
		_, _ = c.nc.Write(append(appendFrameHeader(nil, ws.OpClose, len(body)), body...))
		if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(lingering))
		return
	}
	_ = c.nc.Close()
}

// cut shortens s to n octets without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
