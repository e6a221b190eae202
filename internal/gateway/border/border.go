// Package border is the gateway between an operator's estate and the mesh (§ Two networks): a process of its own, with its own key,
// its own stores and its own quota, that is to both sides nothing but a client. What comes from the mesh waits in quarantine with its
// origin beside it; what never crosses crosses in neither direction; and either side can be cut off at once.
package border

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/gateway/bridge"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
)

// Stores are those of a gateway, and nobody else's.
type Stores struct {
	Quarantine store.Store // what came from the mesh
	Released   store.Store // what of it may go to the estate
	Estate     store.Store // what came from the estate and may go to the mesh
}

// Options are what a gateway is made of.
type Options struct {
	Config *Config // checked
	Stores Stores
	Key    *nostr.SecretKey // its own
	Stderr io.Writer        // takes what plugins complain of
	Log    *slog.Logger
	// The following are for tests; zero means the real thing.
	HTTP     *http.Client
	Verifier nostr.Verifier
	Now      func() time.Time
}

// Gateway is a running gateway. Its methods may be called at any time.
type Gateway struct {
	opt     Options
	origins *origins
	trail   *trail.Book
	in, out *policy.Seam
	nodes   sync.Map // relay URL to DID

	mesh, estate, up *bridge.Bridge // into quarantine; into the estate's store and from there to the mesh; out of the released
	released         *bridge.Bell
	quarantine       *bridge.Bell
	release          releaser
	switching        sync.Mutex // guards cuts
	cuts             Cuts
	ctx              context.Context
}

// New makes a gateway that is not connected yet.
func New(o Options) (g *Gateway, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	g = &Gateway{opt: o, released: new(bridge.Bell), quarantine: new(bridge.Bell)}
	c := o.Config
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return g, fmt.Errorf("make the gateway's directory: %w", err)
	}
	held := func(id nostr.ID) bool {
		ok, err := o.Stores.Quarantine.Has(context.Background(), id, o.Now().Unix())
		return ok || err != nil
	}
	if g.origins, err = openOrigins(g.path("origins.jsonl"), held); err != nil {
		return g, err
	}
	if g.trail, err = trail.Open(g.path("left")); err != nil {
		return g, err
	}
	if g.in, err = policy.NewSeam(c.Ingress.PluginIn, "ingress.pluginIn", c.Dir, o.Stderr); err != nil {
		return g, err
	}
	if g.out, err = policy.NewSeam(c.Egress.PluginOut, "egress.pluginOut", c.Dir, o.Stderr); err != nil {
		return g, err
	}
	if err := g.build(); err != nil {
		return g, err
	}
	g.cuts = g.readCuts()
	return g, g.apply(g.cuts)
}

func (g *Gateway) path(name string) string { return filepath.Join(g.opt.Config.Dir, name) }

// build makes the three bridges. Each has a store of its own, so that what came from one side is never mixed with what came from the
// other.
func (g *Gateway) build() (err error) {
	s, c := g.opt.Stores, g.opt.Config
	if g.mesh, err = g.bridge("mesh", s.Quarantine, g.quarantine, c.Estate.Relays, nil, g.fromMesh); err != nil {
		return err
	}
	if g.up, err = g.bridge("released", s.Released, g.released, nil, nil, nil); err != nil {
		return err
	}
	g.estate, err = g.bridge("estate", s.Estate, new(bridge.Bell), c.Mesh.Relays, g.out, g.fromEstate)
	return err
}

func (g *Gateway) bridge(name string, s store.Store, bell *bridge.Bell, homes []string, out *policy.Seam, taken func(context.Context, string, []*nostr.Event) []string) (*bridge.Bridge, error) {
	sink := &bridge.RingingSink{Sink: &gateway.StoreSink{Store: s, Now: g.opt.Now}, Bell: bell}
	o := bridge.Options{
		Local: bridge.Local{Store: s, Sink: sink, Bell: bell, URLs: homes}, Dir: g.path(name + "-memory"), Key: g.opt.Key, HTTP: g.opt.HTTP, Out: out,
		Trail: g.trail, Road: "gateway", Taken: taken, Resync: time.Duration(g.opt.Config.ResyncSeconds) * time.Second,
		Verifier: g.opt.Verifier, Stderr: g.opt.Stderr, Log: g.opt.Log, Now: g.opt.Now,
	}
	if p := g.opt.Config.Proxy; p != "" {
		u, err := url.Parse(p)
		if err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
		o.Proxy = u
	}
	return bridge.New(o)
}

