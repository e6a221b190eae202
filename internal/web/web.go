// Package web is the node's page for people: a public landing page on the node's own address, and the operator's page under /ui/. It
// shows and does nothing that the control methods do not offer, and carries everything that it needs: no request leaves the node's own origin.
package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Node is the control surface of the node that the page is of: control.Local within its process.
type Node interface {
	Call(ctx context.Context, method string, params, result any, onStep func(step json.RawMessage)) error
}

// Config says which node a page is of and how it is reached.
type Config struct {
	Node       Node
	PublicURLs []string                       // ws and wss URLs under which clients reach the node
	Hosts      []string                       // more host names under which the operator's page is used
	ClientAddr func(*http.Request) netip.Addr // whose tries are counted together; nil: the remote address
	HTTPS      func(*http.Request) bool       // whether a trusted proxy took the request over TLS; nil: never
	Clock      func() time.Time               // nil: time.Now
	Log        *slog.Logger                   // nil: silent
}

// Web serves the pages. It is safe for concurrent use.
type Web struct {
	cfg      Config
	mux      *http.ServeMux
	key      [32]byte // of what is handed out and comes back: CSRF tokens and challenges
	hosts    map[string]bool
	origins  []string // of the public URLs
	sessions sessions
	codes    codes
	spent    spent
	tries    tries
	streams  streams
	jobs     jobs
	public   publicFacts
	ctx      context.Context
	stop     context.CancelFunc
	cookie   string // name of the cookie, which differs between nodes: browsers do not tell ports apart
}

//go:embed static
var static embed.FS

// prefix is where the operator's page lives.
const prefix = "/ui/"

// maxBody bounds the body of a request, in octets.
const maxBody = 32 << 10

// New makes the pages of a node. Close ends what they began.
func New(cfg Config) *Web {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.ClientAddr == nil {
		cfg.ClientAddr = remoteAddr
	}
	if cfg.HTTPS == nil {
		cfg.HTTPS = func(*http.Request) bool { return false }
	}
	w := &Web{cfg: cfg, hosts: map[string]bool{}}
	_, _ = rand.Read(w.key[:]) // it never fails
	w.ctx, w.stop = context.WithCancel(context.Background())
	for _, h := range cfg.Hosts {
		w.hosts[strings.ToLower(h)] = true
	}
	for _, u := range cfg.PublicURLs {
		if p, err := url.Parse(u); err == nil {
			w.hosts[strings.ToLower(p.Hostname())] = true
			w.origins = append(w.origins, map[string]string{"wss": "https://"}[p.Scheme]+p.Host)
		}
	}
	w.origins = slices.DeleteFunc(w.origins, func(o string) bool { return !strings.HasPrefix(o, "https://") })
	sum := sha256.Sum256(w.key[:])
	w.cookie = "meshnode-" + hex.EncodeToString(sum[:4])
	w.route()
	return w
}

// Close ends streams and what the page set going, and waits for it.
func (w *Web) Close() {
	w.stop()
	w.jobs.close()
}

func (w *Web) now() time.Time { return w.cfg.Clock() }

func remoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// route builds the table of what is served.
func (w *Web) route() {
	m := http.NewServeMux()
	m.HandleFunc("GET "+prefix+"static/{file}", w.serveStatic)
	m.HandleFunc("GET "+prefix+"{$}", w.serveHome)
	for path, v := range views {
		if path != "" {
			m.HandleFunc("GET "+prefix+path, w.signedIn(func(rw http.ResponseWriter, r *http.Request, s *session) { w.serveView(rw, r, s, v) }))
		}
	}
	m.HandleFunc("GET "+prefix+"live", w.signedIn(w.serveLive))
	m.HandleFunc("POST "+prefix+"in/code", w.changes(w.signInByCode))
	m.HandleFunc("POST "+prefix+"in/nostr", w.changes(w.signInByEvent))
	m.HandleFunc("POST "+prefix+"out", w.changes(w.signOut))
	m.HandleFunc("POST "+prefix+"do/{action}", w.changes(w.act))
	w.mux = m
}

// ServeHTTP serves the operator's page, under /ui/.
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	guard(rw.Header())
	rw.Header().Set("Cache-Control", "no-store")
	if !w.knownHost(r.Host) {
		http.Error(rw, "this name is not one of the node's: list it in spec.page.hosts of node.yaml, or use the node's own address", http.StatusMisdirectedRequest)
		return
	}
	w.mux.ServeHTTP(rw, r)
}

// Landing is the public page, for browsers at the node's own address.
func (w *Web) Landing() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		guard(rw.Header())
		w.serveLanding(rw, r)
	})
}

// guard sets the headers that keep a page to its own origin.
func guard(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: with that, browsers say "null" for the origin of a form.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// knownHost says whether a request names this node. A name that is not known may be a stranger's that was made to point here (DNS
// rebinding); an address cannot be.
func (w *Web) knownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || w.hosts[host]
}

// secure says whether the browser reached this node over TLS.
func (w *Web) secure(r *http.Request) bool {
	return r.TLS != nil || w.cfg.HTTPS(r) || slices.Contains(w.origins, "https://"+strings.ToLower(r.Host))
}

// serveStatic serves the style sheet, the script and the icon.
func (w *Web) serveStatic(rw http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	kind, ok := map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}[name]
	text, err := static.ReadFile("static/" + name)
	if !ok || err != nil {
		http.NotFound(rw, r)
		return
	}
	rw.Header().Set("Content-Type", kind)
	if r.URL.Query().Get("v") == version {
		rw.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = rw.Write(text) // a lost client is its own business
}

// version names the static files, so that a browser keeps them as long as they are the same.
var version = func() string {
	h := sha256.New()
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		text, err := static.ReadFile("static/" + name)
		if err != nil {
			panic("web: a static file is missing: " + name)
		}
		fmt.Fprintf(h, "%d\n%s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}()
