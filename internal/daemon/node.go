// Package daemon makes one node of a configuration: it builds the parts, runs them and stops them. It is the only
// package that knows all the others.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fleetmesh.org/fleetmesh/internal/attach"
	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/internal/web"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Options say which node to run.
type Options struct {
	Dir    Dir
	Listen string        // instead of spec.relay.listen
	Attach string        // instead of spec.attach.relay
	Ahead  time.Duration // of the machine's clock: what peers see of this node is dated so much later; for drills
	Build  string        // version that the information document tells
	Log    *slog.Logger
	Ready  func(Ready)                        // called once, when the node serves
	Step   func(what string, done, all int64) // progress of long work before that; all is 0 where unknown

	Bootstrap []Seed      // where to look for other nodes, instead of bootstrap.toml and DNS seeds; nil: those
	TXT       TXTResolver // of DNS seeds; nil: the system's
}

// Ready says where a node serves.
type Ready struct {
	Event   string `json:"event"` // "ready"
	Relay   string `json:"relay"`
	DID     string `json:"did"`
	Dir     string `json:"dir"`
	Made    bool   `json:"made"` // the directory was made just now
	Control string `json:"control"`
}

// node is a running node.
type node struct {
	opt     Options
	conf    atomic.Pointer[Config] // in force; meshctl apply replaces it
	secret  *nostr.SecretKey       // nil: an agent in a process of its own keeps it
	agent   identity.Agent
	store   store.Store
	away    *attach.Store // the same, where it is another relay
	relay   *relay.Relay
	url     string // of the relay face, as this machine reaches it
	control *control.Server
	fed     *federation
	blobs   blobFace
	page    *web.Web
	foreign foreignWraps
	seams   seams
	bridges bridges
	trail   *trail.Book  // what left
	diary   *trail.Diary // what happened with peers
	started time.Time
	quit    context.CancelFunc
	log     *slog.Logger
	live    *manifests // what meshctl declares
	seeds   []Seed     // where to look for other nodes
}

// shutdownPatience is how long a stopping node waits for its parts.
const shutdownPatience = 10 * time.Second

// Run makes the node directory if there is none, and runs the node until ctx ends.
func Run(ctx context.Context, opt Options) error {
	made := !opt.Dir.Exists()
	if made {
		c := DefaultConfig("127.0.0.1:7777")
		if opt.Listen != "" {
			c.Spec.Relay.Listen = opt.Listen
		}
		if err := opt.Dir.Init(c); err != nil {
			return err
		}
	}
	if c, err := control.Dial(ctx, opt.Dir.Control()); err == nil { // before anything is touched: that node may be in the middle of an apply
		c.Close()
		return fmt.Errorf("a node runs in %s already: meshnode status --dir %[1]s shows it, and meshnode stop --dir %[1]s ends it", opt.Dir)
	}
	migrated, err := opt.Dir.Migrate()
	for _, m := range migrated {
		opt.Log.Info("the node directory was brought to a newer version", "version", m.From+1, "what", m.What)
	}
	if err != nil {
		return err
	}
	host.SetClockOffset(opt.Ahead)
	n := &node{opt: opt, log: opt.Log, started: time.Now()}
	ctx, n.quit = context.WithCancel(ctx)
	defer n.quit()
	if err := n.load(); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", n.cfg().Spec.Relay.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("serve the relay face on spec.relay.listen: %w: stop the program that has it, or choose another with --listen", err)
	}
	if err != nil {
		return fmt.Errorf("serve the relay face on spec.relay.listen: %w", err)
	}
	defer ln.Close()
	n.url = faceURL(ln.Addr())
	if n.store, err = openStore(ctx, opt.Dir, n.cfg(), append([]string{n.url}, n.cfg().Spec.Relay.PublicURLs...), n.log); err != nil {
		return err
	}
	if err := n.attach(); err != nil {
		return errors.Join(err, n.store.Close())
	}
	defer n.store.Close()
	err = n.serve(ctx, ln, made)
	return errors.Join(err, n.store.Close())
}

// cfg is the configuration in force. Nobody changes it: what meshctl applies makes a new one.
func (n *node) cfg() *Config { return n.conf.Load() }

func (n *node) load() (err error) {
	if err := n.opt.Dir.rollBackConfig(); err != nil {
		return err
	}
	c, err := LoadConfig(n.opt.Dir.Config())
	if err != nil {
		return err
	}
	if n.opt.Listen != "" {
		c.Spec.Relay.Listen = n.opt.Listen
	}
	if n.opt.Attach != "" {
		c.Spec.Attach.Relay = n.opt.Attach
	}
	n.conf.Store(c)
	if n.seeds = n.opt.Bootstrap; n.seeds == nil {
		if n.seeds, err = n.opt.Dir.Seeds(); err != nil {
			return err
		}
	}
	if backend, err := n.opt.Dir.Backend(); err == nil {
		n.log.Info("the node key is taken up", "backend", backend)
	}
	n.agent, n.secret, err = n.opt.Dir.openAgent()
	return err
}

