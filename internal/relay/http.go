package relay

import (
	"html/template"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gobwas/ws"

	"fleetmesh.org/fleetmesh/internal/policy"
)

// ServeHTTP upgrades to WebSocket on any path, and otherwise serves the information document
// (NIP-11), /health, what was added with Handle, and a page for people.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if isUpgrade(req) {
		r.upgrade(w, req)
		return
	}
	if h, pattern := r.extra.Load().Handler(req); pattern != "" {
		h.ServeHTTP(w, req)
		return
	}
	allowCORS(w.Header(), req)
	switch {
	case req.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "this is a Nostr relay: connect with a WebSocket", http.StatusMethodNotAllowed)
	case req.URL.Path == "/health":
		r.health(w)
	case wantsInfo(req.Header.Values("Accept")):
		w.Header().Set("Content-Type", "application/nostr+json")
		_, _ = w.Write(r.info.Load().text)
	case r.cfg.Page != nil:
		r.cfg.Page.ServeHTTP(w, req)
	default:
		r.page(w)
	}
}

// ClientAddr is the address that a request's limits are kept by. It is for counting, and for no log.
func (r *Relay) ClientAddr(req *http.Request) netip.Addr {
	return clientAddr(req, r.cfg.TrustedProxies)
}

// OverTLS says whether a trusted proxy took the request over TLS.
func (r *Relay) OverTLS(req *http.Request) bool {
	ap, err := netip.ParseAddrPort(req.RemoteAddr)
	return err == nil && inAny(r.cfg.TrustedProxies, ap.Addr().Unmap()) && strings.EqualFold(req.Header.Get("X-Forwarded-Proto"), "https")
}

// Handle adds a handler beside the relay's own, by a pattern of http.ServeMux. It takes
// precedence over all but the WebSocket, and the place of one that was added by that pattern before.
func (r *Relay) Handle(pattern string, h http.Handler) { r.rehandle(pattern, h) }

// Unhandle takes back what Handle added. Requests that are being served are served to their end.
func (r *Relay) Unhandle(pattern string) { r.rehandle(pattern, nil) }

// rehandle makes the multiplexer anew: one that is in use cannot lose a pattern.
func (r *Relay) rehandle(pattern string, h http.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h == nil {
		delete(r.added, pattern)
	} else {
		r.added[pattern] = h
	}
	mux := http.NewServeMux()
	for p, h := range r.added {
		mux.Handle(p, h)
	}
	r.extra.Store(mux)
}

func isUpgrade(req *http.Request) bool {
	return headerHas(req.Header.Values("Connection"), "upgrade") && headerHas(req.Header.Values("Upgrade"), "websocket")
}

func headerHas(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// allowCORS lets pages of any origin read the document (NIP-11).
func allowCORS(h http.Header, req *http.Request) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
	asked := req.Header.Get("Access-Control-Request-Headers")
	if asked == "" {
		asked = "*"
	}
	h.Set("Access-Control-Allow-Headers", asked)
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Vary", "Accept, Access-Control-Request-Headers")
}

// wantsInfo says whether an Accept header names application/nostr+json, and no page before it.
func wantsInfo(accept []string) bool {
	info, page := -1.0, -1.0
	for _, v := range accept {
		for part := range strings.SplitSeq(v, ",") {
			name, params, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "application/nostr+json":
				info = max(info, quality(params))
			case "text/html":
				page = max(page, quality(params))
			}
		}
	}
	return info > 0 && info >= page
}

func quality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		k, v, ok := strings.Cut(strings.TrimSpace(p), "=")
		if ok && strings.EqualFold(strings.TrimSpace(k), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				return 0
			}
			return q
		}
	}
	return 1
}

