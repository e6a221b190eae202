package host

import (
	"encoding/hex"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
	"fleetmesh.org/fleetmesh/spec"
)

// initiate runs a session that we began: reconcile, fetch what is missing, bring what the peer lacks, say done, and stay for what is new.
func (s *session) initiate(want mesh.Want) error {
	filter, err := nostr.ParseFilter(want.Filter)
	if err != nil {
		return fmt.Errorf("the filter of shard %q: %w", want.Shard, err)
	}
	have, need, err := s.reconcile(want, filter)
	if err != nil {
		return err
	}
	if want.Mode != mesh.ModePush {
		if err := s.fetch(need); err != nil {
			return err
		}
	}
	if want.Mode != mesh.ModePull {
		if err := s.bring(have); err != nil {
			return err
		}
	}
	if err := s.send(spec.MsgSyncDone, mesh.DoneBody{Have: s.have, Need: s.need}, Now().Unix(), nil); err != nil {
		return err
	}
	return s.live()
}

// reconcile finds out what each side lacks.
func (s *session) reconcile(want mesh.Want, filter nostr.Filter) (have, need []nostr.ID, err error) {
	set, release, err := s.set(filter, want.Since, want.Until)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	client := negentropy.NewClient(set, negFrame)
	open := mesh.OpenBody{Shard: want.Shard, Filter: want.Filter, Since: want.Since, Until: want.Until, Mode: want.Mode, Neg: hex.EncodeToString(client.Initiate())}
	if err := s.send(spec.MsgSyncOpen, open, Now().Unix(), nil); err != nil {
		return nil, nil, err
	}
	for {
		b, err := s.receive()
		if err != nil {
			return nil, nil, err
		}
		if spec.MessageType(b.m.Type) == spec.MsgSyncRefuse {
			return nil, nil, refusedBy(b)
		}
		var f mesh.FrameBody
		if spec.MessageType(b.m.Type) != spec.MsgSyncFrame || b.m.DecodeBody(&f) != nil {
			return nil, nil, &refusal{code: spec.CodeMalformed}
		}
		msg, err := hex.DecodeString(f.Neg)
		if err != nil {
			return nil, nil, &refusal{code: spec.CodeMalformed}
		}
		next, h, n, err := client.Reconcile(msg)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", &refusal{code: spec.CodeMalformed}, err)
		}
		have, need = append(have, h...), append(need, n...)
		if next == nil {
			return have, need, nil
		}
		if err := s.send(spec.MsgSyncFrame, mesh.FrameBody{Neg: hex.EncodeToString(next)}, Now().Unix(), nil); err != nil {
			return nil, nil, err
		}
	}
}

// fetch asks for ids in batches, a few at a time. Each want is answered by one deliver, or by a refusal of that want alone;
// what a full deliver left out is asked for again. While the events of one deliver are stored and answered for, the next is checked.
func (s *session) fetch(need []nostr.ID) (err error) {
	if need, err = s.unknown(need); err != nil {
		return err
	}
	var former settling
	defer func() {
		if late := former.wait(); err == nil && late != nil {
			s.giveUp(late)
			err = late
		}
	}()
	var flight [][]nostr.ID
	for len(need) > 0 || len(flight) > 0 {
		for len(need) > 0 && len(flight) < wantsInFlight {
			batch := need[:min(len(need), wantBatch)]
			need = need[len(batch):]
			w := mesh.WantBody{}
			for _, id := range batch {
				w.IDs = append(w.IDs, id.String())
			}
			if err := s.send(spec.MsgSyncWant, w, Now().Unix(), nil); err != nil {
				return err
			}
			flight = append(flight, batch)
		}
		b, err := s.receive()
		if err != nil {
			return err
		}
		switch spec.MessageType(b.m.Type) {
		case spec.MsgSyncDeliver:
			d, err := s.check(b)
			if err == nil {
				err = former.wait()
			}
			if err != nil {
				s.giveUp(err)
				d.findings()
				return err
			}
			former = s.settleSoon(d)
			if len(flight) == 0 {
				return &refusal{code: spec.CodeMalformed} // nobody asked
			}
			need = append(need, rest(flight[0], d.ids)...)
			flight = flight[1:]
		case spec.MsgSyncRefuse:
			no := refusedBy(b)
			if r, ok := no.(*refusal); !ok || r.code != spec.CodeExpired {
				return no
			}
			flight = flight[1:] // none of these is there any more
		}
	}
	return nil
}

