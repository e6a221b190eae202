package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// pipeListener is a listener without a network, so that tests may run under a fake clock.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fakeRelay is the least that answers a client: a Memory store and the protocol.
type fakeRelay struct {
	t   testing.TB
	db  *store.Memory
	l   *pipeListener
	srv *http.Server

	mu     sync.Mutex
	conns  map[*fakeConn]struct{}
	counts map[string]int               // frames by label
	offers map[nostr.ID]int             // EVENTs by id
	bodies int                          // stored events sent
	refuse map[nostr.ID]string          // answers other than OK true
	onAny  func(*fakeConn, string) bool // true: the frame is dealt with
	hide   map[nostr.ID]bool            // in NEG, not in REQ
	ghosts []negentropy.Item            // in NEG, not in the store
	lie    map[nostr.ID]*nostr.Event    // what REQ sends in the place of an event

	pageCap  int    // of a REQ's answer; 0 for none
	hints    bool   // NIP-67
	noNeg    string // what NEG-OPEN gets instead
	endless  bool   // NEG answers with a fingerprint that nothing has, for ever
	negMax   int    // records; over it, NEG-ERR blocked
	silent   bool   // to NEG
	authKey  bool   // everything needs authentication
	perSec   int    // EVENTs accepted a second
	window   []time.Time
	overLoad int // EVENTs refused by perSec
	dead     bool
}

type fakeConn struct {
	r      *fakeRelay
	ws     *websocket.Conn
	wmu    sync.Mutex
	mu     sync.Mutex
	live   map[string][]nostr.Filter
	negs   map[string]*negentropy.Server
	frames int
	authed bool
}

func newFakeRelay(t testing.TB) *fakeRelay {
	r := &fakeRelay{
		t: t, db: store.NewMemory(), l: newPipeListener(), conns: map[*fakeConn]struct{}{}, counts: map[string]int{},
		offers: map[nostr.ID]int{}, refuse: map[nostr.ID]string{}, hide: map[nostr.ID]bool{}, lie: map[nostr.ID]*nostr.Event{},
	}
	r.srv = &http.Server{Handler: http.HandlerFunc(r.serve)}
	go func() { _ = r.srv.Serve(r.l) }()
	t.Cleanup(r.close)
	return r
}

func (r *fakeRelay) close() {
	_ = r.srv.Close()
	r.cutAll()
}

func (r *fakeRelay) options() Options {
	tr := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return r.l.dial(ctx) },
		DisableKeepAlives: true,
	}
	return Options{Client: &http.Client{Transport: tr}}
}

const fakeURL = "ws://relay.test/"

func (r *fakeRelay) link() *Link { return NewLink(fakeURL, r.options()) }

func (r *fakeRelay) dialT(t testing.TB) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), fakeURL, r.options())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// intercept sets what sees every frame first.
func (r *fakeRelay) intercept(f func(c *fakeConn, label string) bool) {
	r.mu.Lock()
	r.onAny = f
	r.mu.Unlock()
}

// frames is how many frames of a label came.
func (r *fakeRelay) frames(label string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[label]
}

// cutAll ends all connections without a word.
func (r *fakeRelay) cutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.ws.CloseNow()
	}
}

func (r *fakeRelay) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	dead := r.dead
	r.mu.Unlock()
	if dead {
		http.Error(w, "gone", http.StatusServiceUnavailable)
		return
	}
	ws, err := websocket.Accept(w, req, nil)
	if err != nil {
		return
	}
	ws.SetReadLimit(1 << 24)
	c := &fakeConn{r: r, ws: ws, live: map[string][]nostr.Filter{}, negs: map[string]*negentropy.Server{}}
	r.mu.Lock()
	r.conns[c] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.conns, c)
		r.mu.Unlock()
		_ = ws.CloseNow()
	}()
	if r.authKey {
		c.send(nostr.AppendAuth(nil, "challenge"))
	}
	for {
		_, frame, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		m, err := nostr.ParseClientMessage(frame)
		if err != nil {
			c.send(nostr.AppendNotice(nil, "invalid: "+err.Error()))
			continue
		}
		c.frames++
		r.mu.Lock()
		r.counts[m.Label()]++
		any := r.onAny
		r.mu.Unlock()
		if any != nil && any(c, m.Label()) {
			continue
		}
		c.handle(m)
	}
}

