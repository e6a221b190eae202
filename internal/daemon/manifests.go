package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/spec"
)

// manifests is the node's side of meshctl: what was declared, what is in force, and the way from one to the other.
type manifests struct {
	n     *node
	rules *liveRules

	mu          sync.Mutex     // one plan or apply at a time
	inForce     map[string]any // the configuration that the parts run with, as manifest.Normal writes it
	interrupted *intention     // what a process before this one left half done, nil: nothing
	written     []byte         // node.yaml as it was when an apply began, to the octet
}

// newManifests puts the face's policy behind rules that may change later.
func newManifests(n *node, face *relay.Config) (*manifests, error) {
	inForce, err := manifest.Normal(n.cfg().YAML())
	if err != nil {
		return nil, fmt.Errorf("read the configuration in force: %w", err)
	}
	chain, _ := face.Policy.(policy.Chain)
	left, err := n.opt.Dir.interrupted()
	if err != nil {
		return nil, err
	}
	m := &manifests{n: n, rules: newLiveRules(chain), inForce: inForce, interrupted: left}
	face.Policy = m.rules.policies()
	return m, nil
}

// methods are what the control socket offers of manifests.
func (m *manifests) methods(into map[string]control.Handler) map[string]control.Handler {
	into[manifest.MethodGet] = method(func(ctx context.Context, _ none) (*manifest.Running, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.running(ctx)
	})
	into[manifest.MethodPlan] = method(func(ctx context.Context, p manifest.Params) (*manifest.Plan, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		plan, _, err := m.plan(ctx, p)
		return plan, err
	})
	into[manifest.MethodApply] = method(m.apply)
	return into
}

// manifestRecord is the file that remembers what was applied, and by whom.
func (d Dir) manifestRecord() string { return filepath.Join(string(d), "manifests.json") }

func (m *manifests) recorded() ([]manifest.Recorded, error) {
	text, err := os.ReadFile(m.n.opt.Dir.manifestRecord())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was applied: %w", err)
	}
	var list []manifest.Recorded
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read what was applied: %s: %w", m.n.opt.Dir.manifestRecord(), err)
	}
	return list, nil
}

// running gathers what the node is.
func (m *manifests) running(ctx context.Context) (*manifest.Running, error) {
	text, err := os.ReadFile(m.n.opt.Dir.Config())
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config, err := manifest.Normal(text)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	applied, err := m.recorded()
	if err != nil {
		return nil, err
	}
	r := &manifest.Running{
		DID: identity.FormatDID(m.n.agent.PubKey()), At: host.Now().Unix(), InForce: m.inForce, Hash: manifest.HashOf(applied), Config: config, Applied: applied,
		Peers: []manifest.RunningPeer{}, Schemes: []string{},
	}
	if r.Applied == nil {
		r.Applied = []manifest.Recorded{}
	}
	// A node whose federation is off has no peers; what needs them fails when it is done.
	if h, err := m.n.fed.get(ctx); err == nil {
		for _, p := range h.Peers() {
			if p.Stage != "ended" {
				r.Peers = append(r.Peers, runningPeer(&p))
			}
		}
	} else if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, t := range m.n.fed.carriers() {
		r.Schemes = append(r.Schemes, t.Scheme())
	}
	r.Pending = manifest.Pending(m.inForce, config)
	r.Drift = manifest.Drift(applied, config, r.Peers)
	return r, nil
}

func runningPeer(p *mesh.Peer) manifest.RunningPeer {
	out := manifest.RunningPeer{DID: identity.FormatDID(p.Key), Stage: p.Stage, Tier: string(p.Tier), Wants: []manifest.Want{}, Shadow: p.Shadow != nil && !p.Shadow.Whole}
	for name, v := range p.Caps {
		if out.Budget == nil {
			out.Budget = map[string]int64{}
		}
		out.Budget[string(name)] = v
	}
	for _, w := range p.Wants {
		out.Wants = append(out.Wants, manifest.Want{Shard: w.Shard, Filter: w.Filter, Mode: w.Mode})
	}
	return out
}

