// Package relaytest holds the relay cases as a suite that runs against any
// store, and the raw WebSocket client with which they talk to a relay.
package relaytest

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// patience is how long a test waits for what must come. It only ends tests that hang.
const patience = 3 * time.Minute

// Opcodes of RFC 6455.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

// Message is one message of the relay: its elements.
type Message []any

// Label is the first element.
func (m Message) Label() string { return m.String(0) }

// String returns an element that is a string, or "".
func (m Message) String(i int) string {
	if i < len(m) {
		s, _ := m[i].(string)
		return s
	}
	return ""
}

// Closed is what a Client's reads fail with after a close frame.
type Closed struct {
	Code   int
	Reason string
}

func (c *Closed) Error() string { return fmt.Sprintf("closed: %d %s", c.Code, c.Reason) }

// Client is a raw client: it writes any frame that is asked of it.
type Client struct {
	t         testing.TB
	Conn      net.Conn
	br        *bufio.Reader
	Challenge string
	unread    []Message
	marks     int
}

// Dial connects to addr (host:port) at a path, with extra header lines ("Key: value").
func Dial(t testing.TB, addr, path string, headers ...string) *Client {
	t.Helper()
	c, status, err := Handshake(t, addr, path, headers...)
	if err != nil {
		t.Fatal(err)
	}
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("handshake: status %d", status)
	}
	return c
}

// Handshake is Dial that also returns a refusal.
func Handshake(t testing.TB, addr, path string, headers ...string) (*Client, int, error) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, 0, err
	}
	t.Cleanup(func() { _ = nc.Close() })
	var nonce [16]byte
	_, _ = rand.Read(nonce[:])
	req := "GET " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		base64.StdEncoding.EncodeToString(nonce[:]) + "\r\n"
	for _, h := range headers {
		req += h + "\r\n"
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(nc, req+"\r\n"); err != nil {
		return nil, 0, err
	}
	br := bufio.NewReader(nc)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, 0, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		_ = res.Body.Close()
	}
	return &Client{t: t, Conn: nc, br: br}, res.StatusCode, nil
}

