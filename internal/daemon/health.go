package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/metrics"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/internal/monitor"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// health gathers what a monitor judges. It says what is, never whether that is good.
func (n *node) health(ctx context.Context, p monitor.Params) (monitor.Facts, error) {
	now := time.Now()
	counts, limits := n.relay.Metrics(), n.relay.Limits()
	f := monitor.Facts{
		At: now.Unix(), DID: identity.FormatDID(n.agent.PubKey()), Class: n.cfg().Spec.Class, Build: n.opt.Build,
		Uptime: int64(now.Sub(n.started).Seconds()), Relay: n.url,
		Face: monitor.Face{
			Open: counts.Open, MaxConnections: int64(max(0, limits.MaxConnections)), Subscriptions: counts.Subscriptions, Owed: counts.Owed,
			Shed: counts.Shed, Refused: counts.Refused,
		},
		Disk:  monitor.DiskOf(n.opt.Dir.Store(n.cfg())),
		Clock: monitor.Clock{Disciplined: monitor.Disciplined(), Ahead: newestFile(n.opt.Dir, n.cfg(), now)},
		Files: openFiles(), Memory: memory(), Peers: []monitor.Peer{}, Pending: n.live.waiting(),
	}
	f.Store = n.storeFacts(ctx, p.Recount, now.Unix())
	f.Federation, f.Trouble = n.fed.state()
	if d := n.fed.own(); d != nil {
		f.Descriptor = &monitor.Expiring{ID: d.ID.String(), Made: d.CreatedAt, Expires: expiration(d)}
	}
	if h := n.fed.running(); h != nil {
		f.Peers = peerFacts(h)
		if capacity, _ := h.Load(); len(capacity.Declared) > 0 {
			f.Strain = &monitor.Strain{Pressure: float64(capacity.Percent) / 100, Rung: len(capacity.Rungs)}
		}
		if p.Clock {
			c := n.fed.checkClock(ctx, nil)
			f.Clock.Compared, f.Clock.Offset = c.Compared, c.Offset
		}
	}
	return f, nil
}

func expiration(e *nostr.Event) int64 {
	at, _ := e.Expiration()
	return at
}

// state says how federation is, in a word, and why it is off.
func (f *federation) state() (state, trouble string) {
	select {
	case <-f.ready:
	default:
		return "starting", ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(f.err, errRetired):
		return "retired", ""
	case f.err != nil:
		return "off", f.err.Error()
	}
	return "up", ""
}

func peerFacts(h *host.Host) []monitor.Peer {
	out := []monitor.Peer{}
	sessions := h.Sessions()
	for _, p := range h.Peers() {
		one := monitor.Peer{DID: identity.FormatDID(p.Key), Stage: p.Stage, Tier: string(p.Tier), Session: sessions[p.Key], Digest: p.Digest, Windows: []monitor.Window{}}
		one.Issued, one.Caused = budgetFacts(p.Issued)
		one.Held, one.Used = budgetFacts(p.Held)
		for _, w := range p.Windows {
			one.Windows = append(one.Windows, monitor.Window{Epoch: w.Window, At: w.At, Severity: w.Severity, Limit: string(w.Limit)})
		}
		out = append(out, one)
	}
	return out
}

func budgetFacts(b *Budget) (*monitor.Expiring, []monitor.Share) {
	if b == nil {
		return nil, nil
	}
	var shares []monitor.Share
	for _, l := range spec.C().Limits {
		if of, ok := b.Limits[l.Name]; ok {
			shares = append(shares, monitor.Share{Limit: string(l.Name), Used: b.Used.Of(l.Name), Of: of})
		}
	}
	return &monitor.Expiring{ID: b.Grant.String(), Made: b.Made, Expires: b.Expires}, shares
}

// waiting counts the keys of node.yaml that are not in force.
func (m *manifests) waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := os.ReadFile(m.n.opt.Dir.Config())
	if err != nil {
		return 0
	}
	config, err := manifest.Normal(text)
	if err != nil {
		return 0 // the doctor reads it and says what is wrong; it is not in force
	}
	return len(manifest.Pending(m.inForce, config))
}

// newestFile says by how many seconds the newest file that this node wrote lies in the future, 0 if none does.
func newestFile(d Dir, c *Config, now time.Time) int64 {
	ahead := int64(0)
	for _, dir := range []string{d.Store(c), filepath.Dir(d.Journal())} {
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			if fi, err := e.Info(); err == nil {
				ahead = max(ahead, int64(fi.ModTime().Sub(now).Seconds()))
			}
		}
	}
	return ahead
}

// memory is what the Go runtime holds of the system.
func memory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// openFiles counts the descriptors of this process, where /proc tells.
func openFiles() monitor.FilesInUse {
	f := monitor.FilesInUse{Max: int64(raiseFileLimit())}
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.Open = int64(len(list))
	} else if !errors.Is(err, fs.ErrNotExist) {
		f.Max = 0
	}
	return f
}

// storeFacts asks the store for its state and, if recount is not 0, counts part of it again.
func (n *node) storeFacts(ctx context.Context, recount int, now int64) monitor.Store {
	stats, err := n.store.Stats(ctx)
	if err != nil {
		return monitor.Store{Broken: err.Error()}
	}
	out := monitor.Store{Events: stats.Events, Bytes: stats.Bytes, Max: n.cfg().Spec.Storage.MaxBytes, Dead: stats.DeadBytes, Damaged: stats.Damaged}
	if recount != 0 {
		r, err := recountStore(ctx, n.store, recount, now)
		if err != nil {
			out.Broken = fmt.Sprintf("recount: %v", err)
		}
		out.Recount = r
	}
	return out
}
