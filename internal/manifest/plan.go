package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Action says what happens to an object or a key.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "change"
	Remove Action = "remove"
	Keep   Action = "keep" // foreign: not declared here, and left alone without --prune
)

// Change is one difference between what is declared and what is.
type Change struct {
	Object string `json:"object"`        // Kind/name; for a foreign peering "Peering/" and its DID
	Key    string `json:"key,omitempty"` // dotted; empty where the whole object is meant
	Action Action `json:"action"`
	Effect Effect `json:"effect,omitempty"`
	From   any    `json:"from,omitempty"`
	To     any    `json:"to,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Want is one thing that a peering syncs: mesh's word for it, as peer.add takes it.
type Want struct {
	Shard  string          `json:"shard"`
	Filter json.RawMessage `json:"filter"`
	Mode   string          `json:"mode"` // pull, push or both
}

// Intent is what an operator wants of a peering, in the words of peer.add.
type Intent struct {
	DID        string   `json:"did"`
	Tier       string   `json:"tier,omitempty"`
	Relays     []string `json:"relays,omitempty"`
	Invitation string   `json:"invitation,omitempty"`
	Shadow     bool     `json:"shadow,omitempty"`
	Wants      []Want   `json:"wants"`
	// Budget are the limits that the operator sets, all of them: nil leaves what is set, an empty one gives all back to conduct.
	Budget map[string]int64 `json:"budget"`
}

// Recorded is an object that was applied, and by whom.
type Recorded struct {
	Owner  string          `json:"owner"`
	Object json.RawMessage `json:"object"`
}

// RunningPeer is a peering that the node has, however it came to be.
type RunningPeer struct {
	DID    string           `json:"did"`
	Stage  string           `json:"stage"`
	Tier   string           `json:"tier,omitempty"`
	Shadow bool             `json:"shadow,omitempty"`
	Wants  []Want           `json:"wants"`
	Budget map[string]int64 `json:"budget,omitempty"` // limits that the operator set
}

// Running is what a node runs, as manifest.get tells it.
type Running struct {
	DID     string         `json:"did"`
	At      int64          `json:"at"`       // unix seconds by the node's clock
	Hash    string         `json:"hash"`     // of the objects that were applied, "" before the first apply
	Config  map[string]any `json:"config"`   // the normal form of node.yaml as it stands in the directory
	InForce map[string]any `json:"in_force"` // the normal form of what the node runs with
	Pending []Change       `json:"pending"`  // what node.yaml says and the node does not do yet: it needs a restart
	Drift   []Change       `json:"drift"`    // where what is differs from what was applied
	Applied []Recorded     `json:"applied"`  // in canonical order
	Peers   []RunningPeer  `json:"peers"`    // but those that ended
	Schemes []string       `json:"schemes"`  // transports that the node has
}

// Options are those of a plan.
type Options struct {
	Owner string `json:"owner"` // whose objects these are
	Prune bool   `json:"prune"` // end foreign peerings too
}

// DefaultOwner is the owner of objects whose operator names none.
const DefaultOwner = "meshctl"

// Plan is the way from what a node runs to what is declared.
type Plan struct {
	Hash    string       `json:"hash"`    // of the declared set
	Running string       `json:"running"` // of the set in force
	Owner   string       `json:"owner"`
	Changes []Change     `json:"changes"`
	Tests   []TestResult `json:"tests"`
	Refused bool         `json:"refused"` // a key or a test stands in the way: nothing will be applied
	Restart bool         `json:"restart"` // a change waits for the next start
	Steps   []Step       `json:"steps"`   // in order; empty where refused
}

// Step is one thing that apply does, and what undoes it.
type Step struct {
	Do   Op `json:"do"`
	Undo Op `json:"undo"`
}

// Op is one operation of a node. One of the fields beside Verb is set, by verb.
type Op struct {
	Verb    string          `json:"verb"` // write-config, take-up, add-peer, end-peer, record
	Config  map[string]any  `json:"config,omitempty"`
	Peer    *Intent         `json:"peer,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Applied json.RawMessage `json:"applied,omitempty"` // []Recorded
}