// AppendFrame appends one masked frame.
func AppendFrame(dst []byte, fin bool, op byte, p []byte) []byte {
	b := op
	if fin {
		b |= 0x80
	}
	dst = append(dst, b)
	switch n := len(p); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = append(dst, 0x80|126, byte(n>>8), byte(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	mask := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	dst = append(dst, mask[:]...)
	for i, c := range p {
		dst = append(dst, c^mask[i&3])
	}
	return dst
}

// Raw writes octets as they are.
func (c *Client) Raw(p []byte) {
	c.t.Helper()
	_ = c.Conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.Conn.Write(p); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// Send writes text frames in one go.
func (c *Client) Send(texts ...string) {
	c.t.Helper()
	var b []byte
	for _, s := range texts {
		b = AppendFrame(b, true, opText, []byte(s))
	}
	c.Raw(b)
}

// ReadFrame reads one frame of the server.
func (c *Client) ReadFrame() (op byte, p []byte, err error) {
	_ = c.Conn.SetReadDeadline(time.Now().Add(patience))
	var h [2]byte
	if _, err := io.ReadFull(c.br, h[:]); err != nil {
		return 0, nil, err
	}
	if h[0]&0x70 != 0 || h[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("the server sent a frame with header %x", h)
	}
	n := uint64(h[1])
	var ext [8]byte
	switch n {
	case 126:
		_, err = io.ReadFull(c.br, ext[6:])
		n = binary.BigEndian.Uint64(ext[:])
	case 127:
		_, err = io.ReadFull(c.br, ext[:])
		n = binary.BigEndian.Uint64(ext[:])
	}
	if err != nil {
		return 0, nil, err
	}
	p = make([]byte, n)
	if _, err := io.ReadFull(c.br, p); err != nil {
		return 0, nil, err
	}
	return h[0] & 0xf, p, nil
}

// Read returns the next message. A challenge is noted and skipped.
func (c *Client) Read() (Message, error) {
	for {
		op, p, err := c.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch op {
		case opClose:
			e := &Closed{}
			if len(p) >= 2 {
				e.Code, e.Reason = int(binary.BigEndian.Uint16(p)), string(p[2:])
			}
			return nil, e
		case opPing:
			c.Raw(AppendFrame(nil, true, opPong, p))
		case opText:
			var m Message
			if err := json.Unmarshal(p, &m); err != nil || len(m) == 0 {
				return nil, fmt.Errorf("the relay sent %q: %w", p, err)
			}
			if m.Label() == "AUTH" {
				c.Challenge = m.String(1)
				continue
			}
			return m, nil
		}
	}
}

// Next returns the next message, those that were passed over first.
func (c *Client) Next() Message {
	c.t.Helper()
	if len(c.unread) > 0 {
		m := c.unread[0]
		c.unread = c.unread[1:]
		return m
	}
	m, err := c.Read()
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return m
}

// Await returns the next message that fits; the others stay unread.
func (c *Client) Await(fits func(Message) bool) Message {
	c.t.Helper()
	for i, m := range c.unread {
		if fits(m) {
			c.unread = slices.Delete(c.unread, i, i+1)
			return m
		}
	}
	for {
		m, err := c.Read()
		if err != nil {
			c.t.Fatalf("read: %v (unread: %v)", err, c.unread)
		}
		if fits(m) {
			return m
		}
		c.unread = append(c.unread, m)
	}
}

// AwaitClose reads until the close frame and returns it.
func (c *Client) AwaitClose() *Closed {
	c.t.Helper()
	for {
		_, err := c.Read()
		var closed *Closed
		switch {
		case errors.As(err, &closed):
			return closed
		case err != nil:
			c.t.Fatalf("no close frame: %v", err)
		}
	}
}

// OK is the relay's answer to an EVENT.
type OK struct {
	ID     string
	OK     bool
	Reason string
}

func (o OK) prefix() string {
	p, _, ok := strings.Cut(o.Reason, ":")
	if !ok {
		return ""
	}
	return p
}

// AwaitOK waits for the OK of an id and checks its form.
func (c *Client) AwaitOK(id string) OK {
	c.t.Helper()
	m := c.Await(func(m Message) bool { return m.Label() == "OK" && m.String(1) == id })
	if len(m) != 4 {
		c.t.Fatalf("OK has %d elements: %v", len(m), m)
	}
	accepted, isBool := m[2].(bool)
	reason, isString := m[3].(string)
	if !isBool || !isString {
		c.t.Fatalf("OK is not of the form id, boolean, string: %v", m)
	}
	o := OK{id, accepted, reason}
	if !accepted && o.prefix() == "" {
		c.t.Fatalf("a refusal without prefix: %v", m)
	}
	return o
}

// Publish sends an event and returns its OK.
func (c *Client) Publish(e *nostr.Event) OK {
	c.t.Helper()
	c.Send(string(nostr.AppendPublish(nil, e)))
	return c.AwaitOK(e.ID.String())
}

// MustPublish publishes what the relay has to take.
func (c *Client) MustPublish(events ...*nostr.Event) {
	c.t.Helper()
	for _, e := range events {
		if ok := c.Publish(e); !ok.OK {
			c.t.Fatalf("event %s refused: %s", e.ID, ok.Reason)
		}
	}
}

// Answer is what a REQ brought.
type Answer struct {
	Events []*nostr.Event
	EOSE   bool
	Hints  []string
	Closed string // the reason, if it was closed
}

// IDs lists the ids in the order of arrival.
func (a *Answer) IDs() []string {
	ids := []string{}
	for _, e := range a.Events {
		ids = append(ids, e.ID.String())
	}
	return ids
}

// Contents lists the contents in the order of arrival.
func (a *Answer) Contents() []string {
	s := []string{}
	for _, e := range a.Events {
		s = append(s, e.Content)
	}
	return s
}

// Req opens a subscription and returns the initial answer.
func (c *Client) Req(sub string, filters ...string) *Answer {
	c.t.Helper()
	name, _ := json.Marshal(sub)
	c.Send(`["REQ",` + string(name) + "," + strings.Join(filters, ",") + "]")
	return c.AwaitAnswer(sub)
}

// AwaitAnswer collects the initial answer of a subscription.
func (c *Client) AwaitAnswer(sub string) *Answer {
	c.t.Helper()
	a := &Answer{}
	for {
		m := c.Await(func(m Message) bool {
			return m.String(1) == sub && slices.Contains([]string{"EVENT", "EOSE", "CLOSED"}, m.Label())
		})
		switch m.Label() {
		case "EVENT":
			a.Events = append(a.Events, c.event(m))
		case "EOSE":
			a.EOSE = true
			if len(m) > 2 {
				for _, h := range m[2].([]any) {
					a.Hints = append(a.Hints, h.(string))
				}
			}
			return a
		case "CLOSED":
			a.Closed = m.String(2)
			return a
		}
	}
}

// event parses and verifies the event of an EVENT message.
func (c *Client) event(m Message) *nostr.Event {
	c.t.Helper()
	text, _ := json.Marshal(m[2])
	e, err := nostr.ParseEvent(text)
	if err != nil {
		c.t.Fatalf("the relay served a bad event: %v: %s", err, text)
	}
	return e
}

// Get asks once, closes the subscription, and returns the events.
func (c *Client) Get(filters ...string) *Answer {
	c.t.Helper()
	c.marks++
	sub := fmt.Sprintf("get%d", c.marks)
	a := c.Req(sub, filters...)
	c.Send(`["CLOSE","` + sub + `"]`)
	return a
}

// Count asks for a count. It returns -1 and the reason if the relay closed it.
func (c *Client) Count(filters ...string) (int, string) {
	c.t.Helper()
	c.marks++
	id := fmt.Sprintf("count%d", c.marks)
	c.Send(`["COUNT","` + id + `",` + strings.Join(filters, ",") + "]")
	m := c.Await(func(m Message) bool {
		return m.String(1) == id && (m.Label() == "COUNT" || m.Label() == "CLOSED")
	})
	if m.Label() == "CLOSED" {
		return -1, m.String(2)
	}
	return int(m[2].(map[string]any)["count"].(float64)), ""
}

// Alive checks that the connection still answers.
func (c *Client) Alive() {
	c.t.Helper()
	if a := c.Req("alive", `{"limit":1}`); !a.EOSE {
		c.t.Fatalf("the connection no longer answers: %+v", a)
	}
	c.Send(`["CLOSE","alive"]`)
}

// Settle waits until everything that was published before has been passed on, and returns what
// came meanwhile. It publishes an ephemeral event and waits for it to come back: the stream is in order.
func (c *Client) Settle() []Message {
	c.t.Helper()
	c.marks++
	mark := fmt.Sprintf("mark%d", c.marks)
	c.Send(`["REQ","` + mark + `",{"kinds":[29999],"#t":["` + mark + `"],"limit":0}]`)
	c.AwaitAnswer(mark)
	e := Event(C, time.Now().Unix(), 29999, []nostr.Tag{{"t", mark}}, fmt.Sprint(&mark))
	c.MustPublish(e)
	c.Await(func(m Message) bool { return m.Label() == "EVENT" && m.String(1) == mark })
	c.Send(`["CLOSE","` + mark + `"]`)
	seen := []Message{}
	for _, m := range c.unread {
		if m.Label() == "EVENT" && m[2].(map[string]any)["kind"] == float64(29999) {
			continue // a mark, of this client or another
		}
		seen = append(seen, m)
	}
	c.unread = nil
	return seen
}

// Auth authenticates with a key under a relay URL and returns the OK.
func (c *Client) Auth(k nostr.SecretKey, relay string) OK {
	c.t.Helper()
	c.AwaitChallenge()
	tags := []nostr.Tag{{"challenge", c.Challenge}}
	if relay != "" {
		tags = append(tags, nostr.Tag{"relay", relay})
	}
	e := Event(k, time.Now().Unix(), 22242, tags, "")
	c.Send(string(nostr.AppendAuthEvent(nil, e)))
	return c.AwaitOK(e.ID.String())
}

// AwaitChallenge reads until the relay has sent a challenge.
func (c *Client) AwaitChallenge() {
	c.t.Helper()
	if c.Challenge == "" {
		c.Alive()
	}
	if c.Challenge == "" {
		c.t.Fatal("the relay sent no challenge")
	}
}

// The keys of the cases are the integers 3, 5 and 7.
var (
	A = secret(3)
	B = secret(5)
	C = secret(7)
)

func secret(n byte) (k nostr.SecretKey) {
	k[31] = n
	return k
}

// Event makes a signed event.
func Event(k nostr.SecretKey, at int64, kind nostr.Kind, tags []nostr.Tag, content string) *nostr.Event {
	if tags == nil {
		tags = []nostr.Tag{}
	}
	e := &nostr.Event{CreatedAt: at, Kind: kind, Tags: tags, Content: content}
	if err := e.Sign(k); err != nil {
		panic(err)
	}
	return e
}

// smallWindow keeps the system from taking much in the client's stead.
func (c *Client) smallWindow() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(64 << 10)
	}
}
