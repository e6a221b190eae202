// Package relay is the WebSocket face of a node: an ordinary Nostr relay that
// knows nothing of any fleet. It takes events through one pipeline (verify together,
// decide, commit together, fan out), answers queries through one read gate, and
// owes no client more memory than its limits say.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Features are parts of the face that can be switched off.
type Features struct {
	Auth       bool // NIP-42, and with it reading of gift wraps and writing of protected events
	Count      bool // NIP-45
	HLL        bool // the HyperLogLog of NIP-45 beside the count
	Search     bool // NIP-50
	Hints      bool // the completeness hints of NIP-67
	Negentropy bool // NIP-77
}

// Config is what a Relay is made of. Only Store is required.
type Config struct {
	Store    store.Store
	Policy   policy.Policy  // nil lets everything in; NIP-42 and NIP-70 are kept in any case
	Verifier nostr.Verifier // nil: nostr.NewVerifier()
	Private  []nostr.Kind   // kinds for their recipients only; nil: policy.PrivateKinds
	Info     Info
	Limits   Limits
	Off      Features // what is set here is switched off

	AuthToRead bool // REQ, COUNT and NEG-OPEN need authentication

	PublicURLs     []string       // under which clients reach the face; the relay tag of AUTH is compared with them
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed
	Exempt         []netip.Prefix // clients that no rate and no connection limit holds

	// Subprotocols are other protocols at the same URL, by the WebSocket subprotocol that the client offers. The
	// function owns the Conn; the connection ends when it returns. ctx ends with the relay.
	Subprotocols map[string]func(ctx context.Context, c Conn)

	Page http.Handler // for people who come with a browser; nil: a plain page

	Clock func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: silent
}

// Relay is a running face. It is an http.Handler. All its methods are safe for concurrent use.
type Relay struct {
	cfg      Config
	lim      atomic.Pointer[Limits] // in force
	gate     *policy.Gate
	policy   policy.Chain
	verifier nostr.Verifier
	log      *slog.Logger
	extra    atomic.Pointer[http.ServeMux] // what the daemon adds
	info     atomic.Pointer[infoDocument]

	events   *policy.Limiter
	requests *policy.Limiter
	bytes    *policy.Limiter

	index   index
	flight  flight
	watched atomic.Int64  // values under which subscriptions stand in the index
	owed    atomic.Int64  // octets owed to all connections
	settled atomic.Uint64 // number of the last batch that the store has
	batches atomic.Uint64 // numbers the batches that were handed to the store
	pending *semaphore.Weighted
	slots   chan struct{} // one for each query at work

	incoming chan *offer   // to the verifier
	checked  chan []*offer // to the store
	fan      chan fanBatch // to the subscribers
	touched  []*conn       // that have something new to write; for the fan-out goroutine alone

	m metrics

	ctx    context.Context // ends when connections must go
	cancel context.CancelFunc
	work   sync.WaitGroup // the pipeline
	peers  sync.WaitGroup // whoever may put offers into it: connections and publishers
	drain  sync.Once
	hinted sync.Once

	refusing atomic.Bool // the store takes nothing, and the log knows

	mu    sync.Mutex
	conns map[peer]struct{}
	open  int // connections, in handshake or later
	perIP map[netip.Addr]int
	down  bool
	added map[string]http.Handler // of extra, by pattern
}