// The verbs of steps, in the order in which apply takes them: what may fail and is easily undone comes first, what ends
// something comes last but for the record, without which nothing counts as applied.
const (
	WriteConfig = "write-config"
	TakeUp      = "take-up"
	AddPeer     = "add-peer"
	EndPeer     = "end-peer"
	Record      = "record"
)

// Make plans. It is a pure function: the same set, node and options give the same plan. The set must have passed Check.
func Make(s Set, run *Running, opt Options) *Plan {
	if opt.Owner == "" {
		opt.Owner = DefaultOwner
	}
	p := &planner{set: s.Sorted(), run: run, opt: opt, terms: termsOf(run.Config)}
	p.plan = &Plan{Hash: s.Hash(), Running: run.Hash, Owner: opt.Owner, Changes: []Change{}, Tests: RunTests(s), Steps: []Step{}}
	p.objects()
	p.node()
	p.peerings()
	p.finish()
	return p.plan
}

type planner struct {
	set  Set
	run  *Running
	opt  Options
	plan *Plan

	adds, ends []Step
	config     *Step
	takeUp     *Step
	terms      terms // for grants, as they will be
}

func (p *planner) change(c Change) { p.plan.Changes = append(p.plan.Changes, c) }

// recorded finds the object that was applied under a name.
func (p *planner) recorded(ref string) (*Object, string) {
	for _, r := range p.run.Applied {
		if o := recordedObject(r); o != nil && o.Ref() == ref {
			return o, r.Owner
		}
	}
	return nil, ""
}

func recordedObject(r Recorded) *Object {
	docs, err := Parse("applied.json", r.Object)
	if err != nil || len(docs) != 1 {
		return nil
	}
	return docs[0]
}

// objects looks at each declared object by itself: its owner, and the keys that this node refuses.
func (p *planner) objects() {
	for _, o := range p.set {
		if _, owner := p.recorded(o.Ref()); owner != "" && owner != p.opt.Owner {
			p.change(Change{Object: o.Ref(), Action: Update, Effect: Refused, From: owner, To: p.opt.Owner, Why: "it belongs to " + owner + ": apply it with --owner " + owner})
		}
		switch o.Kind {
		case "MeshNode":
			p.identity(o)
		case "Peering":
			p.peeringKeys(o)
		case "GrantPolicy":
			p.refusals(o, o.spec())
		default:
			r := RuleFor(o.Kind, "spec")
			p.change(Change{Object: o.Ref(), Action: Create, Effect: r.Effect, Why: r.Why})
		}
	}
}

// identity holds what a manifest says of the node's keys against the keys it has.
func (p *planner) identity(o *Object) {
	if did := text(object(o.spec()["identity"])["did"]); did != "" && did != p.run.DID {
		p.change(Change{Object: o.Ref(), Key: "spec.identity.did", Action: Update, Effect: Refused, From: p.run.DID, To: did, Why: "the manifest is meant for another node"})
	}
}

func (p *planner) peeringKeys(o *Object) {
	s := o.spec()
	if text(s["peer"]) == p.run.DID {
		p.change(Change{Object: o.Ref(), Key: "spec.peer", Action: Create, Effect: Refused, To: s["peer"], Why: "that is this node itself"})
	}
	if t := text(s["transport"]); t != "" && slices.Contains(p.run.Schemes, t) {
		s = object(clone(s))
		delete(s, "transport") // a wish that the ladder grants anyhow
	}
	p.refusals(o, s)
}

func (p *planner) refusals(o *Object, s map[string]any) {
	flat := flatten(s, "spec", map[string]any{})
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		if r := RuleFor(o.Kind, key); r.Effect == Refused {
			p.change(Change{Object: o.Ref(), Key: key, Action: Create, Effect: Refused, To: flat[key], Why: r.Why})
		}
	}
}

