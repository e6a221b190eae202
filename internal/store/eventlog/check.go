package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// CheckReport is the result of a check.
type CheckReport struct {
	Events   int64      // living events read and found whole
	Damaged  []nostr.ID // events known to be lost, now or before; they are set aside until they are healed
	Problems []string   // what does not fit together; Rebuild puts it right
}

// Check opens the store in a directory and checks everything: all checksums, every living
// event, its terms, its place in the order, and that the fingerprint of all, recounted from the
// events, is the one the sums give.
func Check(ctx context.Context, dir string, opts Options) (CheckReport, error) {
	s, err := Open(dir, opts)
	if err != nil {
		return CheckReport{}, err
	}
	r, err := s.Check(ctx)
	return r, errors.Join(err, s.Close())
}

// Check does the same on an open store, for the state it has when it begins.
func (s *Store) Check(ctx context.Context) (CheckReport, error) {
	var r CheckReport
	if err := s.check(ctx); err != nil {
		return r, err
	}
	n := s.snapshot()
	defer n.release()
	fault := func(format string, args ...any) {
		if len(r.Problems) < 100 {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	s.report.faults(fault)
	var sum negentropy.Sum
	count := 0
	for _, seg := range n.v.segments() {
		if err := n.checkSegment(ctx, seg, &r, fault); err != nil {
			return r, err
		}
	}
	for d, at := range n.arrivals(0) {
		if at.seg == nil {
			r.Events++ // of the head: read when it came, or when the log was read
		}
		sum.Add(&d.id)
		count++
	}
	r.Damaged = s.Damaged()
	return r, s.checkSums(n, sum, count, fault)
}

// faults tells what Open found that is no trace of a crash.
func (r *Report) faults(fault func(string, ...any)) {
	for _, l := range r.Lost {
		fault("%s", l)
	}
	for _, no := range r.Headers {
		fault("log file %d: its header was damaged; it has been written anew", no)
	}
	for _, h := range r.Holes {
		fault("log file %d: nothing can be read from %d to %d", h.File, h.From, h.To)
	}
}

// checkSums compares the recounted fingerprint with that of the sums.
func (s *Store) checkSums(n snapshot, sum negentropy.Sum, count int, fault func(string, ...any)) error {
	g := s.gatherer(n, []nostr.Filter{{}}, &store.View{}, minTime)
	var have negentropy.Sum
	total := 0
	for _, seg := range n.v.segments() {
		p, o, err := g.part(seg)
		if err != nil {
			return err
		}
		c := g.cut(p, o)
		have = have.Plus(c.sumTo(c.hi).Minus(c.before))
		total += c.n
	}
	head := g.head()
	have = have.Plus(head.block(len(head.sums) - 1))
	if total += head.n; negentropy.Fingerprint(have, total) != negentropy.Fingerprint(sum, count) {
		fault("the fingerprint of all is not that of the events: %d events by the sums, %d counted", total, count)
	}
	return nil
}

// checkSegment reads every living event of a segment and looks its terms up.
func (n snapshot) checkSegment(ctx context.Context, seg *segment, r *CheckReport, fault func(string, ...any)) error {
	var sum negentropy.Sum
	var terms []term
	for i := range uint32(seg.n) {
		if i%blockDocs == 0 && seg.sum(int(i/blockDocs)) != sum {
			fault("segment %d: running sum of block %d", seg.no, i/blockDocs)
		}
		sum.Add(seg.id(i))
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		d := seg.doc(i)
		if i > 0 {
			if before := seg.doc(i - 1); before.compare(&d) >= 0 {
				fault("segment %d: document %d is out of order", seg.no, i)
			}
		}
		if j, ok := seg.find(&d.id); !ok || j != i {
			fault("segment %d: %s is not found by its id", seg.no, d.id)
		}
		if !seg.live(i, n.vis) {
			continue
		}
		e, err := n.read(&d)
		if isDamaged(err) {
			continue
		}
		if err != nil {
			return err
		}
		r.Events++
		if e.ComputeID() != e.ID {
			fault("segment %d: %s is not the hash of its event", seg.no, d.id)
		}
		if e.CreatedAt != d.at || e.Kind != d.kind || store.HeldOf(e).Expires != d.expires {
			fault("segment %d: what it says of %s is wrong", seg.no, d.id)
		}
		terms = n.s.hash.terms(terms, e)
		if slices.ContainsFunc(terms, func(t term) bool { return !seg.postings(t).contains(i) }) {
			fault("segment %d: %s is not found by one of its terms", seg.no, d.id)
		}
	}
	return nil
}
