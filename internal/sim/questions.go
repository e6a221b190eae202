package sim

import (
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// question is one of standing/1.0 that a node asked.
type question struct {
	to, about *node
	mode      string
}

const queryOctets = 700

// askAround lets honest nodes ask each other about others, now and then.
func (w *world) askAround() {
	if w.still {
		return
	}
	pick := func() *node { return w.nodes[w.dice.below(int64(len(w.nodes)))] }
	asker, to, about := pick(), pick(), pick()
	if asker.up && asker.rogue == nil && to.rogue == nil && asker != to && about != asker && about != to {
		asker.ask(&question{to, about, []string{mesh.AskOwn, mesh.AskThreshold}[w.dice.below(2)]})
	}
	w.after(w.dice.between(10_000, 60_000), w.askAround)
}

func (n *node) ask(q *question) {
	thread, life := n.newID(), n.life
	body, err := json.Marshal(mesh.QueryBody{Subject: q.about.key, Mode: q.mode})
	if err != nil {
		n.w.violate("a body can be encoded", "%v", err)
		return
	}
	for _, eff := range n.step(mesh.AskStanding{Peer: q.to.key, Thread: thread}) {
		if _, ok := eff.(mesh.Permit); !ok {
			return
		}
	}
	f := &frame{to: q.to, typ: spec.MsgStandingQuery, id: thread, thread: thread, created: n.unix(), octets: queryOctets, body: body}
	if n.life != life || !n.permitted(f) {
		n.step(mesh.QueryEnded{Thread: thread})
		return
	}
	n.w.count.questions++
	n.asked[thread] = q
	n.queue(f)
	n.w.after(silenceMS, func() {
		if n.life == life && n.asked[thread] != nil {
			delete(n.asked, thread)
			n.step(mesh.QueryEnded{Thread: thread})
		}
	})
}

// permitted takes the budget of a message of a session.
func (n *node) permitted(f *frame) bool {
	life := n.life
	for _, eff := range n.step(mesh.Sending{Peer: f.to.key, Session: f.thread, Type: f.typ, Created: f.created, Octets: f.octets}) {
		if _, ok := eff.(mesh.Permit); ok {
			return n.life == life
		}
	}
	return false
}

// answer sends an answer within the asker's budget, else a decline.
func (n *node) answer(eff mesh.AnswerStanding) {
	life := n.life
	body, err := json.Marshal(eff.Body)
	if err != nil {
		n.w.violate("a body can be encoded", "%v", err)
		return
	}
	n.w.after(0, func() {
		if n.life != life {
			return
		}
		f := &frame{to: n.w.byKey[eff.To], typ: spec.MsgStandingAnswer, id: n.newID(), thread: eff.Thread, created: n.unix(), octets: queryOctets, body: body}
		if !n.permitted(f) {
			f.typ, f.body = spec.MsgStandingDecline, json.RawMessage(`{}`)
		}
		n.queue(f)
		n.step(mesh.QueryEnded{Thread: eff.Thread})
	})
}

// answered holds an answer against what its author found.
func (n *node) answered(q *question, f *frame) {
	delete(n.asked, f.thread)
	n.step(mesh.QueryEnded{Thread: f.thread})
	if f.typ != spec.MsgStandingAnswer {
		return
	}
	n.w.count.answers++
	var a mesh.AnswerBody
	if err := json.Unmarshal(f.body, &a); err != nil {
		n.w.violate("an answer can be read", "%v", err)
		return
	}
	worst := n.w.watch.of(q.to.i, q.about.i).Worst
	if a.Severity != nil && *a.Severity > worst {
		n.w.violate("nobody answers worse than it found", "node %d about %d: %s, found %s", q.to.i, q.about.i, *a.Severity, worst)
	}
	if q.about.rogue == nil && (a.Severity != nil && *a.Severity > spec.S0 || a.Met != nil && *a.Met) {
		n.w.violate("no answer speaks against an honest node", "node %d about %d", q.to.i, q.about.i)
	}
}
