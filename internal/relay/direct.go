package relay

import (
	"net"
	"runtime"
	"sync"
	"syscall"
)

// direct writes to a connection as much as it takes at once. Waking a goroutine for each write costs as much as the
// write itself, and most clients have room for what is sent.
type direct struct {
	raw syscall.RawConn
	buf []byte
	n   int
	put func(fd uintptr) // writes buf; made once, so that a write makes no garbage
}

// newDirect returns nil where writing without waiting is not possible.
func newDirect(nc net.Conn) *direct {
	var raw syscall.RawConn
	var err error
	switch nc := nc.(type) { // no other: a wrapper may have its own idea of a write
	case *net.TCPConn:
		raw, err = nc.SyscallConn()
	case *net.UnixConn:
		raw, err = nc.SyscallConn()
	default:
		return nil
	}
	if err != nil || !canWriteNow {
		return nil
	}
	d := &direct{raw: raw}
	d.put = func(fd uintptr) { d.n = writeNow(fd, d.buf) }
	return d
}

// write returns how many octets were taken: fewer than all, even none, if the line is full or broken.
func (d *direct) write(buf []byte) int {
	d.buf, d.n = buf, 0
	_ = d.raw.Control(d.put) // the writer will meet the error
	d.buf = nil
	return d.n
}

// writeNow sends what is queued if nobody else writes and the client has room for it. Else a writer sees to it.
func (c *conn) writeNow() {
	bp := flushBuffers.Get().(*[]byte)
	*bp = c.writeWith(*bp)
	flushBuffers.Put(bp)
}

// writeWith is writeNow with room for the frames at hand.
func (c *conn) writeWith(buf []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing || len(c.queue) == 0 {
		return buf
	}
	if c.direct == nil || c.closing || len(c.rest) > 0 || c.owed > flushSize {
		c.nudge()
		return buf
	}
	items := c.queue
	c.queue, c.writing = nil, true
	c.mu.Unlock()
	buf = buf[:0]
	owed := 0
	for i := range items {
		owed += items[i].size()
	}
	buf = c.appendItems(buf, items)
	n := c.direct.write(buf)
	c.r.m.BytesOut.Add(int64(n))
	c.recycle(items)
	c.mu.Lock()
	c.writing = false
	if n < len(buf) {
		c.rest, c.restOwed = append([]byte(nil), buf[n:]...), owed
	} else {
		c.owe(-owed)
		c.room.Broadcast()
	}
	c.nudge()
	return buf
}

// spreadFrom is from how many connections on the writing is shared out among the processors.
const spreadFrom = 64

// writeAll is writeNow for many connections.
func writeAll(conns []*conn) {
	one := func(conns []*conn) {
		bp := flushBuffers.Get().(*[]byte)
		buf := *bp
		for _, c := range conns {
			buf = c.writeWith(buf)
		}
		*bp = buf
		flushBuffers.Put(bp)
	}
	parts := min(runtime.GOMAXPROCS(0), len(conns)/spreadFrom)
	if parts < 2 {
		one(conns)
		return
	}
	var wg sync.WaitGroup
	size := (len(conns) + parts - 1) / parts
	for lo := size; lo < len(conns); lo += size {
		wg.Go(func() { one(conns[lo:min(lo+size, len(conns))]) })
	}
	one(conns[:size])
	wg.Wait()
}