// node compares the configuration.
func (p *planner) node() {
	set, o := p.set, p.set.Node()
	if o == nil {
		// A GrantPolicy alone changes the node that there is.
		if o = p.set.first("GrantPolicy"); o == nil {
			return
		}
		set = append(Set{{Kind: "MeshNode", Name: text(object(p.run.Config["metadata"])["name"]), value: p.run.Config}}, p.set...)
	}
	want, refused := NodeConfig(set)
	p.plan.Changes = append(p.plan.Changes, refused...)
	changes := Compare(o.Ref(), p.run.Config, want)
	if len(changes) > 0 {
		p.config = &Step{Op{Verb: WriteConfig, Config: want}, Op{Verb: WriteConfig, Config: p.run.Config}}
	}
	for _, c := range Compare(o.Ref(), p.run.InForce, want) {
		if !c.Effect.AtOnce() {
			continue
		}
		p.takeUp = &Step{Op{Verb: TakeUp, Config: want}, Op{Verb: TakeUp, Config: p.run.InForce}}
		if !slices.ContainsFunc(changes, func(d Change) bool { return d.Key == c.Key }) {
			c.Why = "node.yaml says it already, and the node does not do it yet: " + c.Why
			changes = append(changes, c)
		}
	}
	p.plan.Changes = append(p.plan.Changes, changes...)
	p.terms = termsOf(want)
}

// Compare lists the keys in which two configurations of a node differ, and what becomes of each.
func Compare(ref string, from, to map[string]any) []Change {
	a, b := flatten(orEmpty(from), "", map[string]any{}), flatten(orEmpty(to), "", map[string]any{})
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	out := []Change{}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		x, had := a[k]
		y, has := b[k]
		if had && has && equal(x, y) {
			continue
		}
		r := RuleFor("MeshNode", k)
		c := Change{Object: ref, Key: k, Action: Update, Effect: r.Effect, From: x, To: y, Why: r.Why}
		switch {
		case !had:
			c.Action = Create
		case !has:
			c.Action = Remove
		}
		out = append(out, c)
	}
	return out
}

// IntentOf is what a Peering asks of its node. Where ingress and egress have one filter there is one want, both ways. A side
// that is not declared is not synced.
func IntentOf(o *Object) Intent {
	s := o.spec()
	in := Intent{DID: text(s["peer"]), Tier: text(s["tier"]), Invitation: text(s["invitation"]), Shadow: s["shadow"] == true, Wants: []Want{}}
	for _, r := range list(s["relays"]) {
		in.Relays = append(in.Relays, text(r))
	}
	in.Budget = budgetOf(s["budget"])
	name := o.Name
	if l := list(s["shards"]); len(l) > 0 {
		name = text(l[0])
	}
	pull, pulls := s["ingress"]
	push, pushes := s["egress"]
	from, to := orEmpty(object(object(pull)["filter"])), orEmpty(object(object(push)["filter"]))
	switch {
	case pulls && pushes && equal(from, to):
		in.Wants = append(in.Wants, Want{name, canonical(from), "both"})
	case pulls && pushes:
		in.Wants = append(in.Wants, Want{name + "-in", canonical(from), "pull"}, Want{name + "-out", canonical(to), "push"})
	case pulls:
		in.Wants = append(in.Wants, Want{name, canonical(from), "pull"})
	case pushes:
		in.Wants = append(in.Wants, Want{name, canonical(to), "push"})
	}
	return in
}

func (p *planner) peer(did string) *RunningPeer {
	for i := range p.run.Peers {
		if p.run.Peers[i].DID == did {
			return &p.run.Peers[i]
		}
	}
	return nil
}

// SameWants compares wants, whatever the notation of their filters.
func SameWants(a, b []Want) bool {
	return slices.EqualFunc(a, b, func(x, y Want) bool {
		return x.Shard == y.Shard && x.Mode == y.Mode && bytesEqualJSON(x.Filter, y.Filter)
	})
}

func bytesEqualJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && equal(x, y)
}

