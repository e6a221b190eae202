package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
)

// yes is a Verifier for tests in which signatures do not matter.
type yes struct{}

func (yes) Verify(es []*nostr.Event) []bool {
	out := make([]bool, len(es))
	for i := range out {
		out[i] = true
	}
	return out
}

// network is a name and a listener for each relay, without sockets, so that tests run under a fake clock. Its connections can be cut.
type network struct {
	mu    sync.Mutex
	hosts map[string]chan net.Conn
	conns map[net.Conn]string
	cuts  int
	dials int
	down  map[string]bool
	fray  func() int // how many octets a new connection lives; 0: for ever
}

func (n *network) cutSoFar() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts
}

func newNetwork() *network {
	return &network{hosts: map[string]chan net.Conn{}, conns: map[net.Conn]string{}, down: map[string]bool{}}
}

func (n *network) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		n.mu.Lock()
		ch, down := n.hosts[host], n.down[host]
		n.dials++
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
		if n.fray != nil {
			if octets := n.fray(); octets > 0 {
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
	n    *network
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

// cut ends all connections to a host, or to all if it is "".
func (n *network) cut(host string) {
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

// peer is one relay of the network. It remembers what clients offered it.
type peer struct {
	*relay.Relay
	db  *store.Memory
	url string

	mu     sync.Mutex
	offers map[nostr.ID]int
	times  []time.Time // of offers
	perSec int         // accepted in a second; 0: all
	recent []time.Time
	limits time.Time // when it first refused for the rate
}

func (p *peer) Admit(_ context.Context, r *policy.Request) *policy.Rejection {
	if r.Source != policy.FromClient {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.offers[r.Event.ID]++
	p.times = append(p.times, now)
	for len(p.recent) > 0 && now.Sub(p.recent[0]) >= time.Second {
		p.recent = p.recent[1:]
	}
	if p.perSec > 0 && len(p.recent) >= p.perSec {
		if p.limits.IsZero() {
			p.limits = now
		}
		return policy.Reject(policy.RateLimited, "%d events a second are enough; try again in 2 s", p.perSec)
	}
	p.recent = append(p.recent, now)
	return nil
}

// Static makes it hear of duplicates too.
func (p *peer) Static() bool { return true }

func (p *peer) offered(id nostr.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offers[id]
}

func (n *network) relay(t *testing.T, host string, options ...func(*relay.Config)) *peer {
	t.Helper()
	p := &peer{db: store.NewMemory(), url: "ws://" + host + "/", offers: map[nostr.ID]int{}}
	cfg := relay.Config{Store: p.db, Verifier: yes{}, Policy: policy.Chain{p}}
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
		n.cut(host)
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

// add publishes events at a relay from within.
func (p *peer) add(t *testing.T, events ...*nostr.Event) {
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

func (p *peer) holds(t *testing.T, id nostr.ID) bool {
	t.Helper()
	ok, err := p.db.Has(context.Background(), id, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// hub makes a bridge whose own end is a relay of the network.
func (n *network) hub(t *testing.T, home *peer, dir string, change func(*bridge.Options)) *bridge.Bridge {
	t.Helper()
	bell := new(bridge.Bell)
	feed := home.Follow([]nostr.Filter{{}}, 1)
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-feed.Events():
				bell.Ring()
			case <-end:
				return
			}
		}
	}()
	o := bridge.Options{
		Local: bridge.Local{Store: home.db, Sink: home.Sink(policy.FromStream), Bell: bell, URLs: []string{home.url}},
		Dir:   dir, HTTP: n.client(), Verifier: yes{},
	}
	if change != nil {
		change(&o)
	}
	b, err := bridge.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		close(end)
		feed.Close()
	})
	return b
}

func apply(t *testing.T, b *bridge.Bridge, text string) []bridge.Change {
	t.Helper()
	c, err := bridge.ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := b.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func note(kind nostr.Kind, at int64, content string, tags ...nostr.Tag) *nostr.Event {
	e := &nostr.Event{PubKey: nostr.PubKey{byte(len(content))}, CreatedAt: at, Kind: kind, Content: content, Tags: tags}
	e.ID = e.ComputeID()
	return e
}

func notes(n int, word string) (out []*nostr.Event) {
	for i := range n {
		out = append(out, note(1, 946684800+int64(i/4), fmt.Sprintf("%s %d", word, i)))
	}
	return out
}

// rest lets time pass until nothing moves any more.
func rest(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
	synctest.Wait()
}

func all(t *testing.T, want bool, p *peer, events []*nostr.Event, what string) {
	t.Helper()
	for i, e := range events {
		if p.holds(t, e.ID) != want {
			t.Errorf("%s: event %d (%q): held is %v", what, i, e.Content, !want)
			return
		}
	}
}

func noEcho(t *testing.T, p *peer, events []*nostr.Event) {
	t.Helper()
	for _, e := range events {
		if n := p.offered(e.ID); n > 0 {
			t.Errorf("%q was sent back to %s %d times", e.Content, p.url, n)
			return
		}
	}
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		home, friend, backup, stranger := n.relay(t, "home"), n.relay(t, "friend"), n.relay(t, "backup"), n.relay(t, "stranger")
		book, err := trail.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer book.Close()
		b := n.hub(t, home, t.TempDir(), func(o *bridge.Options) { o.Trail = book })
		ours, theirs, strange := notes(300, "ours"), notes(300, "theirs"), notes(10, "strange")
		home.add(t, ours...)
		friend.add(t, theirs...)
		stranger.add(t, strange...)
		apply(t, b, `streams {
			friends { dir = "both" urls = [ "ws://friend" ] }
			backup  { dir = "up" filter = { kinds = [1] } urls = [ "ws://backup" ] }
			news    { dir = "down" urls = [ "ws://stranger" ] }
		}`)
		b.Start(t.Context())
		rest(time.Minute)
		all(t, true, home, theirs, "backfill down")
		all(t, true, friend, ours, "backfill up")
		all(t, true, backup, append(ours, theirs...), "backfill of the backup")
		all(t, true, home, strange, "down only")
		all(t, false, stranger, append(ours, theirs...), "a relay that is not named for writing")

		live, answer, profile := note(1, 946684800, "live"), note(1, 946684801, "answer"), note(0, 946684801, "a profile")
		home.add(t, live, profile)
		friend.add(t, answer)
		rest(time.Second)
		all(t, true, friend, []*nostr.Event{live, profile}, "live up")
		all(t, true, home, []*nostr.Event{answer}, "live down")
		all(t, true, backup, []*nostr.Event{live, answer}, "live through")
		all(t, false, backup, []*nostr.Event{profile}, "outside the filter")

		noEcho(t, friend, append(theirs, answer))
		noEcho(t, stranger, strange)
		if len(stranger.offers) > 0 {
			t.Errorf("%d events were offered to a relay that is not named for writing", len(stranger.offers))
		}
		list, _, err := book.Of(live.ID)
		if err != nil || len(list) != 2 || list[0].Road != "bridge" || list[0].To == list[1].To {
			t.Errorf("the book says %+v, %v", list, err)
		}
		for _, s := range b.Status() {
			if !s.Connected || s.LastEventAge < 0 || s.LastEventAge > 70 || s.Disconnects != 0 {
				t.Errorf("%+v", s)
			}
		}
		b.Close()
	})
}

// TestCuts bridges while connections are cut at random: nothing is lost, and nothing goes back.
func TestCuts(t *testing.T) {
	events, cuts := 2_000, 40
	if os.Getenv("FLEETMESH_FULL") != "" {
		events, cuts = 50_000, 1000
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		home, friend := n.relay(t, "home"), n.relay(t, "friend")
		r := rand.New(rand.NewPCG(1, 2))
		n.fray = func() int { return 1 + r.IntN(60_000) }
		b := n.hub(t, home, t.TempDir(), nil)
		ours, theirs := notes(events/2, "ours"), notes(events/2, "theirs")
		apply(t, b, `streams { friends { dir = "both" urls = [ "ws://friend" ] } }`)
		b.Start(t.Context())
		left, right := ours, theirs
		for n.cutSoFar() < cuts {
			k := min(len(left), 1+events/cuts)
			home.add(t, left[:k]...)
			friend.add(t, right[:k]...)
			left, right = left[k:], right[k:]
			rest(time.Second)
		}
		n.mu.Lock()
		n.fray = nil
		cut := n.cuts
		n.mu.Unlock()
		n.cut("")
		home.add(t, left...)
		friend.add(t, right...)
		rest(10 * time.Minute)
		all(t, true, home, theirs, "down")
		all(t, true, friend, ours, "up")
		noEcho(t, friend, theirs)
		more := 0
		for _, e := range ours {
			more += friend.offered(e.ID) - 1
		}
		t.Logf("%d connections cut, %d dials; %d events were offered again because their OK was lost", cut, n.dials, more)
		b.Close()
	})
}

// TestRate: a relay that takes five events a second, and says so, gets no sixth in any second from then on; one for which the rate is configured gets
// none from the start.
func TestRate(t *testing.T) {
	for _, knob := range []string{"", "eventsPerSecond = 5"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			home, slow := n.relay(t, "home"), n.relay(t, "slow")
			slow.perSec = 5
			b := n.hub(t, home, t.TempDir(), nil)
			ours := notes(60, "ours")
			home.add(t, ours...)
			apply(t, b, `streams { s { dir = "up" urls = [ "ws://slow" ] `+knob+` } }`)
			b.Start(t.Context())
			rest(time.Minute)
			n.cut("") // what was learned outlives the connection
			more := notes(40, "more")
			home.add(t, more...)
			rest(2 * time.Minute)
			all(t, true, slow, append(ours, more...), "all arrive")
			from := time.Time{}
			if knob == "" {
				from = slow.limits.Add(time.Millisecond) // what was on its way when it first said so
			} else if !slow.limits.IsZero() {
				t.Error("it had to say so")
			}
			for i := range slow.times {
				if slow.times[i].After(from) && i+5 < len(slow.times) && slow.times[i+5].Sub(slow.times[i]) < time.Second {
					t.Errorf("%q: six events within %v", knob, slow.times[i+5].Sub(slow.times[i]))
					break
				}
			}
			b.Close()
		})
	}
}

