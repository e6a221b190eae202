// Package transporttest is the one suite that every carrier passes.
package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// Pair is two nodes that can reach each other. The suite dials from A to B; where
// the carrier only sends, it dials back from B to A for the answers.
type Pair struct {
	A, B         transport.Transport
	AtA, AtB     transport.Endpoint // where each listens: port 0, a path, a name
	KeyA, KeyB   nostr.PubKey
	OneWay       bool               // https: a stream only sends
	Connectless  bool               // giftwrap: a dial succeeds although nobody is there
	MaxFrame     int                // 0: transport.MaxFrame
	Nowhere      transport.Endpoint // nobody listens here
	LooseClosing bool               // the other end need not learn of Close
}

// patience bounds what would otherwise hang; no test waits for it to pass.
const patience = 5 * time.Minute

// many is how many frames a test sends: fewer where each costs several signatures.
func (b *bench) many(n int) int {
	if b.Connectless {
		return n / 5
	}
	return n
}

// Run runs the suite; pair makes a fresh pair for each test.
func Run(t *testing.T, pair func(t *testing.T) Pair) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"PingPong", pingPong},
		{"Order", order},
		{"Sizes", sizes},
		{"TooLarge", tooLarge},
		{"BothWaysAtOnce", bothWays},
		{"ManyStreams", manyStreams},
		{"CloseIsSeen", closeIsSeen},
		{"ClosedHere", closedHere},
		{"ReceiveGivesUp", receiveGivesUp},
		{"Nobody", nobody},
		{"ListenerCloses", listenerCloses},
		{"ListenContext", listenContext},
		{"SenderKeepsItsBuffer", ownBuffer},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			t.Cleanup(cancel)
			p := pair(t)
			if p.MaxFrame == 0 {
				p.MaxFrame = transport.MaxFrame
			}
			c.test(t, &bench{Pair: p, ctx: ctx})
		})
	}
}

// bench is a pair with its listeners.
type bench struct {
	Pair
	ctx    context.Context
	la, lb transport.Listener
}

func (b *bench) listen(t *testing.T) {
	t.Helper()
	var err error
	if b.lb, err = b.B.Listen(b.ctx, b.AtB); err != nil {
		t.Fatalf("listen at B: %v", err)
	}
	t.Cleanup(func() { b.lb.Close() })
	if b.OneWay {
		if b.la, err = b.A.Listen(b.ctx, b.AtA); err != nil {
			t.Fatalf("listen at A: %v", err)
		}
		t.Cleanup(func() { b.la.Close() })
	}
}

func (b *bench) dial(t *testing.T) transport.Stream {
	t.Helper()
	s, err := b.A.Dial(b.ctx, b.lb.Endpoint(), b.KeyB)
	if err != nil {
		t.Fatalf("dial B: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	if s.Scheme() != b.A.Scheme() || s.Scheme() == "" {
		t.Errorf("stream's scheme is %q, the transport's %q", s.Scheme(), b.A.Scheme())
	}
	return s
}

// conn is a two-way conversation over whatever the carrier gives.
type conn struct {
	b    *bench
	out  transport.Stream
	in   transport.Listener // one-way carriers: answers come as streams of their own
	back transport.Stream
}

func (c *conn) send(frame []byte) error { return c.out.Send(c.b.ctx, frame) }

func (c *conn) receive() ([]byte, error) {
	if !c.b.OneWay {
		return c.out.Receive(c.b.ctx)
	}
	for {
		if c.back == nil {
			s, err := c.in.Accept(c.b.ctx)
			if err != nil {
				return nil, err
			}
			c.back = s
		}
		frame, err := c.back.Receive(c.b.ctx)
		if !errors.Is(err, transport.ErrClosed) {
			return frame, err
		}
		c.back = nil
	}
}

// connect returns both ends of a conversation in which A has sent hello. Carriers
// without connections show B the stream only then.
func (b *bench) connect(t *testing.T) (a, bb *conn) {
	t.Helper()
	b.listen(t)
	a = &conn{b: b, out: b.dial(t), in: b.la}
	bb = &conn{b: b, in: b.lb}
	must(t, a.send([]byte(`{"hello":1}`)))
	if b.OneWay {
		s, err := b.B.Dial(b.ctx, b.la.Endpoint(), b.KeyA)
		must(t, err)
		t.Cleanup(func() { s.Close() })
		bb.out = s
	} else {
		s, err := b.lb.Accept(b.ctx)
		must(t, err)
		t.Cleanup(func() { s.Close() })
		bb.out = s
	}
	expect(t, bb, []byte(`{"hello":1}`))
	return a, bb
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c *conn, want []byte) {
	t.Helper()
	got, err := c.receive()
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("received %d octets %.40q, wanted %d octets %.40q", len(got), got, len(want), want)
	}
}

