package host

import (
	"context"
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
)

// tail is the end of the store's arrivals, shared by all live sessions: what goes to many peers is read once and its hop signed once. It holds
// nothing while no session is live, and whoever is further behind than it reaches reads the store.
type tail struct {
	h    *Host
	wake chan struct{}

	mu      sync.Mutex
	lives   int      // sessions that are live
	list    []*fresh // arrivals after first, up to last, oldest first
	octets  int
	first   uint64
	last    uint64
	byID    map[nostr.ID]*fresh
	inbound map[nostr.ID]*inbound
	changed chan struct{} // closed and made anew when something has arrived
}

const (
	tailLength = 4096
	tailOctets = 8 << 20
	tailRead   = 512 // arrivals read from the store in one go
)

// fresh is an arrival with the way it came.
type fresh struct {
	seq   uint64
	event *nostr.Event
	path  []ledger.Hop // none for what did not come through the mesh

	mu     sync.Mutex
	from   []nostr.PubKey // peers that delivered it here: they hold it
	signed []ledger.Hop   // the path with our hop, made at signedAt
	at     int64
}

// inbound is an event that peers have delivered and that is on its way into the store: whoever sees it arrive has to know its path.
type inbound struct {
	path []ledger.Hop
	from []nostr.PubKey
	uses int
}

func newTail(h *Host) *tail {
	return &tail{h: h, wake: make(chan struct{}, 1), byID: map[nostr.ID]*fresh{}, inbound: map[nostr.ID]*inbound{}, changed: make(chan struct{})}
}

// Arrived says that the store has something new. It never waits.
func (h *Host) Arrived() { signal(h.tail.wake) }

// mark returns the place of the newest arrival. It is taken before a set is frozen, so that nothing falls between the two.
func (t *tail) mark(ctx context.Context) (uint64, error) { return t.h.cfg.Store.LastSeq(ctx) }

// run reads what arrives until the host ends.
func (t *tail) run() {
	for {
		select {
		case <-t.wake:
		case <-t.h.ctx.Done():
			return
		}
		if err := t.read(t.h.ctx); err != nil && t.h.ctx.Err() == nil {
			t.h.cfg.Log.Error("read what has arrived", "err", err)
		}
		t.mu.Lock()
		close(t.changed)
		t.changed = make(chan struct{})
		t.mu.Unlock()
	}
}

// read appends the arrivals since the last. It is alone in doing so.
func (t *tail) read(ctx context.Context) error {
	t.mu.Lock()
	last, idle := t.last, t.lives == 0
	t.mu.Unlock()
	if idle {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.lives == 0 {
			t.list, t.octets = nil, 0
			clear(t.byID)
		}
		return nil
	}
	list, err := t.load(ctx, last, tailLength)
	if len(list) == tailLength {
		signal(t.wake) // there may be more
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range list {
		t.list, t.last = append(t.list, f), f.seq
		t.octets += len(f.event.JSON())
		t.byID[f.event.ID] = f
	}
	drop := 0
	for len(t.list)-drop > tailLength || t.octets > tailOctets && drop < len(t.list) {
		f := t.list[drop]
		t.first = f.seq
		t.octets -= len(f.event.JSON())
		delete(t.byID, f.event.ID)
		drop++
	}
	t.list = slices.Delete(t.list, 0, drop)
	return err
}

// load reads arrivals after a place from the store, limit of them at most.
func (t *tail) load(ctx context.Context, after uint64, limit int) (list []*fresh, err error) {
	for a, err := range t.h.cfg.Store.Arrivals(ctx, after, Now().Unix()) {
		if err != nil {
			return list, err
		}
		f := &fresh{seq: a.Seq, event: a.Event}
		if err := t.cameBy(f); err != nil {
			return list, err
		}
		if list = append(list, f); len(list) == limit {
			break
		}
	}
	return list, nil
}

// cameBy fills in by which path an event came.
func (t *tail) cameBy(f *fresh) (err error) {
	t.mu.Lock()
	in := t.inbound[f.event.ID]
	if in != nil {
		f.path, f.from = in.path, slices.Clone(in.from)
	}
	t.mu.Unlock()
	if in == nil {
		f.path, err = t.h.provenance.Path(f.event.ID)
	}
	return err
}

// after returns arrivals after a place, in order; none where there are none.
func (t *tail) after(ctx context.Context, seq uint64) ([]*fresh, error) {
	t.mu.Lock()
	if seq >= t.first {
		i, _ := slices.BinarySearchFunc(t.list, seq+1, func(f *fresh, seq uint64) int {
			switch {
			case f.seq < seq:
				return -1
			case f.seq > seq:
				return 1
			}
			return 0
		})
		list := t.list[i:]
		list = slices.Clone(list[:min(len(list), tailRead)])
		t.mu.Unlock()
		return list, nil
	}
	t.mu.Unlock()
	return t.load(ctx, seq, tailRead)
}

// changes is closed when something arrives after this call.
func (t *tail) changes() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// join begins to hold arrivals, if nobody is live yet those after from.
func (t *tail) join(from uint64) {
	t.mu.Lock()
	if t.lives == 0 {
		t.list, t.octets, t.first, t.last = nil, 0, from, from
		clear(t.byID)
	}
	t.lives++
	t.mu.Unlock()
	signal(t.wake)
}

func (t *tail) leave() {
	t.mu.Lock()
	t.lives--
	t.mu.Unlock()
	signal(t.wake)
}

// expect notes the paths of events that a peer delivered and that are about to be stored, until done is called.
func (t *tail) expect(peer nostr.PubKey, list []*ledger.Envelope) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, env := range list {
		in := t.inbound[env.Event.ID]
		if in == nil {
			in = &inbound{path: env.Path}
			t.inbound[env.Event.ID] = in
		}
		in.uses++
		in.from = append(in.from, peer)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, env := range list {
			id := env.Event.ID
			if t.inbound[id].uses--; t.inbound[id].uses == 0 {
				delete(t.inbound, id)
			}
		}
	}
}

// holds notes that a peer has an event that arrived lately.
func (t *tail) holds(peer nostr.PubKey, id nostr.ID) {
	t.mu.Lock()
	f := t.byID[id]
	t.mu.Unlock()
	if f != nil {
		f.mu.Lock()
		f.from = append(f.from, peer)
		f.mu.Unlock()
	}
}

// heldBy reports whether a peer is known to have it: it delivered it here, or is in its path.
func (f *fresh) heldBy(peer nostr.PubKey) bool {
	if slices.ContainsFunc(f.path, func(h ledger.Hop) bool { return h.Node == peer }) {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.from, peer)
}

// hops is the path with our hop. One that was made within the last second serves all peers: a hop does not say to whom.
func (f *fresh) hops(h *Host, created int64) ([]ledger.Hop, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.signed != nil && created-f.at <= 1 && created >= f.at {
		return f.signed, nil
	}
	env := &ledger.Envelope{Event: f.event, Path: slices.Clone(f.path)}
	if err := env.SignHop(h.cfg.Agent, created); err != nil {
		return nil, err
	}
	f.signed, f.at = env.Path, created
	return f.signed, nil
}
