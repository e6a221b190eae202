package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// subprotocolMax is the size of a message of another protocol: 4 MiB and its wrapping.
const subprotocolMax = 4<<20 + 64<<10

// Conn carries the messages of another protocol that shares the relay's URL. One goroutine may
// read while another writes.
type Conn interface {
	// Read returns the next text message; the caller may keep it. Once it has failed, or ctx ended
	// it, the Conn is good for Write and Close only.
	Read(ctx context.Context) ([]byte, error)
	// Write sends one text message.
	Write(ctx context.Context, msg []byte) error
	// Close says goodbye with a status code of RFC 6455 and a reason, and closes.
	Close(code uint16, reason string) error
	// Subprotocol is the protocol that was agreed on.
	Subprotocol() string
}

// socket is the Conn over one TCP connection.
type socket struct {
	r     *Relay
	nc    net.Conn
	in    *frameReader
	proto string

	mu     sync.Mutex // one write at a time
	closed bool

	reads   sync.Mutex      // held by the Read under way, which a failed Write does not wait for
	reading context.Context // of the Read under way; its goroutine alone uses it
	limits  sync.Mutex      // for setting read deadlines
	cancel  context.CancelFunc
	ctx     context.Context
}

func newSocket(r *Relay, nc net.Conn, proto string, early []byte) *socket {
	s := &socket{r: r, nc: nc, proto: proto}
	s.in = newFrameReader(nc, s, early, subprotocolMax, r.lim.Load().PingInterval, r.lim.Load().ReadTimeout)
	s.ctx, s.cancel = context.WithCancel(r.ctx)
	return s
}

func (r *Relay) serveSubprotocol(s *socket, key netip.Addr, serve func(context.Context, Conn)) {
	defer r.unreserve(key)
	defer s.release()
	defer s.sever()
	defer s.cancel()
	r.attach(s)
	defer r.detach(s)
	serve(s.ctx, s)
	_ = s.Close(uint16(ws.StatusNormalClosure), "")
}

// goodbye ends the context; the protocol's function closes as it sees fit.
func (s *socket) goodbye()            { s.cancel() }
func (s *socket) sever()              { _ = s.nc.Close() }
func (s *socket) Subprotocol() string { return s.proto }

// release gives the buffers back once nobody reads into them; the connection is closed.
func (s *socket) release() {
	s.reads.Lock()
	defer s.reads.Unlock()
	s.in.release()
}

func (s *socket) Read(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() {
		s.limits.Lock()
		defer s.limits.Unlock()
		_ = s.nc.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	s.reads.Lock()
	defer s.reads.Unlock()
	s.reading = ctx
	for {
		op, p, err := s.in.next()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var closed *closeError
		if errors.As(err, &closed) {
			_ = s.Close(uint16(closed.code), closed.reason)
		}
		if err != nil {
			return nil, err
		}
		if op == ws.OpText {
			return append([]byte(nil), p...), nil
		}
	}
}

func (s *socket) Write(ctx context.Context, msg []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.nc.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	return s.frame(ws.OpText, msg)
}

func (s *socket) Close(code uint16, reason string) error {
	body := ws.NewCloseFrameBody(ws.StatusCode(code), cut(reason, ws.MaxControlFramePayloadSize-2))
	err := s.frame(ws.OpClose, body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(err, s.nc.Close())
}

func (s *socket) frame(op ws.OpCode, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	_ = s.nc.SetWriteDeadline(time.Now().Add(s.r.lim.Load().WriteTimeout))
	_, err := s.nc.Write(append(appendFrameHeader(make([]byte, 0, 10+len(p)), op, len(p)), p...))
	return err
}

func (s *socket) onPing(p []byte) { _ = s.frame(ws.OpPong, p) }
func (s *socket) onPong()         {}
func (s *socket) onSilence()      { _ = s.frame(ws.OpPing, nil) }

func (s *socket) patience(deadline time.Time) bool {
	s.limits.Lock()
	defer s.limits.Unlock()
	if s.reading.Err() != nil {
		return false
	}
	_ = s.nc.SetReadDeadline(deadline)
	return true
}
