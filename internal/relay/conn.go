package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// lingering is how long a connection that we close is still read, so that the client sees
// our close frame instead of a reset.
const lingering = 2 * time.Second

// conn is one client. Its reader goroutine takes messages in order; whoever has something for the client queues it and sends what is
// queued, or leaves that to a writer goroutine if the client is slow; queries run in lanes beside them.
type conn struct {
	r      *Relay
	nc     net.Conn
	in     *frameReader
	client netip.Addr
	key    netip.Addr // the client as the limits count it
	exempt bool
	agent  string // of the client, for the count of bad subscription ids
	path   string // of the request
	urls   []string

	ctx       context.Context
	cancel    context.CancelFunc
	challenge string
	keys      atomic.Pointer[[]nostr.PubKey] // authenticated; replaced, never changed

	touched bool // by the batch that is being dealt out; for the fan-out goroutine alone

	direct *direct       // nil where a write may have to wait
	gone   chan struct{} // nothing is written any more

	mu       sync.Mutex
	room     sync.Cond // on mu: something was written or answered, or the connection ends
	queue    []outItem
	rest     []byte // of a write that was not taken whole, to be sent first
	restOwed int    // what was owed with it
	writing  bool   // somebody writes, or the writing side has ended
	owed     int    // octets queued or in writing
	kept     int    // octets held for after an EOSE; they do not leave until its query ends
	leaving  bool   // the relay shuts down: nothing more is read, what was read is answered
	closing  bool
	discard  bool
	code     ws.StatusCode
	reason   string
	inFlight int // events without an answer
	subs     map[string]*sub
	watched  int
	negs     map[string]*negSession
	queries  lane
	negLane  lane
}

func newConn(r *Relay, nc net.Conn, client netip.Addr) *conn {
	c := &conn{
		r: r, nc: nc, client: client, key: policy.ClientKey(client), exempt: r.exempt(client),
		direct: newDirect(nc), gone: make(chan struct{}),
	}
	c.room.L = &c.mu
	c.keys.Store(new([]nostr.PubKey))
	c.ctx, c.cancel = context.WithCancel(r.ctx)
	return c
}

// serve runs the connection to its end. early is what the client sent together with the handshake.
func (c *conn) serve(early []byte) {
	defer c.r.unreserve(c.key)
	defer c.r.detach(c)
	defer c.cancel()
	c.in = newFrameReader(c.nc, c, early, hardFactor*c.r.lim.Load().MaxMessageBytes, c.r.lim.Load().PingInterval, c.r.lim.Load().ReadTimeout)
	c.greet()
	err := c.read()
	var closed *closeError
	var peer *peerClose
	switch {
	case errors.As(err, &closed):
		c.end(closed.code, closed.reason, true)
	case errors.As(err, &peer):
		c.end(peer.code, "", true)
	case errors.Is(err, errEnded):
		c.leave()
	}
	c.end(0, "", true) // if it has not ended yet
	c.cancel()
	c.dropAll()
	c.linger()
	<-c.gone
	c.mu.Lock()
	c.owe(-c.owed)
	c.keep(-c.kept)
	c.mu.Unlock()
	c.in.release()
	_ = c.nc.Close()
	c.queries.wait(&c.mu)
	c.negLane.wait(&c.mu)
}

// greet sends the challenge (NIP-42), so that every later auth-required finds the client able to answer.
func (c *conn) greet() {
	if c.r.cfg.Off.Auth {
		return
	}
	c.challenge = rand.Text()
	c.send(nostr.AppendAuth(nil, c.challenge))
}

// read takes messages until the connection ends and returns why.
func (c *conn) read() error {
	for {
		op, p, err := c.in.next()
		if err != nil {
			return err
		}
		c.r.m.Messages.Add(1)
		c.r.m.BytesIn.Add(int64(len(p)))
		if op != ws.OpText {
			c.notice(policy.Reject(policy.Invalid, "binary messages are not Nostr"))
		} else {
			c.handle(p)
		}
		if !c.pause() {
			return errEnded
		}
	}
}

var errEnded = errors.New("ended by the relay")

// pause holds the reader back while the client owes us reading, or we owe it answers. It
// returns false when the connection ends.
func (c *conn) pause() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closing && !c.leaving && (c.owed > c.r.lim.Load().MaxOutboundBytes/2 || c.inFlight >= c.r.lim.Load().MaxInFlight ||
		c.queries.full() || c.negLane.full()) {
		c.room.Wait()
	}
	return !c.closing && !c.leaving
}

// linger reads on for a moment after our close frame, for the client's own to arrive.
func (c *conn) linger() {
	<-c.gone
	_ = c.nc.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.Copy(io.Discard, io.LimitReader(c.nc, 1<<20))
}

// end starts the end of the connection: the writer sends what is queued (unless discard), a
// close frame if there is a code, and closes. Only the first call counts.
func (c *conn) end(code ws.StatusCode, reason string, discard bool) {
	c.mu.Lock()
	c.endLocked(code, reason, discard)
	c.mu.Unlock()
}

func (c *conn) endLocked(code ws.StatusCode, reason string, discard bool) {
	if c.closing {
		return
	}
	c.closing, c.code, c.reason, c.discard = true, code, reason, discard
	if discard {
		// A write that hangs is given a moment, no more.
		_ = c.nc.SetWriteDeadline(time.Now().Add(lingering))
	}
	c.room.Broadcast()
	c.nudge()
}

// goodbye stops the reading; the reader's goroutine then says goodbye when every event has its answer.
func (c *conn) goodbye() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	c.room.Broadcast()
}

// leave waits for the answers to what was read, if the relay shuts down.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leaving {
		return
	}
	for !c.closing && c.inFlight > 0 {
		c.room.Wait()
	}
	c.endLocked(ws.StatusGoingAway, "the relay is shutting down", false)
}

func (c *conn) sever() { _ = c.nc.Close() }

// shed ends a connection that is owed more than a limit allows. The caller holds mu.
func (c *conn) shed(knob string, value, needed int) {
	if c.closing {
		return
	}
	c.r.m.Shed.Add(1)
	c.r.log.Info("a slow client was shed", "owed", needed, knob, value)
	c.endLocked(ws.StatusPolicyViolation, over(policy.RateLimited, knob, value, needed).String(), true)
}

// dropAll ends all subscriptions and sessions.
func (c *conn) dropAll() {
	c.mu.Lock()
	subs, negs := c.subs, c.negs
	c.subs, c.negs = nil, nil
	for _, s := range subs {
		s.kill()
	}
	c.room.Broadcast()
	c.mu.Unlock()
	for _, s := range subs {
		c.r.index.remove(s.reg)
		c.r.m.Subscriptions.Add(-1)
	}
	for _, n := range negs {
		n.close(c.r)
	}
}

// onPing answers, unless the client is over its bytes: then it may wait for an answer in vain.
func (c *conn) onPing(p []byte) {
	if c.takeBytes(len(p)+6) == nil {
		c.push(outItem{op: ws.OpPong, head: append([]byte(nil), p...)})
	}
}
func (c *conn) onPong()    {}
func (c *conn) onSilence() { c.push(outItem{op: ws.OpPing}) }

// patience sets the read deadline unless the connection is ending: then the writer sets it.
func (c *conn) patience(deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || c.leaving {
		return false
	}
	_ = c.nc.SetReadDeadline(deadline)
	return true
}

// readers returns the keys with which the client has authenticated.
func (c *conn) readers() []nostr.PubKey { return *c.keys.Load() }
