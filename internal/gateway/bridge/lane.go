package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// lane is one stream at one relay.
type lane struct {
	b      *Bridge
	r      *remote
	s      Stream
	status gateway.FollowStatus

	down, up atomic.Pointer[policy.Plugin]
	boundary policy.Boundary // of what goes out
	gap      atomic.Uint64   // the newest arrival when the connection's gap began to be closed

	sent, held atomic.Int64
	lastSent   atomic.Int64 // unix second

	mu      sync.Mutex
	stopped map[string]int64 // events that stayed where they were, by reason
	failure string
	cancel  context.CancelFunc
	done    chan struct{}
}

func newLane(b *Bridge, r *remote, s Stream) *lane {
	l := &lane{b: b, r: r, s: s, stopped: map[string]int64{}}
	l.boundary.Mailbox = func(ctx context.Context, k nostr.PubKey) bool { return b.named(ctx, k, []string{r.url}) }
	return l
}

// sameAs says whether a lane may go on under a new configuration.
func (l *lane) sameAs(s *Stream) bool {
	return l.s.Dir == s.Dir && l.s.filterText() == s.filterText() && l.s.Auth == s.Auth && l.s.EventsPerSecond == s.EventsPerSecond
}

func (l *lane) setPlugins(down, up *policy.Plugin) {
	l.down.Store(down)
	l.up.Store(up)
}

func (l *lane) start(ctx context.Context) {
	if l.done != nil {
		return
	}
	ctx, l.cancel = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		l.run(ctx)
	}()
}

func (l *lane) stop() {
	if l.done != nil {
		l.cancel()
		<-l.done
	}
}

// retry is how long a stream rests that a relay has refused.
const retry = time.Minute

