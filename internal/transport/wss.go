package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/nostr"
)

// WSS carries frames over WebSocket, one text frame each, on the URL of a relay
// face: the dialer offers the subprotocol and the face echoes it (spec/constants.json).
// The face owns the socket, so listening opens none: see [WSS.Serve].
type WSS struct {
	client *http.Client

	mu   sync.Mutex
	face *faceListener
}

// NewWSS returns the carrier, dialling through n.
func NewWSS(n *Network) *WSS { return &WSS{client: n.HTTPClient()} }

// Scheme implements Transport.
func (w *WSS) Scheme() string { return "wss" }

// Dial implements Transport. The address is a wss or ws URL. A face that does not
// echo the subprotocol gives ErrOrdinaryRelay.
func (w *WSS) Dial(ctx context.Context, ep Endpoint, _ nostr.PubKey) (Stream, error) {
	if _, err := checkURL(ep.Address, "wss", "ws"); err != nil {
		return nil, fmt.Errorf("dial wss: %w", err)
	}
	conn, resp, err := websocket.Dial(ctx, ep.Address, &websocket.DialOptions{
		HTTPClient:   w.client,
		Subprotocols: []string{Subprotocol},
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("dial wss: the server answers %s", resp.Status)
		}
		return nil, fmt.Errorf("dial wss: %w", reason(err))
	}
	if conn.Subprotocol() != Subprotocol {
		conn.CloseNow()
		return nil, ErrOrdinaryRelay
	}
	return newWSStream(conn), nil
}

// Listen implements Transport: from now on Serve hands its connections to this
// listener. There is one at a time.
func (w *WSS) Listen(ctx context.Context, ep Endpoint) (Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.face != nil {
		return nil, errors.New("listen on wss: the face is already listened on")
	}
	l := &faceListener{wss: w, ep: ep, queue: newAcceptQueue(64)}
	w.face = l
	l.stop = context.AfterFunc(ctx, func() { l.Close() })
	return l, nil
}

// Listening reports whether Serve would take a connection. A face echoes the
// subprotocol only then.
func (w *WSS) Listening() bool { return w.listener() != nil }

func (w *WSS) listener() *faceListener {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.face
}

// FaceConn is a WebSocket on which a relay face has echoed the subprotocol;
// relay.Conn is one. One goroutine may read while another writes.
type FaceConn interface {
	// Read waits for the next text message, which the caller may keep. Once it has
	// failed, or ctx has ended it, reading is over.
	Read(ctx context.Context) ([]byte, error)
	// Write sends one text message.
	Write(ctx context.Context, msg []byte) error
	// Close says goodbye with a status code of RFC 6455 and a reason.
	Close(code uint16, reason string) error
}

// Serve turns a connection of the relay face into a stream for the listener and
// returns when the stream is over, or at once with ErrClosed when nobody
// listens. The connection is closed then.
func (w *WSS) Serve(ctx context.Context, conn FaceConn) error {
	s := &faceStream{conn: conn, done: make(chan struct{})}
	l := w.listener()
	if l == nil {
		s.Close()
		return ErrClosed
	}
	if err := l.queue.offer(ctx, s); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		s.Close()
		return ctx.Err()
	}
}

// ServeHTTP upgrades a request and serves it, for a face that is not a relay.
func (w *WSS) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if !w.Listening() {
		http.Error(rw, "nobody listens", http.StatusServiceUnavailable)
		return
	}
	conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{Subprotocol}, InsecureSkipVerify: true})
	if err != nil {
		return // Accept has answered
	}
	if conn.Subprotocol() != Subprotocol {
		conn.Close(websocket.StatusPolicyViolation, "offer the subprotocol "+Subprotocol)
		return
	}
	w.Serve(r.Context(), wsFace{newWSStream(conn)})
}

// wsFace shows a wsStream as a FaceConn.
type wsFace struct{ s *wsStream }

func (f wsFace) Read(ctx context.Context) ([]byte, error)  { return f.s.Receive(ctx) }
func (f wsFace) Write(ctx context.Context, b []byte) error { return f.s.Send(ctx, b) }
func (f wsFace) Close(uint16, string) error                { return f.s.Close() }

