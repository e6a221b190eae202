package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// wires is the network between the nodes. Each node has a SOCKS5 proxy (RFC 1928) of its own through which all that it dials goes, so that
// it is known who speaks to whom, and any link can be cut or slowed without a privilege or a change to the node.
type wires struct {
	mu      sync.Mutex
	at      map[string]int // the nodes by the address of their relay face
	cut     map[Link]bool
	delay   map[Link]time.Duration
	pipes   map[*pipe]bool
	proxies []net.Listener
	work    sync.WaitGroup
	closed  bool
}

// pipe is one connection through a proxy.
type pipe struct {
	link     Link
	near     net.Conn
	far      net.Conn
	once     sync.Once
	shutdown chan struct{}
}

func (p *pipe) close() {
	p.once.Do(func() {
		close(p.shutdown)
		p.near.Close()
		p.far.Close()
	})
}

func newWires() *wires {
	return &wires{at: map[string]int{}, cut: map[Link]bool{}, delay: map[Link]time.Duration{}, pipes: map[*pipe]bool{}}
}

// join adds a node by the address of its face, and serves its proxy on an address of this machine.
func (w *wires) join(n int, face, proxy string) error {
	ln, err := net.Listen("tcp", proxy)
	if err != nil {
		return fmt.Errorf("serve the wire of node %d: %w", n, err)
	}
	w.mu.Lock()
	w.at[face] = n
	w.proxies = append(w.proxies, ln)
	w.mu.Unlock()
	w.work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.work.Go(func() { w.serve(n, c) })
		}
	})
	return nil
}

// close ends all.
func (w *wires) close() {
	w.mu.Lock()
	w.closed = true
	for _, ln := range w.proxies {
		ln.Close()
	}
	for p := range w.pipes {
		p.close()
	}
	w.mu.Unlock()
	w.work.Wait()
}

// setCut parts two nodes, or joins them again. What is under way between them is lost, as on a network that breaks.
func (w *wires) setCut(l Link, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !cut {
		delete(w.cut, l)
		return
	}
	w.cut[l] = true
	for p := range w.pipes {
		if p.link == l {
			p.close()
		}
	}
}

// setDelay slows what goes between two nodes, each way; 0 ends it.
func (w *wires) setDelay(l Link, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d == 0 {
		delete(w.delay, l)
		return
	}
	w.delay[l] = d
}

func (w *wires) state(l Link) (cut bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut[l], w.delay[l]
}

// Replies of RFC 1928, section 6.
const (
	socksOK          = 0
	socksUnreachable = 3
	socksRefused     = 5
	socksNoCommand   = 7
	socksNoAddress   = 8
)

const handshakePatience = 10 * time.Second

// serve is one connection of node n's to its proxy.
func (w *wires) serve(n int, near net.Conn) {
	defer near.Close()
	_ = near.SetDeadline(time.Now().Add(handshakePatience)) // a connection that has no deadlines is not ours
	address, code, err := greet(near)
	if err != nil {
		return
	}
	if code == socksOK {
		code = w.dial(n, near, address)
	}
	if code != socksOK {
		_, _ = near.Write(reply(code)) // who dialled and went away needs no answer
	}
}

func reply(code byte) []byte { return []byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0} }

// greet reads what the client wants to reach.
func greet(c net.Conn) (address string, code byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return "", 0, err
	}
	if head[0] != 5 {
		return "", 0, errors.New("not SOCKS5")
	}
	if _, err := io.ReadFull(c, make([]byte, head[1])); err != nil { // the ways to sign in, of which none is needed
		return "", 0, err
	}
	if _, err := c.Write([]byte{5, 0}); err != nil {
		return "", 0, err
	}
	ask := make([]byte, 4)
	if _, err := io.ReadFull(c, ask); err != nil {
		return "", 0, err
	}
	size := map[byte]int{1: net.IPv4len, 4: net.IPv6len}[ask[3]]
	if ask[3] == 3 {
		one := make([]byte, 1)
		if _, err := io.ReadFull(c, one); err != nil {
			return "", 0, err
		}
		size = int(one[0])
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(c, rest); err != nil {
		return "", 0, err
	}
	switch {
	case ask[1] != 1:
		return "", socksNoCommand, nil
	case size == 0:
		return "", socksNoAddress, nil
	}
	host := net.IP(rest[:size]).String()
	if ask[3] == 3 {
		host = string(rest[:size])
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(rest[size:])))), socksOK, nil
}

// dial carries a connection to another node until it ends. Nothing else can be reached: a cluster stays on its machine.
func (w *wires) dial(n int, near net.Conn, address string) (code byte) {
	w.mu.Lock()
	to, known := w.at[address]
	l := link(n, to)
	apart := w.cut[l]
	w.mu.Unlock()
	if !known || apart {
		return socksUnreachable
	}
	far, err := net.DialTimeout("tcp", address, handshakePatience)
	if err != nil {
		return socksRefused
	}
	p := &pipe{link: l, near: near, far: far, shutdown: make(chan struct{})}
	defer p.close()
	w.mu.Lock()
	if w.closed || w.cut[l] {
		w.mu.Unlock()
		return socksUnreachable
	}
	w.pipes[p] = true
	w.mu.Unlock()
	if _, err := near.Write(reply(socksOK)); err == nil {
		_ = near.SetDeadline(time.Time{}) // it had one
		var both sync.WaitGroup
		both.Go(func() { w.pump(p, far, near) })
		both.Go(func() { w.pump(p, near, far) })
		both.Wait()
	}
	w.mu.Lock()
	delete(w.pipes, p)
	w.mu.Unlock()
	return socksOK
}

// held is what is under way on a slow link.
type held struct {
	due  time.Time
	data []byte
}

// pump carries one direction of a pipe, each piece as much later as the link is slow when it comes.
func (w *wires) pump(p *pipe, to, from net.Conn) {
	defer p.close()
	queue := make(chan held, 64) // pieces in flight; a full queue holds the sender back, as a full window does
	w.work.Go(func() {
		defer close(queue)
		for {
			data := make([]byte, 32<<10)
			n, err := from.Read(data)
			if n > 0 {
				_, delay := w.state(p.link)
				select {
				case queue <- held{time.Now().Add(delay), data[:n]}:
				case <-p.shutdown:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for h := range queue {
		if wait := time.Until(h.due); wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-p.shutdown:
				t.Stop()
				return
			}
		}
		if _, err := to.Write(h.data); err != nil {
			return
		}
	}
}
