package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// What spec.federation.reports says: whose reports about node conduct are fetched, kept and read (§ Grants & receipts, Retention). none reads no report of
// anybody's; the others are those of constants.json.
const (
	reportsNone    = "none"
	reportsSelf    = "self"
	reportsPeers   = "peers"
	reportsArchive = "archive"
)

// checkConduct checks what the configuration says of reports, questions and capacity.
func (f *Federation) checkConduct() (errs []error) {
	if !slices.Contains([]string{"", reportsNone, reportsSelf, reportsPeers, reportsArchive}, f.Reports) {
		errs = append(errs, fmt.Errorf("spec.federation.reports is %q, want none, self, peers or archive", f.Reports))
	}
	if !slices.Contains([]string{"", string(mesh.StandingNone), string(mesh.StandingThreshold), string(mesh.StandingOwn)}, f.Standing) {
		errs = append(errs, fmt.Errorf("spec.federation.standing is %q, want none, threshold or own", f.Standing))
	}
	if _, err := f.Grants.terms(); err != nil {
		errs = append(errs, err)
	}
	if f.Grants.Scope.Pull != nil {
		if _, err := scopeFilter(f.Grants.Scope.Pull); err != nil {
			errs = append(errs, fmt.Errorf("spec.federation.grants.scope.pull: %w", err))
		}
	}
	for n, v := range f.Capacity {
		if !slices.Contains(spec.C().Counters, n) {
			errs = append(errs, fmt.Errorf("spec.federation.capacity names %q, which is no counter: those are %v", n, spec.C().Counters))
		} else if v <= 0 {
			errs = append(errs, fmt.Errorf("spec.federation.capacity.%s is %d, want 1 or more in a window", n, v))
		}
	}
	return errs
}

func (f *Federation) retention() string {
	if f.Reports == "" {
		return reportsPeers
	}
	return f.Reports
}

func (f *Federation) standing() mesh.StandingPolicy {
	if f.Standing == "" {
		return mesh.StandingThreshold
	}
	return mesh.StandingPolicy(f.Standing)
}

// announce publishes a signed event of ours here and puts it out at our relays.
func (f *federation) announce(ctx context.Context, e *nostr.Event) error {
	if err := f.publish(ctx, e); err != nil {
		return err
	}
	f.outbox.put(e)
	return nil
}

// shed takes coverage claims anew when a rung of the shedding ladder engages or is released.
func (f *federation) shed(rungs []strain.Rung) {
	f.mu.Lock()
	narrow := slices.Contains(rungs, strain.NarrowScope)
	changed := narrow != f.narrowed
	f.narrowed = narrow
	f.mu.Unlock()
	if changed && len(f.n.cfg().Spec.Shards) > 0 {
		f.work.Go(func() {
			if _, err := f.coverNow(context.Background()); err != nil {
				f.n.log.Warn("claim coverage", "err", err)
			}
		})
	}
}

func (f *federation) isNarrowed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.narrowed
}

// readEvery is how often the faces of peers are asked for reports; what comes in by our own doors is read at once.
const readEvery = 5 * time.Minute

// readReports reads reports of others as long as the node runs: those that the store holds, those that come in, and those on the faces of peers.
func (f *federation) readReports(ctx context.Context, h *host.Host) {
	mode := f.n.cfg().Spec.Federation.retention()
	if mode == reportsNone {
		return
	}
	filter := nostr.Filter{Kinds: []nostr.Kind{spec.KindReport}}
	if mode == reportsSelf {
		filter.Tags = []nostr.TagFilter{{Letter: 'd', Values: []string{f.n.agent.PubKey().String()}}}
	}
	feed := f.n.relay.Follow([]nostr.Filter{filter}, 256)
	defer feed.Close()
	if err := h.HeldReports(ctx, nil); err != nil && ctx.Err() == nil {
		f.n.log.Warn("read reports", "err", err)
	}
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	f.fetchReports(ctx, h, mode)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-feed.Events():
			if err := h.ReadReport(ctx, e); err != nil && ctx.Err() == nil {
				f.n.log.Debug("a report is no use", "event", e.ID.String(), "err", err)
			}
		case <-tick.C:
			f.fetchReports(ctx, h, mode)
		}
	}
}