// jwe is a frame of n octets that looks like what carriers carry.
func jwe(n int) []byte {
	const head, tail = `{"protected":"`, `"}`
	f := bytes.Repeat([]byte{'A'}, max(n, len(head)+len(tail)))
	copy(f, head)
	copy(f[len(f)-len(tail):], tail)
	return f
}

func pingPong(t *testing.T, b *bench) {
	a, bb := b.connect(t)
	for i := range 20 {
		ping, pong := fmt.Appendf(nil, `{"ping":%d}`, i), fmt.Appendf(nil, `{"pong":%d}`, i)
		must(t, a.send(ping))
		expect(t, bb, ping)
		must(t, bb.send(pong))
		expect(t, a, pong)
	}
}

func order(t *testing.T, b *bench) {
	a, bb := b.connect(t)
	n := b.many(300)
	errs := make(chan error, 1)
	go func() {
		for i := range n {
			if err := a.send(fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	for i := range n {
		expect(t, bb, fmt.Appendf(nil, `{"n":%d}`, i))
	}
	must(t, <-errs)
}

func sizes(t *testing.T, b *bench) {
	a, bb := b.connect(t)
	for _, n := range []int{20, 127, 128, 16383, 16384, 40000, b.MaxFrame} {
		if n > b.MaxFrame {
			continue
		}
		frame := jwe(n)
		errs := make(chan error, 1)
		go func() { errs <- a.send(frame) }()
		expect(t, bb, frame)
		must(t, <-errs)
	}
}

func tooLarge(t *testing.T, b *bench) {
	a, bb := b.connect(t)
	if err := a.send(jwe(b.MaxFrame + 1)); !errors.Is(err, transport.ErrFrameTooLarge) {
		t.Fatalf("sending %d octets: %v, wanted ErrFrameTooLarge", b.MaxFrame+1, err)
	}
	must(t, a.send([]byte(`{"after":1}`))) // the stream lives on
	expect(t, bb, []byte(`{"after":1}`))
}

func bothWays(t *testing.T, b *bench) {
	a, bb := b.connect(t)
	n := b.many(100)
	var wg sync.WaitGroup
	run := func(c *conn, name string) {
		wg.Go(func() {
			for i := range n {
				if err := c.send(fmt.Appendf(nil, `{"%s":%d}`, name, i)); err != nil {
					t.Errorf("%s sends: %v", name, err)
					return
				}
			}
		})
	}
	read := func(c *conn, name string) {
		wg.Go(func() {
			for i := range n {
				got, err := c.receive()
				if want := fmt.Sprintf(`{"%s":%d}`, name, i); err != nil || string(got) != want {
					t.Errorf("received %q, %v, wanted %q", got, err, want)
					return
				}
			}
		})
	}
	run(a, "a")
	run(bb, "b")
	read(a, "b")
	read(bb, "a")
	wg.Wait()
}

func manyStreams(t *testing.T, b *bench) {
	b.listen(t)
	const n = 12
	if b.Connectless {
		t.Skip("one stream per pair of keys")
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := b.A.Dial(b.ctx, b.lb.Endpoint(), b.KeyB)
			if err != nil {
				t.Errorf("dial %d: %v", i, err)
				return
			}
			defer s.Close()
			if err := s.Send(b.ctx, fmt.Appendf(nil, `{"i":%d}`, i)); err != nil {
				t.Errorf("send %d: %v", i, err)
			}
			if !b.OneWay { // wait for the answer, so that Close does not overtake
				if _, err := s.Receive(b.ctx); err != nil {
					t.Errorf("receive %d: %v", i, err)
				}
			}
		})
	}
	seen := map[string]bool{}
	for range n {
		s, err := b.lb.Accept(b.ctx)
		must(t, err)
		f, err := s.Receive(b.ctx)
		must(t, err)
		seen[string(f)] = true
		if !b.OneWay {
			must(t, s.Send(b.ctx, f))
		}
		t.Cleanup(func() { s.Close() })
	}
	wg.Wait()
	if len(seen) != n {
		t.Errorf("%d different frames of %d arrived", len(seen), n)
	}
}

func closeIsSeen(t *testing.T, b *bench) {
	if b.OneWay || b.Connectless || b.LooseClosing {
		t.Skip("this carrier has no connection to close")
	}
	a, bb := b.connect(t)
	must(t, a.send([]byte(`{"last":1}`)))
	must(t, a.out.Close())
	expect(t, bb, []byte(`{"last":1}`))
	if _, err := bb.receive(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("receive after the other end closed: %v, wanted ErrClosed", err)
	}
}

func closedHere(t *testing.T, b *bench) {
	a, _ := b.connect(t)
	must(t, a.out.Close())
	if err := a.out.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if err := a.out.Send(b.ctx, []byte(`{"x":1}`)); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("send after Close: %v, wanted ErrClosed", err)
	}
	if _, err := a.out.Receive(b.ctx); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("receive after Close: %v, wanted ErrClosed", err)
	}
}