func (p *planner) peerings() {
	declared := map[string]bool{}
	for _, o := range p.set {
		if o.Kind == "Peering" {
			declared[text(o.spec()["peer"])] = true
			p.peering(o)
		}
	}
	owners := map[string]string{}
	names := map[string]string{}
	for _, r := range p.run.Applied {
		if o := recordedObject(r); o != nil && o.Kind == "Peering" {
			did := text(o.spec()["peer"])
			owners[did], names[did] = r.Owner, o.Ref()
		}
	}
	for _, q := range p.run.Peers {
		if !declared[q.DID] {
			p.undeclared(q, owners[q.DID], names[q.DID])
		}
	}
}

// peering compares one declared peering with the one there is.
func (p *planner) peering(o *Object) {
	want, now := IntentOf(o), p.peer(text(o.spec()["peer"]))
	old, _ := p.recorded(o.Ref())
	p.withinTerms(o, &want, now)
	if now == nil {
		p.change(Change{Object: o.Ref(), Action: Create, Effect: Live, To: want, Why: "the peering is proposed at once"})
		p.adds = append(p.adds, Step{Op{Verb: AddPeer, Peer: &want}, Op{Verb: EndPeer, Peer: &Intent{DID: want.DID}, Reason: "apply was undone"}})
		return
	}
	before := Intent{DID: now.DID, Wants: now.Wants, Shadow: now.Shadow, Budget: noneNil(now.Budget)}
	if old != nil {
		was := IntentOf(old)
		before.Tier, before.Relays, before.Invitation = was.Tier, was.Relays, was.Invitation
		if want.Budget == nil && was.Budget != nil {
			want.Budget = map[string]int64{} // declared no longer: conduct has it again
		}
	}
	n := len(p.plan.Changes)
	if !SameWants(want.Wants, now.Wants) {
		p.change(Change{Object: o.Ref(), Key: "wants", Action: Update, Effect: Live, From: now.Wants, To: want.Wants, Why: "the next session asks for it; the connection stays"})
	}
	if want.Tier != "" && want.Tier != before.Tier {
		p.change(Change{Object: o.Ref(), Key: "spec.tier", Action: Update, Effect: NextWindow, From: cmp.Or(before.Tier, now.Tier), To: want.Tier, Why: RuleFor("Peering", "spec.tier").Why})
	}
	if want.Budget != nil && !maps.Equal(want.Budget, before.Budget) {
		p.change(Change{Object: o.Ref(), Key: "spec.budget", Action: Update, Effect: NextWindow, From: before.Budget, To: want.Budget, Why: RuleFor("Peering", "spec.budget").Why})
	}
	if want.Shadow != before.Shadow {
		p.change(Change{Object: o.Ref(), Key: "spec.shadow", Action: Update, Effect: Live, From: before.Shadow, To: want.Shadow, Why: "the next verdict is held to it"})
	}
	if !slices.Equal(want.Relays, before.Relays) && len(want.Relays) > 0 {
		p.change(Change{Object: o.Ref(), Key: "spec.relays", Action: Update, Effect: Live, From: before.Relays, To: want.Relays, Why: "the descriptor is looked for there"})
	}
	if len(p.plan.Changes) > n {
		p.adds = append(p.adds, Step{Op{Verb: AddPeer, Peer: &want}, Op{Verb: AddPeer, Peer: &before}})
	}
}

// undeclared decides about a peering that the node has and the set does not name.
func (p *planner) undeclared(q RunningPeer, owner, name string) {
	back := Intent{DID: q.DID, Tier: q.Tier, Wants: q.Wants, Shadow: q.Shadow, Budget: q.Budget}
	end := Step{Op{Verb: EndPeer, Peer: &Intent{DID: q.DID}, Reason: "no longer declared"}, Op{Verb: AddPeer, Peer: &back}}
	switch {
	case p.terms.revokes(q.DID, p.run.At):
		p.change(Change{Object: cmp.Or(name, "Peering/"+q.DID), Action: Remove, Effect: Live, From: back, Why: "spec.nodes of a GrantPolicy lists it as revoked"})
		p.ends = append(p.ends, end)
	case owner == p.opt.Owner:
		p.change(Change{Object: name, Action: Remove, Effect: Live, From: back, Why: "it was applied by " + owner + " and is no longer declared"})
		p.ends = append(p.ends, end)
	case p.opt.Prune:
		p.change(Change{Object: cmp.Or(name, "Peering/"+q.DID), Action: Remove, Effect: Live, From: back, Why: "--prune: it is " + whose(owner)})
		p.ends = append(p.ends, end)
	default:
		p.change(Change{Object: cmp.Or(name, "Peering/"+q.DID), Action: Keep, From: back, Why: "it is " + whose(owner) + ": only --prune ends it"})
	}
}

