package strain

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"fleetmesh.org/fleetmesh/internal/vectors"
	"fleetmesh.org/fleetmesh/spec"
)

func at(percent int64) Pressure {
	return Measure(Counts{spec.CounterEventsIn: percent * 10}, Counts{spec.CounterEventsIn: 1000})
}

func TestNoTotalShedsNothing(t *testing.T) {
	p := Measure(Counts{spec.CounterEventsIn: 1 << 40}, nil)
	l, said := Ladder{}.Step(p)
	if p.Declared() || len(said) > 0 || len(l.Rungs()) > 0 || Shed(spec.LimitEventsIn, 3000, p) != 3000 {
		t.Fatal(p, said)
	}
}

func TestLadderEngagesOneByOneAndReleasesTogether(t *testing.T) {
	var l Ladder
	for _, c := range []struct {
		percent int64
		engaged int
		said    int
	}{{74, 0, 0}, {75, 1, 1}, {84, 1, 0}, {85, 2, 1}, {74, 2, 0}, {95, 3, 1}, {60, 3, 0}, {120, 4, 1}, {61, 4, 0}, {59, 0, 4}, {60, 0, 0}, {100, 4, 4}} {
		var said []Announcement
		l, said = l.Step(at(c.percent))
		if len(l.Rungs()) != c.engaged || len(said) != c.said {
			t.Fatalf("%+v: %v %v", c, l.Rungs(), said)
		}
		for _, a := range said {
			if a.Rung == AmendDown && a.Cause != spec.CauseCapacity || a.Rung == RefusePeerings && a.Decline != spec.CodeCapacityExceeded {
				t.Fatal(a)
			}
		}
	}
}

func TestPressureIsTheWorstCounter(t *testing.T) {
	p := Measure(Counts{spec.CounterEventsIn: 10, spec.CounterBytesIn: 90}, Counts{spec.CounterEventsIn: 100, spec.CounterBytesIn: 100, spec.CounterReq: 5})
	if p.Counter != spec.CounterBytesIn || p.Percent() != 90 {
		t.Fatal(p)
	}
	if p := Measure(Counts{spec.CounterReq: 1, spec.CounterEventsIn: 99}, Counts{spec.CounterReq: 0, spec.CounterEventsIn: 100}); p.Counter != spec.CounterReq || !p.AtLeast(spec.R(1000, 1)) {
		t.Fatal("something of a total of nothing", p)
	}
}

func TestShedLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SampledFrom(spec.C().Limits).Draw(t, "limit")
		base := rapid.Int64Range(0, row.Ceiling[spec.TierAnchor]).Draw(t, "base")
		low, high := rapid.Int64Range(0, 400).Draw(t, "low"), rapid.Int64Range(0, 400).Draw(t, "high")
		if low > high {
			low, high = high, low
		}
		a, b := Shed(row.Name, base, at(low)), Shed(row.Name, base, at(high))
		floor := row.Ceiling[spec.TierProbation] / 10
		if a > base || b > a {
			t.Fatal("a shed raises, or more pressure sheds less", a, b)
		}
		if b < min(base, floor) {
			t.Fatal("a shed makes a stranger of a peer")
		}
	})
	if got := Shed(spec.LimitEventsIn, 48000, at(100)); got != 28800 {
		t.Fatal(got)
	}
	if got := Shed(spec.LimitEventsIn, 48000, at(100000)); got != 75 {
		t.Fatal(got)
	}
}

func stress(n int, from Direction, tier spec.Tier) []Stress {
	out := make([]Stress, n)
	for i := range out {
		out[i] = Stress{At: int64(i), From: from, Tier: tier}
	}
	return out
}

func recordOf(all ...[]Stress) Record {
	var r Record
	for _, some := range all {
		for _, s := range some {
			r = r.With(s)
		}
	}
	return r
}

