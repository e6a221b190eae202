package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// liveMark stands before the number of a live event in its content.
const liveMark = "bench-live:"

// fanCell is a number of subscriptions, how they share connections, and whether an event matches all of them or one.
type fanCell struct {
	name          string
	subs, perConn int
	all           bool
}

func (r *run) fanCells() (cells []fanCell) {
	for _, n := range r.cmd.Subs {
		perConn := max(1, (n+499)/500) // 500 connections at most
		if r.cmd.Share > 0 {
			perConn = min(r.cmd.Share, n)
		}
		for _, all := range []bool{true, false} {
			which := "one matches"
			if all {
				which = "all match"
			}
			cells = append(cells, fanCell{fmt.Sprintf("%d subs, %s", n, which), n, perConn, all})
		}
	}
	return cells
}

// fanout publishes live events to subscriptions: at a low rate, for the time from publication to delivery, and in a burst,
// for throughput.
func (r *run) fanout() error {
	for k, cell := range r.fanCells() {
		slow, burst := cell.name+fmt.Sprintf(", %d/s", r.cmd.Rate), cell.name+", burst"
		var bursts []*sample
		err := r.cell("fanout", slow, r.cmd.Rounds, func(t *target, round int, s *sample) error {
			f, err := r.openFan(t, cell, fmt.Sprintf("%s-%d-%d-%s", r.id, k, round, t.name))
			if err != nil {
				return err
			}
			defer f.close()
			if err := f.measure(r, s, r.cmd.Live, time.Second/time.Duration(r.cmd.Rate)); err != nil {
				return err
			}
			b := &sample{Phase: "fanout", Cell: burst, Target: t.name, Round: round, Values: map[string]float64{}}
			bursts = append(bursts, b)
			return f.measure(r, b, r.cmd.Live, 0)
		})
		if err != nil {
			return err
		}
		r.report.Samples = append(r.report.Samples, bursts...)
	}
	return nil
}

// fan is a set of connections that listen, and one that publishes.
type fan struct {
	t        *target
	cell     fanCell
	topic    string
	pub      *conn
	conns    []*conn
	began    time.Time
	sent     []int64 // nanoseconds since began, by number; written before the event leaves
	lens     []fanLens
	got      atomic.Int64
	arrived  chan struct{}
	expected atomic.Int64
	wg       sync.WaitGroup
	pubs     sync.WaitGroup
	serial   int
}

// fanLens is what one listening connection saw.
type fanLens struct {
	mu        sync.Mutex
	latencies []time.Duration
	err       error
}

