package transport_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// socks is a SOCKS5 proxy (RFC 1928) that knows one name and notes what it is
// asked for.
type socks struct {
	l      net.Listener
	target string // where *.test leads

	mu    sync.Mutex
	asked []string
}

func newSocks(t *testing.T, target string) *socks {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &socks{l: l, target: target}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *socks) serve(c net.Conn) {
	defer c.Close()
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	io.CopyN(io.Discard, c, int64(head[1]))
	c.Write([]byte{5, 0})
	var req [4]byte
	if _, err := io.ReadFull(c, req[:]); err != nil {
		return
	}
	host := ""
	switch req[3] {
	case 3:
		var n [1]byte
		io.ReadFull(c, n[:])
		name := make([]byte, n[0])
		io.ReadFull(c, name)
		host = string(name)
	case 1:
		var ip [4]byte
		io.ReadFull(c, ip[:])
		host = net.IP(ip[:]).String()
	}
	var port [2]byte
	io.ReadFull(c, port[:])
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s:%d", host, binary.BigEndian.Uint16(port[:])))
	s.mu.Unlock()
	up, err := net.Dial("tcp", s.target)
	if err != nil || !strings.HasSuffix(host, ".test") {
		c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	defer up.Close()
	c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	go func() { io.Copy(up, c); up.Close() }()
	io.Copy(c, up)
}

// TestProxy: wss and https go through the proxy and leave the name to it. The
// names exist nowhere, so a look-up here would fail.
func TestProxy(t *testing.T) {
	w, h := transport.NewWSS(direct(t)), transport.NewHTTPS(direct(t))
	wl, err := w.Listen(t.Context(), ep("wss", "", 0))
	if err != nil {
		t.Fatal(err)
	}
	defer wl.Close()
	hl, err := h.Listen(t.Context(), ep("https", "", 0))
	if err != nil {
		t.Fatal(err)
	}
	defer hl.Close()
	for _, c := range []struct {
		name, target string
		dial         func(*transport.Network) transport.Transport
		url          string
	}{
		{"wss", serve(t, "ws", w), func(n *transport.Network) transport.Transport { return transport.NewWSS(n) }, "ws://peer.test:81/"},
		{"https", serve(t, "http", h), func(n *transport.Network) transport.Transport { return transport.NewHTTPS(n) }, "http://peer.test:82/in"},
	} {
		_, host, _ := strings.Cut(c.target, "://")
		p := newSocks(t, host)
		n, err := transport.NewNetwork("socks5://"+p.l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.dial(n).Dial(t.Context(), ep(c.name, c.url, 0), nostr.PubKey{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := s.Send(t.Context(), []byte(`{"a":1}`)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		s.Close()
		n.CloseIdle()
		p.mu.Lock()
		if want := strings.Split(c.url, "/")[2]; len(p.asked) != 1 || p.asked[0] != want {
			t.Errorf("%s: the proxy was asked for %v, wanted %s", c.name, p.asked, want)
		}
		p.mu.Unlock()
		// The same with the proxy gone: no way round it, even to an address that answers.
		p.l.Close()
		s, err = c.dial(n).Dial(t.Context(), ep(c.name, c.target, 0), nostr.PubKey{})
		if err == nil {
			err = s.Send(t.Context(), []byte(`{"a":1}`))
			s.Close()
		}
		if err == nil {
			t.Errorf("%s: reached the peer beside the proxy", c.name)
		}
	}
}

func TestProxySyntax(t *testing.T) {
	for _, c := range []struct{ proxy, want string }{
		{"http://127.0.0.1:1", "socks5"},
		{"socks5://localhost:9050", "IP address"},
		{"socks5://user:secret@proxy.test:9050", "IP address"},
		{"socks5://127.0.0.1", "port"},
		{"://", "URL"},
	} {
		_, err := transport.NewNetwork(c.proxy, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, wanted %q in it", c.proxy, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password", c.proxy)
		}
	}
	for _, good := range []string{"", "socks5://127.0.0.1:9050", "socks5h://u:p@[::1]:9050"} {
		n, err := transport.NewNetwork(good, nil)
		if err != nil || n.Proxied() != (good != "") {
			t.Errorf("%q: %v", good, err)
		}
	}
}
