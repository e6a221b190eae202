package blossom

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// TestStatusTable goes through the status codes of BUD-01, 02, 04, 05, 06, 09, 11 and 12.
func TestStatusTable(t *testing.T) {
	f := serve(t, func(c *Config) { c.MaxBlob = 1000 })
	k, other := key(t), key(t)
	const text, fresh = "held already", "not held yet"
	h, n := f.put(k, text), hashed(fresh)
	up, gone := token(t, k, VerbUpload, n, h), token(t, k, VerbDelete, h, n)
	big := strings.Repeat("x", 1001)
	for _, c := range []struct {
		what, method, path, body string
		headers                  []string
		want                     int
	}{
		{"get", "GET", "/" + h.String(), "", nil, 200},
		{"get with extension", "GET", "/" + h.String() + ".tar.gz", "", nil, 200},
		{"head", "HEAD", "/" + h.String() + ".png", "", nil, 200},
		{"get, not held", "GET", "/" + n.String(), "", nil, 404},
		{"head, not held", "HEAD", "/" + n.String(), "", nil, 404},
		{"get, short hash", "GET", "/" + h.String()[:63], "", nil, 400},
		{"get, upper case", "GET", "/" + strings.ToUpper(h.String()), "", nil, 400},
		{"get, bad extension", "GET", "/" + h.String() + ".p$f", "", nil, 400},
		{"get, empty extension", "GET", "/" + h.String() + ".", "", nil, 400},
		{"get, unchanged", "GET", "/" + h.String(), "", []string{"If-None-Match", `"` + h.String() + `"`}, 304},
		{"get, wrong token", "GET", "/" + h.String(), "", []string{"Authorization", up}, 401},
		{"range", "GET", "/" + h.String(), "", []string{"Range", "bytes=0-3"}, 206},
		{"range, the end", "GET", "/" + h.String(), "", []string{"Range", "bytes=-4"}, 206},
		{"range, outside", "GET", "/" + h.String(), "", []string{"Range", "bytes=12-"}, 416},
		{"range, malformed", "GET", "/" + h.String(), "", []string{"Range", "bytes=a-b"}, 416},
		{"range, several", "GET", "/" + h.String(), "", []string{"Range", "bytes=0-0,2-3"}, 416},
		{"range, other unit", "GET", "/" + h.String(), "", []string{"Range", "pages=1-2"}, 200},
		{"range, if another", "GET", "/" + h.String(), "", []string{"Range", "bytes=0-3", "If-Range", `"other"`}, 200},
		{"cid", "GET", "/ipfs/" + h.CID(), "", nil, 200},
		{"cid, not held", "GET", "/ipfs/" + n.CID(), "", nil, 404},
		{"cid, malformed", "GET", "/ipfs/bafk", "", nil, 400},

		{"upload without token", "PUT", "/upload", fresh, nil, 401},
		{"upload, hash not covered", "PUT", "/upload", "other", []string{"Authorization", up}, 401},
		{"upload, X-SHA-256 malformed", "PUT", "/upload", fresh, []string{"Authorization", up, "X-SHA-256", "abc"}, 400},
		{"upload, X-SHA-256 not covered", "PUT", "/upload", "other", []string{"Authorization", up, "X-SHA-256", hashed("other").String()}, 401},
		{"upload, another body", "PUT", "/upload", "other", []string{"Authorization", up, "X-SHA-256", n.String()}, 409},
		{"upload, another body than one held", "PUT", "/upload", "other", []string{"Authorization", up, "X-SHA-256", h.String()}, 409},
		{"upload too large", "PUT", "/upload", big, []string{"Authorization", token(t, k, VerbUpload, hashed(big))}, 413},
		{"upload", "PUT", "/upload", fresh, []string{"Authorization", up}, 201},
		{"upload again", "PUT", "/upload", fresh, []string{"Authorization", up}, 200},
		{"upload again, named", "PUT", "/upload", fresh, []string{"Authorization", up, "X-SHA-256", n.String()}, 200},
		{"upload of nothing", "PUT", "/upload", "", []string{"Authorization", token(t, k, VerbUpload, hashed(""))}, 201},
		{"get nothing", "GET", "/" + hashed("").String(), "", nil, 200},
		{"range of nothing", "GET", "/" + hashed("").String(), "", []string{"Range", "bytes=0-"}, 416},

		{"ask", "HEAD", "/upload", "", []string{"Authorization", up, "X-SHA-256", n.String(), "X-Content-Length", "12", "X-Content-Type", "image/png"}, 200},
		{"ask without token", "HEAD", "/upload", "", []string{"X-SHA-256", n.String(), "X-Content-Length", "12"}, 401},
		{"ask without hash", "HEAD", "/upload", "", []string{"Authorization", up, "X-Content-Length", "12"}, 400},
		{"ask without length", "HEAD", "/upload", "", []string{"Authorization", up, "X-SHA-256", n.String()}, 411},
		{"ask, length malformed", "HEAD", "/upload", "", []string{"Authorization", up, "X-SHA-256", n.String(), "X-Content-Length", "-1"}, 400},
		{"ask, too large", "HEAD", "/upload", "", []string{"Authorization", up, "X-SHA-256", n.String(), "X-Content-Length", "1001"}, 413},
		{"ask, not covered", "HEAD", "/upload", "", []string{"Authorization", up, "X-SHA-256", hashed("z").String(), "X-Content-Length", "1"}, 401},

		{"list", "GET", "/list/" + k.PubKey().String(), "", nil, 200},
		{"list, bad key", "GET", "/list/abc", "", nil, 400},
		{"list, npub", "GET", "/list/" + nostr.EncodeNpub(k.PubKey()), "", nil, 400},
		{"list, bad limit", "GET", "/list/" + k.PubKey().String() + "?limit=x", "", nil, 400},
		{"list, bad cursor", "GET", "/list/" + k.PubKey().String() + "?cursor=x", "", nil, 400},
		{"list, unknown cursor", "GET", "/list/" + k.PubKey().String() + "?cursor=" + hashed("z").String(), "", nil, 400},

		{"mirror, off", "PUT", "/mirror", `{"url":"https://example.org"}`, []string{"Authorization", up}, 501},
		{"media, off", "PUT", "/media", "x", []string{"Authorization", up}, 501},
		{"report, off", "PUT", "/report", "{}", nil, 501},
		{"post", "POST", "/upload", "x", []string{"Authorization", up}, 405},
		{"nowhere", "GET", "/a/b/c", "", nil, 404},
		{"upload deeper", "PUT", "/upload/x", "x", []string{"Authorization", up}, 404},

		{"delete without token", "DELETE", "/" + h.String(), "", nil, 401},
		{"delete with another verb", "DELETE", "/" + h.String(), "", []string{"Authorization", up}, 401},
		{"delete as another", "DELETE", "/" + h.String(), "", []string{"Authorization", token(t, other, VerbDelete, h)}, 403},
		{"delete what is not held", "DELETE", "/" + hashed("z").String(), "", []string{"Authorization", token(t, k, VerbDelete, hashed("z"))}, 404},
		{"delete", "DELETE", "/" + h.String(), "", []string{"Authorization", gone}, 200},
		{"one token for the whole list", "DELETE", "/" + n.String(), "", []string{"Authorization", gone}, 200},
		{"deleted", "GET", "/" + h.String(), "", nil, 404},
	} {
		var body []byte
		if c.method == "PUT" || c.method == "POST" {
			body = []byte(c.body)
		}
		r := f.ask(c.method, c.path, body, c.headers...)
		if r.StatusCode != c.want {
			t.Errorf("%s: %s %s is %d (%s), want %d", c.what, c.method, c.path, r.StatusCode, r.Header.Get("X-Reason"), c.want)
		}
		if r.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: no CORS", c.what)
		}
		if r.StatusCode >= 400 && r.Header.Get("X-Reason") == "" {
			t.Errorf("%s: no X-Reason", c.what)
		}
	}
}

