package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// closeError ends a connection with a WebSocket status code (RFC 6455, section 7.4).
type closeError struct {
	code   ws.StatusCode
	reason string
}

func (e *closeError) Error() string { return fmt.Sprintf("%d %s", e.code, e.reason) }

func protocolError(format string, args ...any) error {
	return &closeError{ws.StatusProtocolError, fmt.Sprintf(format, args...)}
}

// Most connections are silent most of the time, so each waits with a small buffer and
// borrows a large one while much arrives.
const (
	idleBuffer = 1 << 10
	busyBuffer = 32 << 10
	keepBuffer = 64 << 10 // scratch memory for large messages is kept up to this size
)

var busyBuffers = sync.Pool{New: func() any { return new([busyBuffer]byte) }}

// control receives what the reader meets between the messages. Its methods are called in the
// reader's goroutine.
type control interface {
	onPing(payload []byte)
	onPong()
	onSilence() // half of the patience is gone: a ping is due
	// patience sets the read deadline, or says that the connection is ending.
	patience(deadline time.Time) bool
}

// frameReader takes frames of a client off the wire and puts messages together (RFC 6455). It
// checks masks, reserved bits, control frames, fragmentation, sizes and UTF-8.
type frameReader struct {
	nc      net.Conn
	ctl     control
	max     int           // octets of a message
	silence time.Duration // that is borne before a ping
	whole   time.Duration // in which a message must be complete

	idle     [idleBuffer]byte
	busy     *[busyBuffer]byte
	buf      []byte // idle or busy; unread octets are buf[r:w]
	r, w     int
	lastRead int

	msg      []byte // a message in fragments, or larger than buf
	opcode   ws.OpCode
	mid      bool      // a message has begun
	started  time.Time // when it was first waited for; zero if never
	deadline time.Time
	pinged   bool
}

func newFrameReader(nc net.Conn, ctl control, early []byte, max int, silence, whole time.Duration) *frameReader {
	f := &frameReader{nc: nc, ctl: ctl, max: max, silence: silence, whole: whole}
	f.buf = f.idle[:]
	if len(early) > len(f.buf) {
		f.grow()
	}
	f.w = copy(f.buf, early) // net/http reads at most 4 KiB ahead
	return f
}

// next returns the next text or binary message. The payload is good until the next call.
func (f *frameReader) next() (ws.OpCode, []byte, error) {
	if cap(f.msg) > keepBuffer {
		f.msg = nil
	}
	f.msg, f.opcode = f.msg[:0], 0
	f.mid, f.started = false, time.Time{}
	for {
		h, err := f.header()
		if err != nil {
			return 0, nil, err
		}
		f.mid = true
		if h.OpCode.IsControl() {
			if err := f.control(h); err != nil {
				return 0, nil, err
			}
			if f.opcode == 0 {
				f.mid, f.started = false, time.Time{}
			}
			continue
		}
		if err := f.begin(h); err != nil {
			return 0, nil, err
		}
		payload, err := f.payload(h)
		if err != nil {
			return 0, nil, err
		}
		if !h.Fin {
			continue
		}
		if f.opcode == ws.OpText && !utf8.Valid(payload) {
			return 0, nil, &closeError{ws.StatusInvalidFramePayloadData, "text is not UTF-8"}
		}
		return f.opcode, payload, nil
	}
}

// begin checks a data frame against the message in progress.
func (f *frameReader) begin(h ws.Header) error {
	switch {
	case h.OpCode == ws.OpContinuation && f.opcode == 0:
		return protocolError("continuation of nothing")
	case h.OpCode != ws.OpContinuation && f.opcode != 0:
		return protocolError("a new message inside a fragmented one")
	case h.Length > int64(f.max-len(f.msg)):
		return &closeError{ws.StatusMessageTooBig, fmt.Sprintf("a message may have %d bytes", f.max)}
	}
	if f.opcode == 0 {
		f.opcode = h.OpCode
	}
	return nil
}

// payload reads the frame's payload and returns the message so far. A whole message that
// fits the buffer is unmasked where it lies.
func (f *frameReader) payload(h ws.Header) ([]byte, error) {
	n := int(h.Length)
	if h.Fin && len(f.msg) == 0 && n <= len(f.buf) {
		if err := f.need(n); err != nil {
			return nil, err
		}
		p := f.buf[f.r : f.r+n]
		f.r += n
		ws.Cipher(p, h.Mask, 0)
		return p, nil
	}
	start := len(f.msg)
	for left := n; left > 0; {
		if f.r == f.w {
			if err := f.fill(); err != nil {
				return nil, err
			}
		}
		m := min(left, f.w-f.r)
		f.msg = append(f.msg, f.buf[f.r:f.r+m]...)
		f.r += m
		left -= m
	}
	ws.Cipher(f.msg[start:], h.Mask, 0)
	return f.msg, nil
}