// faceURL is the URL under which this machine reaches the face.
func faceURL(a net.Addr) string {
	host, port, _ := net.SplitHostPort(a.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return (&url.URL{Scheme: "ws", Host: net.JoinHostPort(host, port)}).String()
}

// serve runs the parts on an open store until ctx ends or one of them fails.
func (n *node) serve(ctx context.Context, ln net.Listener, made bool) (err error) {
	cfg, err := face(&n.cfg().Spec.Relay, n.agent.PubKey())
	if err != nil {
		return err
	}
	if n.fed, err = newFederation(n); err != nil {
		return err
	}
	if n.live, err = newManifests(n, &cfg); err != nil {
		return err
	}
	if n.seams, err = newSeams(n.opt.Dir, &n.cfg().Spec); err != nil {
		return err
	}
	defer n.seams.close()
	if err := n.openTrails(); err != nil {
		return err
	}
	defer n.closeTrails()
	cfg.Policy = append(cfg.Policy.(policy.Chain), n.seams.in.Policies()...)
	cfg.Store, cfg.Log = n.store, n.log
	cfg.Info.Version = n.opt.Build
	fitFiles(&cfg.Limits, n.log)
	cfg.PublicURLs = append([]string{n.url}, cfg.PublicURLs...)
	cfg.Subprotocols = n.fed.subprotocols()
	n.openPage(&cfg)
	if n.relay, err = relay.New(cfg); err != nil {
		return err
	}
	n.mountPages()
	n.fed.mount(n.relay)
	handler, err := n.blobs.mount(ctx, n)
	if err != nil {
		return err
	}
	defer n.blobs.close()
	server := faceServer(handler, bodyPatience, idlePatience)
	server.ErrorLog = slog.NewLogLogger(n.log.Handler(), slog.LevelDebug)
	failed := make(chan error, 1)
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve the relay face: %w", err)
		}
	})
	defer parts.Wait()
	trusting, stop := context.WithCancel(ctx)
	defer stop()
	parts.Go(func() { n.seams.run(trusting, n) })
	parts.Go(func() { n.followAway(trusting) })
	defer n.shutdown(server)
	if err := n.hear(trusting, &parts); err != nil {
		return err
	}
	parts.Go(func() { n.followErasures(trusting) })
	if err := n.fed.start(ctx); err != nil {
		return err
	}
	if n.control, err = control.Listen(n.opt.Dir.Control(), n.methods()); err != nil {
		return err
	}
	parts.Go(func() { n.live.rollBack(trusting) })
	n.opt.Ready(Ready{Event: "ready", Relay: n.url, DID: identity.FormatDID(n.agent.PubKey()), Dir: string(n.opt.Dir), Made: made, Control: n.opt.Dir.Control()})
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// shutdown says goodbye to peers, then closes the doors, in the order in which the parts need each other.
func (n *node) shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	if n.control != nil {
		if err := n.control.Close(); err != nil {
			n.log.Warn("close the control socket", "err", err)
		}
	}
	n.page.Close() // its open streams would hold the server
	n.fed.stop(ctx)
	if err := n.relay.Shutdown(ctx); err != nil {
		n.log.Warn("shut the relay face down", "err", err)
	}
	if err := server.Shutdown(ctx); err != nil {
		server.Close()
	}
}

// ingest is the path of events that come from within: a sync, an import, a peer. It is the relay's own path.
func (n *node) ingest(source policy.Source) func(context.Context, []*nostr.Event) ([]relay.Verdict, error) {
	return func(ctx context.Context, events []*nostr.Event) ([]relay.Verdict, error) {
		return n.relay.Publish(ctx, events, source)
	}
}

// Status is what `meshnode status` tells.
type Status struct {
	DID        string      `json:"did"`
	Relay      string      `json:"relay"`
	Class      string      `json:"class"`
	Protocol   string      `json:"protocol"`
	Digest     string      `json:"digest"`
	Uptime     int64       `json:"uptime_seconds"`
	Store      store.Stats `json:"store"`
	Federation string      `json:"enrolment"`
	Peers      int         `json:"peers"`
	Relaying   any         `json:"relaying"` // counters of the face
	// ForeignWraps counts gift wraps to this node's key that are another protocol's, by what they seem to be.
	ForeignWraps map[string]int64 `json:"foreign_wraps,omitempty"`
	Seams        *SeamsStatus     `json:"seams,omitempty"` // pluginIn and pluginOut
}

func (n *node) status(ctx context.Context) (Status, error) {
	stats, err := n.store.Stats(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("ask the store for its sizes: %w", err)
	}
	return Status{
		DID: identity.FormatDID(n.agent.PubKey()), Relay: n.url, Class: n.cfg().Spec.Class,
		Protocol: spec.C().Protocol.Name, Digest: spec.DigestHex(), Uptime: int64(time.Since(n.started).Seconds()),
		Store: stats, Federation: n.cfg().Spec.Federation.Enrolment, Peers: n.fed.count(), Relaying: n.relay.Metrics(),
		ForeignWraps: n.foreign.counts(), Seams: n.seams.status(),
	}, nil
}
