package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/internal/transport/transporttest"
	"fleetmesh.org/fleetmesh/nostr"
)

func direct(t *testing.T) *transport.Network {
	t.Helper()
	n, err := transport.NewNetwork("", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.CloseIdle)
	return n
}

// serve runs a handler and returns its URL with another scheme.
func serve(t *testing.T, scheme string, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return scheme + strings.TrimPrefix(s.URL, "http")
}

func TestWSS(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, b := transport.NewWSS(direct(t)), transport.NewWSS(direct(t))
		at := func(url string) transport.Endpoint { return transport.Endpoint{Scheme: "wss", Address: url} }
		return transporttest.Pair{A: a, B: b, AtB: at(serve(t, "ws", b)), Nowhere: at("ws://127.0.0.1:1/")}
	})
}

func TestHTTPS(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, b := transport.NewHTTPS(direct(t)), transport.NewHTTPS(direct(t))
		at := func(url string) transport.Endpoint { return transport.Endpoint{Scheme: "https", Address: url} }
		return transporttest.Pair{A: a, B: b, AtA: at(serve(t, "http", a)), AtB: at(serve(t, "http", b)),
			Nowhere: at("http://127.0.0.1:1/"), OneWay: true}
	})
}

// TestOrdinaryRelay: a face that accepts the WebSocket but not the subprotocol.
func TestOrdinaryRelay(t *testing.T) {
	url := serve(t, "ws", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		c.Read(r.Context())
		c.CloseNow()
	}))
	_, err := transport.NewWSS(direct(t)).Dial(t.Context(), transport.Endpoint{Scheme: "wss", Address: url}, nostr.PubKey{})
	if !errors.Is(err, transport.ErrOrdinaryRelay) {
		t.Fatalf("dial: %v, wanted ErrOrdinaryRelay", err)
	}
}

func TestWSSBinaryFrame(t *testing.T) {
	w := transport.NewWSS(direct(t))
	url := serve(t, "ws", w)
	l, err := w.Listen(t.Context(), transport.Endpoint{Scheme: "wss", Address: url})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: []string{transport.Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(t.Context(), websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Receive(t.Context()); err == nil {
		t.Fatalf("a binary frame was received as %q", b)
	}
}

func TestHTTPSRefusals(t *testing.T) {
	h := transport.NewHTTPS(direct(t))
	url := serve(t, "http", h)
	l, err := h.Listen(t.Context(), transport.Endpoint{Scheme: "https", Address: url})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		name, method, media, body string
		status                    int
	}{
		{"good", "POST", transport.ContentType, `{"a":1}`, 202},
		{"good with parameter", "POST", transport.ContentType + "; charset=utf-8", ` {"a":1}`, 202},
		{"get", "GET", transport.ContentType, ``, 405},
		{"other type", "POST", "application/json", `{"a":1}`, 415},
		{"no type", "POST", "", `{"a":1}`, 415},
		{"not JSON", "POST", transport.ContentType, `{"a":`, 400},
		{"not an object", "POST", transport.ContentType, `[1]`, 400},
		{"empty", "POST", transport.ContentType, ``, 400},
		{"too large", "POST", transport.ContentType, `{"a":"` + strings.Repeat("x", transport.MaxFrame) + `"}`, 413},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.media)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, wanted %d", c.name, resp.StatusCode, c.status)
		}
		if c.status >= 400 && !strings.Contains(string(body), "report-problem/2.0/problem-report") {
			t.Errorf("%s: body %q is no problem report", c.name, body)
		}
	}
}

// TestHTTPSDial: a rung holds only where somebody answers.
func TestHTTPSDial(t *testing.T) {
	for status, holds := range map[int]bool{200: true, 404: true, 405: true, 500: true, 502: false, 503: false, 504: false} {
		url := serve(t, "http", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		_, err := transport.NewHTTPS(direct(t)).Dial(t.Context(), transport.Endpoint{Scheme: "https", Address: url}, nostr.PubKey{})
		var refused *transport.RefusedError
		if holds != (err == nil) || !holds && (!errors.As(err, &refused) || refused.Status != status) {
			t.Errorf("%d: %v", status, err)
		}
	}
	if _, err := transport.NewHTTPS(direct(t)).Dial(t.Context(), transport.Endpoint{Scheme: "https", Address: "http://127.0.0.1:1/"}, nostr.PubKey{}); err == nil {
		t.Error("dialled where nobody listens")
	}
}

func TestHTTPSQueueFull(t *testing.T) {
	h := transport.NewHTTPS(direct(t))
	url := serve(t, "http", h)
	ep := transport.Endpoint{Scheme: "https", Address: url}
	s, err := h.Dial(t.Context(), ep, nostr.PubKey{})
	if err != nil {
		t.Fatal(err)
	}
	var refused *transport.RefusedError
	if err := s.Send(t.Context(), []byte(`{}`)); !errors.As(err, &refused) || refused.Status != 503 {
		t.Fatalf("nobody listens: %v, wanted 503", err)
	}
	l, err := h.Listen(t.Context(), ep)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := 0
	for ; err == nil && taken < 10000; taken++ {
		err = s.Send(t.Context(), []byte(`{}`))
	}
	if !errors.As(err, &refused) || refused.Status != 503 || len(refused.Problem) == 0 {
		t.Fatalf("full queue: %v, wanted 503 with a problem report", err)
	}
	if _, err := l.Accept(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), []byte(`{}`)); err != nil {
		t.Fatalf("after one was taken off: %v", err)
	}
}
