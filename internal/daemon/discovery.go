package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// place is a relay where this node publishes itself and looks for others.
type place struct {
	url  string
	from string // how what is found there is entered in the table
}

// places are the node's own relays and its seeds. --bootstrap stands in for bootstrap.toml and the DNS seeds.
func (f *federation) places(ctx context.Context) (out []place) {
	add := func(url, from string) {
		u, err := nostr.NormalizeRelayURL(url)
		if err == nil && !slices.ContainsFunc(out, func(p place) bool { return p.url == u }) {
			out = append(out, place{u, from + " " + u})
		}
	}
	for _, u := range f.n.cfg().Spec.Relays {
		add(u, "relay")
	}
	for _, s := range f.n.seeds {
		add(s.Relay, "bootstrap")
	}
	names := f.n.cfg().Spec.Federation.DNSSeeds
	if f.n.opt.Bootstrap != nil || len(names) == 0 {
		return out
	}
	if f.net.Proxied() {
		f.n.log.Warn("spec.federation.dnsSeeds is not asked: spec.proxy forbids look-ups")
		return out
	}
	var resolver TXTResolver = net.DefaultResolver
	if f.n.opt.TXT != nil {
		resolver = f.n.opt.TXT
	}
	seeds, err := dnsSeeds(ctx, resolver, names)
	if err != nil {
		f.n.log.Warn("look up DNS seeds", "err", err)
	}
	for _, s := range seeds {
		add(s.Relay, "dns")
	}
	return out
}

// discover watches every place for as long as the node runs.
func (f *federation) discover(ctx context.Context) {
	f.work.Go(func() { f.watchOwn(ctx) })
	places := f.places(ctx)
	f.mu.Lock()
	f.watched = places
	f.mu.Unlock()
	for _, p := range places {
		f.work.Go(func() { f.watch(ctx, p) })
	}
	f.work.Go(func() { f.keepKnown(ctx) })
}

// Pauses between attempts to reach a place.
const (
	minWatchPause = time.Second
	maxWatchPause = 5 * time.Minute
)

func (f *federation) watch(ctx context.Context, p place) {
	pause := minWatchPause
	for ctx.Err() == nil {
		err := f.watchOnce(ctx, p, func() { pause = minWatchPause })
		if ctx.Err() != nil {
			return
		}
		f.n.log.Info("a relay is not reached; trying again", "relay", p.url, "in", pause, "err", err)
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
		pause = min(2*pause, maxWatchPause)
	}
}

// wantedHere are the filters by which other nodes are found: their descriptors by the protocol that every node speaks, and the
// revocations of keys, and heartbeats while they are sent.
func wantedHere() []nostr.Filter {
	limit := 500
	return []nostr.Filter{
		{Kinds: []nostr.Kind{spec.KindDescriptor}, Tags: []nostr.TagFilter{{Letter: 'c', Values: []string{spec.PIURIPeering}}}, Limit: &limit},
		{Kinds: []nostr.Kind{spec.KindRevocation}, Limit: &limit},
		{Kinds: []nostr.Kind{spec.KindHeartbeat}, Limit: &limit},
	}
}

// watchOnce publishes to a place and reads from it until the connection ends.
func (f *federation) watchOnce(ctx context.Context, p place, good func()) error {
	conn, err := gateway.Dial(ctx, p.url, gateway.Options{Client: f.net.HTTPClient(), Key: f.n.secret, Log: f.n.log})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	publisher := make(chan struct{})
	go func() {
		defer close(publisher)
		f.publishTo(ctx, p.url, conn)
	}()
	defer func() { <-publisher }()
	defer cancel()
	sub, err := conn.Subscribe(ctx, wantedHere()...)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		d, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		good()
		if d.Event == nil {
			continue
		}
		if err := f.notice(ctx, d.Event, p.from, false); err != nil && ctx.Err() == nil {
			f.n.log.Debug("what a relay holds is no use", "relay", p.url, "kind", d.Event.Kind, "err", err)
		}
	}
}

