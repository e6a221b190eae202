package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Handler serves one method. notify sends a progress step to the caller; it may be called until the
// handler returns. The context ends when the caller goes away or the server stops. An error that is an *Error
// goes out as it is; any other becomes an internal error with its text.
type Handler func(ctx context.Context, params json.RawMessage, notify func(step any)) (any, error)

// Server serves a set of methods on a Unix socket.
type Server struct {
	methods map[string]Handler
	ln      net.Listener
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// Listen makes the socket, of mode 0600, and serves until Close. A socket file left by a node that died is replaced; one
// that answers is an error.
func Listen(path string, methods map[string]Handler) (*Server, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("listen on the control socket %s: the path has %d bytes, a Unix socket takes %d: choose a shorter --dir", path, len(path), MaxPath)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("listen on the control socket %s: another node answers there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace the control socket: %w", err)
	}
	old := syscall.Umask(0o177)
	ln, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	s := &Server{methods: methods, ln: ln}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// Methods lists the methods served, sorted.
func (s *Server) Methods() []string { return namesOf(s.methods) }

func namesOf(methods map[string]Handler) []string { return slices.Sorted(maps.Keys(methods)) }

// Close ends every call and removes the socket.
func (s *Server) Close() error {
	s.stop()
	err := s.ln.Close()
	s.wg.Wait()
	return err
}

// MaxConnections is how many callers may be connected at one time.
const MaxConnections = 64

// writeTimeout is how long a caller may take to read an answer, a part of it at a time.
const writeTimeout = 30 * time.Second

func (s *Server) accept() {
	room := make(chan struct{}, MaxConnections)
	for {
		conn, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as no file descriptor left: the next may succeed
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		err = trusted(conn)
		if err == nil {
			select {
			case room <- struct{}{}:
				s.wg.Go(func() {
					defer func() { <-room }()
					s.serve(conn)
				})
				continue
			case <-time.After(time.Second): // those who are going may need a moment
				err = fmt.Errorf("%d callers are connected already, the most that the control socket takes", MaxConnections)
			}
		}
		turnAway(conn, err)
	}
}

// turnAway says why a caller is not served, and closes.
func turnAway(conn net.Conn, err error) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = json.NewEncoder(conn).Encode(response{Version: "2.0", ID: json.RawMessage("null"), Error: &Error{Code: CodeRefused, Message: err.Error()}}) // who does not listen is closed all the same
	conn.Close()
}

// patient writes to a caller, who may take only so long.
type patient struct{ net.Conn }

func (p patient) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if err := p.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return n, err
		}
		m, err := p.Conn.Write(b[n:min(len(b), n+1<<20)])
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// serve answers one connection's calls in turn; a caller that wants two at once opens two connections.
func (s *Server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer conn.Close()
	unhook := context.AfterFunc(ctx, func() { conn.Close() })
	defer unhook()

	lines := make(chan []byte)
	s.wg.Go(func() {
		defer cancel() // the caller went away: end what it waits for
		defer close(lines)
		r := bufio.NewReaderSize(conn, 64<<10)
		for {
			line, err := readLine(r)
			if errors.Is(err, errTooLong) {
				line, err = nil, nil // what follows cannot be understood: say so and close
			}
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	})
	out := json.NewEncoder(patient{conn})
	out.SetEscapeHTML(false)
	for line := range lines {
		if line == nil {
			_ = out.Encode(response{Version: "2.0", ID: json.RawMessage("null"), Error: &Error{Code: CodeInvalid, Message: errTooLong.Error()}}) // it is closed all the same
			return
		}
		if err := s.answer(ctx, line, out); err != nil {
			return
		}
	}
}

func (s *Server) answer(ctx context.Context, line []byte, out *json.Encoder) error {
	var req request
	if err := json.Unmarshal(line, &req); err != nil {
		return out.Encode(response{Version: "2.0", ID: json.RawMessage("null"), Error: &Error{Code: CodeParse, Message: "not a JSON-RPC object: " + err.Error()}})
	}
	id := req.ID
	if id == nil {
		id = json.RawMessage("null")
	}
	if req.Version != "2.0" || req.Method == "" {
		return out.Encode(response{Version: "2.0", ID: id, Error: &Error{Code: CodeInvalid, Message: `want {"jsonrpc":"2.0","id":…,"method":…}`}})
	}
	result, err := s.call(ctx, req, func(step any) {
		if raw, err := json.Marshal(step); err == nil {
			_ = out.Encode(progress{Version: "2.0", Method: "progress", Params: progressParams{ID: id, Step: raw}}) // a lost caller ends the call by its context
		}
	})
	if req.ID == nil {
		return nil // a notification has no answer
	}
	resp := response{Version: "2.0", ID: id}
	if err == nil {
		resp.Result, err = json.Marshal(result)
	}
	if err != nil {
		resp.Result, resp.Error = nil, asError(err)
	}
	return out.Encode(resp)
}

// asError is how an error goes out.
func asError(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}

func (s *Server) call(ctx context.Context, req request, notify func(any)) (any, error) {
	return serveMethod(ctx, s.methods, req.Method, req.Params, notify)
}

// serveMethod runs one method of a set.
func serveMethod(ctx context.Context, methods map[string]Handler, method string, params json.RawMessage, notify func(any)) (any, error) {
	if method == "hello" {
		return Hello{Protocol: Protocol, Methods: namesOf(methods)}, nil
	}
	h, ok := methods[method]
	if !ok {
		return nil, &Error{Code: CodeMethod, Message: fmt.Sprintf("no method %q; hello lists the methods", method)}
	}
	return h(ctx, params, notify)
}

// Hello is what the method "hello" answers.
type Hello struct {
	Protocol string   `json:"protocol"`
	Methods  []string `json:"methods"`
}

var errTooLong = fmt.Errorf("a control message has more than %d octets", MaxLine)

// readLine reads one object's line, bounded by MaxLine.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > MaxLine {
			return nil, errTooLong
		}
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// Params decodes parameters strictly into v: an unknown field is an error, absent parameters leave v as it is.
func Params(raw json.RawMessage, v any) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if err := strict(raw, v); err != nil {
		return BadParams("parameters: %v", err)
	}
	return nil
}