// fetchReports asks the faces of active peers for what the mode wants, and takes it in by the relay's own path.
func (f *federation) fetchReports(ctx context.Context, h *host.Host, mode string) {
	var peers []nostr.PubKey
	for _, p := range h.Peers() {
		if p.Stage == "active" {
			peers = append(peers, p.Key)
		}
	}
	if len(peers) == 0 {
		return
	}
	limit := 500
	want := nostr.Filter{Kinds: []nostr.Kind{spec.KindReport}, Limit: &limit}
	switch mode {
	case reportsSelf:
		want.Tags = []nostr.TagFilter{{Letter: 'd', Values: []string{f.n.agent.PubKey().String()}}}
	case reportsPeers:
		want.Authors = peers
	}
	for _, key := range peers {
		if ctx.Err() != nil {
			return
		}
		if err := f.fetchFrom(ctx, h, key, want); err != nil && ctx.Err() == nil {
			f.n.log.Debug("ask a peer's face for reports", "peer", key.String()[:12], "err", err)
		}
	}
}

func (f *federation) fetchFrom(ctx context.Context, h *host.Host, key nostr.PubKey, want nostr.Filter) error {
	list, err := f.askFace(ctx, h, key, want)
	if err != nil || len(list) == 0 {
		return err
	}
	_, err = f.n.relay.Publish(ctx, list, policy.FromSync)
	return err
}

// askFace queries the first WebSocket face of a peer that answers.
func (f *federation) askFace(ctx context.Context, h *host.Host, key nostr.PubKey, want nostr.Filter) ([]*nostr.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, findPatience)
	defer cancel()
	d, err := h.Descriptor(ctx, key)
	if err != nil {
		return nil, err
	}
	err = errors.New("the peer has no public face")
	for _, ep := range d.Endpoints {
		if ep.Scheme != "wss" {
			continue
		}
		var conn *gateway.Conn
		if conn, err = gateway.Dial(ctx, ep.Address, gateway.Options{Client: f.net.HTTPClient()}); err != nil {
			continue
		}
		list, err := conn.QueryAll(ctx, want)
		conn.Close()
		return list, err
	}
	return nil, err
}

// Reports is what report.list answers: complaints of this node and about it, and what it read of others'.
type Reports struct {
	Cases    []host.Case    `json:"cases"`
	Findings []mesh.Finding `json:"findings"`
}

func (n *node) reportList(ctx context.Context, _ none) (r Reports, err error) {
	h, err := n.fed.get(ctx)
	if err != nil {
		return r, err
	}
	r.Cases, r.Findings = h.Cases()
	return r, nil
}

// WithdrawParams name a peer and one complaint about it, or all.
type WithdrawParams struct {
	DID    string `json:"did"`
	Thread string `json:"thread,omitempty"`
	Note   string `json:"note,omitempty"`
}

func (n *node) reportWithdraw(ctx context.Context, p WithdrawParams) (none, error) {
	key, err := ParseNode(p.DID)
	if err != nil {
		return none{}, control.BadParams("%v", err)
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return none{}, err
	}
	cases, _ := h.Cases()
	if !slices.ContainsFunc(cases, func(c host.Case) bool {
		return c.Peer == key && slices.ContainsFunc(c.Ours, func(o mesh.Complaint) bool { return p.Thread == "" || o.Thread == p.Thread })
	}) {
		return none{}, control.Refuse(string(spec.CodeNotFound), "there is no such complaint of this node's about %s: see meshnode report list", p.DID)
	}
	h.WithdrawComplaint(key, p.Thread, p.Note)
	return none{}, nil
}

// StandingParams ask peers about a node.
type StandingParams struct {
	DID   string     `json:"did"`            // about whom
	Ask   string     `json:"ask,omitempty"`  // one peer; empty: every active one
	Mode  string     `json:"mode,omitempty"` // own or threshold
	Topic spec.Topic `json:"topic,omitempty"`
}

// StandingAnswer is what one peer said, or that it declined, or why it could not be asked.
type StandingAnswer struct {
	Peer     string           `json:"peer"`
	Answered bool             `json:"answered"`
	Answer   *mesh.AnswerBody `json:"answer,omitempty"`
	Problem  string           `json:"problem,omitempty"`
}

func (n *node) peerStanding(ctx context.Context, p StandingParams) ([]StandingAnswer, error) {
	subject, err := ParseNode(p.DID)
	if err != nil {
		return nil, control.BadParams("%v", err)
	}
	if p.Mode == "" {
		p.Mode = mesh.AskThreshold
	}
	if !slices.Contains(spec.C().Trust.Modes, p.Mode) {
		return nil, control.BadParams("mode is %q, want one of %s", p.Mode, strings.Join(spec.C().Trust.Modes, ", "))
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return nil, err
	}
	out := []StandingAnswer{}
	for _, peer := range h.Peers() {
		did := identity.FormatDID(peer.Key)
		if peer.Stage != "active" || peer.Key == subject || p.Ask != "" && p.Ask != did {
			continue
		}
		a := StandingAnswer{Peer: did}
		body, answered, err := h.AskStanding(ctx, peer.Key, mesh.QueryBody{Subject: subject, Mode: p.Mode, Topic: p.Topic})
		if a.Answered = answered; answered {
			a.Answer = &body
		}
		if err != nil {
			a.Problem = err.Error()
		}
		out = append(out, a)
	}
	if p.Ask != "" && len(out) == 0 {
		return nil, control.Refuse(string(spec.CodeNotGranted), "%s is no active peer of this node", p.Ask)
	}
	return out, nil
}

