package relay

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// The pipeline has three stages, a goroutine each, so that the order in which events were read is the
// order in which they are stored and passed on. While one batch is being committed, the next is verified.
const (
	maxGroup   = 512     // events verified together
	maxBatch   = 2048    // events committed together
	batchBytes = 8 << 20 // and their octets
)

// fanBatch is what one commit has for the subscribers.
type fanBatch struct {
	number uint64
	offers []*offer // of the whole batch, to be taken out of flight
	live   []*nostr.Event
}

func (r *Relay) startPipeline() {
	r.work.Add(3)
	go r.verifyLoop()
	go r.commitLoop()
	go r.fanLoop()
}

// verifyLoop takes whatever waits, checks the signatures together, and asks the policies. A lone
// event does not wait for company.
func (r *Relay) verifyLoop() {
	defer r.work.Done()
	defer close(r.checked)
	for o := range r.incoming {
		group := []*offer{o}
		group = gather(r.incoming, group)
		good := r.verify(group)
		keep := group[:0]
		for i, o := range group {
			if !good[i] {
				r.settle(o, r.refuse(policy.Reject(policy.Invalid, "bad signature")))
				continue
			}
			keep = append(keep, o)
		}
		if keep = r.admit(keep); len(keep) > 0 {
			r.checked <- keep
		}
	}
}

// admit asks the policies about a group together, answers those that are refused, and returns the others.
func (r *Relay) admit(group []*offer) []*offer {
	requests := make([]*policy.Request, 0, len(group))
	for _, o := range group {
		if !o.held {
			requests = append(requests, &o.Request)
		}
	}
	answers := r.policy.AdmitAll(r.ctx, requests)
	keep := group[:0]
	for _, o := range group {
		if o.held {
			keep = append(keep, o)
			continue
		}
		no := answers[0]
		answers = answers[1:]
		if no != nil {
			r.settle(o, r.refuse(no))
			continue
		}
		keep = append(keep, o)
	}
	return keep
}

// gather appends what is waiting, up to maxGroup.
func gather(ch <-chan *offer, group []*offer) []*offer {
	for len(group) < maxGroup {
		select {
		case o, ok := <-ch:
			if !ok {
				return group
			}
			group = append(group, o)
		default:
			return group
		}
	}
	return group
}

// parallelFrom is from how many signatures on a group is shared out among the processors.
const parallelFrom = 16

func (r *Relay) verify(group []*offer) []bool {
	good := make([]bool, len(group))
	events := make([]*nostr.Event, 0, len(group))
	at := make([]int, 0, len(group))
	for i, o := range group {
		if good[i] = o.signed; !o.signed {
			events = append(events, o.event)
			at = append(at, i)
		}
	}
	if len(events) > 0 {
		for k, ok := range r.verifyAll(events) {
			good[at[k]] = ok
		}
	}
	return good
}

// verifyAll shares a large group out among the processors.
func (r *Relay) verifyAll(events []*nostr.Event) []bool {
	r.m.Verified.Add(int64(len(events)))
	r.m.Groups.Add(1)
	parts := min(runtime.GOMAXPROCS(0), len(events)/parallelFrom)
	if parts < 2 {
		return r.verifier.Verify(events)
	}
	good := make([]bool, len(events))
	var wg sync.WaitGroup
	size := (len(events) + parts - 1) / parts
	for lo := 0; lo < len(events); lo += size {
		hi := min(lo+size, len(events))
		wg.Go(func() { copy(good[lo:hi], r.verifier.Verify(events[lo:hi])) })
	}
	wg.Wait()
	return good
}

// commitLoop stores whatever is checked, in as few commits as it can, answers, and passes on.
func (r *Relay) commitLoop() {
	defer r.work.Done()
	defer close(r.fan)
	for batch := range r.checked {
		batch = slices.Clip(batch)
		batch = gatherBatches(r.checked, batch)
		n := r.batches.Add(1)
		r.flight.add(batch)
		verdicts := r.commit(batch)
		r.settled.Store(n)
		fb := fanBatch{number: n, offers: batch}
		for i, o := range batch {
			if v := verdicts[i]; v.Outcome == store.Stored || v.Outcome == store.Ephemeral {
				fb.live = append(fb.live, o.event)
			}
			o.together = len(batch) <= fewOffers
			r.settle(o, verdicts[i])
		}
		if len(batch) <= fewOffers {
			for _, o := range batch {
				if o.from != nil {
					o.from.writeNow()
				}
			}
		}
		r.fan <- fb
	}
}

