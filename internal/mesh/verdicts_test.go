package mesh

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// Verdicts are a record each. A node that is taken up has those that its peer's record counts, in their order, whatever a crash left in the other places.
func TestVerdictsAreTakenUpInOrder(t *testing.T) {
	w := newPair(t)
	w.peering()
	a, key := w.a(), w.b().key
	p := a.node.peers[key]
	save := func(step func(*turn)) (written int) {
		turn := &turn{Node: a.node, now: w.now.Unix()}
		step(turn)
		for _, eff := range turn.effects {
			if e, ok := eff.(Persist); ok {
				a.journal[e.Key] = e.Record
				if strings.HasPrefix(e.Key, closedKey) {
					written++
				}
			}
		}
		return written
	}
	windows := func() (out []int64) {
		for _, c := range a.node.Peers(w.now)[0].Windows {
			out = append(out, c.Window)
		}
		return out
	}
	for i := range int64(keptVerdicts + 7) {
		p.report(WindowClose{Window: i, Severity: "S0"})
		if n := save(func(t *turn) { t.save(p, false) }); n != 1 {
			t.Fatalf("%d verdicts are written for one", n)
		}
	}
	before := maps.Clone(a.journal)
	p.report(WindowClose{Window: 1000})
	save(func(t *turn) { t.saveVerdicts(p) }) // and the node crashes before the peer is written
	for k := range a.journal {
		if !strings.HasPrefix(k, closedKey) {
			a.journal[k] = before[k]
		}
	}
	w.restart(a)
	p = a.node.peers[key]
	got := windows()
	if len(got) != keptVerdicts-1 || got[0] != 8 || !slices.IsSorted(got) || got[len(got)-1] != keptVerdicts+6 {
		t.Errorf("taken up: %v", got)
	}
	p.report(WindowClose{Window: 2000})
	save(func(t *turn) { t.save(p, false) })
	w.restart(a)
	if got := windows(); got[len(got)-1] != 2000 || len(got) != keptVerdicts {
		t.Errorf("after the next: %v", got)
	}
}

// A record of before had its verdicts in itself. They are kept, and written as the others are.
func TestVerdictsOfAnOlderRecordAreKept(t *testing.T) {
	w := newPair(t)
	w.peering()
	a, key := w.a(), w.b().key
	var record map[string]json.RawMessage
	if err := json.Unmarshal(a.journal[peerKey+key.String()], &record); err != nil {
		t.Fatal(err)
	}
	record["Reported"] = json.RawMessage(`[{"window":5,"at":1,"severity":"S0","measured":{},"receipts":0},{"window":6,"at":2,"severity":"S1","measured":{},"receipts":0}]`)
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	a.journal[peerKey+key.String()] = text
	for range 2 {
		w.restart(a)
		if got := a.node.Peers(w.now)[0].Windows; len(got) != 2 || got[0].Window != 5 || got[1].Severity != "S1" {
			t.Fatalf("%+v", got)
		}
		turn := &turn{Node: a.node, now: w.now.Unix()}
		turn.save(a.node.peers[key], false)
		for _, eff := range turn.effects {
			if e, ok := eff.(Persist); ok {
				a.journal[e.Key] = e.Record
			}
		}
		if strings.Contains(string(a.journal[peerKey+key.String()]), "Reported") {
			t.Fatal("the peer's record has verdicts")
		}
	}
	if err := New(a.cfg).Restore(map[string]json.RawMessage{closedKey + nostr.PubKey{1}.String() + "/0": json.RawMessage(fmt.Sprintf(`{"Key":"%s"}`, key))}); err == nil {
		t.Error("a verdict under another key is taken up")
	}
}