type faceListener struct {
	wss   *WSS
	ep    Endpoint
	queue *acceptQueue
	stop  func() bool
}

func (l *faceListener) Accept(ctx context.Context) (Stream, error) { return l.queue.accept(ctx) }
func (l *faceListener) Endpoint() Endpoint                         { return l.ep }

func (l *faceListener) Close() error {
	l.wss.mu.Lock()
	if l.wss.face == l {
		l.wss.face = nil
	}
	stop := l.stop
	l.wss.mu.Unlock()
	stop()
	l.queue.close()
	return nil
}

// faceStream is a stream over a connection that a face owns.
type faceStream struct {
	conn FaceConn
	once sync.Once
	done chan struct{}
}

func (s *faceStream) Scheme() string { return "wss" }

func (s *faceStream) Send(ctx context.Context, frame []byte) error {
	if len(frame) > MaxFrame {
		return ErrFrameTooLarge
	}
	return s.ended(s.conn.Write(ctx, frame))
}

func (s *faceStream) Receive(ctx context.Context) ([]byte, error) {
	b, err := s.conn.Read(ctx)
	if err == nil && len(b) > MaxFrame {
		err = ErrFrameTooLarge
	}
	if err != nil {
		return nil, s.ended(err)
	}
	return b, nil
}

// ended closes the stream on an error and names that error: what a face says of a
// connection that is over differs, but it is over.
func (s *faceStream) ended(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-s.done:
		return ErrClosed
	default:
	}
	s.Close()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrFrameTooLarge) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

func (s *faceStream) Close() error {
	var err error
	s.once.Do(func() {
		close(s.done)
		err = s.conn.Close(uint16(websocket.StatusNormalClosure), "")
	})
	return err
}

// wsStream is a stream over a WebSocket of our own. A goroutine reads ahead by a
// frame, so that pings are answered and a Receive can be given up without harm.
type wsStream struct {
	conn *websocket.Conn
	in   *pipe
	once sync.Once
	done chan struct{}

	mu  sync.Mutex
	err error // why reading ended, if not by Close
}

func newWSStream(conn *websocket.Conn) *wsStream {
	conn.SetReadLimit(MaxFrame)
	s := &wsStream{conn: conn, in: newPipe(1), done: make(chan struct{})}
	go s.read()
	return s
}

// read ends when the connection does.
func (s *wsStream) read() {
	ctx := context.Background()
	for {
		typ, b, err := s.conn.Read(ctx)
		if err == nil && typ != websocket.MessageText {
			s.close(websocket.StatusUnsupportedData, "text frames only")
			err = errors.New("the peer sent a binary frame")
		}
		if err == nil {
			err = s.in.send(ctx, b)
		}
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			s.in.close()
			return
		}
	}
}

func (s *wsStream) Scheme() string { return "wss" }

func (s *wsStream) Send(ctx context.Context, frame []byte) error {
	if len(frame) > MaxFrame {
		return ErrFrameTooLarge
	}
	if s.isClosed() {
		return ErrClosed
	}
	err := s.conn.Write(ctx, websocket.MessageText, frame)
	if err != nil && ctx.Err() != nil && !s.isClosed() {
		return ctx.Err()
	}
	return s.name("send", err)
}

func (s *wsStream) Receive(ctx context.Context) ([]byte, error) {
	if s.isClosed() {
		return nil, ErrClosed
	}
	b, err := s.in.receive(ctx)
	if errors.Is(err, ErrClosed) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			return nil, ErrClosed
		}
		return nil, s.name("receive", s.err)
	}
	return b, err
}

func (s *wsStream) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *wsStream) name(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case s.isClosed(),
		websocket.CloseStatus(err) == websocket.StatusNormalClosure,
		websocket.CloseStatus(err) == websocket.StatusGoingAway:
		return ErrClosed
	}
	return streamError(what, err)
}

// Close says goodbye in the background: the closing handshake waits for the other
// end, for seconds if it does not answer.
func (s *wsStream) Close() error {
	s.close(websocket.StatusNormalClosure, "")
	return nil
}

func (s *wsStream) close(code websocket.StatusCode, reason string) {
	s.once.Do(func() {
		close(s.done)
		s.in.close()
		go s.conn.Close(code, reason)
	})
}
