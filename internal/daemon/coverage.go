package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// coverEvery is how often the claims are taken anew.
const coverEvery = 6 * time.Hour

// Claim is one coverage claim of this node (kind 30803).
type Claim struct {
	Shard        string   `json:"shard"`
	Filter       string   `json:"filter"`
	Since        int64    `json:"since,omitempty"`
	Until        int64    `json:"until,omitempty"`
	Wanted       string   `json:"wanted"`       // completeness that the configuration asks for
	Completeness string   `json:"completeness"` // what is claimed
	Why          string   `json:"why,omitempty"`
	Fingerprint  string   `json:"fingerprint"`
	At           int64    `json:"fingerprint_at"`
	Count        int64    `json:"count"`
	MeshOnly     int64    `json:"mesh_only"` // events of the shard that are here through the mesh alone
	Event        nostr.ID `json:"event"`     // the claim in force
}

// coverageInForce is the digest of the claims that the store holds of an author.
func coverageInForce(ctx context.Context, s store.Store, self nostr.PubKey, now int64) (string, error) {
	ids, err := ownClaims(ctx, s, self, now)
	if err != nil {
		return "", err
	}
	list := make([]nostr.ID, 0, len(ids))
	for _, e := range ids {
		list = append(list, e.ID)
	}
	return identity.CoverageDigest(list), nil
}

func ownClaims(ctx context.Context, s store.Store, self nostr.PubKey, now int64) (out []*nostr.Event, err error) {
	filter := nostr.Filter{Kinds: []nostr.Kind{spec.KindCoverage}, Authors: []nostr.PubKey{self}}
	for e, err := range s.Query(ctx, []nostr.Filter{filter}, store.View{}, 0, now) {
		if err != nil {
			return nil, fmt.Errorf("look for our coverage claims: %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

// cover takes the claims at the start and then every coverEvery.
func (f *federation) cover(ctx context.Context) {
	tick := time.NewTicker(coverEvery)
	defer tick.Stop()
	for {
		if _, err := f.coverNow(ctx); err != nil && ctx.Err() == nil {
			f.n.log.Warn("claim coverage", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// coverNow takes every claim anew, withdraws those that are no longer configured, and renews the descriptor, which pins the set.
func (f *federation) coverNow(ctx context.Context) ([]Claim, error) {
	h := f.running()
	if h == nil {
		return nil, errors.New("federation is off, so nothing is claimed")
	}
	if f.retired() {
		return nil, errors.New("this node's key is revoked, so nothing is claimed")
	}
	f.covering.Lock()
	defer f.covering.Unlock()
	claims := []Claim{}
	shards := f.n.cfg().Spec.Shards
	for i := range shards {
		c, err := f.claim(ctx, h, &shards[i])
		if err != nil {
			return claims, fmt.Errorf("claim shard %q: %w", shards[i].Name, err)
		}
		if c.Event == (nostr.ID{}) {
			continue // not claimed while the node is pressed
		}
		claims = append(claims, c)
	}
	if err := f.withdraw(ctx, claims); err != nil {
		return claims, err
	}
	return claims, f.renewNow(ctx)
}

// claim measures one shard and publishes what may be said of it.
func (f *federation) claim(ctx context.Context, h *host.Host, s *ShardSpec) (c Claim, err error) {
	filter, err := s.filter()
	if err != nil {
		return c, err
	}
	now := host.Now().Unix()
	until := s.Until
	if until == 0 {
		until = maxTime
	}
	sum, err := f.n.store.FingerprintRange(ctx, filter, s.Since, until, now)
	if err != nil {
		return c, err
	}
	ids, err := f.n.store.EnumerateRange(ctx, filter, s.Since, until, now)
	if err != nil {
		return c, err
	}
	c = Claim{
		Shard: s.Name, Filter: string(filter.AppendJSON(nil)), Since: s.Since, Until: s.Until, Wanted: s.Completeness,
		Fingerprint: fmt.Sprintf("%x", sum), At: now, Count: int64(len(ids)),
	}
	if c.Wanted == "" {
		c.Wanted = identity.BestEffort
	}
	c.Completeness = c.Wanted
	for _, id := range ids {
		if h.Provenance().Holds(id) {
			c.MeshOnly++
		}
	}
	class := spec.Class(f.n.cfg().Spec.Class)
	if err := identity.MayClaim(class, c.Wanted, c.MeshOnly > 0); err != nil {
		if identity.CodeOf(err) != identity.MeshOnly {
			return c, err
		}
		c.Completeness = identity.BestEffort
		c.Why = fmt.Sprintf("%d events are here through the mesh alone, so the shard is not asserted", c.MeshOnly)
		f.n.log.Warn("a shard is claimed as best effort", "shard", s.Name, "why", c.Why)
	}
	if c.MeshOnly > 0 && f.isNarrowed() {
		return c, nil
	}
	return c, f.publishClaim(ctx, &c, filter)
}

// publishClaim publishes a claim unless the one in force says the same.
func (f *federation) publishClaim(ctx context.Context, c *Claim, filter nostr.Filter) error {
	claim := identity.Coverage{
		Subject: f.n.agent.PubKey(), At: c.At, Shard: c.Shard, Filter: filter, Since: c.Since, Until: c.Until, Completeness: c.Completeness,
		Fingerprint: c.Fingerprint, FingerprintAt: c.At, Count: c.Count,
	}
	held, err := ownClaims(ctx, f.n.store, claim.Subject, c.At)
	if err != nil {
		return err
	}
	for _, e := range held {
		old, err := identity.ParseCoverage(e)
		if err != nil || old.Shard != c.Shard {
			continue
		}
		if string(old.Filter.AppendJSON(nil)) == c.Filter && old.Since == c.Since && old.Until == c.Until && old.Completeness == c.Completeness &&
			old.Fingerprint == c.Fingerprint && old.Count == c.Count {
			c.Event, c.At = e.ID, old.FingerprintAt
			f.outbox.put(e)
			return nil
		}
	}
	e := claim.Event()
	if err := f.putOwn(ctx, e); err != nil {
		return err
	}
	c.Event = e.ID
	return nil
}

// withdraw deletes the claims of shards that are no longer configured.
func (f *federation) withdraw(ctx context.Context, claims []Claim) error {
	now := host.Now().Unix()
	held, err := ownClaims(ctx, f.n.store, f.n.agent.PubKey(), now)
	if err != nil {
		return err
	}
	for _, e := range held {
		if slices.ContainsFunc(claims, func(c Claim) bool { return c.Shard == e.D() }) {
			continue
		}
		address, _ := e.Address()
		gone := &nostr.Event{CreatedAt: max(now, e.CreatedAt), Kind: nostr.KindDeletion, Tags: []nostr.Tag{{"a", address.String()}, {"e", e.ID.String()}}}
		if err := identity.SignEvent(f.n.agent, gone); err != nil {
			return fmt.Errorf("withdraw a claim: %w", err)
		}
		if err := f.publish(ctx, gone); err != nil {
			return fmt.Errorf("withdraw a claim: %w", err)
		}
		f.outbox.put(gone)
	}
	return nil
}

// coverage is coverage.take.
func (n *node) coverage(ctx context.Context, _ none) ([]Claim, error) {
	if n.cfg().Spec.Class == string(spec.ClassLeaf) {
		return nil, control.BadParams("a leaf claims no coverage")
	}
	if _, err := n.fed.get(ctx); err != nil {
		return nil, err
	}
	return n.fed.coverNow(ctx)
}