// plan plans, and asks the configuration's own reader what it thinks of what would be written.
func (m *manifests) plan(ctx context.Context, p manifest.Params) (*manifest.Plan, *manifest.Running, error) {
	set, opt, err := p.Serve()
	if err != nil {
		return nil, nil, err
	}
	run, err := m.running(ctx)
	if err != nil {
		return nil, nil, err
	}
	plan := manifest.Make(set, run, opt)
	for _, s := range plan.Steps {
		if s.Do.Verb != manifest.WriteConfig {
			continue
		}
		if _, err := ParseConfig(manifest.ConfigYAML(s.Do.Config)); err != nil {
			plan.Changes = append(plan.Changes, manifest.Change{Object: "MeshNode", Action: manifest.Update, Effect: manifest.Refused, Why: err.Error()})
			plan.Refused, plan.Steps = true, []manifest.Step{}
			break
		}
	}
	return plan, run, nil
}

// apply carries a plan out, all of it or nothing.
func (m *manifests) apply(ctx context.Context, p manifest.Params) (*manifest.Applied, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rollBackFirst(ctx)
	plan, run, err := m.plan(ctx, p)
	if err != nil {
		return nil, err
	}
	if p.Hash != "" && p.Hash != run.Hash {
		return nil, control.Refuse(string(spec.CodePolicy), "nothing was applied: the running hash is %s by now, not %s: plan again", run.Hash, p.Hash)
	}
	if plan.Refused {
		return nil, plan.RefusedError()
	}
	if len(plan.Steps) == 0 {
		return &manifest.Applied{Plan: *plan}, nil
	}
	if m.written, err = os.ReadFile(m.n.opt.Dir.Config()); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if err := m.n.opt.Dir.intend(newIntention(plan.Steps, m.written)); err != nil {
		return nil, err
	}
	// What began is ended or undone even if the caller goes away meanwhile.
	work := context.WithoutCancel(ctx)
	err = manifest.Run(plan.Steps, func(op manifest.Op) error { return m.perform(work, op, run) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nothing was applied: %w", err), m.n.opt.Dir.settle())
	}
	return &manifest.Applied{Plan: *plan, Done: len(plan.Steps)}, m.n.opt.Dir.settle()
}

// perform does one operation. Each is safe to do twice.
func (m *manifests) perform(ctx context.Context, op manifest.Op, run *manifest.Running) error {
	switch op.Verb {
	case manifest.WriteConfig:
		return m.writeConfig(op.Config, run.Config)
	case manifest.TakeUp:
		return m.takeUp(ctx, op.Config)
	case manifest.AddPeer:
		params := PeerParams{DID: op.Peer.DID, Relays: op.Peer.Relays, Tier: spec.Tier(op.Peer.Tier), Invitation: op.Peer.Invitation, Shadow: op.Peer.Shadow}
		if op.Peer.Budget != nil {
			params.Budget = map[spec.Limit]int64{}
			for name, v := range op.Peer.Budget {
				params.Budget[spec.Limit(name)] = v
			}
		}
		for _, w := range op.Peer.Wants {
			params.Wants = append(params.Wants, Want{Shard: w.Shard, Filter: w.Filter, Mode: w.Mode})
		}
		_, err := m.n.beginPeering(ctx, params)
		return err
	case manifest.EndPeer:
		return m.n.endPeering(ctx, PeerEndParams{DID: op.Peer.DID, Reason: op.Reason}, false)
	case manifest.Record:
		if err := writeFile(m.n.opt.Dir.manifestRecord(), op.Applied, 0o600); err != nil {
			return fmt.Errorf("record what was applied: %w", err)
		}
		return nil
	}
	return fmt.Errorf("no operation is called %q", op.Verb)
}

// writeConfig replaces node.yaml, and keeps the one before as node.yaml.previous. Going back restores the operator's own text.
func (m *manifests) writeConfig(config, before map[string]any) error {
	path := m.n.opt.Dir.Config()
	text := manifest.ConfigYAML(config)
	if slices.Equal(text, manifest.ConfigYAML(before)) {
		text = m.written
	} else if err := writeFile(path+".previous", m.written, 0o600); err != nil {
		return fmt.Errorf("keep the configuration that was: %w", err)
	}
	if _, err := ParseConfig(text); err != nil {
		return err
	}
	if err := writeFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// takeUp puts in force what of a configuration needs no restart: the rules and limits of the face, who may upload, how strangers are met, and what
// the node says of itself. Doors that are new are opened before anything else changes; those that go are let go last.
func (m *manifests) takeUp(ctx context.Context, config map[string]any) error {
	before := m.inForce
	next := manifest.TakeLive(before, config)
	c, err := ParseConfig(manifest.ConfigYAML(next))
	if err != nil {
		return err
	}
	chain, err := rules(&c.Spec.Relay)
	if err != nil {
		return err
	}
	n, h := m.n, m.n.fed.running()
	if h != nil {
		if err := n.fed.openGates(h, c.Spec.Endpoints); err != nil {
			return err
		}
	}
	if err := n.blobs.setRules(&c.Spec.Relay); err != nil {
		return err
	}
	m.rules.set(chain)
	limits := faceLimits(&c.Spec.Relay.Limits)
	fitFiles(&limits, n.log)
	n.relay.SetLimits(limits) // derives the information document anew, of the rules too
	n.conf.Store(c)
	m.inForce = next
	if h == nil {
		return nil // federation is off: there is nobody to tell
	}
	h.Govern(n.fed.govern())
	if slices.ContainsFunc(manifest.Compare("", before, next), ofItself) {
		return n.fed.takeUp(ctx, h)
	}
	return nil
}

// ofItself says whether a change is one of what the node says of itself to others.
func ofItself(c manifest.Change) bool {
	return slices.ContainsFunc([]string{"spec.endpoints", "spec.operator", "spec.shards", "spec.federation.descriptorPow"}, func(key string) bool {
		return c.Key == key || strings.HasPrefix(c.Key, key+".")
	})
}

// liveRules are the operator's rules for events, which may change while the node runs: an event is held to those that
// are in force when it is asked about.
type liveRules struct{ chain atomic.Pointer[policy.Chain] }

func newLiveRules(c policy.Chain) *liveRules {
	l := new(liveRules)
	l.set(c)
	return l
}

func (l *liveRules) set(c policy.Chain) { l.chain.Store(&c) }

// policies are the rules as the relay takes them: those that may be asked before the signature is checked, and the others.
func (l *liveRules) policies() policy.Chain { return policy.Chain{earlyRules{l}, lateRules{l}} }

type earlyRules struct{ *liveRules }

// Static says that the rules may be asked before the signature check.
func (earlyRules) Static() bool { return true }

// Admit asks the static rules in force.
func (e earlyRules) Admit(ctx context.Context, r *policy.Request) *policy.Rejection {
	return e.chain.Load().Precheck(ctx, r)
}

// Describe tells what all rules in force demand.
func (e earlyRules) Describe(d *policy.Demands) { e.chain.Load().Describe(d) }

type lateRules struct{ *liveRules }

// Admit asks the other rules in force.
func (l lateRules) Admit(ctx context.Context, r *policy.Request) *policy.Rejection {
	return l.chain.Load().Admit(ctx, r)
}

// ConfigOf makes the configuration of a new node from manifests. What this node cannot do is an error that names the key.
func ConfigOf(set manifest.Set) (*Config, error) {
	config, refused := manifest.NodeConfig(set)
	if config == nil {
		return nil, errors.New("no manifest is a MeshNode")
	}
	if len(refused) > 0 {
		return nil, control.Refuse(string(spec.CodePolicy), "%s: %s: %s", refused[0].Object, refused[0].Key, refused[0].Why)
	}
	c, err := ParseConfig(manifest.ConfigYAML(config))
	if err != nil {
		return nil, fmt.Errorf("the node that the manifests describe: %w", err)
	}
	return c, nil
}
