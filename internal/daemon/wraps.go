package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Between attempts to listen for gift wraps at a relay.
const (
	minWrapPause = 2 * time.Second
	maxWrapPause = 10 * time.Minute
)

// newWraps is the carrier that always works: gift wraps through any relay.
func newWraps(n *node, network *transport.Network) (*transport.GiftWrap, error) {
	if n.secret == nil {
		return nil, nil // a gift wrap is opened and sealed with the node key itself, and an agent keeps that
	}
	key := *n.secret
	return transport.NewGiftWrap(transport.GiftWrapConfig{
		Key:   key,
		Since: time.Now().Add(-7 * 24 * time.Hour), // as long as stored wraps are kept
		Connect: func(ctx context.Context, url string) (transport.Relay, error) {
			return gateway.OpenMailbox(ctx, url, gateway.Options{Key: &key, Client: network.HTTPClient(), Log: n.log})
		},
		Foreign: func(what string) {
			if n.foreign.saw(what) {
				n.log.Info("gift wraps of another protocol come under this node's key; they are counted in its status", "seems", what)
			}
		},
		Dropped: func(nostr.PubKey) { n.log.Warn("a gift-wrapped frame found no reader and was let go") },
	})
}

// foreignWraps counts gift wraps that are not ours, by what they seem to be (§ Control plane, Which gift wrap).
type foreignWraps struct {
	mu sync.Mutex
	by map[string]int64
}

// maxForeignNames bounds what strangers can make us remember.
const maxForeignNames = 64

// saw counts one, and reports whether it is the first of its name.
func (f *foreignWraps) saw(what string) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]int64{}
	}
	if _, known := f.by[what]; !known && len(f.by) >= maxForeignNames {
		what = "something else"
	}
	f.by[what]++
	return f.by[what] == 1
}

func (f *foreignWraps) counts() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.by)
}

// collectWraps listens wherever peers would leave a gift wrap for this node: at the
// relays that its descriptor names.
func (f *federation) collectWraps(ctx context.Context, h *host.Host) {
	if f.wraps == nil {
		return
	}
	f.gating.Lock()
	defer f.gating.Unlock()
	urls := f.wrapRelays()
	for _, url := range urls {
		if f.wrapped[url] != nil {
			continue
		}
		at, cancel := context.WithCancel(ctx)
		f.wrapped[url] = cancel
		f.work.Go(func() { f.collectFrom(at, h, url) })
	}
	for url, cancel := range f.wrapped {
		if !slices.Contains(urls, url) {
			delete(f.wrapped, url)
			time.AfterFunc(lingering, cancel)
		}
	}
}

func (f *federation) wrapRelays() []string {
	var urls []string
	for t := range endpointsOf(f.own()) {
		if !slices.Contains(urls, t) {
			urls = append(urls, t)
		}
	}
	return urls
}

// endpointsOf yields the addresses of a descriptor's wss and giftwrap endpoints.
func endpointsOf(d *nostr.Event) func(func(string) bool) {
	return func(yield func(string) bool) {
		if d == nil || d.Kind != spec.KindDescriptor {
			return
		}
		for _, t := range d.Tags {
			if len(t) >= 3 && t[0] == "endpoint" && (t[1] == "wss" || t[1] == "giftwrap") && !yield(t[2]) {
				return
			}
		}
	}
}

// collectFrom listens at one relay for as long as the node runs.
func (f *federation) collectFrom(ctx context.Context, h *host.Host, url string) {
	pause := minWrapPause
	for ctx.Err() == nil {
		l, err := f.wraps.Listen(ctx, transport.Endpoint{Scheme: f.wraps.Scheme(), Address: url})
		if err == nil {
			pause = minWrapPause
			h.Serve(l)
			l.Close()
		} else if ctx.Err() == nil {
			f.n.log.Debug("cannot listen for gift wraps", "relay", url, "err", err, "again_in", pause)
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
		pause = min(2*pause, maxWrapPause)
	}
}
