package bridge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
)

// Options are what a bridge is made of.
type Options struct {
	Local Local
	Dir   string           // where it remembers what relays refused, and how far streams have come
	Key   *nostr.SecretKey // answers relays' challenges in streams with auth; may be nil
	Proxy *url.URL         // nil: what the environment says
	HTTP  *http.Client     // makes the connections instead of one built from Proxy; nil: none
	Only  []string         // of the configuration's relays only these; empty: all
	Out   *policy.Seam     // asked before anything is sent, by whatever stream; nil lets all go
	Trail *trail.Book      // remembers what was sent where; may be nil
	Road  string           // as it stands in the trail; "" means "bridge"
	// Taken is asked about events that came down from a relay and would be taken; a word keeps one out for good. nil takes all.
	Taken func(ctx context.Context, relay string, events []*nostr.Event) []string
	// Resync is how often a gap is looked for on a standing connection; 0: an hour.
	Resync   time.Duration
	Verifier nostr.Verifier // nil: nostr.NewVerifier()
	Stderr   io.Writer      // takes what plugins complain of; nil drops it
	Log      *slog.Logger   // nil discards
	Now      func() time.Time
}

// Bridge runs streams. Its methods may be called by any number of goroutines.
type Bridge struct {
	opt      Options
	boundary policy.Boundary // of what comes in

	mu      sync.Mutex // guards what follows; held while a configuration is applied
	relays  map[string]*remote
	lanes   map[laneKey]*lane
	plugins map[string]*policy.Plugin // by command
	verbose atomic.Bool
}

// remote is one relay, whatever number of streams go there: one connection, one memory.
type remote struct {
	url    string
	link   *gateway.Link
	facts  *gateway.PeerMemory
	seen   memory // ids that the relay is known to have
	config string // of the link: a change of it makes a new one
}

type laneKey struct{ stream, url string }

// New makes a bridge without streams.
func New(o Options) (*Bridge, error) {
	if o.Verifier == nil {
		o.Verifier = nostr.NewVerifier()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Resync == 0 {
		o.Resync = time.Hour
	}
	if o.Road == "" {
		o.Road = "bridge"
	}
	only := make([]string, len(o.Only))
	for i, u := range o.Only {
		norm, err := nostr.NormalizeRelayURL(u)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", gateway.ErrURL, err)
		}
		only[i] = norm
	}
	o.Only = only
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the bridge's directory: %w", err)
	}
	b := &Bridge{opt: o, relays: map[string]*remote{}, lanes: map[laneKey]*lane{}, plugins: map[string]*policy.Plugin{}}
	b.boundary.Mailbox = func(ctx context.Context, k nostr.PubKey) bool { return b.named(ctx, k, o.Local.URLs) }
	return b, nil
}

// Change is what applying a configuration did to one stream at one relay.
type Change struct {
	Stream string `json:"stream"`
	Relay  string `json:"relay"`
	What   string `json:"what"` // "opened", "closed", "reopened"; what stayed as it was is not told
}

