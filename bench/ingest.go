package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ingestCells are connections and windows: how many events of one connection wait for their OK at most.
var ingestCells = []struct{ conns, window int }{{1, 1}, {1, 64}, {8, 16}, {8, 256}}

// ingest publishes the events once to every target, a part of them in each cell and round. The cell that waits for every
// OK gets a tenth of the share of the others.
func (r *run) ingest(items []item) error {
	parts := r.cmd.Rounds * (10*len(ingestCells) - 9)
	unit := len(items) / parts
	if unit == 0 {
		return fmt.Errorf("%d events are too few for %d rounds: give at least %d", len(items), r.cmd.Rounds, parts)
	}
	at := 0
	for _, cell := range ingestCells {
		n := 10 * unit
		if cell.window == 1 {
			n = unit
		}
		slices := items[at : at+n*r.cmd.Rounds]
		at += len(slices)
		name := fmt.Sprintf("%d conns, window %d", cell.conns, cell.window)
		err := r.cell("ingest", name, r.cmd.Rounds, func(t *target, round int, s *sample) error {
			return r.ingestOnce(t, s, slices[round*n:(round+1)*n], cell.conns, cell.window)
		})
		if err != nil {
			return err
		}
	}
	for i := range r.targets {
		if err := r.loadRest(&r.targets[i], items[at:]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) ingestOnce(t *target, s *sample, items []item, conns, window int) error {
	var disk int64
	var err error
	if t.dir != "" {
		if disk, err = diskBytes(t.dir); err != nil {
			return err
		}
	}
	out, m, err := r.publishAll(t, items, conns, window)
	if err != nil {
		return err
	}
	if err := m.read(s, len(items)); err != nil {
		return err
	}
	s.latencies(out.latencies)
	s.set("refused", float64(out.refused))
	s.set("duplicates", float64(out.duplicates))
	s.Note = out.reason
	if t.dir == "" {
		return nil
	}
	now, err := diskBytes(t.dir)
	if err != nil {
		return err
	}
	s.set("disk_growth_bytes_per_op", float64(now-disk)/float64(len(items)))
	return nil
}

// loadRest publishes events without measuring, and notes what the target holds after it.
func (r *run) loadRest(t *target, items []item) error {
	if len(items) == 0 {
		return nil
	}
	began := time.Now()
	out, _, err := r.publishAll(t, items, 8, 256)
	if err != nil {
		return err
	}
	r.note("load    %s: %d events in %.1f s, %d duplicates, %d refused %s", t.name, len(items), time.Since(began).Seconds(), out.duplicates, out.refused, out.reason)
	return nil
}

// published is how the publishing of a list went.
type published struct {
	latencies           []time.Duration
	refused, duplicates int
	reason              string // of the first refusal
}

func (p *published) add(q published) {
	p.latencies = append(p.latencies, q.latencies...)
	p.refused += q.refused
	p.duplicates += q.duplicates
	if p.reason == "" {
		p.reason = q.reason
	}
}

// publishAll spreads the events over connections, whose making is not measured.
func (r *run) publishAll(t *target, items []item, conns, window int) (published, *meter, error) {
	open := make([]*publisher, conns)
	for i := range open {
		c, err := dial(r.ctx, t.url, 16<<10)
		if err != nil {
			return published{}, nil, err
		}
		defer c.close()
		share := items[len(items)*i/conns : len(items)*(i+1)/conns]
		open[i] = newPublisher(c, share, window)
	}
	m, err := startMeter(t)
	if err != nil {
		return published{}, nil, err
	}
	var wg sync.WaitGroup
	outs, errs := make([]published, conns), make([]error, conns)
	for i, p := range open {
		wg.Go(func() { outs[i], errs[i] = p.run() })
	}
	wg.Wait()
	var all published
	for i := range outs {
		all.add(outs[i])
	}
	return all, m, errors.Join(errs...)
}

// publisher publishes a list on one connection.
type publisher struct {
	c     *conn
	items []item
	sent  []atomic.Int64 // nanoseconds since began
	began time.Time
	index map[string]int
	slots chan struct{}
	quit  chan struct{}
}

func newPublisher(c *conn, items []item, window int) *publisher {
	p := &publisher{c: c, items: items, sent: make([]atomic.Int64, len(items)), index: make(map[string]int, len(items)), slots: make(chan struct{}, window), quit: make(chan struct{})}
	for i := range items {
		p.index[items[i].id.String()] = i
	}
	for range window {
		p.slots <- struct{}{}
	}
	return p
}

func (p *publisher) run() (published, error) {
	p.began = time.Now()
	wrote := make(chan error, 1)
	go func() {
		err := p.write()
		if err != nil {
			p.c.close() // ends the reader
		}
		wrote <- err
	}()
	out, err := p.readOKs()
	close(p.quit)
	return out, errors.Join(err, <-wrote)
}

// write sends the events as slots come free: all that are free in one call.
func (p *publisher) write() error {
	var frames [][]byte
	for at := 0; at < len(p.items); {
		select {
		case <-p.slots:
		case <-p.quit:
			return nil
		}
		n := 1 + min(len(p.slots), len(p.items)-at-1)
		for range n - 1 {
			<-p.slots
		}
		now := int64(time.Since(p.began))
		frames = slices.Grow(frames[:0], n)
		for range n {
			frames = append(frames, appendEvent(nil, p.items[at].raw))
			p.sent[at].Store(now)
			at++
		}
		if err := p.c.send(frames...); err != nil {
			return err
		}
	}
	return nil
}

func appendEvent(dst, raw []byte) []byte {
	dst = slices.Grow(dst, len(raw)+10)
	return append(append(append(dst, `["EVENT",`...), raw...), ']')
}

func (p *publisher) readOKs() (out published, err error) {
	out.latencies = make([]time.Duration, 0, len(p.items))
	for len(out.latencies) < len(p.items) {
		if len(out.latencies)%256 == 0 {
			p.c.deadline(patience)
		}
		m, err := p.c.read()
		if err != nil {
			return out, fmt.Errorf("after %d of %d OKs: %w", len(out.latencies), len(p.items), err)
		}
		v, is := parseOK(m)
		if !is {
			continue
		}
		i, ours := p.index[string(v.id)]
		if !ours {
			continue
		}
		out.latencies = append(out.latencies, time.Since(p.began)-time.Duration(p.sent[i].Load()))
		switch {
		case !v.ok:
			out.refused++
			if out.reason == "" {
				out.reason = v.reason
			}
		case v.reason != "" && v.reason[0] == 'd':
			out.duplicates++
		}
		p.slots <- struct{}{}
	}
	return out, nil
}
