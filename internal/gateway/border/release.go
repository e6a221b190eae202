package border

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// releaser lets events out of the quarantine, in the order in which they arrived there.
type releaser struct {
	mu       sync.Mutex // held while events are let out, so that a switch that was thrown waits for what is under way, and for nothing more
	held     bool       // a side is cut
	released int64
	refused  map[string]int64
}

func (r *releaser) hold(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
}

func (r *releaser) counts() (int64, map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.released, maps.Clone(r.refused)
}

// errLater says that a plugin could not be asked.
var errLater = errors.New("the plugin gave no answer")

// releaseBatch is how many events are asked about together; releaseRest, how long to wait after a failure.
const (
	releaseBatch = 64
	releaseRest  = 5 * time.Second
)

// releases lets out what has waited long enough, until ctx ends. A released event is still subject to what befalls it in quarantine
// before: deleted, superseded or expired, it is not there to be released.
func (g *Gateway) releases(ctx context.Context) error {
	wake, stop := g.quarantine.Listen()
	defer stop()
	if g.opt.Config.Ingress.Release == "manual" {
		<-ctx.Done()
		return ctx.Err()
	}
	cursor, err := g.releaseCursor()
	if err != nil {
		return err
	}
	for {
		next, wait, err := g.releaseDue(ctx, cursor)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			g.opt.Log.Warn("the release of quarantined events rests", "err", err)
			wait = releaseRest
		} else if next != cursor {
			cursor = next
			if err := writeJSON(g.path("release.cursor"), cursorFile{cursor}); err != nil {
				return fmt.Errorf("keep how far the release has come: %w", err)
			}
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-wake:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

type cursorFile struct {
	Arrival uint64 `json:"arrival"`
}

func (g *Gateway) releaseCursor() (uint64, error) {
	text, err := os.ReadFile(g.path("release.cursor"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var c cursorFile
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return 0, fmt.Errorf("read how far the release has come: %w: without %s it begins anew", err, g.path("release.cursor"))
	}
	return c.Arrival, nil
}

// releaseDue lets out one batch of what has waited long enough. wait says when the next may be due.
func (g *Gateway) releaseDue(ctx context.Context, cursor uint64) (next uint64, wait time.Duration, err error) {
	next, wait = cursor, time.Minute
	now := g.opt.Now()
	var batch []*nostr.Event
	for a, err := range g.opt.Stores.Quarantine.Arrivals(ctx, cursor, now.Unix()) {
		if err != nil {
			return cursor, 0, fmt.Errorf("read the quarantine: %w", err)
		}
		o, ok := g.origins.get(a.Event.ID)
		if !ok { // never happens, but an event without an origin is not let in
			g.opt.Log.Error("a quarantined event has no origin", "event", a.Event.ID.String())
			next = a.Seq
			continue
		}
		if due := time.Unix(o.At+g.opt.Config.Ingress.QuarantineSeconds, 0); due.After(now) {
			wait = min(wait, due.Sub(now))
			break
		}
		batch, next = append(batch, a.Event), a.Seq
		if len(batch) == releaseBatch {
			break
		}
	}
	if len(batch) == 0 {
		return next, wait, nil
	}
	_, err = g.letOut(ctx, batch)
	if err != nil {
		return cursor, 0, err
	}
	return next, wait, nil
}

// letOut asks about events and puts those that pass among the released. What is refused for good leaves the quarantine and is not
// fetched again. An error means that nothing of the batch was decided.
func (g *Gateway) letOut(ctx context.Context, batch []*nostr.Event) (passed int, err error) {
	g.release.mu.Lock()
	defer g.release.mu.Unlock()
	if g.release.held {
		return 0, errors.New("a side is cut")
	}
	s, now := g.opt.Stores, g.opt.Now().Unix()
	boundary := &policy.Boundary{Mailbox: func(ctx context.Context, k nostr.PubKey) bool {
		return bridge.Named(ctx, s.Quarantine, k, g.opt.Config.Estate.Relays, now)
	}}
	refused := map[string][]nostr.ID{}
	var list []*policy.Request
	for _, e := range batch {
		if why := boundary.Stops(ctx, e, now); why != "" {
			refused[why] = append(refused[why], e.ID)
			continue
		}
		o, _ := g.origins.get(e.ID)
		list = append(list, &policy.Request{Event: e, Source: policy.FromStream, Info: o.Relay, Now: now})
	}
	var pass []*nostr.Event
	for i, no := range g.in.Ask(ctx, list) {
		switch {
		case no == nil:
			pass = append(pass, list[i].Event)
		case no.Prefix == policy.Error || no.Prefix == policy.RateLimited:
			return 0, errLater
		default:
			refused["plugin"] = append(refused["plugin"], list[i].Event.ID)
		}
	}
	if _, err := s.Released.Insert(ctx, pass, now); err != nil {
		return 0, fmt.Errorf("release events: %w", err)
	}
	for why, ids := range refused {
		if err := g.refuse(ctx, ids, why, now); err != nil {
			return 0, err
		}
	}
	g.release.released += int64(len(pass))
	if len(pass) > 0 {
		g.released.Ring()
	}
	return len(pass), nil
}

func (g *Gateway) refuse(ctx context.Context, ids []nostr.ID, why string, now int64) error {
	if _, err := g.opt.Stores.Quarantine.Purge(ctx, ids, why, now); err != nil {
		return fmt.Errorf("refuse quarantined events: %w", err)
	}
	if g.release.refused == nil {
		g.release.refused = map[string]int64{}
	}
	g.release.refused[why] += int64(len(ids))
	return nil
}

// Waiting lists what is in quarantine, in the order of arrival: its ids, kinds and origins. limit bounds the list; 0 does not.
func (g *Gateway) Waiting(ctx context.Context, limit int) (out []Waits, err error) {
	now := g.opt.Now().Unix()
	out = []Waits{}
	for a, err := range g.opt.Stores.Quarantine.Arrivals(ctx, 0, now) {
		if err != nil {
			return nil, fmt.Errorf("read the quarantine: %w", err)
		}
		released, err := g.opt.Stores.Released.Has(ctx, a.Event.ID, now)
		if err != nil {
			return nil, fmt.Errorf("read the released events: %w", err)
		}
		if released {
			continue
		}
		o, _ := g.origins.get(a.Event.ID)
		out = append(out, Waits{Event: a.Event.ID, Kind: a.Event.Kind, Author: a.Event.PubKey, Relay: o.Relay, Node: o.Node, Since: o.At})
		if len(out) == limit {
			break
		}
	}
	return out, nil
}

// Waits is one event in quarantine.
type Waits struct {
	Event  nostr.ID     `json:"event"`
	Kind   nostr.Kind   `json:"kind"`
	Author nostr.PubKey `json:"author"`
	Relay  string       `json:"relay"`
	Node   string       `json:"node,omitempty"`
	Since  int64        `json:"since"` // unix seconds
}

// Decide lets events out of the quarantine now, or refuses them for good, as the operator says. It returns how many were decided so.
// Rules and plugins still hold: the operator cannot let in what never crosses.
func (g *Gateway) Decide(ctx context.Context, ids []nostr.ID, release bool) (int, error) {
	now := g.opt.Now().Unix()
	if !release {
		g.release.mu.Lock()
		defer g.release.mu.Unlock()
		return len(ids), g.refuse(ctx, ids, "operator", now)
	}
	var batch []*nostr.Event
	for _, id := range ids {
		e, err := g.opt.Stores.Quarantine.Get(ctx, id, now)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read the quarantine: %w", err)
		}
		batch = append(batch, e)
	}
	return g.letOut(ctx, batch)
}