// wanted lists the lanes of a configuration. A relay that --relay names and no stream does is an error: nothing is
// written to a relay that is not named for it.
func (b *Bridge) wanted(c *Config) (map[laneKey]*Stream, error) {
	want := map[laneKey]*Stream{}
	all := map[string]bool{}
	for i := range c.Streams {
		s := &c.Streams[i]
		for _, u := range s.URLs {
			all[u] = true
			if len(b.opt.Only) == 0 || slices.Contains(b.opt.Only, u) {
				want[laneKey{s.Name, u}] = s
			}
		}
	}
	for _, u := range b.opt.Only {
		if !all[u] {
			return nil, fmt.Errorf("%w: no stream of the configuration names %s; it names %s", gateway.ErrUsage, u, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
	}
	return want, nil
}

// Apply brings the bridge to a configuration with the smallest change: streams and relays that stay as they are keep their connections,
// a plugin is exchanged without one. On an error everything stays as it was.
func (b *Bridge) Apply(c *Config) ([]Change, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	want, err := b.wanted(c)
	if err != nil {
		return nil, err
	}
	fresh, err := b.newPlugins(c)
	if err != nil {
		return nil, err
	}
	dials, err := b.newRemotes(c, want)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for key, l := range b.lanes {
		s := want[key]
		switch {
		case s == nil:
			changes = append(changes, Change{key.stream, key.url, "closed"})
		case !l.sameAs(s) || dials[key.url] != b.relays[key.url]:
			changes = append(changes, Change{key.stream, key.url, "reopened"})
		default:
			l.setPlugins(fresh[s.PluginDown], fresh[s.PluginUp])
			continue
		}
		l.stop()
		delete(b.lanes, key)
	}
	b.exchange(fresh, dials)
	b.verbose.Store(c.Verbose)
	for _, key := range sortedLanes(want) {
		if b.lanes[key] != nil {
			continue
		}
		s := want[key]
		l := newLane(b, b.relays[key.url], *s)
		l.setPlugins(fresh[s.PluginDown], fresh[s.PluginUp])
		b.lanes[key] = l
		if !slices.ContainsFunc(changes, func(c Change) bool { return c.Stream == key.stream && c.Relay == key.url }) {
			changes = append(changes, Change{key.stream, key.url, "opened"})
		}
	}
	return changes, nil
}

func sortedLanes(want map[laneKey]*Stream) []laneKey {
	return slices.SortedFunc(maps.Keys(want), func(a, b laneKey) int {
		if a.stream != b.stream {
			return strings.Compare(a.stream, b.stream)
		}
		return strings.Compare(a.url, b.url)
	})
}

// newPlugins returns the plugins of a configuration: those that run, and new ones.
func (b *Bridge) newPlugins(c *Config) (map[string]*policy.Plugin, error) {
	fresh := map[string]*policy.Plugin{}
	for i := range c.Streams {
		for _, command := range []string{c.Streams[i].PluginDown, c.Streams[i].PluginUp} {
			if command == "" || fresh[command] != nil {
				continue
			}
			if fresh[command] = b.plugins[command]; fresh[command] != nil {
				continue
			}
			cfg := policy.ShellCommand(command)
			cfg.Stderr = b.opt.Stderr
			p, err := policy.NewPlugin(cfg)
			if err != nil {
				return nil, fmt.Errorf("stream %q: %w", c.Streams[i].Name, err)
			}
			fresh[command] = p
		}
	}
	return fresh, nil
}

// newRemotes returns the relays of a configuration: those that are connected as they should be, and new ones.
func (b *Bridge) newRemotes(c *Config, want map[laneKey]*Stream) (map[string]*remote, error) {
	dials := map[string]*remote{}
	for _, key := range sortedLanes(want) {
		if dials[key.url] != nil {
			continue
		}
		o := gateway.Options{DialTimeout: c.ConnectionTimeout, Proxy: b.opt.Proxy, Client: b.opt.HTTP, Log: b.opt.Log}
		for i := range c.Streams { // several streams share the connection: the strictest rate, and the key if one wants it
			s := &c.Streams[i]
			if !slices.Contains(s.URLs, key.url) {
				continue
			}
			if s.EventsPerSecond > 0 && (o.EventsPerSecond == 0 || s.EventsPerSecond < o.EventsPerSecond) {
				o.EventsPerSecond = s.EventsPerSecond
			}
			if s.Auth {
				o.Key = b.opt.Key
			}
		}
		config := fmt.Sprint(o.EventsPerSecond, o.Key != nil)
		if old := b.relays[key.url]; old != nil && old.config == config {
			dials[key.url] = old
			continue
		}
		facts, err := gateway.OpenPeerMemory(b.opt.Dir, key.url, b.opt.Now().Unix())
		if err != nil {
			for url, r := range dials {
				if b.relays[url] != r {
					r.close(b.opt.Log)
				}
			}
			return nil, fmt.Errorf("open what is remembered of %s: %w", key.url, err)
		}
		dials[key.url] = &remote{url: key.url, link: gateway.NewLink(key.url, o), facts: facts, config: config}
	}
	return dials, nil
}

// exchange puts new plugins and relays into the place of the old, and ends what nobody uses.
func (b *Bridge) exchange(fresh map[string]*policy.Plugin, dials map[string]*remote) {
	for command, p := range b.plugins {
		if fresh[command] != p {
			_ = p.Close() // it never fails
		}
	}
	for url, r := range b.relays {
		if dials[url] != r {
			r.close(b.opt.Log)
		}
	}
	b.plugins, b.relays = fresh, dials
}

func (r *remote) close(log *slog.Logger) {
	_ = r.link.Close() // the connection is given up
	if err := r.facts.Close(); err != nil {
		log.Warn("close what is remembered of a relay", "relay", r.url, "err", err)
	}
}

// Start lets all streams run until the configuration, Close or ctx ends them.
func (b *Bridge) Start(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lanes {
		l.start(ctx)
	}
}

// Close ends all streams.
func (b *Bridge) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, l := range b.lanes {
		l.stop()
		delete(b.lanes, key)
	}
	b.exchange(nil, nil)
}

// named says whether a recipient of gift wraps names one of the relays in its kind 10050.
func (b *Bridge) named(ctx context.Context, k nostr.PubKey, relays []string) bool {
	return Named(ctx, b.opt.Local.Store, k, relays, b.opt.Now().Unix())
}
