package transport_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/internal/transport/transporttest"
	"fleetmesh.org/fleetmesh/nostr"
)

// ether is a relay in memory: it stores what is not ephemeral and passes on what
// matches. It is somebody else's relay: it knows nothing of this carrier.
type ether struct {
	mu     sync.Mutex
	stored []*nostr.Event
	subs   []*etherSub
	seen   []*nostr.Event
	refuse error // for Publish
}

type etherSub struct {
	f    nostr.Filter
	ctx  context.Context
	mu   sync.Mutex
	q    []*nostr.Event
	wake chan struct{}
}

func (s *etherSub) push(e *nostr.Event) {
	s.mu.Lock()
	s.q = append(s.q, e)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *etherSub) pump(out chan<- *nostr.Event, gone <-chan struct{}) {
	defer close(out)
	for {
		s.mu.Lock()
		q := s.q
		s.q = nil
		s.mu.Unlock()
		for _, e := range q {
			select {
			case out <- e:
			case <-s.ctx.Done():
				return
			case <-gone:
				return
			}
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		case <-gone:
			return
		}
	}
}

// etherConn is one connection to it.
type etherConn struct {
	e    *ether
	gone chan struct{}
	once sync.Once
}

func (c *etherConn) Publish(ctx context.Context, e *nostr.Event) error {
	again, err := nostr.ParseEvent(e.JSON())
	if err != nil {
		return err
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.e.refuse != nil {
		return c.e.refuse
	}
	if !again.Kind.IsEphemeral() {
		c.e.stored = append(c.e.stored, again)
	}
	c.e.seen = append(c.e.seen, again)
	for _, s := range c.e.subs {
		if s.ctx.Err() == nil && s.f.Matches(again) {
			s.push(again)
		}
	}
	return nil
}

func (c *etherConn) Subscribe(ctx context.Context, f nostr.Filter) (<-chan *nostr.Event, error) {
	s := &etherSub{f: f, ctx: ctx, wake: make(chan struct{}, 1)}
	c.e.mu.Lock()
	for _, e := range c.e.stored {
		if f.Matches(e) {
			s.push(e)
		}
	}
	c.e.subs = append(c.e.subs, s)
	c.e.mu.Unlock()
	out := make(chan *nostr.Event)
	go s.pump(out, c.gone)
	return out, nil
}

func (c *etherConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return nil
}

func (e *ether) connect(_ context.Context, url string) (transport.Relay, error) {
	if url != "wss://relay.test" {
		return nil, errors.New("no such relay")
	}
	return &etherConn{e: e, gone: make(chan struct{})}, nil
}

func wrapNode(t *testing.T, e *ether, change func(*transport.GiftWrapConfig)) (*transport.GiftWrap, nostr.SecretKey) {
	t.Helper()
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	cfg := transport.GiftWrapConfig{Key: key, Connect: e.connect, MaxFrame: 20000}
	if change != nil {
		change(&cfg)
	}
	g, err := transport.NewGiftWrap(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g, key
}

var etherEndpoint = transport.Endpoint{Scheme: "giftwrap", Address: "wss://relay.test"}

func TestGiftWrap(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		e := &ether{}
		a, ka := wrapNode(t, e, nil)
		b, kb := wrapNode(t, e, nil)
		return transporttest.Pair{A: a, B: b, AtA: etherEndpoint, AtB: etherEndpoint, KeyA: ka.PubKey(), KeyB: kb.PubKey(),
			Connectless: true, MaxFrame: 20000, Nowhere: transport.Endpoint{Scheme: "giftwrap", Address: "wss://other.test"}}
	})
}

