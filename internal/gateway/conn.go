// Package gateway sees another relay as a store: it publishes, queries, counts
// and follows over one WebSocket, and reconciles a local store with it
// (NIP-77), both ways. It decides nothing about membership: what comes in goes
// through a Sink, and what a relay says is never believed beyond what its
// events prove.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/nostr"
)

// Options says how to speak to a relay. The zero value is usable.
type Options struct {
	Header http.Header // sent with the handshake and the information request
	// Proxy is an http, https or socks5 proxy; nil means what the environment says
	// (HTTPS_PROXY and the like).
	Proxy *url.URL
	// Client makes the HTTP requests, instead of one built from Proxy. Its
	// Timeout should be zero: it would end the WebSocket too.
	Client *http.Client
	// Key answers NIP-42 challenges when the relay asks for it; nil never authenticates.
	Key *nostr.SecretKey
	// MaxMessage is the largest frame read, in bytes; 0 means 2 MiB.
	MaxMessage int64
	// DialTimeout, WriteTimeout and ReplyTimeout bound the handshake, one frame on its way
	// out, and the wait for an answer; 0 means 10 s, 30 s and 10 s.
	DialTimeout, WriteTimeout, ReplyTimeout time.Duration
	// IdlePing is after how much silence the relay is pinged, and how long it may take to
	// answer; 0 means 30 s.
	IdlePing time.Duration
	// EventsPerSecond is how many events are published to the relay in a second at most, from the first on; 0: as many as it takes.
	EventsPerSecond float64
	Log             *slog.Logger // nil discards
}

func (o *Options) fill() {
	setDefault(&o.MaxMessage, 2<<20)
	setDefault(&o.DialTimeout, 10*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
	setDefault(&o.ReplyTimeout, 10*time.Second)
	setDefault(&o.IdlePing, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		if o.Proxy != nil {
			t.Proxy = http.ProxyURL(o.Proxy)
		}
		t.DisableKeepAlives = true // one connection serves one socket; nothing is left behind
		o.Client = &http.Client{Transport: t}
	}
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Conn is one connection to one relay. Its methods may be called by any number
// of goroutines. A subscription that nobody reads holds up everything that
// comes in after it: read it, or close it.
type Conn struct {
	url  string
	opt  Options
	ws   *websocket.Conn
	out  chan []byte
	ctx  context.Context // ends with the connection; no request's deadline
	stop context.CancelFunc
	done chan struct{}
	pace *pacer

	received atomic.Uint64 // frames
	bytesIn  atomic.Int64
	bytesOut atomic.Int64
	strays   atomic.Uint64 // frames that could not be read or that nobody had asked for
	reading  atomic.Bool   // the reader waits for the network, not for us

	mu       sync.Mutex
	err      error
	serial   uint64
	subs     map[string]*Subscription
	pubs     map[string][]chan<- answered
	counts   map[string]chan<- countReply
	negs     map[string]chan<- negReply
	notices  map[chan<- string]struct{}
	auth     authState
	lastText string // of the latest NOTICE
}

// LostError says that the connection ended. Work that was not acknowledged may
// or may not have been done.
type LostError struct{ Cause error }

func (e *LostError) Error() string { return fmt.Sprintf("connection lost: %v", e.Cause) }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// ErrConnClosed is the cause when our side closed the connection.
var ErrConnClosed = errors.New("closed by us")

// ErrTimeout says that the relay did not answer in time.
var ErrTimeout = errors.New("no answer from the relay in time")

// Dial connects to a relay. The URL's scheme is ws or wss. An error that wraps
// ErrURL is a bad URL; any other wraps ErrUnreachable.
func Dial(ctx context.Context, relay string, o Options) (*Conn, error) {
	o.fill()
	norm, err := nostr.NormalizeRelayURL(relay)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	dctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(dctx, norm, &websocket.DialOptions{HTTPClient: o.Client, HTTPHeader: o.Header})
	if err != nil {
		if resp != nil && resp.StatusCode != 0 && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("%w: %s: the server answered %s", ErrUnreachable, norm, resp.Status)
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, norm, err)
	}
	ws.SetReadLimit(o.MaxMessage)
	return newConn(norm, ws, o), nil
}

// ErrURL is wrapped by the error for a URL that names no relay.
var ErrURL = errors.New("not a relay's URL")

func newConn(norm string, ws *websocket.Conn, o Options) *Conn {
	c := &Conn{
		url: norm, opt: o, ws: ws,
		out:     make(chan []byte, 16),
		done:    make(chan struct{}),
		pace:    newPacer(o.EventsPerSecond),
		subs:    map[string]*Subscription{},
		pubs:    map[string][]chan<- answered{},
		counts:  map[string]chan<- countReply{},
		negs:    map[string]chan<- negReply{},
		notices: map[chan<- string]struct{}{},
	}
	c.auth.changed = make(chan struct{})
	c.ctx, c.stop = context.WithCancel(context.Background())
	go c.readLoop()
	go c.writeLoop()
	go c.pingLoop()
	return c
}

// URL is the relay's URL in normal form.
func (c *Conn) URL() string { return c.url }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended, nil while it stands.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Traffic returns the octets of all frames so far, in and out.
func (c *Conn) Traffic() (in, out int64) { return c.bytesIn.Load(), c.bytesOut.Load() }

// Strays counts frames that could not be read, or that answer nothing we asked.
func (c *Conn) Strays() uint64 { return c.strays.Load() }

// Close ends the connection with a normal close frame.
func (c *Conn) Close() error {
	if c.fail(ErrConnClosed) {
		_ = c.ws.Close(websocket.StatusNormalClosure, "")
	}
	return nil
}

// Abort ends the connection at once, without a close frame.
func (c *Conn) Abort() {
	c.fail(ErrConnClosed)
	_ = c.ws.CloseNow()
}

// fail ends the connection and says whether it was the first to do so.
func (c *Conn) fail(cause error) bool {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = &LostError{cause}
		close(c.done)
	}
	c.mu.Unlock()
	c.stop()
	return first
}

