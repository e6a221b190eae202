package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// A leaf whose operator names no mediators chooses two of distinct operators among the anchors that relays tell of (§ Cold-Start Mediator
// Discovery). The choice stays until one of them says no or is away for long.
const (
	mediatorsPatience = 20 * time.Second // for each relay to answer
	oneMediatorAfter  = 2 * time.Minute  // of looking for two, after which one is enough to begin with
	mediatorAway      = 15 * time.Minute // after which another is chosen
	mediatorAvoided   = 24 * time.Hour   // how long one that was given up is not chosen again
	mediatorsLook     = 5 * time.Second  // between looks at how they serve us
)

func (d Dir) chosen() string { return d.mesh("mediators.json") }

// mediators are the anchors through which a leaf is reached: those that the operator named, else those that it chose; none yet for one that is new.
func (d Dir) mediators(s *Spec) (keys []nostr.PubKey, err error) {
	dids := s.Mediators
	if s.Class != string(spec.ClassLeaf) {
		return nil, nil
	}
	if len(dids) == 0 {
		text, err := os.ReadFile(d.chosen())
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the chosen mediators: %w", err)
		}
		if err := json.Unmarshal(text, &dids); err != nil {
			return nil, fmt.Errorf("read the chosen mediators: %s: %w", d.chosen(), err)
		}
	}
	for _, did := range dids {
		k, err := identity.ParseDID(did)
		if err != nil {
			return nil, fmt.Errorf("spec.mediators has %q: %w", did, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// choose writes the choice down.
func (d Dir) choose(keys []nostr.PubKey) error {
	var dids []string
	for _, k := range keys {
		dids = append(dids, identity.FormatDID(k))
	}
	text, err := json.Marshal(dids)
	if err != nil {
		return fmt.Errorf("write the chosen mediators: %w", err)
	}
	if err := os.MkdirAll(d.mesh(""), 0o700); err != nil {
		return fmt.Errorf("write the chosen mediators: %w", err)
	}
	if err := writeFile(d.chosen(), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the chosen mediators: %w", err)
	}
	return nil
}

// chooses says whether this node is a leaf that chooses its mediators itself.
func (f *federation) chooses() bool {
	s := &f.n.cfg().Spec
	return s.Class == string(spec.ClassLeaf) && len(s.Mediators) == 0
}

// findMediators waits until a new leaf has found its mediators.
func (f *federation) findMediators(ctx context.Context) error {
	if !f.chooses() {
		return nil
	}
	has, err := f.n.opt.Dir.mediators(&f.n.cfg().Spec)
	if err != nil || len(has) >= f.wantedMediators() {
		return err
	}
	if len(f.places(ctx)) == 0 {
		return errors.New("a leaf is reached through mediators: name two in spec.mediators, or relays in spec.relays or --bootstrap where they can be found")
	}
	start, pause := time.Now(), minWatchPause
	for {
		keys := f.pickMediators(ctx, has, nil)
		if len(keys) >= f.wantedMediators() || len(keys) > 0 && time.Since(start) > oneMediatorAfter {
			return f.n.opt.Dir.choose(keys)
		}
		f.n.log.Info("not enough anchors that mediate are found; looking again", "found", len(keys), "wanted", f.wantedMediators(), "in", pause)
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, maxWatchPause)
	}
}

func (f *federation) wantedMediators() int {
	rules, _ := spec.C().Class(spec.ClassLeaf)
	return rules.Mediators
}

// pickMediators asks the relays where this node looks for others, and completes kept to as many as are wanted, of distinct operators. Which of
// them it is, is left to chance: leaves spread, and nobody can tell in advance.
func (f *federation) pickMediators(ctx context.Context, kept []nostr.PubKey, avoid map[nostr.PubKey]time.Time) []nostr.PubKey {
	found := f.mediatorsFound(ctx)
	var first, rest []*identity.Descriptor
	for key, d := range found {
		switch {
		case slices.Contains(kept, key):
			first = append(first, d)
		case time.Now().After(avoid[key]):
			rest = append(rest, d)
		}
	}
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	var out []nostr.PubKey
	for _, d := range identity.ChooseMediators(append(first, rest...), f.wantedMediators()) {
		out = append(out, d.Subject)
	}
	return out
}

// mediatorsFound are the live descriptors of anchors that mediate, as the relays have them. They are kept in the store, where the host finds them.
func (f *federation) mediatorsFound(ctx context.Context) map[nostr.PubKey]*identity.Descriptor {
	places := f.places(ctx)
	lists := make(chan []*nostr.Event, len(places))
	for _, p := range places {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, mediatorsPatience)
			defer cancel()
			list, err := f.mediatorsAt(ctx, p.url)
			if err != nil && ctx.Err() == nil {
				f.n.log.Info("a relay was not asked for mediators", "relay", p.url, "err", err)
			}
			lists <- list
		}()
	}
	found := map[nostr.PubKey]*identity.Descriptor{}
	for range places {
		for _, e := range <-lists {
			d, err := identity.CheckDescriptor(e, identity.Rules{Now: time.Now().Unix()})
			if err != nil || e.PubKey == f.n.agent.PubKey() || f.known.revoked(e.PubKey) {
				continue
			}
			if old := found[e.PubKey]; old != nil && old.CreatedAt >= d.CreatedAt {
				continue
			}
			if err := f.notice(ctx, e, "relay", false); err == nil {
				found[e.PubKey] = d
			}
		}
	}
	return found
}

func (f *federation) mediatorsAt(ctx context.Context, url string) ([]*nostr.Event, error) {
	conn, err := gateway.Dial(ctx, url, gateway.Options{Client: f.net.HTTPClient()})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	limit := 500
	return conn.QueryAll(ctx, nostr.Filter{Kinds: []nostr.Kind{spec.KindDescriptor}, Tags: []nostr.TagFilter{{Letter: 'c', Values: []string{"mediator"}}}, Limit: &limit})
}

// tendMediators replaces chosen mediators that say no or stay away, for as long as the node runs.
func (f *federation) tendMediators(ctx context.Context, h *host.Host) {
	if !f.chooses() {
		return
	}
	avoid := map[nostr.PubKey]time.Time{}
	pause := minWatchPause
	for sleep(ctx, max(pause, mediatorsLook)) {
		kept, given := tended(h.MyMediators(), time.Now())
		for _, m := range given {
			avoid[m] = time.Now().Add(mediatorAvoided)
		}
		if len(kept) >= f.wantedMediators() {
			pause = minWatchPause
			continue
		}
		keys := f.pickMediators(ctx, kept, avoid)
		if len(keys) <= len(kept) || len(keys) == 0 {
			pause = min(2*pause, maxWatchPause)
			continue
		}
		pause = minWatchPause
		if err := f.n.opt.Dir.choose(keys); err != nil {
			f.n.log.Error("choose other mediators", "err", err)
			continue
		}
		h.SetMediators(keys)
		f.n.log.Info("other mediators are chosen", "count", len(keys))
		if err := f.renewNow(ctx); err != nil && ctx.Err() == nil {
			f.n.log.Error("publish which mediators this node has", "err", err)
		}
	}
}

// tended divides mediators into those that stay and those that are given up: they decline, or do not serve us for too long.
func tended(mine map[nostr.PubKey]host.Served, now time.Time) (kept, given []nostr.PubKey) {
	for m, s := range mine {
		if s.Denied || !s.Now && now.Sub(s.Since) > mediatorAway {
			given = append(given, m)
		} else {
			kept = append(kept, m)
		}
	}
	return kept, given
}

// sleep waits, and reports whether there is still something to do.
func sleep(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}
