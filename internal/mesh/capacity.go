package mesh

import (
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// A grant bounds one peer; the totals that the operator declares bound the node. Pressure is what all peers together used in a window, of the counter
// that used the most of its total: of the window that runs or of the one before it, whichever pressed more, so that a window's beginning releases nothing.

// Stressed says that the node survived something: from where it came sets its reserves and nothing else (§ What a node does with stress it survived).
type Stressed struct {
	Side strain.Side
	Name string
	Peer nostr.PubKey // behind it; zero for the node's own
}

// Shed tells the host which rungs are engaged, whenever that changes: coverage of what is held only through the mesh is its to withdraw.
type Shed struct{ Rungs []strain.Rung }

func (Stressed) input() {}
func (Shed) effect()    {}

// shedding is the ladder: a journal record of its own.
type shedding struct {
	Engaged  int
	Pressure strain.Pressure // that limits are lowered under
}

// weight is what all peers used, by window.
type weight struct {
	epoch int64
	used  strain.Counts
	last  strain.Counts // in the window before
}

// meter counts what a peer causes here, in its window and in the node's.
func (t *turn) meter(b *book, c ledger.Counters) {
	if t.cfg.Capacity == nil {
		b.Counters.Add(c)
		return
	}
	t.turnWindow()
	b.Counters.Add(c)
	t.load.add(b.Window.Epoch, c)
	t.press()
}

func (w *weight) add(epoch int64, c ledger.Counters) {
	into := w.used
	switch epoch {
	case w.epoch:
	case w.epoch - 1:
		into = w.last
	default:
		return
	}
	for n, v := range c {
		into[n] += v
	}
}

// turnWindow begins the node's window anew when its time has come.
func (t *turn) turnWindow() {
	n, e := t.Node, ledger.WindowAt(t.now, t.cfg.Window).Epoch
	if e == n.load.epoch {
		return
	}
	before := n.load
	n.load = weight{epoch: e, used: strain.Counts{}, last: strain.Counts{}}
	switch before.epoch {
	case e - 1:
		n.load.last = before.used
	case 0: // after a restart the books know
		for _, p := range n.peers {
			for _, b := range p.Measured {
				n.load.add(b.Window.Epoch, b.Counters)
			}
		}
	}
}

// pressure is how hard the node is pressed.
func (n *Node) pressure() strain.Pressure {
	p, q := strain.Measure(n.load.used, n.cfg.Capacity), strain.Measure(n.load.last, n.cfg.Capacity)
	if q.Declared() && (spec.Ratio{Num: q.Used, Den: max(q.Total, 1)}).CmpFraction(p.Used, max(p.Total, 1)) < 0 {
		return q
	}
	return p
}

// press steps the ladder and announces what changed.
func (t *turn) press() {
	if t.cfg.Capacity == nil {
		return
	}
	t.turnWindow()
	p := t.pressure()
	next, said := strain.Resume(t.shed.Engaged).Step(p)
	if len(said) == 0 {
		return
	}
	t.shed.Engaged = len(next.Rungs())
	amends := false
	for _, a := range said {
		what := "shed"
		if !a.Engaged {
			what = "shed-released"
		}
		amends = amends || a.Cause != ""
		t.do(Tell{What: what, Code: a.Decline, Detail: string(a.Rung)})
	}
	if amends {
		t.shed.Pressure = p
	}
	t.persist(shedKey, t.shed, false)
	t.do(Shed{Rungs: next.Rungs()})
	if amends {
		for _, p := range t.sorted() {
			t.refresh(p)
		}
	}
}

// sheds reports whether a rung is engaged.
func (n *Node) sheds(r strain.Rung) bool { return strain.Resume(n.shed.Engaged).Engaged(r) }

// stressed takes note of what the node survived.
func (t *turn) stressed(in Stressed) {
	s := strain.Stress{At: t.now, From: strain.Direction{Side: in.Side, Name: in.Name}}
	if p := t.peers[in.Peer]; p != nil {
		s.Tier = p.Stands.Tier
	}
	t.stress = t.stress.With(s).Since(t.now - stressSeconds)
	t.persist(stressKey, t.stress.Tallies(), true)
}

// stressSeconds is how long after its last event a direction is remembered.
const stressSeconds = 30 * 86400

// Capacity is what a node says of its own load.
type Capacity struct {
	Declared strain.Counts `json:"declared"`
	Used     strain.Counts `json:"used"`        // in the window that runs, over all peers
	Last     strain.Counts `json:"last_window"` // in the one before
	Counter  spec.Counter  `json:"counter,omitempty"`
	Percent  int64         `json:"percent"`
	Rungs    []strain.Rung `json:"rungs"`
	Headroom strain.Counts `json:"headroom"` // what may still be promised before the first rung
}

// Capacity tells of the node's load.
func (n *Node) Capacity() Capacity {
	p := n.pressure()
	return Capacity{Declared: n.cfg.Capacity, Used: n.load.used, Last: n.load.last, Counter: p.Counter, Percent: p.Percent(),
		Rungs: nonNil(strain.Resume(n.shed.Engaged).Rungs()), Headroom: strain.Headroom(n.load.used, n.cfg.Capacity)}
}

// Stress is the strain record: what the node survived, by direction.
func (n *Node) Stress() strain.Record { return n.stress }

func (n *Node) restoreShed(record json.RawMessage) error { return json.Unmarshal(record, &n.shed) }

func (n *Node) restoreStress(record json.RawMessage) error {
	var list []strain.Tally
	if err := json.Unmarshal(record, &list); err != nil {
		return err
	}
	n.stress = strain.RecordOf(list)
	return nil
}