func receiveGivesUp(t *testing.T, b *bench) {
	a, _ := b.connect(t)
	ctx, cancel := context.WithCancel(b.ctx)
	errs := make(chan error, 1)
	if b.OneWay {
		go func() { _, err := b.la.Accept(ctx); errs <- err }()
	} else {
		go func() { _, err := a.out.Receive(ctx); errs <- err }()
	}
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) && !errors.Is(err, transport.ErrClosed) {
		t.Errorf("receive with a cancelled context: %v", err)
	}
}

func nobody(t *testing.T, b *bench) {
	s, err := b.A.Dial(b.ctx, b.Nowhere, b.KeyB)
	if err != nil {
		return
	}
	defer s.Close()
	if b.OneWay { // such a carrier finds out on the first frame
		if err := s.Send(b.ctx, []byte(`{"x":1}`)); err == nil {
			t.Error("a frame to nobody was sent without an error")
		}
		return
	}
	t.Error("dialling nobody succeeded")
}

func listenerCloses(t *testing.T, b *bench) {
	b.listen(t)
	errs := make(chan error, 1)
	go func() { _, err := b.lb.Accept(b.ctx); errs <- err }()
	must(t, b.lb.Close())
	if err := <-errs; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("accept while closing: %v, wanted ErrClosed", err)
	}
	if _, err := b.lb.Accept(b.ctx); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("accept after closing: %v, wanted ErrClosed", err)
	}
	if err := b.lb.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	again, err := b.B.Listen(b.ctx, b.AtB) // the place is free again
	must(t, err)
	must(t, again.Close())
}

func listenContext(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	l, err := b.B.Listen(ctx, b.AtB)
	must(t, err)
	cancel()
	if _, err := l.Accept(b.ctx); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("accept after the listener's context ended: %v, wanted ErrClosed", err)
	}
	must(t, l.Close())
}

func ownBuffer(t *testing.T, b *bench) {
	a, bb := b.connect(t)
	buf := []byte(`{"keep":1}`)
	must(t, a.send(buf))
	copy(buf, `{"lose":2}`)
	expect(t, bb, []byte(`{"keep":1}`))
}