// AmendParams are the operator's hand on a grant of ours.
type AmendParams struct {
	DID    string               `json:"did"`
	Tier   spec.Tier            `json:"tier,omitempty"`
	Limits map[spec.Limit]int64 `json:"limits,omitempty"`
	Free   []spec.Limit         `json:"free,omitempty"` // given back to the arithmetic
}

func (n *node) peerAmend(ctx context.Context, p AmendParams) (none, error) {
	key, err := ParseNode(p.DID)
	if err != nil {
		return none{}, control.BadParams("%v", err)
	}
	if p.Tier != "" && spec.C().TierRank(p.Tier) < 0 {
		return none{}, control.BadParams("tier %q is none of probation, member, trusted, anchor", p.Tier)
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return none{}, err
	}
	peers := h.Peers()
	i := slices.IndexFunc(peers, func(q mesh.Peer) bool { return q.Key == key })
	if i < 0 || peers[i].Issued == nil {
		return none{}, control.Refuse(string(spec.CodeNotGranted), "this node has granted nothing to %s: begin with meshnode peer add %s", p.DID, p.DID)
	}
	tier := peers[i].Tier
	if p.Tier != "" {
		tier = p.Tier
	}
	for _, name := range append(slices.Sorted(maps.Keys(p.Limits)), p.Free...) {
		if _, ok := spec.C().Limit(name); !ok {
			return none{}, control.BadParams("%q is no limit of a grant: see meshnode grant show %s", name, p.DID)
		}
		v := p.Limits[name]
		if v < 0 {
			return none{}, control.BadParams("%s is %d, want 0 or more", name, v)
		}
		if most := spec.C().Ceiling(name, tier); v > most {
			return none{}, control.BadParams("%s is %d, and a %s may have %d at the most: give less, or another tier with meshnode peer tier", name, v, tier, most)
		}
	}
	h.Amend(mesh.Amend{Peer: key, Tier: p.Tier, Limits: p.Limits, Free: p.Free})
	return none{}, nil
}

// Load is what the node carries, and what it survived.
type Load struct {
	mesh.Capacity
	WindowSeconds int64          `json:"window_seconds"`
	Strain        []strain.Tally `json:"strain"`
	Breadth       string         `json:"breadth"`              // independent directions, each by the weight of its tier
	DependsOn     string         `json:"depends_on,omitempty"` // the one direction that nearly all strain comes from
}

func (n *node) carried(ctx context.Context, _ none) (l Load, err error) {
	h, err := n.fed.get(ctx)
	if err != nil {
		return l, err
	}
	capacity, record := h.Load()
	l = Load{Capacity: capacity, Strain: record.Tallies(), Breadth: record.Breadth().FloatString(2), WindowSeconds: n.cfg().Spec.Federation.WindowSeconds}
	if l.WindowSeconds == 0 {
		l.WindowSeconds = spec.C().Window.DefaultSeconds
	}
	if on, ok := record.Dependence(); ok {
		l.DependsOn = string(on.Side) + " " + on.Name
	}
	return l, nil
}

// misreported brings a heartbeat that contradicts its node's own descriptor to mesh, once for each descriptor.
func (f *federation) misreported(descriptor, heartbeat *nostr.Event) {
	h := f.running()
	if h == nil {
		return
	}
	f.mu.Lock()
	if f.contradicted == nil {
		f.contradicted = map[nostr.PubKey]nostr.ID{}
	}
	known := f.contradicted[descriptor.PubKey] == descriptor.ID
	f.contradicted[descriptor.PubKey] = descriptor.ID
	f.mu.Unlock()
	peer := slices.ContainsFunc(h.Peers(), func(p mesh.Peer) bool { return p.Key == descriptor.PubKey && p.Stage == "active" })
	if peer && !known {
		h.Found(descriptor.PubKey, ledger.SelfMisreport, "a heartbeat contradicts the descriptor", descriptor, heartbeat)
	}
}
