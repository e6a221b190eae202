package relay

import (
	"sync/atomic"

	"fleetmesh.org/fleetmesh/nostr"
)

// Feed is the live stream as the node itself sees it. It knows no read gate: whoever passes events on
// keeps his own.
type Feed struct {
	r    *Relay
	reg  *registration
	ch   chan *nostr.Event
	lost atomic.Int64
}

// Follow opens a Feed of the events that match any of the filters, from now on, each once, in the order of
// their commit; limits are ignored. buffer is how many may wait. A Feed never holds up the relay: what
// does not fit is counted as lost, and the reader catches up by the store's arrival cursor.
func (r *Relay) Follow(filters []nostr.Filter, buffer int) *Feed {
	f := &Feed{r: r, ch: make(chan *nostr.Event, buffer)}
	f.reg = register(f, filters)
	f.reg.after = r.settled.Load()
	r.index.add(f.reg)
	return f
}

// Events is the stream. It is never closed.
func (f *Feed) Events() <-chan *nostr.Event { return f.ch }

// Lost returns how many events did not fit since the last call.
func (f *Feed) Lost() int64 { return f.lost.Swap(0) }

// Close ends the Feed. A second call is harmless.
func (f *Feed) Close() { f.r.index.remove(f.reg) }

func (f *Feed) deliver(p *parcel) {
	select {
	case f.ch <- p.event:
	default:
		f.lost.Add(1)
	}
}