func (r *run) openFan(t *target, cell fanCell, topic string) (*fan, error) {
	f := &fan{t: t, cell: cell, topic: topic, began: time.Now(), arrived: make(chan struct{}, 1), sent: make([]int64, 2*r.cmd.Live+2)}
	n := (cell.subs + cell.perConn - 1) / cell.perConn
	f.lens = make([]fanLens, n)
	var err error
	if f.pub, err = dial(r.ctx, t.url, 16<<10); err != nil {
		return nil, err
	}
	for range n {
		c, err := dial(r.ctx, t.url, 8<<10)
		if err != nil {
			f.close()
			return nil, err
		}
		f.conns = append(f.conns, c)
	}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for i, c := range f.conns {
		wg.Go(func() {
			if err := f.subscribe(c, i); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		f.close()
		return nil, errs[0]
	}
	for i, c := range f.conns {
		f.wg.Go(func() { f.listen(c, &f.lens[i]) })
	}
	f.pubs.Go(func() { f.drain() })
	return f, nil
}

// value is the topic of subscription i, or of event i where one subscription matches.
func (f *fan) value(i int) string {
	if f.cell.all {
		return f.topic
	}
	return f.topic + "-" + strconv.Itoa(i%f.cell.subs)
}

// subscribe opens the subscriptions of connection i and waits until all have told their end of stored events.
func (f *fan) subscribe(c *conn, i int) error {
	since := time.Now().Unix() - 5
	var frames [][]byte
	for k := range min(f.cell.perConn, f.cell.subs-i*f.cell.perConn) {
		filter := nostr.Filter{Kinds: []nostr.Kind{1}, Since: &since, Tags: []nostr.TagFilter{{Letter: 't', Values: []string{f.value(i*f.cell.perConn + k)}}}}
		frames = append(frames, nostr.AppendReq(nil, "s"+strconv.Itoa(k), filter))
	}
	c.deadline(patience)
	if err := c.send(frames...); err != nil {
		return err
	}
	for left := len(frames); left > 0; {
		m, err := c.read()
		switch {
		case err != nil:
			return err
		case bytes.HasPrefix(m, eosePrefix):
			left--
		case bytes.HasPrefix(m, closedPrefix):
			return fmt.Errorf("the relay closed the subscription: %s", m)
		}
	}
	c.deadline(24 * time.Hour)
	return nil
}

// listen counts deliveries until the connection is closed.
func (f *fan) listen(c *conn, l *fanLens) {
	mark := []byte(liveMark)
	for {
		m, err := c.read()
		if err != nil {
			l.mu.Lock()
			l.err = err
			l.mu.Unlock()
			return
		}
		at := bytes.Index(m, mark)
		if at < 0 || len(m) < at+len(mark)+6 {
			continue
		}
		now := int64(time.Since(f.began))
		n, err := strconv.Atoi(string(m[at+len(mark) : at+len(mark)+6]))
		if err != nil || n >= len(f.sent) {
			continue
		}
		l.mu.Lock()
		l.latencies = append(l.latencies, time.Duration(now-atomic.LoadInt64(&f.sent[n])))
		l.mu.Unlock()
		if f.got.Add(1) == f.expected.Load() {
			f.arrived <- struct{}{}
		}
	}
}

// drain reads the publisher's OKs so that the relay is not held up.
func (f *fan) drain() {
	for {
		if _, err := f.pub.read(); err != nil {
			return
		}
	}
}

// measure publishes n events, one every interval, and waits until each has come to every subscription that it matches.
func (f *fan) measure(r *run, s *sample, n int, interval time.Duration) error {
	want := n
	if f.cell.all {
		want = n * f.cell.subs
	}
	f.got.Store(0)
	f.expected.Store(int64(want))
	for i := range f.lens {
		f.lens[i].mu.Lock()
		f.lens[i].latencies = f.lens[i].latencies[:0]
		f.lens[i].mu.Unlock()
	}
	events := make([][]byte, n)
	for i := range events {
		events[i] = appendEvent(nil, r.liveEvent(f, f.serial+i))
	}
	m, err := startMeter(f.t)
	if err != nil {
		return err
	}
	next := time.Now()
	for i := range events {
		if interval > 0 {
			select {
			case <-time.After(time.Until(next)):
			case <-r.ctx.Done():
				return r.ctx.Err()
			}
			next = next.Add(interval)
		}
		atomic.StoreInt64(&f.sent[f.serial+i], int64(time.Since(f.began)))
		if err := f.pub.send(events[i]); err != nil {
			return err
		}
	}
	f.serial += n
	select {
	case <-f.arrived:
	case <-time.After(patience):
		return f.lost(want)
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	if err := m.read(s, want); err != nil {
		return err
	}
	var all []time.Duration
	for i := range f.lens {
		f.lens[i].mu.Lock()
		all = append(all, f.lens[i].latencies...)
		f.lens[i].mu.Unlock()
	}
	s.latencies(all)
	return nil
}

func (f *fan) lost(want int) error {
	var errs []error
	for i := range f.lens {
		f.lens[i].mu.Lock()
		errs = append(errs, f.lens[i].err)
		f.lens[i].mu.Unlock()
	}
	return errors.Join(fmt.Errorf("%d of %d deliveries came in %s", f.got.Load(), want, patience), errors.Join(slices.DeleteFunc(errs, func(e error) bool { return e == nil })...))
}

// liveEvent is one event that is made now.
func (r *run) liveEvent(f *fan, n int) []byte {
	rng := r.corpus.rng(f.topic, n)
	author := &r.corpus.signers[r.corpus.authors.pick(rng)]
	e := nostr.Event{PubKey: author.pub, CreatedAt: time.Now().Unix(), Kind: 1, Tags: []nostr.Tag{{"t", f.value(n)}},
		Content: fmt.Sprintf("%s%06d %s", liveMark, n, words(rng, 280))}
	author.sign(&e)
	return e.JSON()
}

func (f *fan) close() {
	for _, c := range f.conns {
		c.close()
	}
	if f.pub != nil {
		f.pub.close()
	}
	f.wg.Wait()
	f.pubs.Wait()
}