func (r *Relay) health(w http.ResponseWriter) {
	r.mu.Lock()
	down := r.down
	r.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if down {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("shutting down\n"))
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Name}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}code{background:#eee;padding:.1em .3em}</style>
</head><body>
<h1>{{.Name}}</h1>
{{with .Description}}<p>{{.}}</p>{{end}}
<p>This is a Nostr relay. Add its address to a Nostr client:{{range .URLs}} <code>{{.}}</code>{{else}} this page's, with <code>ws</code> in place of <code>http</code>{{end}}.</p>
<p>NIPs:{{range .NIPs}} {{.}}{{end}}</p>
{{with .Contact}}<p>Contact: {{.}}</p>{{end}}
{{with .Terms}}<p><a href="{{.}}">Terms of service</a></p>{{end}}
</body></html>
`))

func (r *Relay) page(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	name := r.cfg.Info.Name
	if name == "" {
		name = "Nostr relay"
	}
	_ = page.Execute(w, map[string]any{
		"Name": name, "Description": r.cfg.Info.Description, "URLs": r.cfg.PublicURLs,
		"NIPs": r.info.Load().SupportedNIPs, "Contact": r.cfg.Info.Contact, "Terms": r.cfg.Info.TermsOfService,
	})
}

// upgrade turns a request into a connection. Its goroutines outlive the handler, so that what
// net/http keeps for a request is given back.
func (r *Relay) upgrade(w http.ResponseWriter, req *http.Request) {
	client := clientAddr(req, r.cfg.TrustedProxies)
	key, exempt := policy.ClientKey(client), r.exempt(client)
	if no := r.reserve(key, exempt); no != nil {
		r.m.refused(no.Prefix)
		status := http.StatusTooManyRequests
		if no.Prefix == policy.Error {
			status = http.StatusServiceUnavailable
		}
		r.hintProxy(req)
		http.Error(w, no.String(), status)
		return
	}
	proto := r.subprotocol(req)
	up := ws.HTTPUpgrader{Timeout: lingering}
	if proto != "" {
		up.Header = http.Header{"Sec-Websocket-Protocol": {proto}}
	}
	nc, rw, _, err := up.Upgrade(req, w)
	if err != nil {
		if nc != nil {
			_ = nc.Close()
		}
		r.unreserve(key)
		return
	}
	var early []byte
	if n := rw.Reader.Buffered(); n > 0 {
		early, _ = rw.Reader.Peek(n)
		early = append([]byte(nil), early...)
	}
	if proto != "" {
		go r.serveSubprotocol(newSocket(r, nc, proto, early), key, r.cfg.Subprotocols[proto])
		return
	}
	c := newConn(r, nc, client)
	c.agent = cut(req.UserAgent(), 64)
	c.path = req.URL.Path
	c.urls = r.cfg.PublicURLs
	if len(c.urls) == 0 {
		c.urls = localURLs(nc)
	}
	r.attach(c)
	go c.serve(early)
}

// hintProxy tells the operator, once, that clients seem to come through a proxy that is not listed: then all of them
// share one allowance.
func (r *Relay) hintProxy(req *http.Request) {
	if req.Header.Get("X-Forwarded-For") == "" {
		return
	}
	if ap, err := netip.ParseAddrPort(req.RemoteAddr); err != nil || inAny(r.cfg.TrustedProxies, ap.Addr().Unmap()) {
		return
	}
	r.hinted.Do(func() {
		r.log.Warn("connections are refused that carry X-Forwarded-For from an unlisted proxy; if it is yours, list it in trustedProxies")
	})
}

// subprotocol picks the first protocol offered that we have, and takes the offer out of the request: names
// such as didcomm/v2 are no tokens as RFC 6455 wants them, and the library would refuse the handshake.
func (r *Relay) subprotocol(req *http.Request) string {
	const header = "Sec-Websocket-Protocol"
	offered := req.Header.Values(header)
	req.Header.Del(header)
	for _, v := range offered {
		for p := range strings.SplitSeq(v, ",") {
			if p = strings.TrimSpace(p); r.cfg.Subprotocols[p] != nil {
				return p
			}
		}
	}
	return ""
}

// clientAddr is the address that limits are kept by: the peer's, or behind trusted proxies the last one in
// X-Forwarded-For that is not a trusted proxy itself. What stands further left anybody can write.
func clientAddr(req *http.Request, trusted []netip.Prefix) netip.Addr {
	ap, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := ap.Addr().Unmap()
	if !inAny(trusted, addr) {
		return addr
	}
	var hops []string
	for _, v := range req.Header.Values("X-Forwarded-For") {
		hops = append(hops, strings.Split(v, ",")...)
	}
	for i := len(hops) - 1; i >= 0; i-- {
		hop := strings.TrimSpace(hops[i])
		next, err := netip.ParseAddr(hop)
		if err != nil {
			ap, err := netip.ParseAddrPort(hop)
			if err != nil {
				break
			}
			next = ap.Addr()
		}
		addr = next.Unmap()
		if !inAny(trusted, addr) {
			break
		}
	}
	return addr
}

func inAny(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