func whose(owner string) string {
	if owner == "" {
		return "of no manifest"
	}
	return "of " + owner
}

// finish orders the steps and settles the flags.
func (p *planner) finish() {
	for _, c := range p.plan.Changes {
		p.plan.Refused = p.plan.Refused || c.Effect == Refused
		p.plan.Restart = p.plan.Restart || c.Effect == Restart
	}
	for _, t := range p.plan.Tests {
		p.plan.Refused = p.plan.Refused || !t.Passed()
	}
	if p.plan.Refused {
		return
	}
	for _, s := range []*Step{p.config, p.takeUp} {
		if s != nil {
			p.plan.Steps = append(p.plan.Steps, *s)
		}
	}
	p.plan.Steps = append(append(p.plan.Steps, p.adds...), p.ends...)
	before, after := canonicalRecord(p.run.Applied), canonicalRecord(p.applied())
	if string(before) != string(after) {
		p.plan.Steps = append(p.plan.Steps, Step{Op{Verb: Record, Applied: after}, Op{Verb: Record, Applied: before}})
	}
}

func canonicalRecord(list []Recorded) json.RawMessage {
	if list == nil {
		list = []Recorded{}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic("manifest: a record always renders: " + err.Error())
	}
	return text
}

// applied is the record after this plan: the declared objects, and those of other owners that stay.
func (p *planner) applied() []Recorded {
	ended := map[string]bool{}
	for _, s := range p.ends {
		ended[s.Do.Peer.DID] = true
	}
	var out []Recorded
	for _, r := range p.run.Applied {
		o := recordedObject(r)
		if o == nil || r.Owner == p.opt.Owner || (o.Kind == "Peering" && ended[text(o.spec()["peer"])]) {
			continue
		}
		out = append(out, r)
	}
	for _, o := range p.set {
		out = append(out, Recorded{p.opt.Owner, o.JSON()})
	}
	slices.SortStableFunc(out, func(a, b Recorded) int {
		x, y := recordedObject(a), recordedObject(b)
		return cmp.Or(cmp.Compare(x.Ref(), y.Ref()), cmp.Compare(a.Owner, b.Owner))
	})
	return out
}

// HashOf is the hash of the objects in a record.
func HashOf(list []Recorded) string {
	var s Set
	for _, r := range list {
		if o := recordedObject(r); o != nil {
			s = append(s, o)
		}
	}
	return s.Hash()
}

// Run carries steps out, all or none: where one fails, those done before it are undone in reverse, and the error says what failed
// and, if undoing failed too, what stands now. A step that failed may have taken effect, so it is undone as well.
func Run(steps []Step, do func(Op) error) error {
	for i, s := range steps {
		err := do(s.Do)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", s.Do, err)
		for j := i; j >= 0; j-- {
			if back := do(steps[j].Undo); back != nil && j < i {
				err = fmt.Errorf("%w; and undoing it, %s: %w", err, steps[j].Undo, back)
			}
		}
		return err
	}
	return nil
}

// String says the operation in a line.
func (o Op) String() string {
	switch o.Verb {
	case WriteConfig:
		return "write node.yaml"
	case TakeUp:
		return "put what changed in force"
	case AddPeer:
		return "peer with " + o.Peer.DID
	case EndPeer:
		return "end the peering with " + o.Peer.DID
	}
	return "record what was applied"
}
