package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// maxProblem is how much of a refusal's body is read.
const maxProblem = 16 << 10

// HTTPS carries frames as POST requests, one frame each, one way: the answer is a
// POST to the other node's endpoint (spec/messages.json). 202 says that the frame was
// taken; 4xx has a problem report as its body.
//
// A dialled stream only sends, and its Receive waits for its end; an accepted one
// holds one frame, and its Send is ErrOneWay: the peer is to be dialled.
type HTTPS struct {
	client *http.Client

	mu     sync.Mutex
	listen *postListener
}

// NewHTTPS returns the carrier, posting through n.
func NewHTTPS(n *Network) *HTTPS { return &HTTPS{client: n.HTTPClient()} }

// Scheme implements Transport.
func (h *HTTPS) Scheme() string { return "https" }

// RefusedError is a 4xx or 5xx answer to a frame.
type RefusedError struct {
	Status  int
	Problem []byte // the body, a problem report if the peer sent one; at most 16 KiB
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the peer's server refuses: %d %s", e.Status, http.StatusText(e.Status))
}

// Dial implements Transport. The address is an https or http URL. It asks the server
// for nothing but an answer: a rung that held without one would keep a session from
// the rungs below it.
func (h *HTTPS) Dial(ctx context.Context, ep Endpoint, _ nostr.PubKey) (Stream, error) {
	if _, err := checkURL(ep.Address, "https", "http"); err != nil {
		return nil, fmt.Errorf("dial https: %w", err)
	}
	if err := h.knock(ctx, ep.Address); err != nil {
		return nil, fmt.Errorf("dial https: %w", err)
	}
	return &postStream{client: h.client, url: ep.Address, closed: make(chan struct{})}, nil
}

// knock sends a HEAD request. Any answer shows that the server is there, also one that
// this method is not served, but for those of a server in front with nobody behind it.
func (h *HTTPS) knock(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "")
	resp, err := h.client.Do(req)
	if err != nil {
		return reason(err)
	}
	resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &RefusedError{Status: resp.StatusCode}
	}
	return nil
}

// postStream sends by POST.
type postStream struct {
	client *http.Client
	url    string
	once   sync.Once
	closed chan struct{}
}

func (s *postStream) Scheme() string { return "https" }

func (s *postStream) Send(ctx context.Context, frame []byte) error {
	if len(frame) > MaxFrame {
		return ErrFrameTooLarge
	}
	select {
	case <-s.closed:
		return ErrClosed
	default:
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(frame))
	if err != nil {
		return fmt.Errorf("post frame: %w", err)
	}
	req.Header.Set("Content-Type", ContentType)
	req.Header.Set("User-Agent", "")
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("post frame: %w", reason(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return nil // taken, whatever became of the body
	case resp.StatusCode < 400:
		return fmt.Errorf("post frame: unexpected answer %s", resp.Status)
	case err != nil:
		return &RefusedError{Status: resp.StatusCode}
	}
	return &RefusedError{Status: resp.StatusCode, Problem: body}
}

// Receive waits until the stream is closed: answers come to our own endpoint.
func (s *postStream) Receive(ctx context.Context) ([]byte, error) {
	select {
	case <-s.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *postStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Listen implements Transport: from now on ServeHTTP takes frames. There is one
// listener at a time; the server that calls ServeHTTP is the caller's.
func (h *HTTPS) Listen(ctx context.Context, ep Endpoint) (Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listen != nil {
		return nil, errors.New("listen on https: already listened on")
	}
	l := &postListener{https: h, ep: ep, queue: newAcceptQueue(256)}
	h.listen = l
	l.stop = context.AfterFunc(ctx, func() { l.Close() })
	return l, nil
}

// ServeHTTP takes one frame. It answers 202 once the frame is in the queue, 503
// when the queue is full, and 4xx with a problem report to what is no frame.
func (h *HTTPS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	l := h.listen
	h.mu.Unlock()
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem(w, http.StatusMethodNotAllowed, "e.m.req.method", "POST an encrypted message here")
		return
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != ContentType {
		problem(w, http.StatusUnsupportedMediaType, "e.m.msg.media-type", "the content type must be "+ContentType)
		return
	}
	if r.ContentLength > MaxFrame { // said before it is sent: nobody waits for the rest
		w.Header().Set("Connection", "close")
		problem(w, http.StatusRequestEntityTooLarge, "e.m.msg.too-large", "a message has at most 4 MiB")
		return
	}
	frame, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxFrame))
	if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
		problem(w, http.StatusRequestEntityTooLarge, "e.m.msg.too-large", "a message has at most 4 MiB")
		return
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "e.m.msg.cut", "the request ended early")
		return
	}
	if !json.Valid(frame) || len(frame) == 0 || bytes.TrimLeft(frame, " \t\r\n")[0] != '{' {
		problem(w, http.StatusBadRequest, "e.m.msg.malformed", "the body is not a JSON object")
		return
	}
	if l == nil || !l.queue.tryOffer(newOneFrame(frame)) {
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusServiceUnavailable, "e.m.res.busy", "try again later")
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// problem answers with a report-problem message in plaintext: at this point there
// is no key to seal it to.
func problem(w http.ResponseWriter, status int, code, comment string) {
	w.Header().Set("Content-Type", "application/didcomm-plain+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{
		"id":   "0",
		"typ":  "application/didcomm-plain+json",
		"type": "https://didcomm.org/report-problem/2.0/problem-report",
		"body": map[string]string{"code": code, "comment": comment},
	})
}

type postListener struct {
	https *HTTPS
	ep    Endpoint
	queue *acceptQueue
	stop  func() bool
}

func (l *postListener) Accept(ctx context.Context) (Stream, error) { return l.queue.accept(ctx) }
func (l *postListener) Endpoint() Endpoint                         { return l.ep }

func (l *postListener) Close() error {
	l.https.mu.Lock()
	if l.https.listen == l {
		l.https.listen = nil
	}
	stop := l.stop
	l.https.mu.Unlock()
	stop()
	l.queue.close()
	return nil
}

// OneWay reports whether nothing can be sent on a stream: its peer is to be dialled.
func OneWay(s Stream) bool {
	_, one := s.(*oneFrame)
	return one
}

// oneFrame is an accepted POST.
type oneFrame struct{ in *pipe }

func newOneFrame(frame []byte) *oneFrame {
	p := newPipe(1)
	p.ch <- frame
	p.close()
	return &oneFrame{p}
}

func (s *oneFrame) Scheme() string                              { return "https" }
func (s *oneFrame) Send(context.Context, []byte) error          { return ErrOneWay }
func (s *oneFrame) Receive(ctx context.Context) ([]byte, error) { return s.in.receive(ctx) }
func (s *oneFrame) Close() error                                { return nil }