// TestReload changes one stream and leaves the connections of the others alone.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		home := n.relay(t, "home")
		n.relay(t, "a")
		n.relay(t, "b")
		c := n.relay(t, "c")
		b := n.hub(t, home, t.TempDir(), nil)
		apply(t, b, `streams { one { dir = "down" urls = [ "ws://a", "ws://b" ] } }`)
		path := filepath.Join(t.TempDir(), "router.config")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("")
		b.Start(t.Context())
		told := make(chan string, 10)
		go b.Watch(t.Context(), path, time.Second, func(ch []bridge.Change, err error) { told <- fmt.Sprint(ch, err) })
		rest(10 * time.Second)
		dials := n.dials
		write(`streams { one { dir = "down" urls = [ "ws://a" ] } two { dir = "up" urls = [ "ws://c" ] } }`)
		rest(10 * time.Second)
		if got := <-told; got != "[{one ws://b/ closed} {two ws://c/ opened}]<nil>" && got != "[{one ws://b/ closed} {two ws://c/ opened}] <nil>" {
			t.Errorf("told %q", got)
		}
		if n.dials != dials+1 {
			t.Errorf("%d new connections, want 1", n.dials-dials)
		}
		home.add(t, note(1, 946684800, "to the new one"))
		rest(time.Second)
		if len(c.offers) != 1 {
			t.Errorf("%d events at the new relay", len(c.offers))
		}
		write(`streams { one { dir = "down" urls = [ "ws://a" ] filtre = {} } }`)
		rest(10 * time.Second)
		if got := <-told; !strings.Contains(got, "line 1: unknown key") {
			t.Errorf("told %q", got)
		}
		if len(b.Status()) != 2 || n.dials != dials+1 {
			t.Errorf("a wrong file changed something: %+v", b.Status())
		}
		b.Close()
	})
}