// fewOffers is up to how many offers of a batch the commit loop writes the answers itself.
const fewOffers = 8

// gatherBatches appends the groups that are waiting.
func gatherBatches(ch <-chan []*offer, batch []*offer) []*offer {
	size := 0
	for _, o := range batch {
		size += o.size
	}
	for len(batch) < maxBatch && size < batchBytes {
		select {
		case more, ok := <-ch:
			if !ok {
				return batch
			}
			batch = append(batch, more...)
			for _, o := range more {
				size += o.size
			}
		default:
			return batch
		}
	}
	return batch
}

// commit gives the batch to the store. Ephemeral events do not go there, so they
// pass even when the store takes nothing, here and to other faces of it; nor do those that it holds already.
func (r *Relay) commit(batch []*offer) []Verdict {
	verdicts := make([]Verdict, len(batch))
	events := make([]*nostr.Event, 0, len(batch))
	at := make([]int, 0, len(batch))
	var passing []*nostr.Event
	now := r.now().Unix()
	for i, o := range batch {
		if o.held {
			verdicts[i] = verdictOf(store.Stored)
			continue
		}
		if o.event.Kind.IsEphemeral() {
			verdicts[i] = verdictOf(store.Ephemeral)
			r.m.Ephemeral.Add(1)
			passing = append(passing, o.event)
			continue
		}
		events = append(events, o.event)
		at = append(at, i)
	}
	if to, ok := r.cfg.Store.(store.Passer); ok && len(passing) > 0 {
		to.Pass(passing)
	}
	if len(events) == 0 {
		return verdicts
	}
	for i, v := range r.insert(events, now) {
		verdicts[at[i]] = v
	}
	return verdicts
}

// insert stores events in one commit. If that fails for a reason that may lie in one of them,
// each is tried alone.
func (r *Relay) insert(events []*nostr.Event, now int64) []Verdict {
	verdicts := make([]Verdict, len(events))
	outcomes, err := r.cfg.Store.Insert(r.ctx, events, now)
	if err == nil {
		if r.refusing.CompareAndSwap(true, false) {
			r.log.Info("the store takes events again")
		}
		r.m.Commits.Add(1)
		for i, out := range outcomes {
			verdicts[i] = verdictOf(out)
			r.m.outcome(out)
		}
		return verdicts
	}
	final := errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrClosed)
	// A store that is full says so of every event that comes, and a log line for each would take what room is left.
	if !final || r.refusing.CompareAndSwap(false, true) {
		r.log.Error("store a batch", "events", len(events), "err", err)
	}
	if final || len(events) == 1 {
		for i := range verdicts {
			verdicts[i] = storeFailure(err)
			r.m.refused(policy.Error)
		}
		return verdicts
	}
	for i := range events {
		verdicts[i] = r.insert(events[i:i+1], now)[0]
	}
	return verdicts
}

// dealOut is after how many events at the latest what they bring is written.
const dealOut = 64

// fanLoop carries events to whoever listens, in the order of their commit. It is written when there are no more at
// hand, so that each listener gets what there is in one piece.
func (r *Relay) fanLoop() {
	defer r.work.Done()
	number := uint64(0)
	dealt := 0
	for b := range r.fan {
		for _, e := range b.live {
			number++
			r.index.match(&parcel{e, e.JSON(), b.number}, number)
			if dealt++; dealt%dealOut == 0 {
				r.writeTouched()
			}
		}
		if len(r.fan) == 0 {
			r.writeTouched()
		}
		r.flight.remove(b.offers)
	}
	r.writeTouched()
}

func (r *Relay) writeTouched() {
	for _, c := range r.touched {
		c.touched = false
	}
	writeAll(r.touched)
	clear(r.touched)
	r.touched = r.touched[:0]
	if cap(r.touched) > 1<<16 {
		r.touched = nil
	}
}