// watchOwn sees what comes in by any of this relay's doors: a client's socket, a sync, an import, a peer.
func (f *federation) watchOwn(ctx context.Context) {
	feed := f.n.relay.Follow([]nostr.Filter{{Kinds: []nostr.Kind{spec.KindDescriptor, spec.KindRevocation, spec.KindHeartbeat}}}, 256)
	defer feed.Close()
	f.scanStore(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-feed.Events():
			if err := f.notice(ctx, e, "this relay", true); err != nil && ctx.Err() == nil {
				f.n.log.Debug("what came in is no use", "kind", e.Kind, "err", err)
			}
		}
		if feed.Lost() > 0 {
			f.scanStore(ctx)
		}
	}
}

// scanStore takes note of what the store holds.
func (f *federation) scanStore(ctx context.Context) {
	filter := nostr.Filter{Kinds: []nostr.Kind{spec.KindRevocation, spec.KindDescriptor}}
	for e, err := range f.n.store.Query(ctx, []nostr.Filter{filter}, store.View{}, 2*maxKnown, host.Now().Unix()) {
		if err != nil {
			f.n.log.Warn("look for nodes in the store", "err", err)
			return
		}
		_ = f.notice(ctx, e, "this relay", true) // one that has expired is no news
	}
}

// notice takes up a descriptor or a revocation, whichever way it came. held says that it passed our own relay, so that its signature is
// verified and it is stored.
func (f *federation) notice(ctx context.Context, e *nostr.Event, from string, held bool) error {
	if e.PubKey == f.n.agent.PubKey() {
		return f.noticeOwn(e, held)
	}
	now := host.Now().Unix()
	switch e.Kind {
	case spec.KindHeartbeat:
		return f.heard(ctx, e, held, now)
	case spec.KindRevocation:
		r, err := identity.CheckRevocation(e, nil, held)
		if err != nil {
			return err
		}
		if f.known.revoke(r, from, now) {
			f.n.log.Warn("a node's key was revoked", "node", e.PubKey.String()[:12], "reason", r.Reason, "from", from)
		}
		if h := f.running(); h != nil {
			h.Revoke(r.Subject, r.Reason)
		}
		f.resolver.forget(r.Subject)
	case spec.KindDescriptor:
		d, err := identity.CheckDescriptor(e, identity.Rules{Now: now, Held: held})
		if err != nil {
			return err
		}
		if f.known.revoked(d.Subject) {
			return errors.New("the key is revoked")
		}
		if !f.known.learn(d, e, from, now) {
			return nil
		}
		f.resolver.forget(d.Subject)
		if err := f.follow(d, e); err != nil {
			return err
		}
	default:
		return fmt.Errorf("kind %d was not asked for", e.Kind)
	}
	if held {
		return nil
	}
	_, err := f.n.relay.Publish(ctx, []*nostr.Event{e}, policy.FromSync)
	return err
}

// noticeOwn sees a revocation of our own key, which whoever holds it may have published anywhere.
func (f *federation) noticeOwn(e *nostr.Event, held bool) error {
	if e.Kind != spec.KindRevocation {
		return nil
	}
	self := f.n.agent.PubKey()
	if _, err := identity.CheckRevocation(e, &self, held); err != nil {
		return err
	}
	f.retire(e)
	return nil
}

// follow brings a peer's new descriptor to the host, and peers with a node that was found where the operator wants that.
func (f *federation) follow(d *identity.Descriptor, e *nostr.Event) error {
	h := f.running()
	if h == nil {
		return nil
	}
	peers := h.Peers()
	if slices.ContainsFunc(peers, func(p mesh.Peer) bool { return p.Key == d.Subject }) {
		return h.Learn(e)
	}
	want := f.n.cfg().Spec.Federation.SeekPeers
	standing := 0
	for _, p := range peers {
		if p.Stage != "refused" && p.Stage != "ended" {
			standing++
		}
	}
	if standing >= want || f.retired() {
		return nil
	}
	if _, ok := d.Speaks("peering/1.0"); !ok {
		return nil
	}
	if err := h.Learn(e); err != nil {
		return err
	}
	f.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), findPatience)
		defer cancel()
		if err := h.AddPeer(ctx, d.Subject, "", nil, nil); err != nil {
			f.n.log.Info("peer with a node that was found", "err", err)
		}
	})
	return nil
}