// TestWraps: gift wraps go to relays that their recipients name, in the order of arrival, and those that came back-dated while nobody listened go too.
func TestWraps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		home, mailbox, other := n.relay(t, "home"), n.relay(t, "mailbox"), n.relay(t, "other")
		dir := t.TempDir()
		alice := nostr.PubKey{7}
		list := note(10050, 946684800, "", nostr.Tag{"relay", "ws://mailbox"})
		list.PubKey = alice
		list.ID = list.ComputeID()
		home.add(t, list)
		config := `streams { s { dir = "up" urls = [ "ws://mailbox", "ws://other" ] } }`
		wrap := func(at int64, text string) *nostr.Event { return note(1059, at, text, nostr.Tag{"p", alice.String()}) }
		run := func(add ...*nostr.Event) {
			b := n.hub(t, home, dir, nil)
			apply(t, b, config)
			b.Start(t.Context())
			rest(time.Minute)
			home.add(t, add...)
			rest(time.Minute)
			b.Close()
		}
		live := wrap(946684800, "live")
		run(live)
		late := wrap(946684800-48*3600, "back-dated by two days, stored after the cursor")
		toNobody := note(1059, 946684800, "to somebody else", nostr.Tag{"p", nostr.PubKey{8}.String()})
		home.add(t, late, toNobody)
		run()
		all(t, true, mailbox, []*nostr.Event{live, late}, "a named relay")
		all(t, false, mailbox, []*nostr.Event{toNobody}, "not the recipient's relay")
		all(t, false, other, []*nostr.Event{live, late, toNobody}, "a relay that is not named")
		if mailbox.offered(live.ID) != 1 || mailbox.offered(late.ID) != 1 || len(other.offers) != 1 {
			t.Errorf("offered %d and %d times, %d at the other", mailbox.offered(live.ID), mailbox.offered(late.ID), len(other.offers))
		}
	})
}

// TestOnce closes the gaps in one pass, and names what it cannot do.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		home, friend := n.relay(t, "home"), n.relay(t, "friend")
		ours, theirs := notes(50, "ours"), notes(60, "theirs")
		home.add(t, ours...)
		friend.add(t, theirs...)
		config := `streams { s { dir = "both" urls = [ "ws://friend", "ws://nowhere" ] } }`
		b := n.hub(t, home, t.TempDir(), nil)
		apply(t, b, config)
		passes, err := b.Sync(t.Context(), func(bridge.Pass) {})
		if !errors.Is(err, gateway.ErrUnreachable) || len(passes) != 2 || passes[0].Report.New != 60 || passes[0].Report.Sent != 50 || passes[1].Exit == 0 {
			t.Errorf("%+v, %v", passes, err)
		}
		b.Close()
		b = n.hub(t, home, t.TempDir(), func(o *bridge.Options) { o.Only = []string{"ws://elsewhere"} })
		c, err := bridge.ParseConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Apply(c); !errors.Is(err, gateway.ErrUsage) || !strings.Contains(err.Error(), "ws://friend/") {
			t.Errorf("a relay that the file does not name: %v", err)
		}
		b.Close()
	})
}
