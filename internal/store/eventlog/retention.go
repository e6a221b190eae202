package eventlog

import (
	"context"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

const (
	minQuota    = 16 << 20
	retainBatch = 512 // events removed in one piece of the writer's time
)

// Retention says what is not kept for ever. Rules hold in any case; the quota
// (Options.MaxBytes) removes the oldest events that are not protected, and when there are none
// left, the oldest of all.
type Retention struct {
	Rules []Rule
	// Protected kinds are kept longest under the quota. nil means DefaultProtected.
	Protected []nostr.Kind
}

// Rule bounds the events that it governs: those of its kinds that no earlier rule governs.
type Rule struct {
	Kinds    []nostr.Kind // nil: all
	MaxAge   int64        // seconds since created_at; 0: no bound
	MaxCount int          // the newest are kept; 0: no bound
}

// DefaultProtected are profiles, follow lists, deletions, vanish requests, relay lists and the
// fleet's own records.
var DefaultProtected = []nostr.Kind{0, 3, 5, 62, 10002, 10050, 11801, 11802, 11803, 30801, 30802, 30803, 30804, 30810, 30811}

func (r *Retention) protects(k nostr.Kind) bool {
	if r.Protected == nil {
		return slices.Contains(DefaultProtected, k)
	}
	return slices.Contains(r.Protected, k)
}

// rule returns the rule that governs a kind, -1 for none.
func (r *Retention) rule(k nostr.Kind) int {
	return slices.IndexFunc(r.Rules, func(x Rule) bool { return x.Kinds == nil || slices.Contains(x.Kinds, k) })
}

// beyond says whether an event is older than what the quota has already removed, so that it
// would only push out something newer.
func (s *Store) beyond(e *nostr.Event) bool {
	return s.horizon > 0 && e.CreatedAt <= s.horizon && !s.opts.Retention.protects(e.Kind)
}

// The quota's marks, in tenths of MaxBytes. Below full, writers never wait; between
// press and full the keeper frees; temporary files of merges and rewrites fit above full.
const (
	pressTenths = 6
	fullTenths  = 8
)

// room waits until there is room for a batch under the quota, by doing upkeep itself.
func (s *Store) room(ctx context.Context, _ []*nostr.Event) error {
	q := s.opts.MaxBytes
	for n := 0; ; n++ {
		if s.inMemory() > maxMemory*s.opts.FlushDocs && n < 1000 {
			if _, err := s.pass(s.stopped.Load); err != nil {
				return noRoom(err)
			}
			continue
		}
		if q == 0 {
			return nil
		}
		total, _ := s.bytes()
		if total < q*fullTenths/10 {
			return nil
		}
		if err := s.check(ctx); err != nil {
			return err
		}
		if err := s.writable(); err != nil {
			return err
		}
		more, err := s.pass(func() bool { return s.stopped.Load() || ctx.Err() != nil })
		if err != nil {
			return noRoom(err)
		}
		if more {
			continue
		}
		if more, err = s.advance(); err != nil {
			return noRoom(err)
		}
		if !more {
			if total < q*9/10 {
				return nil
			}
			return fmt.Errorf("%w: %d of %d bytes, and nothing more can be removed", store.ErrFull, total, q)
		}
	}
}

func noRoom(err error) error {
	if isFull(err) {
		return full(err)
	}
	return fmt.Errorf("make room: %w", err)
}

// advance makes a checkpoint of what is in memory, so that more of the log can be rewritten.
func (s *Store) advance() (bool, error) {
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	s.wmu.Lock()
	nothing := s.man.CoveredFile == s.active.no && s.base == logHeader
	s.wmu.Unlock()
	if nothing {
		return false, nil
	}
	if err := s.endLog(); err != nil {
		return false, err
	}
	return true, s.checkpoint(s.stopped.Load)
}

// retain removes a batch of what the rules or the quota do not let stay.
func (s *Store) retain() (bool, error) {
	if len(s.opts.Retention.Rules) > 0 {
		if more, err := s.applyRules(); more || err != nil {
			return more, err
		}
	}
	q := s.opts.MaxBytes
	if q == 0 {
		return false, nil
	}
	total, dead := s.bytes()
	if total-dead < q*pressTenths/10 {
		return false, nil
	}
	protects := func(d *doc) bool { return !s.opts.Retention.protects(d.kind) }
	ids, newest := s.oldest(retainBatch, protects)
	if len(ids) == 0 && total-dead >= q*fullTenths/10 {
		ids, newest = s.oldest(retainBatch, func(*doc) bool { return true })
	}
	if len(ids) == 0 {
		return false, nil
	}
	s.wmu.Lock()
	s.horizon = max(s.horizon, newest)
	now := s.clock
	s.wmu.Unlock()
	return true, s.remove(ids, store.ReasonRetention, now)
}

// oldest returns the oldest living events that are wanted, and the created_at of the newest of them.
// It looks at segments only: what is in the head is too new to go.
func (s *Store) oldest(n int, want func(*doc) bool) (ids []nostr.ID, newest int64) {
	sn := s.snapshot()
	defer sn.release()
	segs := sn.v.segments()
	at := make([]uint32, len(segs))
	for len(ids) < n {
		best := -1
		for i, g := range segs {
			for at[i] < uint32(g.n) && !g.live(at[i], sn.vis) {
				at[i]++
			}
			if at[i] < uint32(g.n) && (best < 0 || g.at(at[i]) < segs[best].at(at[best])) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		d := segs[best].doc(at[best])
		at[best]++
		if want(&d) {
			ids = append(ids, d.id)
			newest = d.at
		}
	}
	return ids, newest
}

// applyRules removes a batch of what is too old or too many.
func (s *Store) applyRules() (bool, error) {
	rules := s.opts.Retention.Rules
	s.wmu.Lock()
	now := s.clock
	s.wmu.Unlock()
	ids, _ := s.oldest(retainBatch, func(d *doc) bool {
		i := s.opts.Retention.rule(d.kind)
		return i >= 0 && rules[i].MaxAge > 0 && d.at < now-rules[i].MaxAge
	})
	for i := 0; i < len(rules) && len(ids) == 0; i++ {
		if rules[i].MaxCount == 0 {
			continue
		}
		governed := func(d *doc) bool { return s.opts.Retention.rule(d.kind) == i }
		if over := s.governed(i) - rules[i].MaxCount; over > 0 {
			ids, _ = s.oldest(min(over, retainBatch), governed)
		}
	}
	if len(ids) == 0 {
		return false, nil
	}
	return true, s.remove(ids, store.ReasonRetention, now)
}

// governed counts the living events in segments that a rule governs.
func (s *Store) governed(rule int) int {
	n := s.snapshot()
	defer n.release()
	count := 0
	for _, g := range n.v.segments() {
		for d := range uint32(g.n) {
			if s.opts.Retention.rule(g.kind(d)) == rule && g.live(d, n.vis) {
				count++
			}
		}
	}
	return count
}
