package manifest

import (
	"maps"
	"strings"
)

// TakeLive is what is in force once the keys of a new configuration that need no restart are: inForce with those keys, and those alone, from config.
func TakeLive(inForce, config map[string]any) map[string]any {
	out := object(clone(inForce))
	for _, c := range Compare("", inForce, config) {
		if c.Effect.AtOnce() {
			put(out, strings.Split(c.Key, "."), c.To)
		}
	}
	return object(prune(out))
}

func put(m map[string]any, path []string, v any) {
	for _, step := range path[:len(path)-1] {
		m = part(m, step)
	}
	if last := path[len(path)-1]; v == nil {
		delete(m, last)
	} else {
		m[last] = v
	}
}

// Pending lists what a configuration on disk says that the running one does not do yet.
func Pending(inForce, config map[string]any) []Change {
	return Compare("MeshNode/"+text(object(config["metadata"])["name"]), inForce, config)
}

// Drift lists where a node is no longer what was applied to it: somebody edited node.yaml, or added, changed or ended a peering by hand.
// From is what was applied, To what is.
func Drift(applied []Recorded, config map[string]any, peers []RunningPeer) []Change {
	out := []Change{}
	var set Set
	for _, r := range applied {
		if o := recordedObject(r); o != nil {
			set = append(set, o)
		}
	}
	if o := set.Node(); o != nil {
		want, _ := NodeConfig(set)
		for _, c := range Compare(o.Ref(), want, config) {
			c.Effect, c.Why = "", "node.yaml was edited since"
			out = append(out, c)
		}
	}
	p := &planner{run: &Running{Peers: peers}}
	for _, o := range set {
		if o.Kind != "Peering" {
			continue
		}
		want := IntentOf(o)
		switch now := p.peer(want.DID); {
		case now == nil:
			out = append(out, Change{Object: o.Ref(), Action: Remove, From: want, Why: "the peering ended since"})
		case !SameWants(want.Wants, now.Wants):
			out = append(out, Change{Object: o.Ref(), Key: "wants", Action: Update, From: want.Wants, To: now.Wants, Why: "the peering was changed by hand since"})
		case want.Budget != nil && !maps.Equal(want.Budget, now.Budget):
			out = append(out, Change{Object: o.Ref(), Key: "spec.budget", Action: Update, From: want.Budget, To: noneNil(now.Budget), Why: "the budget was changed by hand since"})
		}
	}
	return out
}