func (l *lane) run(ctx context.Context) {
	for {
		err := gateway.Follow(ctx, l.r.link, l.b.opt.Local.Store, l.options(), &l.status)
		if ctx.Err() != nil {
			return
		}
		l.fail(err)
		l.b.opt.Log.Warn("a stream rests for a minute", "stream", l.s.Name, "relay", l.r.url, "err", err)
		t := time.NewTimer(retry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = ""
	if err != nil {
		l.failure = err.Error()
	}
}

// options are those of both a Follow and a single Sync.
func (l *lane) options() gateway.SyncOptions {
	o := gateway.SyncOptions{
		Direction: l.s.Dir, Filter: l.s.Filter, Sink: l.b.opt.Local.Sink, View: store.View{Hide: policy.PrivateKinds}, Peer: l.r.facts,
		In: l.in, Out: l.out, Offered: l.offered, Resync: l.b.opt.Resync, Verifier: l.b.opt.Verifier, Log: l.b.opt.Log, Now: l.b.opt.Now,
	}
	if l.s.Dir&gateway.Push != 0 {
		o.Before = func(ctx context.Context, _ *gateway.Conn) error { return l.mark(ctx) }
		o.Beside = l.live
	}
	return o
}

// in is asked about what came down.
func (l *lane) in(ctx context.Context, events []*nostr.Event) []gateway.Stop {
	for _, e := range events {
		l.r.seen.add(e.ID)
	}
	out := l.ask(ctx, events, &l.b.boundary, l.down.Load(), nil, policy.FromStream)
	if l.b.opt.Taken == nil {
		return out
	}
	var list []*nostr.Event
	var at []int
	for i, s := range out {
		if s.Word == "" {
			list, at = append(list, events[i]), append(at, i)
		}
	}
	for k, word := range l.b.opt.Taken(ctx, l.r.url, list) {
		if word != "" {
			out[at[k]] = gateway.Stop{Word: word}
			l.count(word)
		}
	}
	return out
}

func (l *lane) count(word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped[word]++
}

// out is asked about what would go up.
func (l *lane) out(ctx context.Context, events []*nostr.Event) []gateway.Stop {
	return l.ask(ctx, events, &l.boundary, l.up.Load(), l.b.opt.Out, policy.FromStore)
}

func (l *lane) ask(ctx context.Context, events []*nostr.Event, boundary *policy.Boundary, plugin *policy.Plugin, seam *policy.Seam, from policy.Source) []gateway.Stop {
	out := make([]gateway.Stop, len(events))
	now := l.b.opt.Now().Unix()
	var list []*policy.Request
	var at []int
	for i, e := range events {
		if why := boundary.Stops(ctx, e, now); why != "" {
			out[i] = gateway.Stop{Word: why}
			continue
		}
		list, at = append(list, &policy.Request{Event: e, Source: from, Info: l.r.url, Now: now}), append(at, i)
	}
	stop := func(answers []*policy.Rejection) {
		rest, left := list[:0:0], at[:0:0]
		for k, no := range answers {
			if no == nil {
				rest, left = append(rest, list[k]), append(left, at[k])
				continue
			}
			out[at[k]] = gateway.Stop{Word: "plugin", Again: no.Prefix == policy.Error || no.Prefix == policy.RateLimited}
			if l.b.verbose.Load() && !no.Shadow {
				l.b.opt.Log.Info("a plugin stops an event", "stream", l.s.Name, "relay", l.r.url, "event", list[k].Event.ID.String())
			}
		}
		list, at = rest, left
	}
	if seam != nil {
		stop(seam.Ask(ctx, list))
	}
	if plugin != nil {
		stop(plugin.AdmitAll(ctx, list))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range out {
		if s.Word != "" {
			l.stopped[s.Word]++
		}
	}
	return out
}

// offered is told what the relay has by now.
func (l *lane) offered(e *nostr.Event, a gateway.Answer) {
	l.r.seen.add(e.ID)
	if gateway.Prefix(a.Reason) == "duplicate" {
		l.held.Add(1)
		return
	}
	now := l.b.opt.Now().Unix()
	l.sent.Add(1)
	l.lastSent.Store(now)
	if err := l.b.opt.Trail.Add(trail.Departure{Event: e.ID, Road: l.b.opt.Road, To: l.r.url, At: now}); err != nil {
		l.b.opt.Log.Error("what left is not written down", "relay", l.r.url, "err", err)
	}
}

// mark notes where live events begin, before the gap is closed: what arrives from now on goes by the order of arrival.
func (l *lane) mark(ctx context.Context) error {
	seq, err := l.b.opt.Local.Store.LastSeq(ctx)
	if err != nil {
		return fmt.Errorf("%w: look at the latest arrival: %w", gateway.ErrLocal, err)
	}
	l.gap.Store(seq)
	l.fail(nil)
	return nil
}

// live sends what arrives, in the order of arrival and until the connection ends.
func (l *lane) live(ctx context.Context, conn *gateway.Conn) error {
	wake, stop := l.b.opt.Local.Bell.Listen()
	defer stop()
	for {
		if err := l.catchUp(ctx, conn); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-conn.Done():
			return conn.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// liveBatch is how many arrivals are read before they are sent.
const liveBatch = 200

// catchUp sends what has arrived since the cursor. Gift wraps are dated back on purpose, and relays show them to their recipients
// alone, so that no reconciliation finds which of them are missing: they go by this cursor, which outlives the
// process. For all other events it begins where the gap was closed.
func (l *lane) catchUp(ctx context.Context, conn *gateway.Conn) error {
	cursor, err := l.cursor()
	if err != nil {
		return fmt.Errorf("%w: read how far the stream has come: %w", gateway.ErrLocal, err)
	}
	for {
		batch, next, err := l.arrivals(ctx, cursor)
		if err != nil {
			return fmt.Errorf("%w: read what arrived: %w", gateway.ErrLocal, err)
		}
		if next == cursor {
			return nil
		}
		if err := l.send(ctx, conn, batch); err != nil {
			return err
		}
		cursor = next
		if err := l.keep(cursor); err != nil {
			return fmt.Errorf("%w: keep how far the stream has come: %w", gateway.ErrLocal, err)
		}
	}
}

// arrivals reads on from a cursor, and returns what may go up and the next cursor.
func (l *lane) arrivals(ctx context.Context, cursor uint64) (batch []*nostr.Event, next uint64, err error) {
	gap, next := l.gap.Load(), cursor
	read := 0
	for a, err := range l.b.opt.Local.Store.Arrivals(ctx, cursor, l.b.opt.Now().Unix()) {
		if err != nil {
			return nil, 0, err
		}
		next = a.Seq
		wrap := slices.Contains(policy.PrivateKinds, a.Event.Kind)
		if (wrap || a.Seq > gap) && l.s.Filter.Matches(a.Event) && !l.r.seen.has(a.Event.ID) {
			if _, no := l.r.facts.Known(gateway.Upload, a.Event.ID); !no {
				batch = append(batch, a.Event)
			}
		}
		if read++; read == liveBatch {
			break
		}
	}
	return batch, next, nil
}

func (l *lane) send(ctx context.Context, conn *gateway.Conn, batch []*nostr.Event) error {
	if len(batch) == 0 {
		return nil
	}
	pass := batch[:0]
	for i, s := range l.out(ctx, batch) {
		if s.Word == "" {
			pass = append(pass, batch[i])
		}
	}
	return conn.PublishMany(ctx, eventsOf(pass), 100, func(e *nostr.Event, a gateway.Answer) error {
		word := gateway.Prefix(a.Reason)
		switch {
		case a.OK || word == "duplicate":
			l.offered(e, a)
		case word == "auth-required":
			return fmt.Errorf("%w: %s", gateway.ErrAuthRequired, a.Reason)
		case a.Final():
			if err := l.r.facts.Remember(gateway.PeerFact{Way: gateway.Upload, ID: e.ID, Word: word, At: l.b.opt.Now().Unix()}); err != nil {
				l.b.opt.Log.Warn("what a relay refused is not remembered", "relay", l.r.url, "err", err)
			}
		}
		return nil
	})
}

func eventsOf(list []*nostr.Event) func(func(*nostr.Event, error) bool) {
	return func(yield func(*nostr.Event, error) bool) {
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// cursorFile is where the stream's cursor is kept.
func (l *lane) cursorFile() string {
	sum := sha256.Sum256([]byte(l.s.Name + "\n" + l.r.url))
	return filepath.Join(l.b.opt.Dir, hex.EncodeToString(sum[:12])+".cursor")
}

// cursor is where to go on. A stream that names gift wraps begins at the first event; any other, where its gap was closed: wraps do
// not go in bulk.
func (l *lane) cursor() (uint64, error) {
	text, err := os.ReadFile(l.cursorFile())
	if errors.Is(err, os.ErrNotExist) {
		for _, k := range policy.PrivateKinds {
			if slices.Contains(l.s.Filter.Kinds, k) {
				return 0, nil
			}
		}
		return l.gap.Load(), nil
	}
	if err != nil {
		return 0, err
	}
	var c struct {
		Arrival uint64 `json:"arrival"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return 0, fmt.Errorf("%s: %w: delete the file to begin anew", l.cursorFile(), err)
	}
	return c.Arrival, nil
}

// keep replaces the cursor whole. Losing the latest ones costs a few events that the relay has already.
func (l *lane) keep(seq uint64) error {
	text, err := json.Marshal(map[string]any{"stream": l.s.Name, "relay": l.r.url, "arrival": seq})
	if err != nil {
		return err
	}
	tmp := l.cursorFile() + ".new"
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, l.cursorFile())
}

// Named says whether a key names one of the relays in its kind 10050, as far as the store knows.
func Named(ctx context.Context, s store.Store, k nostr.PubKey, relays []string, now int64) bool {
	f := nostr.Filter{Kinds: []nostr.Kind{spec.C().Boundary.RecipientRelaysKind}, Authors: []nostr.PubKey{k}}
	for e, err := range s.Query(ctx, []nostr.Filter{f}, store.View{}, 1, now) {
		if err != nil {
			return false
		}
		for v := range e.TagValues("relay") {
			norm, err := nostr.NormalizeRelayURL(v)
			for _, r := range relays {
				if want, werr := nostr.NormalizeRelayURL(r); err == nil && werr == nil && norm == want {
					return true
				}
			}
		}
	}
	return false
}

// LaneStatus tells how one stream at one relay stands.
type LaneStatus struct {
	Stream       string           `json:"stream"`
	Relay        string           `json:"relay"`
	Dir          string           `json:"dir"` // "down", "up", "both"
	Connected    bool             `json:"connected"`
	LastEventAge int64            `json:"last_event_age"` // seconds since an event came or went; -1: none did
	New          int64            `json:"new"`            // events taken
	Sent         int64            `json:"sent"`           // events that the relay took
	Held         int64            `json:"held"`           // events offered that it had
	Stopped      map[string]int64 `json:"stopped,omitempty"`
	Disconnects  int64            `json:"disconnects"`
	Syncs        int64            `json:"syncs"` // gaps closed
	Failure      string           `json:"failure,omitempty"`
}

func (l *lane) tell(now time.Time) LaneStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := LaneStatus{
		Stream: l.s.Name, Relay: l.r.url, Dir: map[gateway.Direction]string{gateway.Pull: "down", gateway.Push: "up", gateway.Both: "both"}[l.s.Dir],
		Connected: l.status.Connected.Load(), LastEventAge: -1, New: l.status.New.Load(), Sent: l.sent.Load(), Held: l.held.Load(),
		Stopped: maps.Clone(l.stopped), Disconnects: l.status.Disconnects.Load(), Syncs: l.status.Syncs.Load(), Failure: l.failure,
	}
	if last := max(l.status.LastEvent.Load(), l.lastSent.Load()); last > 0 {
		st.LastEventAge = max(0, now.Unix()-last)
	}
	return st
}

// Status tells how all streams stand, in the order of stream and relay.
func (b *Bridge) Status() []LaneStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	want := map[laneKey]*Stream{}
	for key := range b.lanes {
		want[key] = nil
	}
	out := []LaneStatus{}
	for _, key := range sortedLanes(want) {
		out = append(out, b.lanes[key].tell(b.opt.Now()))
	}
	return out
}
