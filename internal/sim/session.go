package sim

import (
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// session is one side of a sync, as a host streams it: one message at a time, each of which is answered.
type session struct {
	n      *node
	peer   *node
	thread string
	ours   bool
	mode   string
	cursor int64 // the first event to bring
	pushed int64 // events to bring, still
	pulled int64 // events to fetch, still
	batch  int64 // the most in one deliver
	beat   int64 // grows with every message that came: what waited for silence gives up
	window int64 // of the deliver in flight
	have   int64
	need   int64
	size   int64 // octets of an event pushed
}

const (
	silenceMS  = 60_000
	openOctets = 900
	smallFrame = 500
)

// begin starts a sync as its initiator.
func (n *node) begin(eff mesh.StartSync) {
	s := &session{n: n, peer: n.w.byKey[eff.Peer], thread: eff.Session, ours: true, mode: eff.Want.Mode, batch: 60}
	n.syncs[s.thread] = s
	life := n.life
	wait := n.w.dice.between(0, 200)
	if n.w.oneWay && n.i%2 == 0 { // once a window, well within it: a window that saw half a session would be half full
		at := n.unix() % n.w.cfg.Seconds
		if wait += (100 - at) * 1000; at > 100 {
			wait += n.w.cfg.Seconds * 1000
		}
	}
	n.w.after(wait, func() {
		if n.life == life {
			s.open()
		}
	})
}

func (s *session) open() {
	if s.n.w.still || s.n.w.load() == Idle || s.n.w.oneWay && s.n.i%2 == 1 {
		s.end("")
		return
	}
	s.plan()
	body, err := json.Marshal(mesh.OpenBody{Shard: "all", Filter: serveAll[0], Mode: s.mode, Neg: "61"})
	if err != nil {
		s.n.w.violate("a body can be encoded", "%v", err)
		return
	}
	s.send(&frame{typ: spec.MsgSyncOpen, octets: openOctets, body: body, at: s.n.tops[s.peer.i], avail: s.pulled})
}

// load is what honest nodes do now.
func (w *world) load() Load {
	if w.cfg.ThenAt > 0 && w.now >= int64(w.cfg.ThenAt)*w.cfg.Seconds*1000 {
		return w.cfg.Then
	}
	return w.cfg.Load
}

// plan says how much the session moves. Events are numbers, so there are always as many as one likes.
func (s *session) plan() {
	n := s.n
	s.size = n.w.dice.between(300, 3000)
	switch n.w.load() {
	case Talk:
	case Light:
		s.pushed = 1
	case Full:
		s.planFull()
	default:
		s.pushed, s.pulled = n.w.dice.below(40), n.w.dice.below(40)
		if n.w.dice.below(12) == 0 {
			s.pushed, s.batch = 5000, 300 // as much as is allowed, and more than that
		}
	}
	if s.mode == mesh.ModePull {
		s.pushed = 0
	}
	if s.mode == mesh.ModePush {
		s.pulled = 0
	}
	n.made = max(n.made, n.w.nodes[s.peer.i].tops[n.i]) + s.pushed
}

// planFull uses up what the grant leaves of events and octets, half of it each way.
func (s *session) planFull() {
	for _, p := range s.n.mesh.Peers(s.n.clock()) {
		if p.Key != s.peer.key || p.Held == nil {
			continue
		}
		l, used := p.Held.Limits, p.Held.Used
		events := l[spec.LimitEventsIn] - used[spec.CounterEventsIn]
		s.pushed, s.pulled, s.batch = events/2, events-events/2, max(events, 1)
		s.size = max(1, (l[spec.LimitBytesIn]-used[spec.CounterBytesIn]-8*openOctets)/max(s.pushed, 1))
	}
}

// pullSize is the octets of an event that the peer serves: its own affair, told here so that a full load fills every limit.
func (s *session) pullSize() int64 {
	if s.n.w.load() != Full {
		return s.size
	}
	for _, p := range s.n.mesh.Peers(s.n.clock()) {
		if p.Key == s.peer.key && p.Issued != nil {
			return max(1, (p.Issued.Limits[spec.LimitBytesOut]-p.Issued.Used[spec.CounterBytesOut]-8*openOctets)/max(s.batchLeft(), 1))
		}
	}
	return s.size
}

func (s *session) batchLeft() int64 { return s.pulled }

// send takes the budget of a message and sends it; without budget the session ends, or tries a smaller deliver.
func (s *session) send(f *frame) bool {
	f.created, f.thread, f.id, f.to = s.n.unix(), s.thread, s.n.newID(), s.peer
	life := s.n.life
	for _, eff := range s.n.step(mesh.Sending{Peer: s.peer.key, Session: s.thread, Type: f.typ, Created: f.created, Octets: f.octets, Envelopes: f.count}) {
		switch eff := eff.(type) {
		case mesh.Withhold:
			if f.typ == spec.MsgSyncDeliver && f.count > 1 {
				return false
			}
			s.end(eff.Code)
			return false
		case mesh.Permit:
			s.window = eff.Window
		}
	}
	if s.n.life != life {
		return false
	}
	s.n.queue(f)
	s.listen(silenceMS)
	return true
}

// listen gives up when nothing comes for so long.
func (s *session) listen(ms int64) {
	s.beat++
	beat, life := s.beat, s.n.life
	s.n.w.after(ms, func() {
		if s.n.life == life && s.n.syncs[s.thread] == s && s.beat == beat {
			s.end(spec.CodeError)
		}
	})
}

func (s *session) end(code spec.Code) {
	if s.n.syncs[s.thread] != s {
		return
	}
	delete(s.n.syncs, s.thread)
	s.n.step(mesh.SyncEnded{Peer: s.peer.key, Session: s.thread, Code: code, Have: s.have, Need: s.need})
}

// serve answers an accepted open.
func (n *node) serve(eff mesh.ServeSync) {
	s := &session{n: n, peer: n.w.byKey[eff.Peer], thread: eff.Session, mode: eff.Open.Mode, size: n.w.dice.between(300, 3000)}
	n.syncs[s.thread] = s
	s.send(&frame{typ: spec.MsgSyncFrame, octets: smallFrame, body: json.RawMessage(`{"neg":"61"}`), at: n.tops[s.peer.i]})
}

// take handles a message that mesh let through.
func (s *session) take(f *frame, window int64) {
	s.beat++
	switch f.typ {
	case spec.MsgSyncFrame:
		s.cursor = f.at // what the other end holds is not sent again
		s.pushed = min(s.pushed, max(0, s.n.made-f.at))
		s.next()
	case spec.MsgSyncWant:
		s.answer(f)
	case spec.MsgSyncDeliver:
		s.taken(f, window)
	case spec.MsgSyncDelivered:
		s.n.step(mesh.Fate{Peer: s.peer.key, Session: s.thread, Window: s.window, Stored: f.avail - f.duplicate, Duplicate: f.duplicate})
		if s.ours {
			s.next()
		}
	case spec.MsgSyncDone:
		s.end("")
	case spec.MsgSyncRefuse:
		s.end(f.code)
	}
}

// next does what is left to do of a session that we began.
func (s *session) next() {
	switch {
	case s.pulled > 0:
		ask := min(s.pulled, s.batch)
		s.send(&frame{typ: spec.MsgSyncWant, octets: smallFrame, body: json.RawMessage(`{"ids":[]}`), avail: ask, at: s.n.tops[s.peer.i]})
	case s.pushed > 0:
		s.push()
	default:
		if s.send(&frame{typ: spec.MsgSyncDone, octets: smallFrame, body: json.RawMessage(`{"have":0,"need":0}`)}) {
			s.end("")
		}
	}
}

// push delivers the next events, fewer at a time where the budget is nearly gone.
func (s *session) push() {
	k := min(s.pushed, s.batch)
	for ; k > 0; k /= 2 {
		f := &frame{typ: spec.MsgSyncDeliver, octets: smallFrame + k*s.size, count: k, at: s.cursor, body: json.RawMessage(`{"count":1}`)}
		if s.send(f) {
			s.pushed -= k
			s.cursor += k
			s.have += k
			return
		}
		if s.n.syncs[s.thread] != s {
			return
		}
	}
}

// answer serves a want with one deliver, as large as the budget allows.
func (s *session) answer(f *frame) {
	s.pulled = f.avail
	size := s.pullSize()
	for k := f.avail; k > 0; k /= 2 {
		d := &frame{typ: spec.MsgSyncDeliver, octets: smallFrame + k*size, count: k, at: f.at, body: json.RawMessage(`{"count":1}`)}
		if s.send(d) {
			s.have += k
			return
		}
		if s.n.syncs[s.thread] != s {
			s.n.queue(&frame{to: s.peer, typ: spec.MsgSyncRefuse, id: s.n.newID(), thread: s.thread, created: s.n.unix(), body: refusal(spec.CodeOverBudget), code: spec.CodeOverBudget, control: true, octets: 400})
			return
		}
	}
}

// taken stores what was delivered. An event that was held before is a duplicate.
func (s *session) taken(f *frame, window int64) {
	held := s.n.tops[s.peer.i]
	dup := min(max(0, held-f.at), f.count)
	s.n.tops[s.peer.i] = max(held, f.at+f.count)
	s.need += f.count - dup
	if !s.ours {
		s.n.w.watch.of(s.n.i, s.peer.i).Took += f.count - dup
	}
	life := s.n.life
	s.n.step(mesh.Taken{Peer: s.peer.key, Session: s.thread, Window: window, Stored: f.count - dup, Duplicate: dup, Sample: f.sample()})
	if s.n.life != life {
		return
	}
	s.pulled = max(0, s.pulled-f.count)
	if !s.send(&frame{typ: spec.MsgSyncDelivered, octets: smallFrame, count: 0, avail: f.count, duplicate: dup, body: json.RawMessage(`{"stored":0,"duplicate":0,"refused":[]}`)}) {
		return
	}
	if s.ours {
		s.next()
	}
}