func (c *fakeConn) send(frame []byte) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_ = c.ws.Write(context.Background(), websocket.MessageText, frame)
}

func (c *fakeConn) handle(m nostr.ClientMessage) {
	r := c.r
	needs := r.authKey && !c.authed
	switch m := m.(type) {
	case *nostr.AuthMessage:
		c.authed = m.Event != nil
		c.send(nostr.AppendOK(nil, m.RawID, c.authed, ""))
	case *nostr.EventMessage:
		if needs {
			c.send(nostr.AppendOK(nil, m.RawID, false, "auth-required: who are you"))
			return
		}
		c.publish(m)
	case *nostr.ReqMessage:
		if needs {
			c.send(nostr.AppendClosed(nil, m.SubID, "auth-required: who are you"))
			return
		}
		c.req(m)
	case *nostr.CloseMessage:
		c.mu.Lock()
		delete(c.live, m.SubID)
		c.mu.Unlock()
	case *nostr.CountMessage:
		n, _ := r.db.Count(context.Background(), m.Filters, store.View{}, time.Now().Unix())
		c.send(nostr.AppendCount(nil, m.QueryID, int64(n), nil))
	case *nostr.NegOpenMessage:
		if needs {
			c.send(nostr.AppendNegErr(nil, m.SubID, "auth-required: who are you"))
			return
		}
		c.negOpen(m)
	case *nostr.NegMsgMessage:
		c.negMsg(m.SubID, m.Message)
	case *nostr.NegCloseMessage:
		delete(c.negs, m.SubID)
	}
}

func (c *fakeConn) publish(m *nostr.EventMessage) {
	r := c.r
	if m.Err != nil {
		c.send(nostr.AppendOK(nil, m.RawID, false, "invalid: "+m.Err.Error()))
		return
	}
	r.mu.Lock()
	r.offers[m.Event.ID]++
	reason, no := r.refuse[m.Event.ID]
	now := time.Now()
	if r.perSec > 0 {
		for len(r.window) > 0 && now.Sub(r.window[0]) >= time.Second {
			r.window = r.window[1:]
		}
		if len(r.window) >= r.perSec {
			reason, no = "rate-limited: slow down", true
			r.overLoad++
		} else {
			r.window = append(r.window, now)
		}
	}
	r.mu.Unlock()
	if no {
		c.send(nostr.AppendOK(nil, m.RawID, false, reason))
		return
	}
	out, err := r.db.Insert(context.Background(), []*nostr.Event{m.Event}, now.Unix())
	switch {
	case err != nil:
		c.send(nostr.AppendOK(nil, m.RawID, false, "error: "+err.Error()))
	case out[0] == store.Duplicate:
		c.send(nostr.AppendOK(nil, m.RawID, true, "duplicate: have it"))
	case out[0] == store.Superseded:
		c.send(nostr.AppendOK(nil, m.RawID, false, "duplicate: have a newer one"))
	default:
		c.send(nostr.AppendOK(nil, m.RawID, true, ""))
		r.broadcast(m.Event)
	}
}

// add stores events and sends them to live subscriptions.
func (r *fakeRelay) add(events ...*nostr.Event) {
	r.t.Helper()
	if _, err := r.db.Insert(context.Background(), events, 1); err != nil {
		r.t.Fatal(err)
	}
	for _, e := range events {
		r.broadcast(e)
	}
}

func (r *fakeRelay) broadcast(e *nostr.Event) {
	r.mu.Lock()
	conns := make([]*fakeConn, 0, len(r.conns))
	for c := range r.conns {
		conns = append(conns, c)
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		var subs []string
		for sub, filters := range c.live {
			if slices.ContainsFunc(filters, func(f nostr.Filter) bool { return f.Matches(e) }) {
				subs = append(subs, sub)
			}
		}
		c.mu.Unlock()
		for _, sub := range subs {
			c.send(nostr.AppendEvent(nil, sub, e.JSON()))
		}
	}
}