func TestDirectionsNotMagnitude(t *testing.T) {
	one := recordOf(stress(1, Direction{Peer, "a"}, spec.TierAnchor))
	hard := recordOf(stress(500, Direction{Peer, "a"}, spec.TierAnchor))
	if one.Breadth().Cmp(hard.Breadth()) != 0 || one.Reserve(600, 6000) != 1200 || hard.Reserve(600, 6000) != 1200 {
		t.Fatal("one peer moved the node by more than one direction")
	}
	var strangers Record
	for i := range 500 {
		strangers = strangers.With(Stress{From: Direction{Peer, fmt.Sprint(i)}, Tier: spec.TierProbation})
	}
	if strangers.Breadth().Sign() != 0 || strangers.Reserve(600, 6000) != 600 {
		t.Fatal("strangers moved the node")
	}
	wide := recordOf(stress(1, Direction{Peer, "a"}, spec.TierTrusted), stress(1, Direction{Transport, "iroh"}, spec.TierMember), stress(1, Direction{Own, "restart"}, ""))
	if wide.Breadth().Cmp(big.NewRat(185, 100)) != 0 || wide.Reserve(600, 6000) != 1710 || wide.Reserve(600, 1000) != 1000 {
		t.Fatal(wide.Breadth(), wide.Reserve(600, 6000))
	}
	if wide.Since(1).Breadth().Sign() != 0 {
		t.Fatal("old stress is forgotten")
	}
}

func TestDependence(t *testing.T) {
	peer := Direction{Peer, "a"}
	for _, c := range []struct {
		name string
		r    Record
		on   bool
	}{
		{"one event is no pattern", recordOf(stress(1, peer, spec.TierMember)), false},
		{"eleven are not yet", recordOf(stress(11, peer, spec.TierMember)), false},
		{"twelve from one side", recordOf(stress(12, peer, spec.TierMember)), true},
		{"nine in ten", recordOf(stress(18, peer, spec.TierMember), stress(2, Direction{Peer, "b"}, spec.TierMember)), true},
		{"less", recordOf(stress(17, peer, spec.TierMember), stress(3, Direction{Peer, "b"}, spec.TierMember)), false},
		{"its own restarts", recordOf(stress(40, Direction{Own, "restart"}, "")), false},
		{"a transport", recordOf(stress(12, Direction{Transport, "wss"}, spec.TierMember)), true},
	} {
		if on, ok := c.r.Dependence(); ok != c.on {
			t.Errorf("%s: %v %v", c.name, on, ok)
		}
	}
}

func TestOrderOfStressDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tiers := []spec.Tier{spec.TierProbation, spec.TierMember, spec.TierTrusted, spec.TierAnchor}
		var some []Stress
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			some = append(some, Stress{From: Direction{Peer, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "who")}, Tier: rapid.SampledFrom(tiers).Draw(t, "tier")})
		}
		back := make([]Stress, 0, len(some))
		for i := len(some) - 1; i >= 0; i-- {
			back = append(back, some[i])
		}
		a, b := recordOf(some), recordOf(back)
		if a.Breadth().Cmp(b.Breadth()) != 0 {
			t.Fatal("the order matters")
		}
		if a.Breadth().Cmp(big.NewRat(3, 1)) > 0 {
			t.Fatal("three peers are three directions at the most")
		}
	})
}

type stressInput struct {
	Side  Side      `json:"side"`
	Name  string    `json:"name"`
	Tier  spec.Tier `json:"tier"`
	Times int       `json:"times"`
}