// TestGiftWrapKinds: live frames are ephemeral, dated now and show neither party
// but the recipient; durable ones are stored, expire, and await the sleeper.
func TestGiftWrapKinds(t *testing.T) {
	ctx, e := t.Context(), &ether{}
	now := time.Unix(1_800_000_000, 0)
	a, ka := wrapNode(t, e, func(c *transport.GiftWrapConfig) { c.Now = func() time.Time { return now } })
	b, kb := wrapNode(t, e, nil)
	s, err := a.Dial(ctx, etherEndpoint, kb.PubKey())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send(ctx, []byte(`{"live":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := transport.SendDurable(ctx, s, []byte(`{"durable":1}`)); err != nil {
		t.Fatal(err)
	}
	live, durable := e.seen[0], e.seen[1]
	if live.Kind != 21059 || live.CreatedAt != now.Unix() {
		t.Errorf("live wrap: kind %d created %d", live.Kind, live.CreatedAt)
	}
	if exp, ok := durable.Expiration(); durable.Kind != 1059 || !ok || exp != now.Unix()+7*24*3600 {
		t.Errorf("durable wrap: kind %d expires %d", durable.Kind, exp)
	}
	for _, w := range e.seen {
		if strings.Contains(string(w.JSON()), ka.PubKey().String()) {
			t.Error("a wrap shows its sender")
		}
	}
	l, err := b.Listen(ctx, etherEndpoint) // wakes up after both were sent
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := in.Receive(ctx); err != nil || string(f) != `{"durable":1}` {
		t.Fatalf("received %q, %v", f, err)
	}
}

// TestForeignWraps: what others wrap under the same key is named, not delivered.
func TestForeignWraps(t *testing.T) {
	ctx, e := t.Context(), &ether{}
	names := make(chan string, 10)
	b, kb := wrapNode(t, e, func(c *transport.GiftWrapConfig) { c.Foreign = func(w string) { names <- w } })
	l, err := b.Listen(ctx, etherEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stranger, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := e.connect(ctx, "wss://relay.test")
	for _, c := range []struct {
		kind    nostr.Kind
		content string
		want    string
	}{
		{14, "hello", "NIP-17"},
		{444, "xyz", "MLS"},
		{21059, "not json", "without a JSON payload"},
		{31234, "{}", "kind 31234"},
	} {
		rumor := &nostr.Event{Kind: c.kind, CreatedAt: 1, Tags: []nostr.Tag{}, Content: c.content}
		w, err := nostr.Wrap(rumor, stranger, kb.PubKey(), 1059, 1_800_000_000, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Publish(ctx, w); err != nil {
			t.Fatal(err)
		}
		if got := <-names; !strings.Contains(got, c.want) {
			t.Errorf("kind %d is named %q, wanted %q in it", c.kind, got, c.want)
		}
	}
	sk, _ := nostr.GenerateKey() // wrapped for another key, tagged with ours
	w, err := nostr.Wrap(&nostr.Event{Kind: 14, CreatedAt: 1, Tags: []nostr.Tag{}}, stranger, sk.PubKey(), 1059, 1_800_000_000, nil,
		nostr.Tag{"p", kb.PubKey().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Publish(ctx, w); err != nil {
		t.Fatal(err)
	}
	if got := <-names; got != "a wrap that does not open" {
		t.Errorf("a wrap for another key is named %q", got)
	}
}

// TestGiftWrapRelayLost: the stream and the listener end, and a new one can be had.
func TestGiftWrapRelayLost(t *testing.T) {
	ctx, e := t.Context(), &ether{}
	var conns []transport.Relay
	b, _ := wrapNode(t, e, func(c *transport.GiftWrapConfig) {
		connect := c.Connect
		c.Connect = func(ctx context.Context, url string) (transport.Relay, error) {
			r, err := connect(ctx, url)
			conns = append(conns, r)
			return r, err
		}
	})
	_, ka := wrapNode(t, e, nil)
	for range 2 {
		l, err := b.Listen(ctx, etherEndpoint)
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Dial(ctx, etherEndpoint, ka.PubKey())
		if err != nil {
			t.Fatal(err)
		}
		conns[len(conns)-1].Close()
		if _, err := l.Accept(ctx); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		if _, err := s.Receive(ctx); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("receive: %v", err)
		}
		l.Close()
		s.Close()
	}
	if len(conns) != 2 {
		t.Errorf("%d connections, wanted 2: listener and stream share one", len(conns))
	}
}

func TestGiftWrapRefused(t *testing.T) {
	e := &ether{refuse: errors.New("blocked: no wraps here")}
	a, _ := wrapNode(t, e, nil)
	_, kb := wrapNode(t, e, nil)
	s, err := a.Dial(t.Context(), etherEndpoint, kb.PubKey())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send(t.Context(), []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Errorf("send: %v, wanted the relay's reason", err)
	}
}

// TestGiftWrapLargeFrame: a frame of the default limit survives both layers.
func TestGiftWrapLargeFrame(t *testing.T) {
	ctx, e := t.Context(), &ether{}
	size := func(c *transport.GiftWrapConfig) { c.MaxFrame = 0 }
	a, _ := wrapNode(t, e, size)
	b, kb := wrapNode(t, e, size)
	l, err := b.Listen(ctx, etherEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := a.Dial(ctx, etherEndpoint, kb.PubKey())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	frame := slices.Concat([]byte(`{"a":"`), slices.Repeat([]byte{'x'}, transport.GiftWrapFrame-8), []byte(`"}`))
	if err := s.Send(ctx, frame); err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got, err := in.Receive(ctx); err != nil || string(got) != string(frame) {
		t.Errorf("received %d octets, %v", len(got), err)
	}
	t.Logf("a frame of %d octets is an event of %d", len(frame), len(e.seen[0].JSON()))
}