func (c *fakeConn) req(m *nostr.ReqMessage) {
	r := c.r
	c.mu.Lock()
	c.live[m.SubID] = m.Filters
	c.mu.Unlock()
	n, all := 0, true
	for e, err := range r.db.Query(context.Background(), m.Filters, store.View{}, 0, 1) {
		if err != nil {
			c.send(nostr.AppendClosed(nil, m.SubID, "error: "+err.Error()))
			return
		}
		if r.hide[e.ID] {
			continue
		}
		if r.pageCap > 0 && n == r.pageCap {
			all = false
			break
		}
		n++
		r.mu.Lock()
		r.bodies++
		if other := r.lie[e.ID]; other != nil {
			e = other
		}
		r.mu.Unlock()
		c.send(nostr.AppendEvent(nil, m.SubID, e.JSON()))
	}
	for i := range m.Filters {
		if l := m.Filters[i].Limit; l != nil && n >= *l {
			all = false
		}
	}
	switch {
	case !r.hints:
		c.send(nostr.AppendEOSE(nil, m.SubID))
	case all:
		c.send(nostr.AppendEOSE(nil, m.SubID, "finish"))
	default:
		c.send(nostr.AppendEOSE(nil, m.SubID, "more"))
	}
}

func (c *fakeConn) negOpen(m *nostr.NegOpenMessage) {
	r := c.r
	switch {
	case r.silent:
		return
	case r.noNeg != "":
		c.send(nostr.AppendNotice(nil, r.noNeg))
		return
	}
	set, _, err := r.db.Set(context.Background(), []nostr.Filter{m.Filter}, store.View{}, 1)
	if err != nil {
		c.send(nostr.AppendNegErr(nil, m.SubID, "error: "+err.Error()))
		return
	}
	if r.negMax > 0 && set.Len() > r.negMax {
		c.send(nostr.AppendNegErr(nil, m.SubID, "blocked: this query is too big", int64(r.negMax)))
		return
	}
	if len(r.ghosts) > 0 {
		set = negentropy.NewVector(slices.Concat(set.(*negentropy.Vector).Items(), r.ghosts))
	}
	c.negs[m.SubID] = negentropy.NewServer(set, 50_000)
	c.negMsg(m.SubID, m.Message)
}

func (c *fakeConn) negMsg(sub string, msg []byte) {
	if c.r.endless {
		c.send(nostr.AppendNegMsg(nil, sub, append([]byte{0x61, 0, 0, 1}, "sixteen octets.."...)))
		return
	}
	s := c.negs[sub]
	if s == nil {
		c.send(nostr.AppendNegErr(nil, sub, "closed: unknown session"))
		return
	}
	answer, err := s.Reconcile(msg)
	if err != nil {
		c.send(nostr.AppendNegErr(nil, sub, "invalid: "+err.Error()))
		return
	}
	c.send(nostr.AppendNegMsg(nil, sub, answer))
}

// unsigned events are as good as signed ones to most tests, and cheaper.
type yesVerifier struct{}

func (yesVerifier) Verify(events []*nostr.Event) []bool {
	out := make([]bool, len(events))
	for i := range out {
		out[i] = true
	}
	return out
}

// event makes an unsigned event.
func event(kind nostr.Kind, at int64, content string, tags ...nostr.Tag) *nostr.Event {
	e := &nostr.Event{PubKey: nostr.PubKey{7}, CreatedAt: at, Kind: kind, Tags: tags, Content: content}
	e.ID = e.ComputeID()
	return e
}

func events(n int, word string) []*nostr.Event {
	out := make([]*nostr.Event, n)
	for i := range out {
		out[i] = event(1, 1700000000+int64(i/3), fmt.Sprintf("%s %d", word, i))
	}
	return out
}

func fill(t testing.TB, db store.Store, es ...*nostr.Event) {
	t.Helper()
	if _, err := db.Insert(context.Background(), es, 1); err != nil {
		t.Fatal(err)
	}
}

func sameSets(t testing.TB, a, b store.Store) {
	t.Helper()
	x, err := a.FingerprintRange(context.Background(), nostr.Filter{}, 0, 1<<40, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.FingerprintRange(context.Background(), nostr.Filter{}, 0, 1<<40, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	if x != y {
		t.Fatalf("fingerprints differ: %x, %x", x, y)
	}
}

func size(t testing.TB, s store.Store) int {
	t.Helper()
	n, err := s.Count(context.Background(), []nostr.Filter{{}}, store.View{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