// fromMesh writes down where events came from, and keeps out what came from the estate in the first place.
func (g *Gateway) fromMesh(ctx context.Context, relay string, events []*nostr.Event) []string {
	out := g.echoes(ctx, g.opt.Stores.Estate, events)
	node, _ := g.nodes.Load(relay)
	did, _ := node.(string)
	now := g.opt.Now().Unix()
	var list []Origin
	for i, e := range events {
		if out[i] == "" {
			list = append(list, Origin{Event: e.ID, Relay: relay, Node: did, At: now})
		}
	}
	if err := g.origins.add(list); err != nil {
		g.opt.Log.Error("an origin cannot be written down: nothing is taken without it", "err", err)
		for i := range out {
			out[i] = "no-origin"
		}
	}
	return out
}

// fromEstate keeps out what the gateway itself brought into the estate.
func (g *Gateway) fromEstate(ctx context.Context, _ string, events []*nostr.Event) []string {
	return g.echoes(ctx, g.opt.Stores.Quarantine, events)
}

func (g *Gateway) echoes(ctx context.Context, s store.Store, events []*nostr.Event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		held, err := s.Has(ctx, e.ID, g.opt.Now().Unix())
		if held || err != nil {
			out[i] = "echo"
		}
	}
	return out
}

// streams says what each bridge is to do while some sides may be cut. Nothing crosses while one is: what would go to a side
// is only sent when both are there, and a side that is cut is not even listened to.
func (g *Gateway) streams(cuts Cuts) (mesh, up, estate *bridge.Config) {
	c := g.opt.Config
	side := func(name string, s Side, dir gateway.Direction, filters []map[string]any) *bridge.Config {
		list, _ := parseFilters(filters) // checked before
		out := &bridge.Config{ConnectionTimeout: 20 * time.Second}
		for i, f := range list {
			out.Streams = append(out.Streams, bridge.Stream{Name: fmt.Sprint(name, i), Dir: dir, URLs: s.Relays, Filter: f, EventsPerSecond: s.EventsPerSecond, Auth: s.Auth})
		}
		return out
	}
	mesh, up, estate = new(bridge.Config), new(bridge.Config), new(bridge.Config)
	if !cuts.Mesh {
		mesh = side("from-mesh-", c.Mesh, gateway.Pull, c.Ingress.Filters)
	}
	if !cuts.Estate {
		estate = side("from-estate-", c.Estate, gateway.Pull, c.Egress.Filters)
	}
	if !cuts.Mesh && !cuts.Estate {
		up = side("to-estate-", c.Estate, gateway.Push, c.Ingress.Filters)
		estate.Streams = append(estate.Streams, side("to-mesh-", c.Mesh, gateway.Push, c.Egress.Filters).Streams...)
	}
	return mesh, up, estate
}

// apply brings the bridges to a state of the switches. The way out to a side is cut first.
func (g *Gateway) apply(cuts Cuts) error {
	mesh, up, estate := g.streams(cuts)
	var errs []error
	for _, b := range []struct {
		b *bridge.Bridge
		c *bridge.Config
	}{{g.up, up}, {g.estate, estate}, {g.mesh, mesh}} {
		_, err := b.b.Apply(b.c)
		errs = append(errs, err)
		if g.ctx != nil && err == nil {
			b.b.Start(g.ctx)
		}
	}
	g.release.hold(cuts.Mesh || cuts.Estate)
	g.quarantine.Ring()
	return errors.Join(errs...)
}

// Run connects both sides until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.switching.Lock()
	g.ctx = ctx
	for _, b := range []*bridge.Bridge{g.mesh, g.up, g.estate} {
		b.Start(ctx)
	}
	g.switching.Unlock()
	for _, u := range g.opt.Config.Mesh.Relays {
		work.Go(func() { g.learn(ctx, u) })
	}
	for _, s := range []struct {
		seam *policy.Seam
		from store.Store
	}{{g.in, g.opt.Stores.Quarantine}, {g.out, g.opt.Stores.Estate}} {
		work.Go(func() {
			s.seam.Run(ctx, s.from, g.opt.Now, func(r policy.TrustReport, err error) {
				if err != nil || r.Shrunk {
					g.opt.Log.Error("the web of trust is not renewed: the old list stays in force", "before", r.Before, "found", r.Found, "err", err)
				}
			})
		})
	}
	work.Go(func() { g.watchSwitches(ctx) })
	return g.releases(ctx)
}

