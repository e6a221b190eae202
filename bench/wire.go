package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"fleetmesh.org/fleetmesh/nostr"
)

// patience is how long an answer may take before a measurement gives up.
const patience = 60 * time.Second

// conn is one WebSocket connection of a load generator that shares the machine with what it measures: it spends as
// little as it can. Frames go out with a mask of zeros, which is legal and costs nothing.
type conn struct {
	net  net.Conn
	br   *bufio.Reader
	buf  []byte
	wmu  sync.Mutex
	wbuf []byte
}

func dial(ctx context.Context, url string, readBuffer int) (*conn, error) {
	d := ws.Dialer{Timeout: patience}
	nc, br, _, err := d.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", url, err)
	}
	c := &conn{net: nc, br: br}
	if br == nil {
		c.br = bufio.NewReaderSize(nc, readBuffer)
	}
	return c, nil
}

func (c *conn) close() { _ = c.net.Close() }

// appendFrame appends one masked frame.
func appendFrame(dst []byte, op byte, payload []byte) []byte {
	dst = append(dst, 0x80|op)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	dst = append(dst, 0, 0, 0, 0)
	return append(dst, payload...)
}

// send writes text frames in one call.
func (c *conn) send(frames ...[]byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.wbuf = c.wbuf[:0]
	for _, f := range frames {
		c.wbuf = appendFrame(c.wbuf, byte(ws.OpText), f)
	}
	return c.write()
}

func (c *conn) write() error {
	_ = c.net.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.net.Write(c.wbuf); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// read returns the next text message. It is overwritten by the next call.
func (c *conn) read() ([]byte, error) {
	c.buf = c.buf[:0]
	for {
		op, fin, err := c.frame()
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		if fin && op < 8 {
			return c.buf, nil
		}
	}
}

// deadline bounds the reads from now on. Setting it costs as much as a read, so it is not done for each.
func (c *conn) deadline(d time.Duration) { _ = c.net.SetReadDeadline(time.Now().Add(d)) }

// frame appends the payload of a data frame to the buffer, and answers a ping.
func (c *conn) frame() (op byte, fin bool, err error) {
	head, err := c.br.Peek(2)
	if err != nil {
		return 0, false, err
	}
	op, fin = head[0]&15, head[0]&0x80 != 0
	length, used := uint64(head[1]&127), 2
	if head[1]&0x80 != 0 || head[0]&0x70 != 0 {
		return 0, false, fmt.Errorf("a frame that no server may send: %x", head)
	}
	if length >= 126 {
		used += 2 << (2 * (length - 126)) // 126: 2 octets, 127: 8
		if head, err = c.br.Peek(used); err != nil {
			return 0, false, err
		}
		length = 0
		for _, b := range head[2:used] {
			length = length<<8 | uint64(b)
		}
	}
	_, _ = c.br.Discard(used)
	if length > 64<<20 {
		return 0, false, fmt.Errorf("a frame of %d octets", length)
	}
	at := len(c.buf)
	c.buf = append(c.buf, make([]byte, length)...)
	if _, err := io.ReadFull(c.br, c.buf[at:]); err != nil {
		return 0, false, err
	}
	if op < 8 {
		return op, fin, nil
	}
	payload := c.buf[at:]
	c.buf = c.buf[:at]
	return op, fin, c.control(ws.OpCode(op), payload)
}

func (c *conn) control(op ws.OpCode, payload []byte) error {
	switch op {
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(payload)
		return fmt.Errorf("the relay closed the connection: %d %s", code, reason)
	case ws.OpPing:
		c.wmu.Lock()
		defer c.wmu.Unlock()
		c.wbuf = appendFrame(c.wbuf[:0], byte(ws.OpPong), payload)
		return c.write()
	}
	return nil
}

// verdict is an OK: which event, whether it was taken, and the reason.
type verdict struct {
	id     []byte // 64 hex digits
	ok     bool
	reason string
}

var okPrefix = []byte(`["OK","`)

// parseOK reads an OK, quickly in the form that relays write, and says whether the message is one.
func parseOK(m []byte) (verdict, bool) {
	const idEnd = 7 + 64
	if bytes.HasPrefix(m, okPrefix) && len(m) > idEnd+6 && bytes.HasPrefix(m[idEnd:], []byte(`",true`)) {
		v := verdict{id: m[7:idEnd], ok: true}
		if bytes.Contains(m[idEnd:], []byte(`"duplicate`)) {
			v.reason = "duplicate"
		}
		return v, true
	}
	parsed, err := nostr.ParseServerMessage(m)
	if err != nil {
		return verdict{}, false
	}
	ok, is := parsed.(*nostr.ServerOK)
	if !is {
		return verdict{}, false
	}
	return verdict{id: []byte(ok.ID), ok: ok.OK, reason: ok.Reason}, true
}