// unknown leaves out what was refused here before, so that it is not fetched again.
func (s *session) unknown(ids []nostr.ID) ([]nostr.ID, error) {
	kept := ids[:0]
	for _, id := range ids {
		_, refused, err := s.h.cfg.Store.Refusal(s.ctx, id)
		if err != nil {
			return nil, fmt.Errorf("look up refusals: %w", err)
		}
		if !refused {
			kept = append(kept, id)
		}
	}
	return kept, nil
}

// rest returns the ids of a batch after the last one that a deliver brought: they did not fit. A deliver keeps the order of its want.
func rest(batch, brought []nostr.ID) []nostr.ID {
	for _, id := range slices.Backward(brought) {
		if i := slices.Index(batch, id); i >= 0 {
			return batch[i+1:]
		}
	}
	return nil
}

// bring delivers what the peer lacks, a few small delivers at a time, and notes the fate of each. The peer may have got the same from others since
// its set was frozen, so the first delivers are small and come one by one; where it turns out that it has, the rest waits for another
// reconciliation.
func (s *session) bring(have []nostr.ID) error {
	var open []int64 // windows of the delivers that were not answered yet, oldest first
	given, dups := s.h.cfg.tamper.trusts(), 0
	have = s.h.cfg.tamper.repeats(have)
	for len(have) > 0 || len(open) > 0 {
		for len(have) > 0 && len(open) < pushesInFlight && (len(open) == 0 || given >= proven) {
			created := Now().Unix()
			list, rest, err := s.pack(have, given, created)
			if err != nil {
				return err
			}
			have = rest
			if len(list) == 0 {
				break
			}
			window, err := s.charged(spec.MsgSyncDeliver, mesh.DeliverBody{Count: len(list)}, created, list)
			if err != nil {
				return err
			}
			open = append(open, window)
		}
		if len(open) == 0 {
			return nil
		}
		b, err := s.receive()
		if err != nil {
			return err
		}
		switch spec.MessageType(b.m.Type) {
		case spec.MsgSyncDelivered:
			var d mesh.DeliveredBody
			if err := b.m.DecodeBody(&d); err != nil {
				return err
			}
			s.fate(&d, open[0])
			open = open[1:]
			given, dups = given+d.Stored+d.Duplicate+len(d.Refused), dups+d.Duplicate
			if 20*dups > given && len(have) > 0 {
				s.stale, have = true, nil
			}
		case spec.MsgSyncRefuse:
			return refusedBy(b)
		}
	}
	return nil
}

// What is brought at a time stays a twelfth of what was brought before, and the rest waits from one in twenty duplicates on: whatever the next
// deliver turns out to be, that keeps below dup_ratio. After so many events that the peer lacked several full delivers may be under way.
const (
	slowStart = 4
	growth    = 12
	proven    = 2000
)

// pack wraps the next of the ids for one deliver, as many as given before allows.
func (s *session) pack(ids []nostr.ID, given int, created int64) (list []*ledger.Envelope, rest []nostr.ID, err error) {
	size, most := 0, max(slowStart, given/growth)
	for len(ids) > 0 && size < s.h.cfg.tamper.pushes() && (len(list) < most || given >= proven) {
		env, err := s.wrap(ids[0], created)
		if err != nil {
			return nil, nil, err
		}
		ids = ids[1:]
		if env != nil {
			list = append(list, env)
			size += len(env.Event.JSON()) + hopOctets
		}
	}
	return list, ids, nil
}

// fate notes what became of the events of a deliver.
func (s *session) fate(d *mesh.DeliveredBody, window int64) {
	s.have += int64(d.Stored)
	s.h.step(mesh.Fate{Peer: s.peer, Session: s.thread, Window: window, Stored: int64(d.Stored), Duplicate: int64(d.Duplicate), Refused: int64(len(d.Refused))})
}