func (f *frameReader) header() (h ws.Header, err error) {
	if err = f.need(2); err != nil {
		return h, err
	}
	b0, b1 := f.buf[f.r], f.buf[f.r+1]
	f.r += 2
	h.Fin, h.Rsv, h.OpCode = b0&0x80 != 0, b0>>4&7, ws.OpCode(b0&0xf)
	switch {
	case h.Rsv != 0:
		return h, protocolError("reserved bits are set")
	case h.OpCode.IsReserved():
		return h, protocolError("unknown opcode %d", h.OpCode)
	case b1&0x80 == 0:
		return h, protocolError("a client's frame is not masked")
	}
	h.Length = int64(b1 & 0x7f)
	if h.OpCode.IsControl() && (h.Length > ws.MaxControlFramePayloadSize || !h.Fin) {
		return h, protocolError("a control frame is long or in fragments")
	}
	more := map[int64]int{126: 2, 127: 8}[h.Length]
	if err = f.need(more + 4); err != nil {
		return h, err
	}
	switch more {
	case 2:
		h.Length = int64(binary.BigEndian.Uint16(f.buf[f.r:]))
	case 8:
		n := binary.BigEndian.Uint64(f.buf[f.r:])
		if n>>63 != 0 {
			return h, protocolError("a length has its top bit set")
		}
		h.Length = int64(n)
	}
	copy(h.Mask[:], f.buf[f.r+more:])
	f.r += more + 4
	return h, nil
}

// control handles a ping, pong or close frame.
func (f *frameReader) control(h ws.Header) error {
	n := int(h.Length)
	if err := f.need(n); err != nil {
		return err
	}
	p := f.buf[f.r : f.r+n]
	f.r += n
	ws.Cipher(p, h.Mask, 0)
	switch h.OpCode {
	case ws.OpPing:
		f.ctl.onPing(p)
	case ws.OpPong:
		f.ctl.onPong()
	case ws.OpClose:
		return closedByPeer(p)
	}
	return nil
}

// errPeerClosed marks a close frame of the peer, which is answered in kind.
var errPeerClosed = errors.New("closed by the client")

type peerClose struct{ code ws.StatusCode }

func (e *peerClose) Error() string { return errPeerClosed.Error() }
func (e *peerClose) Unwrap() error { return errPeerClosed }

func closedByPeer(p []byte) error {
	if len(p) == 0 {
		return &peerClose{ws.StatusNormalClosure}
	}
	if len(p) == 1 {
		return protocolError("a close frame of one byte")
	}
	code := ws.StatusCode(binary.BigEndian.Uint16(p))
	known := code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006
	if !known && (code < 3000 || code > 4999) {
		return protocolError("close code %d", code)
	}
	if !utf8.Valid(p[2:]) {
		return &closeError{ws.StatusInvalidFramePayloadData, "the close reason is not UTF-8"}
	}
	return &peerClose{code}
}

// need makes n unread octets lie in one piece. n is at most len(buf).
func (f *frameReader) need(n int) error {
	for f.w-f.r < n {
		if f.r+n > len(f.buf) {
			f.w = copy(f.buf, f.buf[f.r:f.w])
			f.r = 0
		}
		if err := f.fill(); err != nil {
			return err
		}
	}
	return nil
}

// grow borrows the large buffer.
func (f *frameReader) grow() {
	f.busy = busyBuffers.Get().(*[busyBuffer]byte)
	f.w = copy(f.busy[:], f.buf[f.r:f.w])
	f.r = 0
	f.buf = f.busy[:]
}

// release gives the large buffer back. Unread octets are lost unless they fit the small one.
func (f *frameReader) release() {
	if f.busy != nil {
		f.w = copy(f.idle[:], f.buf[f.r:f.w])
		f.r = 0
		f.buf = f.idle[:]
		busyBuffers.Put(f.busy)
		f.busy = nil
	}
}

// slim gives back what a silent connection does not need.
func (f *frameReader) slim() {
	if f.r == f.w {
		f.r, f.w = 0, 0
		f.release()
	}
	if !f.mid {
		f.msg = nil
	}
}

// fill reads once, waiting as long as patience lasts.
func (f *frameReader) fill() error {
	if f.r == f.w {
		f.r, f.w = 0, 0
		if f.busy != nil && f.lastRead < idleBuffer {
			f.release()
		}
	}
	if f.w == len(f.buf) {
		if f.busy != nil {
			f.w = copy(f.buf, f.buf[f.r:f.w])
			f.r = 0
		} else {
			f.grow()
		}
	}
	for {
		now := time.Now()
		if f.mid && f.started.IsZero() {
			f.started = now
		}
		if f.mid && now.Sub(f.started) > f.whole {
			return &closeError{ws.StatusPolicyViolation, "a message took too long to arrive"}
		}
		if f.deadline.Sub(now) < f.silence*3/4 {
			f.deadline = now.Add(f.silence)
			if !f.ctl.patience(f.deadline) {
				return errEnded
			}
		}
		n, err := f.nc.Read(f.buf[f.w:])
		if n > 0 {
			f.w += n
			f.lastRead = n
			f.pinged = false
			if f.busy == nil && f.w == len(f.buf) {
				f.grow()
			}
			return nil
		}
		var ne net.Error
		if err == nil || !errors.As(err, &ne) || !ne.Timeout() {
			return err
		}
		if !f.ctl.patience(now.Add(f.silence)) {
			return errEnded
		}
		if f.pinged {
			return &closeError{ws.StatusPolicyViolation, "no answer to a ping"}
		}
		f.pinged = true
		f.deadline = time.Time{}
		f.slim()
		f.ctl.onSilence()
	}
}

// appendFrameHeader appends the header of an unfragmented frame from the server.
func appendFrameHeader(dst []byte, op ws.OpCode, n int) []byte {
	dst = append(dst, 0x80|byte(op))
	switch {
	case n < 126:
		return append(dst, byte(n))
	case n < 1<<16:
		return append(dst, 126, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 127), uint64(n))
}
