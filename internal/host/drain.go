package host

import (
	"context"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/transport"
)

// ServeDraining is Serve for a door that may be closed while the host runs: when the listener is closed, what came in by it goes on until the peer
// leaves it, at most for linger. It returns when all of it has ended. A peer whose stream is ended comes again by another door, and nothing that
// was queued for it is lost.
func (h *Host) ServeDraining(l transport.Listener, linger time.Duration) {
	h.serveDraining(l, linger, &drained{open: map[transport.Stream]bool{}})
}

func (h *Host) serveDraining(l transport.Listener, linger time.Duration, all *drained) {
	h.acceptInto(l, all)
	ctx, cancel := context.WithTimeout(h.ctx, linger)
	defer cancel()
	stop := context.AfterFunc(ctx, all.close)
	defer stop()
	all.work.Wait()
}

// SetOurs replaces our side of the ladder: the next dial climbs by it.
func (h *Host) SetOurs(list []transport.Endpoint) { h.ours.Store(&list) }

// drained are the streams that came in by one door.
type drained struct {
	work sync.WaitGroup

	mu   sync.Mutex
	open map[transport.Stream]bool
}

// enter takes note of a stream. Who reads it calls leave in the end.
func (d *drained) enter(s transport.Stream) (leave func()) {
	if d == nil {
		return func() {}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[s] = true
	d.work.Add(1)
	return func() {
		d.mu.Lock()
		delete(d.open, s)
		d.mu.Unlock()
		d.work.Done()
	}
}

// close ends what is still open.
func (d *drained) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.open {
		s.Close()
	}
}