// Intervals of what a node does about others by itself.
const (
	saveEvery    = 5 * time.Second
	askEvery     = time.Hour
	peersWanted  = 50
	findPatience = 20 * time.Second
)

// keepKnown writes the table when it changed, and asks peers now and then whom they know.
func (f *federation) keepKnown(ctx context.Context) {
	save, ask := time.NewTicker(saveEvery), time.NewTicker(askEvery)
	defer save.Stop()
	defer ask.Stop()
	defer f.known.save()
	for {
		select {
		case <-ctx.Done():
			return
		case <-save.C:
			f.known.save()
		case <-ask.C:
			f.askPeers()
		}
	}
}

// askPeers sends every active peer a peers-query.
func (f *federation) askPeers() (asked int) {
	h := f.running()
	if h == nil {
		return 0
	}
	for _, p := range h.Peers() {
		if p.Stage == "active" {
			h.AskPeers(p.Key, peersWanted)
			asked++
		}
	}
	return asked
}

// told takes the descriptors that a peer named. Each is verified like one from a relay.
func (f *federation) told(ctx context.Context, from nostr.PubKey, list []*nostr.Event) {
	for _, e := range list {
		if err := f.notice(ctx, e, "peer "+identity.FormatDID(from), false); err != nil && ctx.Err() == nil {
			f.n.log.Debug("a descriptor that a peer named is no use", "err", err)
		}
	}
}

// tellOf answers a peer that asks which nodes we know.
func (f *federation) tellOf(limit int) []*nostr.Event {
	return f.known.descriptors(limit, host.Now().Unix())
}

// find asks the relays that the operator named for a peer's descriptor, then those where this node looks for others. All are
// asked at once; the newest answer that holds is taken.
func (f *federation) find(ctx context.Context, key nostr.PubKey, hints []string) (*nostr.Event, error) {
	if f.known.revoked(key) {
		return nil, errors.New("the key was revoked by its holder")
	}
	urls := slices.Clone(hints)
	f.mu.Lock()
	for _, p := range f.watched {
		urls = append(urls, p.url)
	}
	f.mu.Unlock()
	if len(urls) == 0 {
		return nil, errors.New("no relay was named: give one with --relay")
	}
	ctx, cancel := context.WithTimeout(ctx, findPatience)
	defer cancel()
	type answer struct {
		e   *nostr.Event
		err error
	}
	answers := make(chan answer, len(urls))
	for _, url := range urls {
		go func() {
			e, err := f.findAt(ctx, url, key)
			answers <- answer{e, err}
		}()
	}
	var best *nostr.Event
	var firstErr error
	for range urls {
		a := <-answers
		if a.err == nil {
			_, a.err = identity.CheckDescriptor(a.e, identity.Rules{Subject: &key, Now: host.Now().Unix()})
		}
		switch {
		case a.err != nil:
			if firstErr == nil {
				firstErr = a.err
			}
		case best == nil || nostr.Supersedes(a.e, best):
			best = a.e
		}
	}
	if best == nil {
		return nil, firstErr
	}
	return best, nil
}

func (f *federation) findAt(ctx context.Context, url string, key nostr.PubKey) (*nostr.Event, error) {
	conn, err := gateway.Dial(ctx, url, gateway.Options{Client: f.net.HTTPClient()})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	one := 1
	list, err := conn.QueryAll(ctx, nostr.Filter{Kinds: []nostr.Kind{spec.KindDescriptor}, Authors: []nostr.PubKey{key}, Limit: &one})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s holds no descriptor of it", url)
	}
	return list[0], nil
}