// id makes a subscription id that is new on this connection.
func (c *Conn) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	return strconv.FormatUint(c.serial, 10)
}

// send queues a frame. It does not say that the frame has left.
func (c *Conn) send(ctx context.Context, frame []byte) error {
	select {
	case c.out <- frame:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Conn) writeLoop() {
	for {
		select {
		case frame := <-c.out:
			ctx, cancel := context.WithTimeout(c.ctx, c.opt.WriteTimeout)
			err := c.ws.Write(ctx, websocket.MessageText, frame)
			cancel()
			if err != nil {
				c.fail(fmt.Errorf("write: %w", err))
				_ = c.ws.CloseNow()
				return
			}
			c.bytesOut.Add(int64(len(frame)))
		case <-c.done:
			return
		}
	}
}

func (c *Conn) readLoop() {
	defer func() { _ = c.ws.CloseNow() }()
	for {
		c.reading.Store(true)
		_, frame, err := c.ws.Read(c.ctx)
		c.reading.Store(false)
		if err != nil {
			c.fail(fmt.Errorf("read: %w", err))
			return
		}
		c.received.Add(1)
		c.bytesIn.Add(int64(len(frame)))
		m, err := nostr.ParseServerMessage(frame)
		if err != nil {
			c.strays.Add(1)
			c.opt.Log.Debug("unreadable frame from relay", "relay", c.url, "bytes", len(frame), "error", err)
			continue
		}
		c.dispatch(m)
	}
}

func (c *Conn) dispatch(m nostr.ServerMessage) {
	switch m := m.(type) {
	case *nostr.ServerEvent:
		c.deliver(m.SubID, delivery{event: m.Event})
	case *nostr.ServerEOSE:
		c.deliver(m.SubID, delivery{eose: true, hints: m.Hints})
	case *nostr.ServerClosed:
		c.onClosed(m)
	case *nostr.ServerOK:
		c.onOK(m)
	case *nostr.ServerCount:
		c.onCount(m)
	case *nostr.ServerAuth:
		c.onChallenge(m.Challenge)
	case *nostr.ServerNotice:
		c.onNotice(m.Text)
	case *nostr.ServerNegMsg:
		c.onNeg(m.SubID, negReply{msg: m.Message})
	case *nostr.ServerNegErr:
		c.onNeg(m.SubID, negReply{err: &NegError{Reason: m.Reason, MaxRecords: m.MaxRecords}})
	}
}

func (c *Conn) onNotice(text string) {
	c.mu.Lock()
	c.lastText = text
	for ch := range c.notices {
		select {
		case ch <- text:
		default:
		}
	}
	c.mu.Unlock()
}

// listen passes on the NOTICEs that come from now on, until the returned function is called.
func (c *Conn) listen(ch chan<- string) func() {
	c.mu.Lock()
	c.notices[ch] = struct{}{}
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		delete(c.notices, ch)
		c.mu.Unlock()
	}
}

// pingLoop notices a peer that is gone without a word. It asks only after
// silence, and never counts our own slowness against the peer.
func (c *Conn) pingLoop() {
	t := time.NewTicker(c.opt.IdlePing)
	defer t.Stop()
	var seen uint64
	for {
		select {
		case <-c.done:
			return
		case <-t.C:
		}
		now := c.received.Load()
		if now != seen || !c.reading.Load() {
			seen = now
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.opt.IdlePing)
		err := c.ws.Ping(ctx)
		cancel()
		if err != nil && c.received.Load() == seen && c.reading.Load() {
			c.fail(fmt.Errorf("no answer to a ping: %w", err))
			_ = c.ws.CloseNow()
			return
		}
	}
}
