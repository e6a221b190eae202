package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

var serveAll = []json.RawMessage{json.RawMessage(`{}`)}

// node is one machine: mesh, and a host around it that does what effects ask.
type node struct {
	w     *world
	i     int
	key   nostr.PubKey
	agent *identity.KeyAgent
	off   int64 // of its clock, milliseconds
	cfg   mesh.Config
	mesh  *mesh.Node

	up      bool
	life    int // grows with each start: what an earlier life planned does not happen
	effects int
	alarm   int64 // serial of the alarm that counts

	disk   map[string][]byte          // journal: what survives everything
	soft   []write                    // journal: what a machine crash may take
	grants map[nostr.ID]*ledger.Grant // published: durable
	issued []nostr.ID                 // of them, oldest first

	friends map[int]bool    // peered with, descriptors known
	seen    map[string]bool // messages of late: DIDComm's guard against replay
	before  map[string]bool // and those before
	turned  int64           // when the one became the other
	syncs   map[string]*session
	tops    map[int]int64 // events held of each node, which are numbered: durable
	made    int64         // events of our own
	vouched map[int]bool  // whose tier the operator has had its word on
	strain  map[int]int64 // stress survived, by the peer that it came from
	rogue   *rogue        // nil: honest
	deep    int           // envelopes that came from too far
	asked   map[string]*question
}

// keptGrants is how many of its grants a node has at hand.
const keptGrants = 256

type write struct {
	key  string
	text []byte
}

// start makes the state anew from the journal.
func (n *node) start() {
	n.up, n.life = true, n.life+1
	n.seen, n.before, n.syncs, n.asked = map[string]bool{}, nil, map[string]*session{}, map[string]*question{}
	n.cfg.Seed = sha256.Sum256(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(n.i)), uint64(n.life)))
	n.mesh = mesh.New(n.cfg)
	records := map[string]json.RawMessage{}
	for k, v := range n.disk {
		records[k] = v
	}
	if err := n.mesh.Restore(records); err != nil {
		n.w.violate("a journal can be read", "%v", err)
	}
	n.w.remediesStand(n)
	for _, i := range slices.Sorted(maps.Keys(n.friends)) {
		n.step(mesh.Described{Descriptor: n.w.nodes[i].descriptor()})
	}
	n.step(mesh.Woken{})
	n.catchUp()
}

// crash ends the process, or the machine, and plans the next start.
func (n *node) crash(machine bool) {
	n.w.count.crashes++
	n.w.note(n, "crash machine=%v unsynced=%d", machine, len(n.soft))
	kept := len(n.soft)
	if machine {
		kept = int(n.w.dice.between(0, int64(kept)))
	}
	for _, s := range n.soft[:kept] {
		n.disk[s.key] = s.text
	}
	n.soft = nil
	n.up = false
	n.life++
	for pair, l := range n.w.links {
		if pair[0] == n.i || pair[1] == n.i {
			l.stream = 0
		}
	}
	down := n.w.dice.between(500, 30_000)
	if machine { // which takes longer than anything stays on its way
		down = n.w.dice.between(10_000, 200_000)
	}
	n.w.after(down, n.start)
}

func (n *node) descriptor() *identity.Descriptor {
	return &identity.Descriptor{Subject: n.key, Class: spec.ClassEdge, Protocols: n.cfg.Protocols, Digest: spec.DigestHex(), Work: 20, Committed: 20}
}

// step feeds mesh one input and performs the effects in order, as a host does; a crash between two of them drops the rest.
func (n *node) step(in mesh.Input) (answers []mesh.Effect) {
	if !n.up {
		return nil
	}
	n.w.count.steps++
	queue := n.mesh.Step(n.clock(), in)
	for len(queue) > 0 {
		eff := queue[0]
		queue = queue[1:]
		n.effects++
		if n.i == 0 && n.w.cfg.CrashAt == n.effects {
			n.crash(n.w.cfg.Machine)
			return nil
		}
		if !n.w.calm && n.rogue == nil && n.w.dice.chance(n.w.cfg.Faults.Crash) {
			n.crash(n.w.cfg.Faults.Restarted && n.w.dice.below(2) == 0)
			return nil
		}
		next, answer := n.perform(eff)
		if answer {
			answers = append(answers, eff)
		}
		if next != nil {
			queue = append(queue, n.mesh.Step(n.clock(), next)...)
		}
	}
	return answers
}