// New starts a relay: its pipeline runs until Shutdown.
func New(cfg Config) (*Relay, error) {
	if cfg.Store == nil {
		return nil, errors.New("relay: no store")
	}
	for _, u := range cfg.PublicURLs {
		if _, err := nostr.NormalizeRelayURL(u); err != nil {
			return nil, fmt.Errorf("relay: public URL %q: %w", u, err)
		}
	}
	cfg.Limits.fill()
	if cfg.Verifier == nil {
		cfg.Verifier = nostr.NewVerifier()
	}
	if cfg.Private == nil {
		cfg.Private = policy.PrivateKinds
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Relay{
		cfg: cfg, verifier: cfg.Verifier, log: cfg.Log,
		gate:     policy.NewGate(cfg.Private, !cfg.Off.Auth),
		policy:   chain(cfg),
		events:   policy.NewLimiter(cfg.Limits.eventRate()),
		requests: policy.NewLimiter(cfg.Limits.requestRate()),
		bytes:    policy.NewLimiter(cfg.Limits.byteRate()),
		pending:  semaphore.NewWeighted(int64(cfg.Limits.MaxPendingBytes)),
		slots:    make(chan struct{}, max(1, cfg.Limits.MaxQueries)),
		incoming: make(chan *offer, 1024),
		checked:  make(chan []*offer, 1),
		fan:      make(chan fanBatch, 4),
		conns:    make(map[peer]struct{}),
		perIP:    make(map[netip.Addr]int),
	}
	r.lim.Store(&cfg.Limits)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.index.init()
	r.flight.ids = make(map[nostr.ID]struct{})
	r.m.refusedBy = make(map[policy.Prefix]int64)
	r.m.badSubIDs = make(map[string]int64)
	r.added = map[string]http.Handler{}
	r.extra.Store(http.NewServeMux())
	var d policy.Demands
	r.policy.Describe(&d)
	if cfg.Off.Auth && (cfg.AuthToRead || d.AuthToWrite) {
		return nil, errors.New("relay: authentication is both required and switched off")
	}
	r.RefreshInfo()
	r.startPipeline()
	go r.watchLulls()
	return r, nil
}

// chain puts the rules that no configuration can drop before the operator's.
func chain(cfg Config) policy.Chain {
	c := policy.Chain{policy.Auth{}, policy.Vanish{}, policy.Protected{NoAuth: cfg.Off.Auth}}
	switch p := cfg.Policy.(type) {
	case nil:
		return c
	case policy.Chain:
		return append(c, p...)
	default:
		return append(c, p)
	}
}

func (r *Relay) now() time.Time { return r.cfg.Clock() }

// exempt says whether the rates and connection limits do not hold a client.
func (r *Relay) exempt(a netip.Addr) bool {
	for _, p := range r.cfg.Exempt {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// reserve counts a connection in before its handshake, or says why it may not come.
func (r *Relay) reserve(key netip.Addr, exempt bool) *policy.Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.perIP[key]
	switch {
	case r.down:
		return policy.Reject(policy.Error, "the relay is shutting down")
	case r.lim.Load().MaxConnections > 0 && r.open >= r.lim.Load().MaxConnections:
		return over(policy.RateLimited, "maxConnections", r.lim.Load().MaxConnections, r.open+1)
	case r.lim.Load().ConnectionsPerIP > 0 && n >= r.lim.Load().ConnectionsPerIP && !exempt:
		return over(policy.RateLimited, "connectionsPerIp", r.lim.Load().ConnectionsPerIP, n+1)
	}
	r.open++
	r.perIP[key] = n + 1
	r.peers.Add(1)
	r.m.Connections.Add(1)
	r.m.Open.Add(1)
	return nil
}

// unreserve counts a connection out.
func (r *Relay) unreserve(key netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	if r.perIP[key]--; r.perIP[key] == 0 {
		delete(r.perIP, key)
	}
	r.m.Open.Add(-1)
	r.peers.Done()
}

// peer is a connection that Shutdown can end.
type peer interface {
	goodbye() // politely
	sever()   // at once
}

// attach makes a connection known to Shutdown.
func (r *Relay) attach(p peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[p] = struct{}{}
	if r.down {
		p.goodbye()
	}
}

func (r *Relay) detach(p peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, p)
}

// Shutdown takes no more connections, reads nothing more from those that are there, answers every
// event that was read, says goodbye (close code 1001), and returns when all is done or ctx ends; then the rest is cut. It may
// be called more than once. The store stays open: it is the caller's.
func (r *Relay) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.down = true
	for c := range r.conns {
		c.goodbye()
	}
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		r.peers.Wait()
		r.drain.Do(func() { close(r.incoming) })
		r.work.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		r.mu.Lock()
		for c := range r.conns {
			c.sever()
		}
		r.mu.Unlock()
	}
	r.cancel()
	<-done
	return err
}

// localURLs are the URLs by which a client on this very address would name us, used where the operator
// declared none. The Host header is not asked: whoever relays a challenge also chooses that header.
func localURLs(nc net.Conn) []string {
	ap, err := netip.ParseAddrPort(nc.LocalAddr().String())
	if err != nil {
		return nil
	}
	ap = netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
	urls := []string{"ws://" + ap.String()}
	if ap.Addr().IsLoopback() {
		urls = append(urls, "ws://"+net.JoinHostPort("localhost", portOf(ap)))
	}
	return urls
}

func portOf(ap netip.AddrPort) string {
	_, port, _ := net.SplitHostPort(ap.String())
	return port
}