func TestGetHeaders(t *testing.T) {
	f := serve(t, func(c *Config) { c.PublicURL = "https://blobs.example.org/" })
	k := key(t)
	const page = "<html><script>alert(1)</script></html>"
	h := hashed(page)
	d := f.ask("PUT", "/upload", []byte(page), "Authorization", token(t, k, VerbUpload, h), "Content-Type", "text/html; charset=utf-8").descriptor(t)
	if d.URL != "https://blobs.example.org/"+h.String()+".html" || d.IPFS != h.CID() || d.Size != int64(len(page)) || d.Uploaded != testNow {
		t.Errorf("descriptor %+v", d)
	}
	tags := map[string]string{}
	for _, tag := range d.NIP94 {
		tags[tag[0]] = tag[1]
	}
	if tags["x"] != h.String() || tags["url"] != d.URL || tags["m"] != d.Type || tags["size"] != fmt.Sprint(len(page)) {
		t.Errorf("nip94 %v", d.NIP94)
	}
	r := f.ask("GET", "/"+h.String(), nil)
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "ETag": `"` + h.String() + `"`, "X-Cid": h.CID(), "X-Ipfs-Path": "/ipfs/" + h.CID(),
		"Cache-Control": "public, max-age=31536000, immutable", "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff",
		"Content-Length": fmt.Sprint(len(page)),
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "sandbox") {
		t.Error("a page is served outside of a sandbox")
	}
	head := f.ask("HEAD", "/"+h.String(), nil)
	for _, name := range []string{"Content-Type", "Content-Length", "ETag", "Accept-Ranges", "X-Cid"} {
		if head.Header.Get(name) != r.Header.Get(name) {
			t.Errorf("HEAD and GET differ in %s: %q and %q", name, head.Header.Get(name), r.Header.Get(name))
		}
	}
	raw := f.ask("GET", "/ipfs/"+h.CID()+"?format=raw", nil)
	if raw.Header.Get("Content-Type") != rawBlock || string(raw.body) != page {
		t.Errorf("raw block: %s %q", raw.Header.Get("Content-Type"), raw.body)
	}
	part := f.ask("GET", "/"+h.String(), nil, "Range", "bytes=1-4")
	if string(part.body) != page[1:5] || part.Header.Get("Content-Range") != fmt.Sprintf("bytes 1-4/%d", len(page)) {
		t.Errorf("part %q %s", part.body, part.Header.Get("Content-Range"))
	}
}

