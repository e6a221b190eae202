package sim

import (
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// frame is one sealed message on its way.
type frame struct {
	from, to *node
	typ      spec.MessageType
	id       string
	thread   string
	created  int64
	octets   int64
	body     json.RawMessage
	grants   []*ledger.Grant
	first    bool      // a first contact, anonymous
	problem  spec.Code // a problem report
	code     spec.Code // of a refusal
	control  bool      // the link keeps it until it can be sent; what belongs to a session is lost with the stream

	// What the body of a session's message would say.
	at, count int64 // events at..at+count-1 of the sender; of a frame: at is how many of the receiver's are held
	avail     int64 // of a frame: how many events of the sender are wanted
	duplicate int64
	envelopes []*ledger.Envelope
}

// link is what lies between two nodes: a stream at a time, in order each way.
type link struct {
	stream  int64 // 0: none
	dialler int
	greeted bool     // the other end has had its first frame
	last    [2]int64 // arrival of the last frame, each way
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

func (w *world) link(a, b int) *link {
	l := w.links[pairOf(a, b)]
	if l == nil {
		l = &link{}
		w.links[pairOf(a, b)] = l
	}
	return l
}

const redialMS = 5000

// queue hands a frame to the link, which works by itself: nothing happens within the step that sends.
func (n *node) queue(f *frame) {
	f.from = n
	life := n.life
	n.w.after(0, func() { n.transmit(f, life) })
}

// transmit sends a frame now, or keeps it for later.
func (n *node) transmit(f *frame, life int) {
	if n.life != life || !n.up {
		return // the queue was in memory
	}
	w := n.w
	l := w.link(n.i, f.to.i)
	again := func() {
		l.stream = 0
		if f.control {
			w.after(redialMS, func() { n.transmit(f, life) })
		}
	}
	if w.parted[pairOf(n.i, f.to.i)] > 0 || !f.to.up {
		again()
		return
	}
	dialled := false
	if l.stream == 0 {
		if n.rogue == nil && !f.first {
			for _, eff := range n.step(mesh.Dialling{Peer: f.to.key, Created: f.created}) {
				if _, no := eff.(mesh.Withhold); no {
					again()
					return
				}
			}
			if n.life != life {
				return
			}
		}
		w.serial++
		l.stream, l.dialler, l.greeted, dialled = w.serial, n.i, false, true
	}
	w.count.frames++
	lost := false
	if !w.calm {
		switch {
		case w.dice.chance(w.cfg.Faults.Break):
			l.stream, lost = 0, true
			n.strain[f.to.i]++
			f.to.strain[n.i]++
		case w.dice.chance(w.cfg.Faults.Lose):
			lost = true
			if dialled {
				l.stream = 0 // a stream whose first frame is lost never was
			}
		}
	}
	if lost {
		w.count.lost++
	} else {
		way := 0
		if n.i > f.to.i {
			way = 1
		}
		at := max(w.now+w.delay(), l.last[way]+1)
		l.last[way] = at
		w.arrive(f, l, at)
		if !w.calm && w.dice.chance(w.cfg.Faults.Repeat) {
			w.arrive(f, l, w.now+w.delay())
		}
	}
	if dialled && !f.first {
		if n.rogue != nil {
			n.rogue.dialled(f)
		} else {
			n.step(mesh.Connected{Peer: f.to.key, Created: f.created})
		}
	}
}

// delay draws how long a frame takes: mostly little, at times nearly the most.
func (w *world) delay() int64 {
	most := w.cfg.Faults.DelayMS
	if w.calm || most < 20 {
		return 5
	}
	d := w.dice.below(most)
	if w.dice.below(8) != 0 {
		d /= 40
	}
	return 5 + d
}

// arrive plans a frame's arrival. It dies with its stream.
func (w *world) arrive(f *frame, l *link, at int64) {
	stream, life := l.stream, f.to.life
	w.after(at-w.now, func() {
		if l.stream != stream || f.to.life != life || !f.to.up {
			return
		}
		if l.dialler != f.to.i && !l.greeted {
			l.greeted = true
			if !f.first {
				f.to.step(mesh.Connected{Peer: f.from.key, Inbound: true, Created: f.created})
			}
		}
		if f.to.up {
			f.to.take(f)
		}
	})
}

// storms parts pairs of nodes that peer, now and then.
func (w *world) storms() {
	if !w.calm {
		for _, p := range w.pairs {
			if w.dice.chance(w.cfg.Faults.Part) {
				w.parted[p]++
				w.link(p[0], p[1]).stream = 0
				w.after(w.dice.between(1000, w.cfg.Faults.PartMS), func() { w.parted[p]-- })
			}
		}
	}
	w.after(60_000, w.storms)
}
