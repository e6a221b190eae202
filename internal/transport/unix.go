package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Unix carries frames over Unix sockets between nodes of one machine. Addresses
// are paths.
type Unix struct{}

// Scheme implements Transport.
func (Unix) Scheme() string { return "unix" }

// Dial implements Transport.
func (Unix) Dial(ctx context.Context, ep Endpoint, _ nostr.PubKey) (Stream, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", ep.Address)
	if err != nil {
		return nil, fmt.Errorf("dial unix: %w", err)
	}
	return NewByteStream("unix", conn), nil
}

// Listen implements Transport. The socket has mode 0600. One left behind by a
// process that is gone is replaced; anything else at the path is an error.
func (Unix) Listen(ctx context.Context, ep Endpoint) (Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := removeStale(ep.Address); err != nil {
		return nil, fmt.Errorf("listen on unix: %w", err)
	}
	nl, err := net.Listen("unix", ep.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on unix: %w", err)
	}
	if err := os.Chmod(ep.Address, 0o600); err != nil {
		nl.Close()
		return nil, fmt.Errorf("listen on unix: %w", err)
	}
	return newNetListener(ctx, ep, nl), nil
}

// removeStale removes a socket that nobody listens on.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s: another process listens on it", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// acceptRetry is how long a listener rests after a failed accept.
const acceptRetry = 100 * time.Millisecond

// netListener accepts byte streams.
type netListener struct {
	ep    Endpoint
	nl    net.Listener
	queue *acceptQueue
	stop  func() bool
	wg    sync.WaitGroup
}

func newNetListener(ctx context.Context, ep Endpoint, nl net.Listener) *netListener {
	l := &netListener{ep: ep, nl: nl, queue: newAcceptQueue(16)}
	l.stop = context.AfterFunc(ctx, func() { l.nl.Close(); l.queue.close() })
	l.wg.Go(func() { l.run(context.WithoutCancel(ctx)) })
	return l
}

func (l *netListener) run(ctx context.Context) {
	defer l.queue.close()
	for {
		conn, err := l.nl.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, as a rule: they come back
			select {
			case <-l.queue.done:
				return
			case <-time.After(acceptRetry):
				continue
			}
		}
		if l.queue.offer(ctx, NewByteStream(l.ep.Scheme, conn)) != nil {
			return
		}
	}
}

func (l *netListener) Accept(ctx context.Context) (Stream, error) { return l.queue.accept(ctx) }
func (l *netListener) Endpoint() Endpoint                         { return l.ep }

func (l *netListener) Close() error {
	l.stop()
	err := l.nl.Close()
	l.queue.close()
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
