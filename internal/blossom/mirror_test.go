package blossom

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

func local(c *Config) { c.Fetch = NewFetcher(FetchConfig{AllowPrivate: true}) }

func (f *face) mirror(k nostr.SecretKey, url string, hashes ...Hash) *reply {
	f.t.Helper()
	return f.ask("PUT", "/mirror", []byte(fmt.Sprintf(`{"url":%q}`, url)), "Authorization", token(f.t, k, VerbUpload, hashes...))
}

func TestMirror(t *testing.T) {
	origin := serve(t, nil)
	var flows []Flow
	f := serve(t, func(c *Config) { local(c); c.MaxBlob = 1000; c.Meter = func(x Flow) { flows = append(flows, x) } })
	k := key(t)
	h := origin.put(k, "from afar")
	url := origin.URL + "/" + h.String() + ".txt"
	r := f.mirror(k, url, h, hashed("more"))
	if r.StatusCode != 201 {
		t.Fatalf("mirror: %d %s", r.StatusCode, r.body)
	}
	if d := r.descriptor(t); d.SHA256 != h.String() || d.Type != "text/plain; charset=utf-8" || len(d.NIP94) == 0 {
		t.Errorf("%+v", d)
	}
	if len(flows) != 1 || flows[0] != (Flow{PubKey: k.PubKey(), In: 9}) {
		t.Errorf("metered %+v", flows)
	}
	origin.Close()
	if r := f.mirror(k, url, h); r.StatusCode != 200 {
		t.Errorf("what is held needs no origin: %d", r.StatusCode)
	}
	if m, _ := f.store.Stat(t.Context(), h); len(m.Owners) != 1 || m.Owners[0].PubKey != k.PubKey() {
		t.Errorf("owners %+v", m.Owners)
	}
}

func TestMirrorRefusals(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name := strings.Trim(r.URL.Path, "/"); name {
		case "missing":
			w.WriteHeader(http.StatusNotFound)
		case "big":
			_, _ = w.Write(make([]byte, 2000))
		case "endless":
			for i := 0; i < 100; i++ {
				_, _ = w.Write(make([]byte, 2000))
				w.(http.Flusher).Flush()
			}
		case "short":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("not a hundred"))
		case "loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "elsewhere":
			http.Redirect(w, r, "gopher://127.0.0.1/", http.StatusFound)
		case "packed":
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write([]byte("packed"))
		default:
			_, _ = w.Write([]byte("something else"))
		}
	}))
	defer origin.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	f := serve(t, func(c *Config) { local(c); c.MaxBlob = 1000 })
	k := key(t)
	h, other := hashed("wanted"), hashed("other")
	for _, c := range []struct {
		what, url string
		hashes    []Hash
		want      int
	}{
		{"the origin lies about the hash", origin.URL + "/" + h.String(), []Hash{h}, 409},
		{"the token is for another blob", origin.URL + "/" + h.String(), []Hash{other}, 409},
		{"the token is for no blob", origin.URL + "/" + h.String(), nil, 401},
		{"the origin does not have it", origin.URL + "/missing", []Hash{h}, 502},
		{"it is too large", origin.URL + "/big", []Hash{h}, 413},
		{"it is too large and does not say so", origin.URL + "/endless", []Hash{h}, 413},
		{"the origin breaks off", origin.URL + "/short", []Hash{h}, 502},
		{"the origin redirects for ever", origin.URL + "/loop", []Hash{h}, 502},
		{"the origin redirects to another scheme", origin.URL + "/elsewhere", []Hash{h}, 502},
		{"the origin packs", origin.URL + "/packed", []Hash{hashed("packed")}, 502},
		{"nobody answers", "http://" + closed.Addr().String() + "/x", []Hash{h}, 502},
		{"another scheme", "file:///etc/passwd", []Hash{h}, 400},
		{"no URL", "", []Hash{h}, 400},
		{"a URL with a user", "http://a:b@example.org/", []Hash{h}, 400},
		{"a long URL", "http://example.org/" + strings.Repeat("x", maxURL), []Hash{h}, 400},
	} {
		r := f.mirror(k, c.url, c.hashes...)
		if r.StatusCode != c.want {
			t.Errorf("%s: %d (%s), want %d", c.what, r.StatusCode, r.Header.Get("X-Reason"), c.want)
		}
	}
	for what, body := range map[string]string{"no JSON": "url", "another type": `{"url":1}`, "too long": `{"url":"` + strings.Repeat("x", maxMirrorBody)} {
		if r := f.ask("PUT", "/mirror", []byte(body), "Authorization", token(t, k, VerbUpload, h)); r.StatusCode != 400 {
			t.Errorf("a body that is %s: %d", what, r.StatusCode)
		}
	}
	if u, _ := f.store.Usage(t.Context()); u.Blobs != 0 {
		t.Errorf("%d blobs of mirrors that failed", u.Blobs)
	}
}

