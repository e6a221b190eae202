package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
)

// SyncParams are those of relay.sync.
type SyncParams struct {
	URL       string          `json:"url"`
	Direction string          `json:"direction"` // pull, push or both
	Filter    json.RawMessage `json:"filter,omitempty"`
	NoPaging  bool            `json:"no_paging,omitempty"`
	Auth      bool            `json:"auth,omitempty"`  // answer the relay's challenges with the node's key
	Proxy     string          `json:"proxy,omitempty"` // socks5://, http:// or https://
	// Own says that the other relay is the operator's own: then also kinds move that never cross between networks.
	Own bool `json:"own,omitempty"`
}

// SyncStep tells how far a sync has come, and in the end what it did.
type SyncStep struct {
	Fetched int             `json:"fetched"` // event bodies that came over the wire
	New     int             `json:"new"`
	Sent    int             `json:"sent"`
	Summary string          `json:"summary"`
	Exit    int             `json:"exit"` // exit code of the verb; the last step only
	Failure string          `json:"failure,omitempty"`
	Report  *gateway.Report `json:"report,omitempty"` // the last step only
}

func stepOf(r gateway.Report, d gateway.Direction) SyncStep {
	return SyncStep{Fetched: r.Bodies, New: r.New, Sent: r.Sent, Summary: r.Summary(d)}
}

// syncJob is what a sync needs of its node, running or stopped.
type syncJob struct {
	dir   Dir
	store store.Store
	sink  gateway.Sink
	key   *nostr.SecretKey
	proxy string // where the request names none
	trail *trail.Book
	log   *slog.Logger
}

// run syncs, and tells of its progress at most five times a second.
func (j *syncJob) run(ctx context.Context, p SyncParams, step func(SyncStep)) (SyncStep, error) {
	d, err := gateway.ParseDirection(p.Direction)
	if err != nil {
		return SyncStep{}, control.BadParams("%v", err)
	}
	opt := gateway.SyncOptions{Direction: d, Sink: j.sink, NoPaging: p.NoPaging, Log: j.log, View: policy.NewGate(policy.PrivateKinds, true).View(nil)}
	if !p.Own {
		opt.In, opt.Out = crossing, crossing
	}
	opt.Offered = j.left(p.URL)
	if len(p.Filter) > 0 {
		if opt.Filter, err = nostr.ParseFilter(p.Filter); err != nil {
			return SyncStep{}, control.BadParams("filter: %v", err)
		}
	}
	dial := gateway.Options{Log: j.log}
	if p.Auth {
		dial.Key = j.key
	}
	if p.Proxy == "" {
		p.Proxy = j.proxy
	}
	if p.Proxy != "" {
		if dial.Proxy, err = url.Parse(p.Proxy); err != nil {
			return SyncStep{}, control.BadParams("proxy: %v", err)
		}
	}
	memory := j.dir.Peers()
	if p.Own { // what is remembered otherwise holds what must not cross against the relay
		memory = filepath.Join(memory, "own")
	}
	if opt.Peer, err = gateway.OpenPeerMemory(memory, p.URL, time.Now().Unix()); err != nil {
		return SyncStep{}, fmt.Errorf("open what is remembered of %s: %w", p.URL, err)
	}
	defer opt.Peer.Close()
	var last time.Time
	opt.Progress = func(r gateway.Report) {
		if time.Since(last) >= 200*time.Millisecond {
			last = time.Now()
			step(stepOf(r, d))
		}
	}
	link := gateway.NewLink(p.URL, dial)
	defer link.Close()
	report, err := gateway.Sync(ctx, link, j.store, opt)
	end := stepOf(report, d)
	end.Report, end.Exit = &report, gateway.ExitCode(err)
	if err != nil {
		end.Failure = err.Error()
	}
	return end, nil
}

// left makes the function that writes down what a relay took.
func (j *syncJob) left(url string) func(*nostr.Event, gateway.Answer) {
	if norm, err := nostr.NormalizeRelayURL(url); err == nil {
		url = norm
	}
	return func(e *nostr.Event, a gateway.Answer) {
		if gateway.Prefix(a.Reason) == "duplicate" {
			return
		}
		if err := j.trail.Add(trail.Departure{Event: e.ID, Road: "sync", To: url, At: time.Now().Unix()}); err != nil {
			j.log.Error("what left is not written down", "relay", url, "err", err)
		}
	}
}

// Sync runs a sync on a stopped node.
func (o *Offline) Sync(ctx context.Context, dir Dir, p SyncParams, step func(SyncStep)) (SyncStep, error) {
	j := &syncJob{dir: dir, store: o.store, sink: &gateway.StoreSink{Store: o.store, Policy: o.policy}, log: slog.New(slog.DiscardHandler)}
	cfg, err := LoadConfig(dir.Config())
	if err != nil {
		return SyncStep{}, err
	}
	j.proxy = cfg.Spec.Proxy
	if j.trail, err = trail.Open(dir.trail()); err != nil {
		return SyncStep{}, err
	}
	defer j.trail.Close()
	if p.Auth {
		k, err := dir.LoadKeys()
		if err != nil {
			return SyncStep{}, err
		}
		j.key = &k.Node
	}
	return j.run(ctx, p, step)
}

func (n *node) sync(ctx context.Context, raw json.RawMessage, notify func(any)) (any, error) {
	var p SyncParams
	if err := control.Params(raw, &p); err != nil {
		return nil, err
	}
	j := &syncJob{dir: n.opt.Dir, store: n.store, sink: n.relay.Sink(policy.FromSync), key: n.secret, proxy: n.cfg().Spec.Proxy, trail: n.trail, log: n.log}
	return j.run(ctx, p, func(s SyncStep) { notify(s) })
}

// PrintSync writes what a sync did for a person.
func PrintSync(w io.Writer, s SyncStep) {
	fmt.Fprintln(w, s.Summary)
	if s.Report != nil && s.Report.Method != "" {
		fmt.Fprintf(w, "by %s: %d sessions, %d messages, %d windows, %d reconnects, %d octets in, %d out\n",
			s.Report.Method, s.Report.Sessions, s.Report.Messages, s.Report.Windows, s.Report.Reconnects, s.Report.BytesIn, s.Report.BytesOut)
	}
}
