package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func start(t *testing.T, methods map[string]Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") // t.TempDir may exceed a Unix socket's length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	s, err := Listen(path, methods)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return path
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

type sumParams struct{ A, B int }

var methods = map[string]Handler{
	"sum": func(_ context.Context, raw json.RawMessage, notify func(any)) (any, error) {
		var p sumParams
		if err := Params(raw, &p); err != nil {
			return nil, err
		}
		notify(p.A)
		return p.A + p.B, nil
	},
	"refuse": func(context.Context, json.RawMessage, func(any)) (any, error) {
		return nil, Refuse("POLICY", "no: %d is the limit", 3)
	},
	"fail": func(context.Context, json.RawMessage, func(any)) (any, error) { return nil, errors.New("disk") },
}

func TestCall(t *testing.T) {
	path := start(t, methods)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("socket mode %v, %v; want 0600", fi.Mode().Perm(), err)
	}
	c := dial(t, path)
	var sum int
	var steps []string
	if err := c.Call(t.Context(), "sum", sumParams{2, 3}, &sum, func(s json.RawMessage) { steps = append(steps, string(s)) }); err != nil || sum != 5 {
		t.Fatalf("sum = %d, %v", sum, err)
	}
	if len(steps) != 1 || steps[0] != "2" {
		t.Errorf("steps %v", steps)
	}
	var e *Error
	if err := c.Call(t.Context(), "refuse", nil, nil, nil); !errors.As(err, &e) || e.Data.Refusal != "POLICY" {
		t.Errorf("refuse: %v", err)
	}
	if err := c.Call(t.Context(), "fail", nil, nil, nil); !errors.As(err, &e) || e.Code != CodeInternal {
		t.Errorf("fail: %v", err)
	}
	if err := c.Call(t.Context(), "sum", map[string]int{"C": 1}, nil, nil); !errors.As(err, &e) || e.Code != CodeParams {
		t.Errorf("unknown parameter: %v", err)
	}
	if err := c.Call(t.Context(), "nope", nil, nil, nil); !errors.As(err, &e) || e.Code != CodeMethod {
		t.Errorf("unknown method: %v", err)
	}
	var h Hello
	if err := c.Call(t.Context(), "hello", nil, &h, nil); err != nil || h.Protocol != Protocol || len(h.Methods) != 3 {
		t.Errorf("hello: %+v, %v", h, err)
	}
}

func TestBadLinesKeepTheConnection(t *testing.T) {
	path := start(t, methods)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, c := range []struct{ line, want string }{
		{"{", `"code":-32700`},
		{`{"method":"sum"}`, `"code":-32600`},
		{`[1,2]`, `"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"sum","params":{"A":1,"B":2}}`, `"result":3`},
	} {
		if _, err := conn.Write([]byte(c.line + "\n")); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, `"progress"`) {
				continue
			}
			if !strings.Contains(line, c.want) {
				t.Errorf("%s: %s, want %s", c.line, line, c.want)
			}
			break
		}
	}
}

func TestCallEndsWithItsCaller(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	path := start(t, map[string]Handler{"wait": func(ctx context.Context, _ json.RawMessage, _ func(any)) (any, error) {
		close(began)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	c := dial(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Call(ctx, "wait", nil, nil, nil) }()
	<-began
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("call: %v", err)
	}
	<-ended
}

func TestNoNode(t *testing.T) {
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrNoNode) {
		t.Errorf("dial: %v", err)
	}
}

func TestStaleSocketIsReplacedAndALiveOneIsNot(t *testing.T) {
	path := start(t, methods)
	if _, err := Listen(path, methods); err == nil || !strings.Contains(err.Error(), "another node") {
		t.Errorf("second listener: %v", err)
	}
	stale := filepath.Join(filepath.Dir(path), "old")
	ln, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	s, err := Listen(stale, methods)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	s.Close()
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"sum","params":{"A":1,"B":2}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":{},"method":"hello"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s := &Server{methods: methods}
		var out strings.Builder
		if err := s.answer(t.Context(), line, json.NewEncoder(&out)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	})
}

func TestLocalCallsAsTheSocketDoes(t *testing.T) {
	l := Local(methods)
	var sum int
	var steps []string
	if err := l.Call(t.Context(), "sum", sumParams{2, 3}, &sum, func(s json.RawMessage) { steps = append(steps, string(s)) }); err != nil || sum != 5 || len(steps) != 1 {
		t.Fatalf("sum = %d, %v, steps %v", sum, err, steps)
	}
	for _, c := range []struct {
		method string
		params any
		code   int
	}{{"refuse", nil, CodeRefused}, {"fail", nil, CodeInternal}, {"sum", map[string]int{"C": 1}, CodeParams}, {"nope", nil, CodeMethod}} {
		var e *Error
		if err := l.Call(t.Context(), c.method, c.params, nil, nil); !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%s: %v, want code %d", c.method, err, c.code)
		}
	}
	var h Hello
	if err := l.Call(t.Context(), "hello", nil, &h, nil); err != nil || len(h.Methods) != 3 {
		t.Errorf("hello: %+v, %v", h, err)
	}
}