func (n *node) perform(eff mesh.Effect) (next mesh.Input, answer bool) {
	switch eff := eff.(type) {
	case mesh.Persist:
		n.soft = append(n.soft, write{eff.Key, eff.Record})
		if !eff.Lazy || len(n.soft) > 64 { // the disk takes it in the end, asked or not
			for _, s := range n.soft {
				n.disk[s.key] = s.text
			}
			n.soft = n.soft[:0]
		}
	case mesh.WakeAt:
		n.wakeAt(eff.At)
	case mesh.Tell:
		n.w.told(n, eff)
	case mesh.IssueGrant:
		g := *eff.Grant
		event := n.put(&g)
		n.grants[g.ID] = &g
		n.issued = append(n.issued, g.ID)
		if len(n.issued) > keptGrants { // none so old is sent again
			delete(n.grants, n.issued[0])
			n.issued = n.issued[1:]
		}
		n.w.granted(n, &g)
		return mesh.GrantIssued{Subject: eff.Subject, Grant: &g, Event: event}, false
	case mesh.SignReceipt:
		r := *eff.Receipt
		sig, err := n.agent.Sign(r.Link())
		if err != nil {
			n.w.violate("a receipt can be signed", "%v", err)
		}
		r.Sig = sig
		return mesh.ReceiptSigned{Issuer: eff.Issuer, Receipt: &r}, false
	case mesh.Send:
		n.control(eff)
	case mesh.SendProblem:
		n.queue(&frame{to: n.w.byKey[eff.To], problem: eff.Code, created: eff.Created, id: n.newID(), control: true})
	case mesh.StartSync:
		n.begin(eff)
	case mesh.ServeSync:
		n.serve(eff)
	case mesh.PublishReport:
		return n.publish(eff), false
	case mesh.RetractReport:
		delete(n.w.court.held, [2]nostr.PubKey{n.key, eff.Subject})
	case mesh.AnswerStanding:
		n.answer(eff)
	default:
		return nil, true
	}
	return nil, false
}

// wakeAt plans the alarm; a later one replaces it.
func (n *node) wakeAt(at int64) {
	n.alarm++
	alarm, life := n.alarm, n.life
	n.w.after(at*1000-(origin*1000+n.w.now+n.off), func() {
		if n.life == life && n.alarm == alarm {
			n.step(mesh.Woken{})
		}
	})
}

// newID draws a message id of the host's own.
func (n *node) newID() string {
	n.w.serial++
	return string(binary.BigEndian.AppendUint64([]byte{'h'}, uint64(n.w.serial)))
}

// control turns what mesh wants sent into a frame.
func (n *node) control(s mesh.Send) {
	body, err := json.Marshal(s.Body)
	if err != nil {
		n.w.violate("a body can be encoded", "%s: %v", s.Type, err)
		return
	}
	if r, ok := s.Body.(*ledger.Receipt); ok {
		n.w.receiptLeaves(n, s.To, r)
	}
	f := &frame{to: n.w.byKey[s.To], typ: s.Type, id: s.ID, thread: s.Thread, body: body, first: s.First, created: n.unix(), control: true, octets: int64(len(body)) + 900}
	if f.thread == "" {
		f.thread = f.id
	}
	for _, id := range s.Grants {
		f.grants = append(f.grants, n.grants[id])
	}
	n.queue(f)
}

// take handles a frame that arrived.
func (n *node) take(f *frame) {
	if n.repeated(f.id) {
		return
	}
	if f.problem != "" {
		n.step(mesh.Problem{Peer: f.from.key, Code: f.problem, Created: f.created})
		return
	}
	if f.first {
		n.friends[f.from.i] = true
		n.step(mesh.Described{Descriptor: f.from.descriptor()})
	}
	for _, g := range f.grants {
		n.step(mesh.GrantSeen{Issuer: f.from.key, Grant: g})
	}
	if n.rogue != nil && n.rogue.heard(f) {
		return
	}
	if len(f.envelopes) > 0 && !n.admits(f) {
		return
	}
	in := mesh.Received{From: f.from.key, Anonymous: f.first, Type: f.typ, ID: f.id, Thread: f.thread, Created: f.created, Octets: f.octets, Envelopes: f.count, Body: f.body}
	for _, eff := range n.step(in) {
		switch eff := eff.(type) {
		case mesh.Pass:
			if s := n.syncs[f.thread]; s != nil {
				s.take(f, eff.Window)
			} else if q := n.asked[f.thread]; q != nil {
				n.answered(q, f)
			}
		case mesh.Withhold:
			n.refuse(f, eff.Code)
		}
	}
}

// remember is how long a message id is known at least: longer than any frame stays on its way.
const remember = 600_000

// repeated is DIDComm's guard against replay, as long as the process lives.
func (n *node) repeated(id string) bool {
	if n.seen[id] || n.before[id] {
		return true
	}
	if n.w.now-n.turned > remember {
		n.seen, n.before, n.turned = map[string]bool{}, n.seen, n.w.now
	}
	n.seen[id] = true
	return false
}

// refuse answers a message of a session that mesh did not let through.
func (n *node) refuse(f *frame, code spec.Code) {
	switch f.typ {
	case spec.MsgSyncRefuse, spec.MsgSyncDone, spec.MsgSyncDelivered:
		return
	}
	if bytes.HasPrefix([]byte(f.typ), []byte(spec.PIURISync)) {
		n.queue(&frame{to: f.from, typ: spec.MsgSyncRefuse, id: n.newID(), thread: f.thread, created: n.unix(), body: refusal(code), code: code, control: true, octets: 400})
	}
}

func refusal(code spec.Code) json.RawMessage {
	return json.RawMessage(`{"code":"` + string(code) + `"}`)
}
