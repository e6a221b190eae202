// Package gatewaytest is a network of relays without sockets, for tests of bridges and gateways under a fake clock.
package gatewaytest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// Yes is a Verifier for tests in which signatures do not matter.
type Yes struct{}

// Verify implements nostr.Verifier.
func (Yes) Verify(es []*nostr.Event) []bool {
	out := make([]bool, len(es))
	for i := range out {
		out[i] = true
	}
	return out
}

// Network is a name and a listener for each relay, without sockets, so that tests run under a fake clock. Its connections can be cut.
type Network struct {
	mu    sync.Mutex
	hosts map[string]chan net.Conn
	conns map[net.Conn]string
	cuts  int
	Dials int
	down  map[string]bool
	Fray  func() int // how many octets a new connection lives; 0: for ever
}

// Steady ends the fraying and says how many connections were cut so far.
func (n *Network) Steady() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Fray = nil
	return n.cuts
}

// CutSoFar is how many connections were cut.
func (n *Network) CutSoFar() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts
}

// New makes a network without relays.
func New() *Network {
	return &Network{hosts: map[string]chan net.Conn{}, conns: map[net.Conn]string{}, down: map[string]bool{}}
}

// Client dials relays of the network by their names.
func (n *Network) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		n.mu.Lock()
		ch, down := n.hosts[host], n.down[host]
		n.Dials++
		n.mu.Unlock()
		if ch == nil || down {
			return nil, errors.New("connection refused")
		}
		a, b := net.Pipe()
		select {
		case ch <- b:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.Fray != nil {
			if octets := n.Fray(); octets > 0 {
				a = &frayed{Conn: a, n: n, left: octets}
			}
		}
		n.conns[a] = host
		return a, nil
	}}}
}

// frayed is a connection that breaks after so many octets, in the middle of whatever is under way.
type frayed struct {
	net.Conn
	n    *Network
	mu   sync.Mutex
	left int
}

func (f *frayed) spend(k int, err error) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.left
	if f.left -= k; before > 0 && f.left <= 0 {
		f.Conn.Close()
		f.n.mu.Lock()
		f.n.cuts++
		f.n.mu.Unlock()
	}
	return k, err
}

func (f *frayed) Read(p []byte) (int, error)  { return f.spend(f.Conn.Read(p)) }
func (f *frayed) Write(p []byte) (int, error) { return f.spend(f.Conn.Write(p)) }

// Cut ends all connections to a host, or to all if it is "".
func (n *Network) Cut(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c, h := range n.conns {
		if host == "" || h == host {
			c.Close()
			delete(n.conns, c)
			n.cuts++
		}
	}
}

type listener struct {
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Peer is one relay of the Network. It remembers what clients offered it.
type Peer struct {
	*relay.Relay
	DB  *store.Memory
	URL string

	mu        sync.Mutex
	Offers    map[nostr.ID]int
	Times     []time.Time // of offers
	PerSec    int         // accepted in a second; 0: all
	recent    []time.Time
	LimitedAt time.Time // when it first refused for the rate
}

// Admit implements policy.Policy: it remembers, and limits.
func (p *Peer) Admit(_ context.Context, r *policy.Request) *policy.Rejection {
	if r.Source != policy.FromClient {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.Offers[r.Event.ID]++
	p.Times = append(p.Times, now)
	for len(p.recent) > 0 && now.Sub(p.recent[0]) >= time.Second {
		p.recent = p.recent[1:]
	}
	if p.PerSec > 0 && len(p.recent) >= p.PerSec {
		if p.LimitedAt.IsZero() {
			p.LimitedAt = now
		}
		return policy.Reject(policy.RateLimited, "%d events a second are enough; try again in 2 s", p.PerSec)
	}
	p.recent = append(p.recent, now)
	return nil
}

// All is how many offers it had.
func (p *Peer) All() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.Times)
}

// Static makes it hear of duplicates too.
func (p *Peer) Static() bool { return true }

// Offered is how often clients offered an event.
func (p *Peer) Offered(id nostr.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Offers[id]
}

// Relay starts a relay with a name.
func (n *Network) Relay(t *testing.T, host string, options ...func(*relay.Config)) *Peer {
	t.Helper()
	p := &Peer{DB: store.NewMemory(), URL: "ws://" + host + "/", Offers: map[nostr.ID]int{}}
	cfg := relay.Config{Store: p.DB, Verifier: Yes{}, Policy: policy.Chain{p}}
	cfg.Limits.EventsPerSecond, cfg.Limits.RequestsPerSecond, cfg.Limits.BytesPerSecond, cfg.Limits.ConnectionsPerIP = -1, -1, -1, -1
	for _, o := range options {
		o(&cfg)
	}
	var err error
	if p.Relay, err = relay.New(cfg); err != nil {
		t.Fatal(err)
	}
	l := &listener{ch: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	n.hosts[host] = l.ch
	n.mu.Unlock()
	srv := &http.Server{Handler: p.Relay}
	served := make(chan struct{})
	go func() { _ = srv.Serve(l); close(served) }()
	t.Cleanup(func() {
		n.Cut(host)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
		<-served
	})
	return p
}

// Add publishes events at a relay from within.
func (p *Peer) Add(t *testing.T, events ...*nostr.Event) {
	t.Helper()
	v, err := p.Publish(context.Background(), events, policy.FromImport)
	if err != nil {
		t.Fatal(err)
	}
	for i := range v {
		if !v[i].OK {
			t.Fatalf("event %d: %s", i, v[i].Reason)
		}
	}
}

// Holds says whether the relay has an event.
func (p *Peer) Holds(t *testing.T, id nostr.ID) bool {
	t.Helper()
	ok, err := p.DB.Has(context.Background(), id, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// Note makes an event without a signature.
func Note(kind nostr.Kind, at int64, content string, tags ...nostr.Tag) *nostr.Event {
	e := &nostr.Event{PubKey: nostr.PubKey{byte(len(content))}, CreatedAt: at, Kind: kind, Content: content, Tags: tags}
	e.ID = e.ComputeID()
	return e
}

// Notes makes n notes without signatures.
func Notes(n int, word string) (out []*nostr.Event) {
	for i := range n {
		out = append(out, Note(1, 946684800+int64(i/4), fmt.Sprintf("%s %d", word, i)))
	}
	return out
}

// Rest lets time pass until nothing moves any more.
func Rest(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
	synctest.Wait()
}

// All wants all events held, or none.
func All(t *testing.T, want bool, p *Peer, events []*nostr.Event, what string) {
	t.Helper()
	for i, e := range events {
		if p.Holds(t, e.ID) != want {
			t.Errorf("%s: event %d (%q): held is %v", what, i, e.Content, !want)
			return
		}
	}
}

// NoEcho wants that none of the events was offered to the relay.
func NoEcho(t *testing.T, p *Peer, events []*nostr.Event) {
	t.Helper()
	for _, e := range events {
		if n := p.Offered(e.ID); n > 0 {
			t.Errorf("%q was sent back to %s %d times", e.Content, p.URL, n)
			return
		}
	}
}
