package mesh

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// misreport has a say nothing about what it used and come back for more, which is S2.
func misreport(w *pair) {
	w.t.Helper()
	w.drop = func(s Send) bool { return s.Type == spec.MsgBudgetReceipt || s.Type == spec.MsgBudgetClose }
	w.talk(20)
	w.pass(3 * time.Minute)
	w.step(w.b(), Received{From: w.a().key, Type: spec.MsgSyncOpen, Thread: "again", Created: w.now.Unix(), Octets: 100, Body: json.RawMessage(`{"shard":"x","filter":{},"mode":"pull","neg":"61"}`)})
	if n, last := w.told("window-closed"); n == 0 || last.Severity != spec.S2 {
		w.t.Fatalf("closed with %v, want S2", last.Severity)
	}
}

func TestShadowLetsNoVerdictCostAnything(t *testing.T) {
	for name, whole := range map[string]bool{"whole node": true, "one peer": false} {
		t.Run(name, func(t *testing.T) {
			w := newPair(t, func(c *Config) { c.Shadow = whole })
			w.peering()
			w.step(w.b(), AddPeer{Peer: w.a().key, Tier: spec.TierTrusted, Shadow: !whole})
			before := w.b().node.Peers(w.now)[0]
			if before.Shadow == nil || before.Shadow.Whole != whole {
				t.Fatalf("the view says %+v", before.Shadow)
			}
			misreport(w)
			p := w.b().node.Peers(w.now)[0]
			if p.Stage != string(active) || p.Tier != before.Tier || !p.Standing.Limits.Equal(before.Standing.Limits) || p.Standing.ZeroUntil != 0 {
				t.Errorf("it cost something: %+v, was %+v", p.Standing, before.Standing)
			}
			if p.Worst != "S2" || p.Clean != 0 {
				t.Errorf("the verdict itself: worst %s, %d clean windows", p.Worst, p.Clean)
			}
			v := p.Windows[len(p.Windows)-1]
			if v.Withheld == "" || p.Shadow.Remedies != 1 || p.Shadow.Last != v.Withheld || p.Shadow.Standing.Limits.Equal(before.Standing.Limits) {
				t.Errorf("what it would have done: %+v, %+v", v, p.Shadow)
			}
			if n, _ := w.told("remedy-withheld"); n != 1 {
				t.Errorf("%d remedies withheld were told", n)
			}
			if n, _ := w.told("complaint-noticed"); n != 0 || len(w.b().node.peers[w.a().key].Cases.Ours) != 0 {
				t.Error("the peer was told, or is to be")
			}

			again := New(w.b().cfg) // a restart forgets none of it
			if err := again.Restore(w.b().journal); err != nil {
				t.Fatal(err)
			}
			if q := again.Peers(w.now)[0]; q.Shadow == nil || q.Shadow.Remedies != 1 || q.Tier != before.Tier {
				t.Errorf("after a restart: %+v", q.Shadow)
			}
			if !whole {
				w.step(w.b(), AddPeer{Peer: w.a().key})
				if q := w.b().node.Peers(w.now)[0]; q.Shadow != nil || q.Tier != before.Tier {
					t.Errorf("out of the shadow: %+v", q)
				}
			}
		})
	}
}

// TestShadowIsTheLadderBesideIt compares the second standing with the one of a node that is not in the shadow, through the same.
func TestShadowIsTheLadderBesideIt(t *testing.T) {
	var stands []ledger.Standing
	for _, shadow := range []bool{false, true} {
		w := newPair(t, func(c *Config) { c.Shadow = shadow })
		w.peering()
		w.step(w.b(), AddPeer{Peer: w.a().key, Tier: spec.TierTrusted})
		misreport(w)
		p := w.b().node.Peers(w.now)[0]
		if shadow {
			stands = append(stands, p.Shadow.Standing)
			continue
		}
		stands = append(stands, p.Standing)
	}
	if stands[0].Tier != stands[1].Tier || !stands[0].Limits.Equal(stands[1].Limits) || stands[0].CleanWindows != stands[1].CleanWindows {
		t.Errorf("in earnest %+v, in the shadow %+v", stands[0], stands[1])
	}
}

func TestShadowWithholdsARevocation(t *testing.T) {
	w := newPair(t, func(c *Config) { c.Shadow = true })
	w.peering()
	w.step(w.b(), Found{Peer: w.a().key, Finding: ledger.ForgedSignature, Created: w.now.Unix()})
	p := w.b().node.Peers(w.now)[0]
	if p.Stage != string(active) || p.Worst != "S4" || !strings.Contains(p.Shadow.Last, "deleted") {
		t.Errorf("%s, worst %s, %+v", p.Stage, p.Worst, p.Shadow)
	}
}