func TestPreflight(t *testing.T) {
	f := serve(t, nil)
	for _, path := range []string{"/upload", "/mirror", "/" + hashed("x").String(), "/list/" + hashed("k").String(), "/media"} {
		r := f.ask("OPTIONS", path, nil, "Origin", "https://client.example", "Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "authorization,x-sha-256")
		allow := r.Header.Get("Access-Control-Allow-Headers")
		if r.StatusCode != 204 || r.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.HasPrefix(allow, "Authorization, ") || !strings.HasSuffix(allow, "*") {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
		for _, m := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			if !strings.Contains(r.Header.Get("Access-Control-Allow-Methods"), m) {
				t.Errorf("%s: the preflight does not allow %s", path, m)
			}
		}
	}
}

// TestRefusedBeforeTheBody sends headers that ask for 100-continue and no body: the refusal must come all the same.
func TestRefusedBeforeTheBody(t *testing.T) {
	f := serve(t, func(c *Config) {
		c.MaxBlob = 1000
		c.HasEvent = func(_ context.Context, h Hash, _ nostr.PubKey) (bool, error) { return h != hashed("no event"), nil }
		c.Admit = func(_ context.Context, r *Request) *Refusal {
			if r.Type == "image/gif" {
				return &Refusal{Code: spec.CodePaymentRequired, Payment: http.Header{"X-Cashu": {"creqA"}}}
			}
			return nil
		}
	})
	k := key(t)
	covered := token(t, k, VerbUpload, hashed("covered"), hashed("no event"))
	for what, c := range map[string]struct {
		auth, sum string
		size      int
		kind      string
		want      string
	}{
		"no token":    {"", hashed("covered").String(), 10, "", "401"},
		"not covered": {covered, hashed("other").String(), 10, "", "401"},
		"too large":   {covered, hashed("covered").String(), 1001, "", "413"},
		"no event":    {covered, hashed("no event").String(), 8, "", "403"},
		"unpaid":      {covered, hashed("covered").String(), 7, "image/gif", "402"},
		"welcome":     {covered, hashed("covered").String(), 7, "", "100"},
	} {
		nc, err := net.Dial("tcp", f.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(nc, "PUT /upload HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\nX-SHA-256: %s\r\n", c.size, c.sum)
		if c.auth != "" {
			fmt.Fprintf(nc, "Authorization: %s\r\n", c.auth)
		}
		if c.kind != "" {
			fmt.Fprintf(nc, "Content-Type: %s\r\n", c.kind)
		}
		fmt.Fprint(nc, "\r\n")
		line, err := bufio.NewReader(nc).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+c.want) {
			t.Errorf("%s: %q, %v; want %s", what, line, err, c.want)
		}
		nc.Close()
	}
}

func TestTruncatedUpload(t *testing.T) {
	f := serve(t, nil)
	k := key(t)
	auth := token(t, k, VerbUpload, hashed("abcdefghij"), hashed("abcde"))
	for _, sum := range []string{"", hashed("abcdefghij").String()} {
		nc, err := net.Dial("tcp", f.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(nc, "PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nAuthorization: %s\r\nX-SHA-256: %s\r\n\r\nabcde", auth, sum)
		if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(nc)
		if !strings.HasPrefix(string(text), "HTTP/1.1 400") {
			t.Errorf("a body that ended early: %q", text)
		}
		nc.Close()
	}
	if u, _ := f.store.Usage(t.Context()); u.Blobs != 0 {
		t.Errorf("%d blobs of uploads that ended early", u.Blobs)
	}
}

func TestChunkedUploadIsCapped(t *testing.T) {
	f := serve(t, func(c *Config) { c.MaxBlob = 1000 })
	k := key(t)
	send := func(n int) int {
		text := strings.Repeat("c", n)
		req, _ := http.NewRequest("PUT", f.URL+"/upload", io.MultiReader(strings.NewReader(text), strings.NewReader("")))
		req.Header.Set("Authorization", token(t, k, VerbUpload, hashed(text)))
		resp, err := f.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := send(1000); got != 201 {
		t.Errorf("1000 octets: %d", got)
	}
	if got := send(1001); got != 413 {
		t.Errorf("1001 octets: %d", got)
	}
}