// learn asks a mesh node who it is, for the origins. It is asked as anybody may, and need not answer.
func (g *Gateway) learn(ctx context.Context, relay string) {
	o := gateway.Options{Client: g.opt.HTTP, Log: g.opt.Log}
	if p := g.opt.Config.Proxy; p != "" {
		o.Proxy, _ = url.Parse(p) // checked when the bridges were made
	}
	for wait := time.Second; ; wait = min(2*wait, time.Hour) {
		if g.Cuts().Mesh {
			wait = time.Minute
		} else if info, err := gateway.FetchInfo(ctx, relay, o); err == nil {
			if k, err := nostr.ParsePubKey(info.Self); err == nil {
				g.nodes.Store(relay, "did:nostr:"+k.String())
			}
			return
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// Close ends what New and Run began.
func (g *Gateway) Close() {
	for _, b := range []*bridge.Bridge{g.mesh, g.up, g.estate} {
		if b != nil {
			b.Close()
		}
	}
	err := errors.Join(g.in.Close(), g.out.Close(), g.trail.Close())
	if g.origins != nil {
		err = errors.Join(err, g.origins.close())
	}
	if err != nil {
		g.opt.Log.Warn("close the gateway", "err", err)
	}
}

// Status tells how a gateway stands.
type Status struct {
	PubKey     string              `json:"pubkey"` // the gateway's own
	Cuts       Cuts                `json:"cuts"`
	Streams    []bridge.LaneStatus `json:"streams"`
	Quarantine int                 `json:"quarantine"` // events that wait
	Released   int64               `json:"released"`   // since the start
	Refused    map[string]int64    `json:"refused,omitempty"`
	PluginIn   *policy.SeamStatus  `json:"plugin_in,omitempty"`
	PluginOut  *policy.SeamStatus  `json:"plugin_out,omitempty"`
}

// Status may be called at any time.
func (g *Gateway) Status(ctx context.Context) (Status, error) {
	st := Status{Cuts: g.Cuts(), PluginIn: g.in.Status(), PluginOut: g.out.Status(), Streams: []bridge.LaneStatus{}}
	if g.opt.Key != nil {
		st.PubKey = g.opt.Key.PubKey().String()
	}
	for _, b := range []*bridge.Bridge{g.mesh, g.up, g.estate} {
		st.Streams = append(st.Streams, b.Status()...)
	}
	st.Released, st.Refused = g.release.counts()
	waiting, err := g.Waiting(ctx, 0)
	st.Quarantine = len(waiting)
	return st, err
}

// Where tells of one event: where it came from, where it is, and where it went.
type Where struct {
	Origin     *Origin           `json:"origin,omitempty"` // in the mesh
	Quarantine bool              `json:"quarantine"`       // it waits
	Released   bool              `json:"released"`         // it may go to the estate
	Estate     bool              `json:"estate"`           // it came from the estate
	Refused    string            `json:"refused,omitempty"`
	Left       []trail.Departure `json:"left"`
}

// Where answers for one event.
func (g *Gateway) Where(ctx context.Context, id nostr.ID) (w Where, err error) {
	now := g.opt.Now().Unix()
	if o, ok := g.origins.get(id); ok {
		w.Origin = &o
	}
	s := g.opt.Stores
	held, err1 := s.Quarantine.Has(ctx, id, now)
	var err2, err3, err4, err5 error
	w.Released, err2 = s.Released.Has(ctx, id, now)
	w.Estate, err3 = s.Estate.Has(ctx, id, now)
	w.Quarantine = held && !w.Released
	no, refused, err4 := s.Quarantine.Refusal(ctx, id)
	if refused {
		w.Refused = no.Reason
	}
	w.Left, _, err5 = g.trail.Of(id)
	if w.Left == nil {
		w.Left = []trail.Departure{}
	}
	return w, errors.Join(err1, err2, err3, err4, err5)
}

func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
