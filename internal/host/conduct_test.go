package host

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// reports are what a rig's store holds of its own.
func (r *rig) reports() (list []*nostr.Event) {
	r.t.Helper()
	for e, err := range r.store.Query(context.Background(), []nostr.Filter{{Kinds: []nostr.Kind{spec.KindReport}, Authors: []nostr.PubKey{r.pub}}}, store.View{}, 0, time.Now().Unix()) {
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// TestAdversariesArePricedAndReported lets whole nodes misbehave: what each costs is the ladder's to say, and the report that comes of it convinces a
// stranger who holds nothing else.
func TestAdversariesArePricedAndReported(t *testing.T) {
	for _, c := range []struct {
		name string
		act  *tamper
		want spec.Severity
	}{
		{"honest", nil, spec.S0},
		{"silent", &tamper{silent: true}, spec.S2},
		{"liar", &tamper{lies: true}, spec.S2},
		{"over-spender", greed(), spec.S3},
		{"boaster", &tamper{boasts: true}, spec.S2},
		{"receipt-forker", &tamper{forks: true}, spec.S4},
		{"hop-forger", &tamper{forges: true}, spec.S4},
		{"replayer", &tamper{copies: 4}, spec.S2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { adversary(t, c.act, c.want) })
		})
	}
}

func adversary(t *testing.T, act *tamper, want spec.Severity) {
	net := transport.NewMemory("memory")
	rigs := map[nostr.PubKey]*rig{}
	find := func(k nostr.PubKey) *nostr.Event { return rigs[k].desc }
	a := newConductRig(t, net, "a", 1, find, act)
	b := newConductRig(t, net, "b", 2, find, nil)
	rigs[a.pub], rigs[b.pub] = a, b
	defer a.stop()
	defer b.stop()
	a.put(1500, "of a ")
	if act == nil { // what an honest node has to say fits into what a stranger is granted
		a.put(100, "of a ")
	}
	push := []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModePush}}
	if err := b.host.AddPeer(t.Context(), a.pub, "", []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModePull}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.host.AddPeer(t.Context(), b.pub, "", push, nil); err != nil {
		t.Fatal(err)
	}
	<-time.After(30 * time.Minute) // of the bubble's clock
	synctest.Wait()
	worst := spec.S0
	for _, p := range b.host.Peers() {
		worst, _ = spec.ParseSeverity(p.Worst)
	}
	if worst < want || want == spec.S0 && worst > want {
		b.dump(t)
		t.Fatalf("priced %s, want %s", worst, want)
	}
	list := b.reports()
	if act != nil && act.forges { // whoever holds an envelope could have spoilt the hop before: it proves nothing to others
		if cases, _ := b.host.Cases(); len(list) != 0 || len(cases) != 1 || cases[0].Ours[0].Stage != "unproven" {
			t.Errorf("%d reports, %+v", len(list), cases)
		}
		return
	}
	if want == spec.S0 {
		if len(list) != 0 {
			t.Fatalf("an honest node is reported: %s", list[0].JSON())
		}
		return
	}
	if len(list) != 1 {
		cases, _ := b.host.Cases()
		b.dump(t)
		t.Fatalf("%d reports\n%+v", len(list), cases)
	}
	r, layers, j := ledger.Verify(list[0], ledger.Known{Now: time.Now().Unix()})
	if j.Support != ledger.Supported || r.Outcome < want {
		t.Errorf("%+v of %s\n%+v", j, r.Outcome, layers)
	}
	if r.Outcome == spec.S2 {
		if cases, _ := a.host.Cases(); len(cases) == 0 || len(cases[0].Theirs) == 0 {
			t.Error("it was not told before it was reported")
		}
	}
}

func newConductRig(t *testing.T, net *transport.Memory, name string, secret byte, find func(nostr.PubKey) *nostr.Event, act *tamper) *rig {
	t.Helper()
	return newRigWith(t, net, name, secret, mesh.EnrolClosed, find, nil, func(c *Config) {
		c.tamper = act
		c.Mesh.Standing = mesh.StandingOwn
	})
}

// TestStandingOverTheWire asks a peer about a third node, whom it knows, and about one whom it does not.
func TestStandingOverTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		rigs := map[nostr.PubKey]*rig{}
		find := func(k nostr.PubKey) *nostr.Event { return rigs[k].desc }
		var all []*rig
		for i, name := range []string{"a", "b", "c"} {
			r := newConductRig(t, net, name, byte(i+1), find, nil)
			rigs[r.pub] = r
			all = append(all, r)
			defer r.stop()
		}
		a, b, c := all[0], all[1], all[2]
		for _, pair := range [][2]*rig{{a, b}, {b, a}, {b, c}, {c, b}} {
			if err := pair[0].host.AddPeer(t.Context(), pair[1].pub, "", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(4 * time.Minute)
		got, answered, err := a.host.AskStanding(t.Context(), b.pub, mesh.QueryBody{Subject: c.pub, Mode: mesh.AskOwn})
		if err != nil || !answered || got.Severity == nil || *got.Severity != spec.S0 {
			t.Errorf("%+v %v %v", got, answered, err)
		}
		if _, answered, err := a.host.AskStanding(t.Context(), b.pub, mesh.QueryBody{Subject: nostr.SecretKey{31: 88}.PubKey(), Mode: mesh.AskOwn}); err != nil || answered {
			t.Errorf("of a stranger: %v %v", answered, err)
		}
		<-time.After(4 * time.Minute)
		for _, p := range b.host.Peers() {
			if p.Worst != "S0" {
				b.dump(t)
				t.Errorf("a question was charged: %s", p.Worst)
			}
		}
	})
}