var functions = map[string]vectors.Function{
	"ladder": func(in json.RawMessage) (any, string) {
		var v struct {
			Total   Counts
			Windows []Counts
		}
		if err := json.Unmarshal(in, &v); err != nil {
			panic(err)
		}
		var l Ladder
		out := []any{}
		for _, w := range v.Windows {
			p := Measure(w, v.Total)
			var said []Announcement
			l, said = l.Step(p)
			names := []string{}
			for _, a := range said {
				names = append(names, map[bool]string{true: "+", false: "-"}[a.Engaged]+string(a.Rung))
			}
			out = append(out, map[string]any{"counter": p.Counter, "percent": p.Percent(), "engaged": len(l.Rungs()), "announced": names})
		}
		return out, ""
	},
	"shed": func(in json.RawMessage) (any, string) {
		var v struct {
			Limit             spec.Limit
			Base, Used, Total int64
		}
		if err := json.Unmarshal(in, &v); err != nil {
			panic(err)
		}
		return Shed(v.Limit, v.Base, Pressure{"events_in", v.Used, v.Total}), ""
	},
	"reserve": func(in json.RawMessage) (any, string) {
		var v struct {
			Stress     []stressInput
			Base, Most int64
		}
		if err := json.Unmarshal(in, &v); err != nil {
			panic(err)
		}
		var r Record
		for _, s := range v.Stress {
			for range s.Times {
				r = r.With(Stress{From: Direction{s.Side, s.Name}, Tier: s.Tier})
			}
		}
		on, warn := r.Dependence()
		return map[string]any{"breadth": r.Breadth().RatString(), "reserve": r.Reserve(v.Base, v.Most), "warn": warn, "on": on.Name}, ""
	},
}

func TestVectors(t *testing.T) {
	events := func(percent ...int64) []Counts {
		var out []Counts
		for _, p := range percent {
			out = append(out, Counts{"events_in": p * 10})
		}
		return out
	}
	draft := func(function, name, about string, in any) vectors.Draft {
		return vectors.Draft{Name: function + "-" + name, About: about, Layer: "strain", Function: function, Input: in}
	}
	ladder := func(name, about string, total Counts, windows []Counts) vectors.Draft {
		return draft("ladder", name, about, map[string]any{"total": total, "windows": windows})
	}
	shed := func(name, about, limit string, base, used, total int64) vectors.Draft {
		return draft("shed", name, about, map[string]any{"limit": limit, "base": base, "used": used, "total": total})
	}
	reserve := func(name, about string, s ...stressInput) vectors.Draft {
		return draft("reserve", name, about, map[string]any{"stress": s, "base": 600, "most": 6000})
	}
	vectors.Check(t, "strain", functions, []vectors.Draft{
		ladder("rungs", "Each rung at its threshold; all released below 0.60 and not at it.", Counts{"events_in": 1000}, events(74, 75, 85, 95, 100, 60, 59)),
		ladder("boundary", "A node on a boundary does not flutter.", Counts{"events_in": 1000}, events(95, 94, 95, 94, 61)),
		ladder("undeclared", "Without a declared total nothing is shed.", Counts{}, events(500)),
		ladder("worst-counter", "Pressure is the counter that used the most.", Counts{"events_in": 1000, "bytes_in": 100}, []Counts{{"events_in": 100, "bytes_in": 96}}),
		shed("at-total", "At the total, six tenths are left.", "events_in", 48000, 1000, 1000),
		shed("rounded", "Rounded down once.", "events_in", 1001, 977, 1000),
		shed("floor", "Never below a tenth of the probation ceiling.", "events_in", 48000, 1000000, 1000),
		shed("below-floor", "A limit below the floor stays.", "events_in", 50, 1000000, 1000),
		shed("zero", "Blobs at zero stay at zero.", "blob_bytes", 0, 1000, 1000),
		shed("no-pressure", "Below the release nothing is taken.", "events_in", 3000, 599, 1000),
		reserve("one-peer-hard", "One peer moves a node by one direction, however hard it pushes.", stressInput{Peer, "a", "anchor", 500}),
		reserve("strangers", "Free identities buy no directions.", stressInput{Peer, "a", "probation", 9}, stressInput{Peer, "b", "probation", 9}),
		reserve("three-sides", "A peer, a transport and an own restart.", stressInput{Peer, "a", "trusted", 1}, stressInput{Transport, "iroh", "member", 1}, stressInput{Own, "restart", "", 1}),
		reserve("dependent", "Nearly all from one peer, with a sample behind it.", stressInput{Peer, "a", "member", 18}, stressInput{Peer, "b", "member", 2}),
		reserve("small-sample", "One event is not a pattern.", stressInput{Peer, "a", "member", 1}),
		reserve("own-events", "Nobody depends on its own restarts.", stressInput{Own, "restart", "", 30}),
	})
}
