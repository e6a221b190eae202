package blossom

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// ListMode says who may list what a key has uploaded (BUD-12).
type ListMode string

// The modes.
const (
	ListPublic ListMode = "public" // anybody
	ListOwner  ListMode = "owner"  // the key itself, with a token
	ListOff    ListMode = "off"
)

// Request is what somebody asks of the server, for Config.Admit.
type Request struct {
	Verb   Verb
	PubKey nostr.PubKey // of the token; zero without one
	Hash   Hash         // zero where it is not known yet
	Size   int64        // octets, -1 where it is not known yet
	Type   string       // media type, "" where it is not known
	// For VerbGet: Created is the created_at of the token, unix seconds, and Moves the octets that are sent if the request is let in.
	Created int64
	Moves   int64
}

// Refusal is a policy's no. A nil *Refusal is consent.
type Refusal struct {
	Code    spec.Code   // gives the HTTP status
	Reason  string      // one sentence for a person
	Payment http.Header // with PAYMENT_REQUIRED: X-Cashu, X-Lightning (BUD-07)
}

// RefusalOf turns a rejection of the node's policies into a Refusal.
func RefusalOf(r *policy.Rejection) *Refusal {
	if r == nil {
		return nil
	}
	code := spec.CodePolicy
	switch r.Prefix {
	case policy.RateLimited:
		code = spec.CodeRateLimited
	case policy.AuthRequired:
		code = spec.CodeAuthRequired
	case policy.Error:
		code = spec.CodeError
	}
	return &Refusal{Code: code, Reason: r.Text}
}

// Flow is octets of blobs that crossed the face, for blob_bytes (§ Grants & receipts).
type Flow struct {
	PubKey nostr.PubKey // who caused it; zero for whoever came without a token
	In     int64        // octets received
	Out    int64        // octets sent
}

// Signer is a key that signs digests with BIP-340.
type Signer interface {
	PubKey() nostr.PubKey
	Sign(digest [32]byte) (nostr.Sig, error)
}

// Config configures a Server. Only Store is necessary. Functions are called from many goroutines at once.
type Config struct {
	Store Store
	// PublicURL is under which clients reach the face, such as https://blobs.example.org; "" is the URL of each request.
	PublicURL string
	// Hosts are further names of this server. A token with server tags must name one of these or PublicURL's.
	Hosts []string

	MaxBlob  int64 // octets of one blob; 0: 100 MiB
	MaxBusy  int   // uploads, mirrors and conversions at a time; 0: 64
	MaxMedia int64 // octets of what /media converts, which is held in memory; 0: 16 MiB

	// HasEvent says whether an event that is held here, by that key or by anybody, names the blob (§ Replication, "Blobs"). If it is
	// set, a blob without one is refused. nil: any blob is taken.
	HasEvent func(ctx context.Context, h Hash, by nostr.PubKey) (bool, error)
	// Admit is asked before anything else happens, and for uploads before the body is read. nil: all are welcome.
	Admit func(ctx context.Context, r *Request) *Refusal
	// Meter is told of bytes as they go, refused uploads included.
	Meter func(Flow)
	// Report is handed the reports (BUD-09, NIP-56) about blobs that are held here, signature checked. nil: there is no /report.
	Report func(ctx context.Context, e *nostr.Event, about []Hash) error
	// Media converts what is uploaded to /media (BUD-05). nil: there is no /media.
	Media Converter
	// Fetch gets blobs from other servers for /mirror (BUD-04). nil: there is no /mirror.
	Fetch *Fetcher
	// Signer signs answers to Erase with the node's key. nil: there is no Erase.
	Signer Signer

	List       ListMode // "" is ListPublic
	PrivateGet bool     // GET and HEAD need a token too

	Verifier nostr.Verifier
	Now      func() int64 // unix seconds; nil: the clock
	Log      *slog.Logger
}

// Server is the blob face. It is an http.Handler for the root of a host (BUD-01); see Claims.
type Server struct {
	cfg   Config
	hosts []string
	busy  chan struct{}
}

