package host

import (
	"fmt"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// delivery is a deliver whose envelopes were checked and whose events have not been offered to the node yet.
type delivery struct {
	b      *bulk
	now    int64
	ids    []nostr.ID         // of all that was delivered, in their order
	sound  []*ledger.Envelope // that may stay
	answer mesh.DeliveredBody // so far
	seen   conduct
	after  []func() // findings that wait for the answer: they may leave no budget to give it
}

// takeDeliver checks the envelopes of a deliver, offers their events to the node, and tells the peer what became of them.
func (s *session) takeDeliver(b *bulk) error {
	d, err := s.check(b)
	if err != nil {
		return err
	}
	return s.settle(d)
}

// check reads the envelopes of a deliver and holds them against the grant, the session's interest, and their signatures.
func (s *session) check(b *bulk) (d *delivery, err error) {
	d = &delivery{b: b, now: Now().Unix(), answer: mesh.DeliveredBody{Refused: []mesh.RefusedRef{}}, seen: conduct{s: s, way: s.inward()}}
	defer func() {
		if err != nil {
			d.findings()
		}
	}()
	var good []*ledger.Envelope
	g, w, ok := s.charge(b.m.CreatedTime)
	for i := range b.m.Attachments {
		if b.m.Attachments[i].ID != attachEnvelope {
			continue
		}
		text, err := b.m.Attachments[i].Content()
		if err != nil {
			return d, &refusal{code: spec.CodeMalformed}
		}
		env, err := ledger.ParseEnvelope(text)
		if env == nil {
			return d, fmt.Errorf("%w: %w", &refusal{code: spec.CodeMalformed}, err)
		}
		d.ids = append(d.ids, env.Event.ID)
		code := refusalOf(err)
		if err == nil && ok {
			code = s.judge(env, ledger.Delivery{Self: s.h.selfKey, Peer: s.peer, Grant: g, Way: s.inward(), Window: w, Now: d.now})
		}
		if code != "" || !ok {
			d.after = append(d.after, func() { d.seen.broken(env, err, g, b.m.CreatedTime) })
			d.refuse(env, code)
			continue
		}
		good = append(good, env)
	}
	if len(good)+len(d.answer.Refused) == 0 {
		return d, &refusal{code: spec.CodeNoEnvelope}
	}
	for i, wrong := range ledger.VerifyEnvelopes(s.h.cfg.Verifier, good) {
		if wrong != nil {
			d.seen.forged(good[i], wrong, b.m.CreatedTime)
			d.refuse(good[i], spec.CodeInvalid)
			continue
		}
		d.seen.good(good[i])
		d.sound = append(d.sound, good[i])
	}
	return d, nil
}

func (d *delivery) refuse(env *ledger.Envelope, code spec.Code) {
	d.answer.Refused = append(d.answer.Refused, mesh.RefusedRef{ID: env.Event.ID.String(), Code: code})
}

// findings says what the refused envelopes show, once.
func (d *delivery) findings() {
	for _, f := range d.after {
		f()
	}
	d.after = nil
}

// settle offers what is sound of a deliver to the node and tells the peer what became of it. Delivers are settled in their order.
func (s *session) settle(d *delivery) error {
	defer d.findings()
	if err := s.offer(d); err != nil {
		return err
	}
	s.need += int64(d.answer.Stored)
	s.h.step(mesh.Taken{Peer: s.peer, Session: s.thread, Window: d.b.window, Stored: int64(d.answer.Stored), Duplicate: int64(d.answer.Duplicate), Refused: int64(len(d.answer.Refused)), Sample: d.seen.sample})
	return s.send(spec.MsgSyncDelivered, d.answer, Now().Unix(), nil)
}

// settling is a deliver that is being settled; nil is none.
type settling chan error

// settleSoon settles a deliver while the session goes on.
func (s *session) settleSoon(d *delivery) settling {
	c := make(settling, 1)
	s.h.work.Go(func() { c <- s.settle(d) })
	return c
}

// wait returns when the deliver is settled. It is good for once.
func (c *settling) wait() error {
	if *c == nil {
		return nil
	}
	err := <-*c
	*c = nil
	return err
}

// offer offers the events to the node and notes the fate of each.
func (s *session) offer(d *delivery) error {
	origins := make([]Origin, len(d.sound))
	kept := make([]*nostr.Event, len(d.sound))
	for i, env := range d.sound {
		kept[i], origins[i] = env.Event, originOf(env, s.peer, d.now)
	}
	stop := s.h.tail.expect(s.peer, d.sound)
	defer stop()
	outcomes, err := s.h.cfg.Take(s.ctx, kept)
	if err != nil {
		return fmt.Errorf("take delivered events: %w", err)
	}
	stored := origins[:0]
	for i, out := range outcomes {
		switch out {
		case store.Stored, store.Ephemeral:
			d.answer.Stored++
			stored = append(stored, origins[i])
		case store.Duplicate, store.Superseded:
			d.answer.Duplicate++
			s.h.tail.holds(s.peer, kept[i].ID)
		case store.Deleted:
			d.refuse(d.sound[i], spec.CodeDeleted)
		case store.Expired:
			d.refuse(d.sound[i], spec.CodeExpired)
		default:
			d.refuse(d.sound[i], spec.CodeBlocked)
		}
	}
	return s.h.provenance.Put(stored)
}