// TestMirrorStaysOutside tries to make the server fetch from its own network.
func TestMirrorStaysOutside(t *testing.T) {
	asked := 0
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer inside.Close()
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	f := serve(t, func(c *Config) { c.Fetch = NewFetcher(FetchConfig{}) })
	k := key(t)
	for _, host := range []string{
		"127.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f000001", "0177.0.0.1",
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "printer.local",
	} {
		r := f.mirror(k, "http://"+host+":"+port+"/x", hashed("x"))
		if r.StatusCode < 400 {
			t.Errorf("%s: %d", host, r.StatusCode)
		}
		if strings.Contains(string(r.body), "refused") || strings.Contains(string(r.body), port) {
			t.Errorf("%s: the answer tells about the inside: %s", host, r.body)
		}
	}
	if asked != 0 {
		t.Errorf("the inside was asked %d times", asked)
	}
}

// TestNameThatChangesItsMind: a name may look public when the URL is read and lead inside when the connection is made.
func TestNameThatChangesItsMind(t *testing.T) {
	if err := publicAddress("127.0.0.1:80"); err == nil {
		t.Error("the address of a connection is not checked")
	}
	for text, want := range map[string]bool{
		"1.1.1.1": true, "9.9.9.9": true, "2606:4700::1111": true, "64:ff9b::101:101": true, "2002:101:101::": true, "172.32.0.1": true,
		"127.0.0.1": false, "::1": false, "10.1.2.3": false, "192.168.0.1": false, "169.254.169.254": false, "100.127.0.1": false,
		"0.0.0.0": false, "::": false, "255.255.255.255": false, "224.0.0.1": false, "ff02::1": false, "fe80::1%eth0": false, "fc00::1": false,
		"::ffff:10.0.0.1": false, "::10.0.0.1": false, "64:ff9b::a00:1": false, "2002:a00:1::": false, "2001:db8::1": false, "192.0.2.1": false, "198.18.0.1": false, "240.0.0.1": false,
	} {
		if got := public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s public: %v", text, got)
		}
	}
}

func TestNodeMirrors(t *testing.T) {
	origin, f := serve(t, nil), serve(t, local)
	k := key(t)
	h := origin.put(k, "of a peer")
	if m, err := f.blossom.Mirror(context.Background(), origin.URL+"/"+h.String(), h, nostr.PubKey{}); err != nil || m.Size != 9 {
		t.Fatalf("%+v %v", m, err)
	}
	if _, err := f.blossom.Mirror(context.Background(), origin.URL+"/"+h.String(), hashed("another"), nostr.PubKey{}); err == nil {
		t.Error("a blob with another hash is taken")
	}
}

func TestHolds(t *testing.T) {
	origin := serve(t, nil)
	private := serve(t, func(c *Config) { c.PrivateGet = true })
	f := NewFetcher(FetchConfig{AllowPrivate: true})
	h := origin.put(key(t), "held")
	for _, c := range []struct {
		server string
		h      Hash
		want   bool
		fails  bool
	}{
		{origin.URL, h, true, false}, {origin.URL + "/", h, true, false}, {origin.URL, hashed("x"), false, false},
		{private.URL, h, false, true}, {"http://127.0.0.1:1", h, false, true}, {"ftp://a.example", h, false, true},
	} {
		got, err := f.Holds(t.Context(), c.server, c.h)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %v %v", c.server, got, err)
		}
	}
}
