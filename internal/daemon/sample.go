package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// sampleEvery is how often the asserted shards of peers are sampled. A hole counts when the next sample finds it too.
const sampleEvery = time.Hour

// sampler remembers the holes that the last sample found, by claim.
type sampler struct {
	f *federation
	h *host.Host

	mu    sync.Mutex // one sample at a time
	holes map[nostr.ID][]nostr.ID
}

// Sampled is what a sample of one asserted shard showed.
type Sampled struct {
	Peer    string     `json:"peer"`
	Shard   string     `json:"shard,omitempty"`
	Asked   int        `json:"asked"` // ids that this node holds and the peer must: 64 at most, or the hole of the sample before
	Missing []nostr.ID `json:"missing"`
	Found   bool       `json:"found"` // the hole was there before: it is a finding
	Problem string     `json:"problem,omitempty"`
}

// sampler is the one of this node.
func (f *federation) sampler(h *host.Host) *sampler {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.samples == nil {
		f.samples = &sampler{f: f, h: h, holes: map[nostr.ID][]nostr.ID{}}
	}
	return f.samples
}

// sampleNow is coverage.sample.
func (n *node) sampleNow(ctx context.Context, p DIDParams) ([]Sampled, error) {
	peers, err := n.named(ctx, p.DID)
	if err != nil {
		return nil, err
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return nil, err
	}
	out := []Sampled{}
	for i := range peers {
		if peers[i].Stage != "active" {
			continue
		}
		list, err := n.fed.sampler(h).peer(ctx, peers[i].Key)
		if err != nil {
			list = append(list, Sampled{Peer: identity.FormatDID(peers[i].Key), Missing: []nostr.ID{}, Problem: err.Error()})
		}
		out = append(out, list...)
	}
	return out, nil
}

// sampleCoverage looks for holes in what peers assert, as long as the node runs.
func (f *federation) sampleCoverage(ctx context.Context, h *host.Host) {
	if f.n.cfg().Spec.Class == string(spec.ClassLeaf) {
		return
	}
	s := f.sampler(h)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range h.Peers() {
			if p.Stage != "active" || ctx.Err() != nil {
				continue
			}
			if _, err := s.peer(ctx, p.Key); err != nil && ctx.Err() == nil {
				f.n.log.Debug("sample what a peer asserts", "peer", p.Key.String()[:12], "err", err)
			}
		}
	}
}

// peer samples each shard that a peer asserts.
func (s *sampler) peer(ctx context.Context, key nostr.PubKey) (out []Sampled, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims, err := s.f.askFace(ctx, s.h, key, nostr.Filter{Kinds: []nostr.Kind{spec.KindCoverage}, Authors: []nostr.PubKey{key}})
	if err != nil {
		return nil, err
	}
	if _, err := s.f.n.relay.Publish(ctx, claims, policy.FromSync); err != nil {
		return nil, fmt.Errorf("keep the claims: %w", err)
	}
	var errs []error
	for _, e := range claims {
		c, err := identity.ParseCoverage(e)
		if err == nil && c.Completeness == identity.Asserted && e.PubKey == key && identity.Verify(e.PubKey, e.ID, e.Sig) {
			one, err := s.claim(ctx, e, c)
			out, errs = append(out, one), append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// claim asks for a handful of the events that we hold in a shard and the peer must. Those that were missing before and still are make a finding.
func (s *sampler) claim(ctx context.Context, e *nostr.Event, c *identity.Coverage) (out Sampled, err error) {
	out = Sampled{Peer: identity.FormatDID(c.Subject), Shard: c.Shard, Missing: []nostr.ID{}}
	ask, before := s.holes[e.ID], true
	delete(s.holes, e.ID)
	if len(ask) == 0 {
		if ask, err = s.draw(ctx, c); err != nil || len(ask) == 0 {
			return out, err
		}
		before = false
	}
	limit := len(ask)
	got, err := s.f.askFace(ctx, s.h, c.Subject, nostr.Filter{IDs: ask, Limit: &limit})
	if err != nil {
		return out, err
	}
	missing := missingOf(ask, got)
	out.Asked, out.Missing = limit, append(out.Missing, missing...)
	if len(missing) == 0 {
		return out, nil
	}
	if !before {
		s.holes[e.ID] = missing[:1] // asked for alone: a relay may cut an answer short
		return out, nil
	}
	hole, err := s.f.n.store.Get(ctx, missing[0], time.Now().Unix())
	if errors.Is(err, store.ErrNotFound) {
		return out, nil // deleted or expired meanwhile
	}
	if err != nil {
		return out, fmt.Errorf("read an event: %w", err)
	}
	s.h.Found(c.Subject, ledger.SelfMisreport, "a hole in asserted shard "+c.Shard, e, hole)
	out.Found = true
	return out, nil
}

// draw picks ids at random among the events of a shard that are older than the claim and that nothing replaces.
func (s *sampler) draw(ctx context.Context, c *identity.Coverage) ([]nostr.ID, error) {
	until := c.FingerprintAt
	if c.Until > 0 {
		until = min(until, c.Until)
	}
	now := time.Now().Unix()
	ids, err := s.f.n.store.EnumerateRange(ctx, c.Filter, c.Since, until, now)
	if err != nil {
		return nil, fmt.Errorf("look into a shard: %w", err)
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	out := make([]nostr.ID, 0, spec.C().Coverage.SampleSize)
	for _, id := range ids {
		if len(out) == cap(out) {
			break
		}
		e, err := s.f.n.store.Get(ctx, id, now)
		if err != nil || e.Kind.IsReplaceable() || e.Kind.IsAddressable() || spec.C().Boundary.Never(e.Kind) || slices.Contains(policy.PrivateKinds, e.Kind) || e.Protected() || e.ExpiredAt(now+int64(sampleEvery/time.Second)) {
			continue // a newer one may stand in its place there, or it is nobody's to ask for
		}
		out = append(out, id)
	}
	return out, nil
}

// missingOf lists the asked ids that no event of the answer has.
func missingOf(ask []nostr.ID, got []*nostr.Event) (missing []nostr.ID) {
	have := map[nostr.ID]bool{}
	for _, e := range got {
		have[e.ID] = true
	}
	for _, id := range ask {
		if !have[id] {
			missing = append(missing, id)
		}
	}
	return missing
}