// New makes a server.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil {
		return nil, errors.New("blossom: a server needs a store")
	}
	cfg.MaxBlob = cmp.Or(cfg.MaxBlob, 100<<20)
	cfg.MaxMedia = cmp.Or(cfg.MaxMedia, 16<<20)
	cfg.MaxBusy = cmp.Or(cfg.MaxBusy, 64)
	cfg.List = cmp.Or(cfg.List, ListPublic)
	if cfg.Verifier == nil {
		cfg.Verifier = nostr.NewVerifier()
	}
	if cfg.Now == nil {
		cfg.Now = func() int64 { return time.Now().Unix() }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, busy: make(chan struct{}, cfg.MaxBusy)}
	if cfg.PublicURL != "" {
		u, err := url.Parse(cfg.PublicURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return nil, errors.New("blossom: the public URL must be http(s)://host, without a path (BUD-01)")
		}
		s.cfg.PublicURL = u.Scheme + "://" + u.Host
		s.hosts = append(s.hosts, hostName(u.Host))
	}
	for _, h := range cfg.Hosts {
		s.hosts = append(s.hosts, hostName(h))
	}
	return s, nil
}

// Claims tells whether a request is for the blob face. Everything else on the same host is another handler's.
func (s *Server) Claims(r *http.Request) bool {
	first, rest, deep := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch first {
	case "upload", "mirror", "media", "report":
		return !deep
	case "list", "ipfs":
		return deep && rest != ""
	}
	return !deep && looksLikeName(first)
}

// ServeHTTP serves the BUDs. Errors are a status, the header X-Reason and a JSON body with a message.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cors(w.Header())
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := s.route(w, r); err != nil {
		s.fail(w, r, err)
	}
}

// cors lets pages of any origin use the face (BUD-01).
func cors(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, PUT, DELETE, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Length, Range, X-SHA-256, X-Content-Type, X-Content-Length, *")
	h.Set("Access-Control-Expose-Headers", "Accept-Ranges, Content-Length, Content-Range, Content-Type, ETag, X-Reason, X-Cid, X-SHA-256, X-Cashu, X-Lightning, *")
	h.Set("Access-Control-Max-Age", "86400")
}

type route struct {
	methods []string
	serve   func(*Server, http.ResponseWriter, *http.Request, string) error
}

var routes = map[string]route{
	"upload": {[]string{"PUT", "HEAD"}, (*Server).upload},
	"media":  {[]string{"PUT", "HEAD"}, (*Server).media},
	"mirror": {[]string{"PUT"}, (*Server).mirror},
	"report": {[]string{"PUT"}, (*Server).report},
	"list":   {[]string{"GET", "HEAD"}, (*Server).list},
	"ipfs":   {[]string{"GET", "HEAD"}, (*Server).getCID},
	"":       {[]string{"GET", "HEAD", "DELETE"}, (*Server).blob},
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) error {
	first, rest, deep := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	to, ok := routes[first]
	if !ok || first == "" {
		if deep {
			return refuse(http.StatusNotFound, "there is nothing here")
		}
		to, rest, deep = routes[""], first, true
	}
	if wantsRest := first != "upload" && first != "media" && first != "mirror" && first != "report"; deep != wantsRest {
		return refuse(http.StatusNotFound, "there is nothing here")
	}
	if !slices.Contains(to.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(to.methods, ", ")+", OPTIONS")
		return refuse(http.StatusMethodNotAllowed, "this takes "+strings.Join(to.methods, ", "))
	}
	return to.serve(s, w, r, rest)
}

// blob serves GET, HEAD and DELETE of one blob.
func (s *Server) blob(w http.ResponseWriter, r *http.Request, name string) error {
	h, err := parseName(name)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if r.Method == http.MethodDelete {
		return s.delete(w, r, h)
	}
	return s.get(w, r, h, false)
}
