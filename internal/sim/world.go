package sim

import (
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Faults is how bad the world is. Chances are in a hundred thousand.
type Faults struct {
	Lose      int64 // a frame, alone
	Break     int64 // the stream, at a frame: what is on its way is lost too
	Repeat    int64 // a frame arrives twice
	DelayMS   int64 // the most that a frame takes
	SkewMS    int64 // the most that a clock is off, either way
	Crash     int64 // of a node, at an effect
	Part      int64 // of a pair of nodes, each minute
	PartMS    int64 // the longest that a partition lasts
	Restarted bool  // half of the crashes take the machine down, and what was not yet on the disk
}

// Rough is a bad network. Two clocks are never more than 52 s apart and a frame takes less than 8 s: together they stay within the 60 s that
// the protocol asks of clocks, beyond which it promises nothing (§ Window arithmetic).
func Rough() Faults {
	return Faults{Lose: 2000, Break: 2000, Repeat: 2000, DelayMS: 7900, SkewMS: 26_000, Crash: 60, Part: 2500, PartMS: 1_500_000, Restarted: true}
}

// Config says what is run.
type Config struct {
	Nodes     int
	Windows   int
	Seed      uint64
	Seconds   int64 // of a window, 0: 600
	Load      Load
	Then      Load // from window ThenAt on, counted from 1; 0: never
	ThenAt    int
	Faults    Faults
	Adversary string      // one of Adversaries, "" for none
	Factor    int64       // of an adversary that overspends: hundredths of its limit
	Ladder    mesh.Ladder // zero: the real one
	CrashAt   int         // crash the first node at its effect of this number, 0: not
	Machine   bool        // that crash takes the machine down
	Quiet     bool        // no trace, only its hash
	first     int         // of a region: how many nodes are in those before it
	Reports   bool        // complaints are told, reports published and read, and questions of standing asked: it costs signatures
	Brief     bool        // end soon after the faults do, and demand nothing of how things settle
}

// Load is how much honest nodes move.
type Load string

// The loads: a mixture drawn by the seed; all that the grant allows; a single event a window; nothing.
const (
	Mixed Load = ""
	Full  Load = "full"
	Light Load = "light"
	Idle  Load = "idle"
)

// Violation is something that must never happen, and did.
type Violation struct {
	At     int64  `json:"at"` // milliseconds since the beginning
	Rule   string `json:"rule"`
	Detail string `json:"detail"`
}

// event is something that is due.
type event struct {
	at, serial int64
	do         func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].serial < h[j].serial
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// world is one run.
type world struct {
	cfg    Config
	now    int64 // milliseconds since the beginning
	serial int64
	due    eventHeap
	dice   rng
	nodes  []*node
	pairs  [][2]int // that peer, the lower first
	byKey  map[nostr.PubKey]*node
	links  map[[2]int]*link
	parted map[[2]int]int
	calm   bool // faults are over
	still  bool // nothing more is moved
	oneWay bool // of each pair only the first uses what the second grants

	trace      hash.Hash
	lines      []string
	violations []Violation
	watch      watch
	court      court
	count      struct{ frames, lost, crashes, receipts, windows, steps, notices, reports, readings, questions, answers int64 }
	onClose    func(issuer, subject *node, t mesh.Tell)
}

// origin is when every run begins: unix seconds, a multiple of every window length in use.
const origin = 1_800_000_000

func newWorld(cfg Config) (*world, error) {
	if cfg.Seconds == 0 {
		cfg.Seconds = 600
	}
	if err := ledger.CheckWindowLength(cfg.Seconds); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if cfg.Nodes < 2 || cfg.Windows < 1 {
		return nil, fmt.Errorf("simulate: %d nodes and %d windows: at least two and one are needed", cfg.Nodes, cfg.Windows)
	}
	w := &world{cfg: cfg, dice: rng{cfg.Seed}, byKey: map[nostr.PubKey]*node{}, links: map[[2]int]*link{}, parted: map[[2]int]int{}, trace: sha256.New()}
	w.watch.init()
	w.court.init()
	w.dice.next()
	return w, nil
}

// add makes a node. Keys are small numbers: a simulated identity needs no secret.
func (w *world) add() (*node, error) {
	var secret nostr.SecretKey
	binary.BigEndian.PutUint32(secret[28:], uint32(w.cfg.first+len(w.nodes)+1))
	agent, err := identity.NewKeyAgent(secret)
	if err != nil {
		return nil, fmt.Errorf("make a node: %w", err)
	}
	n := &node{w: w, i: len(w.nodes), key: agent.PubKey(), agent: agent, off: w.dice.between(-w.cfg.Faults.SkewMS, w.cfg.Faults.SkewMS),
		disk: map[string][]byte{}, grants: map[nostr.ID]*ledger.Grant{}, tops: map[int]int64{}, friends: map[int]bool{}, vouched: map[int]bool{}, strain: map[int]int64{}}
	n.cfg = mesh.Config{Self: n.key, Class: spec.ClassEdge, Digest: spec.DigestHex(), Enrolment: mesh.EnrolOpen, Window: w.cfg.Seconds,
		Protocols: []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync}, Serve: serveAll, Ladder: w.cfg.Ladder}
	if w.cfg.Reports {
		n.cfg.Protocols = append(n.cfg.Protocols, spec.PIURIComplaint, spec.PIURIStanding)
		n.cfg.Standing = mesh.StandingOwn
	}
	w.nodes = append(w.nodes, n)
	w.byKey[n.key] = n
	n.start()
	return n, nil
}

// after plans something.
func (w *world) after(ms int64, do func()) {
	w.serial++
	heap.Push(&w.due, event{w.now + max(ms, 0), w.serial, do})
}

// run lets time go by until the end.
func (w *world) run(untilMS int64) {
	for len(w.due) > 0 && w.due[0].at <= untilMS {
		e := heap.Pop(&w.due).(event)
		w.now = e.at
		e.do()
	}
	w.now = untilMS
}

// note writes a line of the trace.
func (w *world) note(n *node, format string, args ...any) {
	line := fmt.Sprintf("%d %d ", w.now, n.i) + fmt.Sprintf(format, args...)
	w.trace.Write([]byte(line))
	w.trace.Write([]byte{'\n'})
	if !w.cfg.Quiet {
		w.lines = append(w.lines, line)
	}
}

func (w *world) violate(rule, format string, args ...any) {
	w.violations = append(w.violations, Violation{w.now, rule, fmt.Sprintf(format, args...)})
}

func (w *world) digest() string { return hex.EncodeToString(w.trace.Sum(nil)) }

// clock is what a node takes the time for.
func (n *node) clock() time.Time { return time.UnixMilli(origin*1000 + n.w.now + n.off) }

func (n *node) unix() int64 { return n.clock().Unix() }
