package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// queryClasses are the questions of the mix. Each asks about an event of the corpus that it picks, so that what is popular
// is asked for more often.
var queryClasses = []struct {
	name string
	make func(c *corpus, r *rand.Rand, n int) nostr.Filter
}{
	{"ids", func(c *corpus, r *rand.Rand, n int) nostr.Filter {
		var f nostr.Filter
		for range 10 {
			e, _ := c.draft(r.IntN(n))
			if id := e.ComputeID(); !slices.Contains(f.IDs, id) {
				f.IDs = append(f.IDs, id)
			}
		}
		return f
	}},
	{"author+kind", func(c *corpus, r *rand.Rand, n int) nostr.Filter {
		e, _ := c.draft(r.IntN(n))
		return nostr.Filter{Authors: []nostr.PubKey{e.PubKey}, Kinds: []nostr.Kind{e.Kind}, Limit: new(50)}
	}},
	{"tag+kind", func(c *corpus, r *rand.Rand, n int) nostr.Filter {
		return nostr.Filter{Kinds: []nostr.Kind{1, 1111}, Tags: []nostr.TagFilter{{Letter: 't', Values: []string{c.topic(r)}}}, Limit: new(50)}
	}},
	{"thread", func(c *corpus, r *rand.Rand, n int) nostr.Filter {
		return nostr.Filter{Tags: []nostr.TagFilter{{Letter: 'e', Values: []string{c.thread(r)}}}, Limit: new(100)}
	}},
	{"time range", func(c *corpus, r *rand.Rand, n int) nostr.Filter {
		since := corpusStart + int64(r.IntN(n))*corpusStep
		return nostr.Filter{Since: &since, Until: new(since + 600), Limit: new(100)}
	}},
	{"feed", func(c *corpus, r *rand.Rand, n int) nostr.Filter {
		f := nostr.Filter{Kinds: []nostr.Kind{1, 6}, Limit: new(100)}
		for _, i := range r.Perm(corpusAuthors)[:100] {
			f.Authors = append(f.Authors, c.signers[i].pub)
		}
		return f
	}},
}

var queryConns = []int{1, 8}

// query asks every class at each number of connections. The same questions go to every target.
func (r *run) query() error {
	for _, conns := range queryConns {
		for k, class := range queryClasses {
			name := fmt.Sprintf("%s, %d conns", class.name, conns)
			err := r.cell("query", name, r.cmd.Rounds, func(t *target, round int, s *sample) error {
				return r.queryOnce(t, s, r.filters(k, round), conns)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// filters are the questions of a class in a round, the same for every target.
func (r *run) filters(class, round int) []nostr.Filter {
	rng := r.corpus.rng(queryClasses[class].name, round)
	out := make([]nostr.Filter, r.cmd.Queries)
	for i := range out {
		out[i] = queryClasses[class].make(r.corpus, rng, len(r.items))
	}
	return out
}

func (r *run) queryOnce(t *target, s *sample, filters []nostr.Filter, conns int) error {
	open := make([]*asker, conns)
	for i := range open {
		c, err := dial(r.ctx, t.url, 64<<10)
		if err != nil {
			return err
		}
		defer c.close()
		open[i] = &asker{c: c}
		if err := open[i].ask(filters[0]); err != nil { // whatever a relay does once for a connection
			return err
		}
		*open[i] = asker{c: c, serial: 1}
	}
	m, err := startMeter(t)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, conns)
	for i, a := range open {
		wg.Go(func() {
			for at := i; at < len(filters) && errs[i] == nil; at += conns {
				errs[i] = a.ask(filters[at])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := m.read(s, len(filters)); err != nil {
		return err
	}
	var all []time.Duration
	events, octets := 0, 0
	for _, a := range open {
		all = append(all, a.latencies...)
		events += a.events
		octets += a.octets
	}
	s.latencies(all)
	s.set("events_per_op", float64(events)/float64(len(filters)))
	s.set("bytes_per_op", float64(octets)/float64(len(filters)))
	return nil
}

// asker asks one question after another on one connection.
type asker struct {
	c              *conn
	serial         int
	latencies      []time.Duration
	events, octets int
}

var (
	eventPrefix  = []byte(`["EVENT"`)
	eosePrefix   = []byte(`["EOSE"`)
	closedPrefix = []byte(`["CLOSED"`)
)

// ask sends a REQ and reads its stored events. The subscription before it is closed in the same call.
func (a *asker) ask(f nostr.Filter) error {
	a.serial++
	id := "q" + strconv.Itoa(a.serial)
	frames := [][]byte{nostr.AppendReq(nil, id, f)}
	if a.serial > 1 {
		frames = slices.Insert(frames, 0, nostr.AppendClose(nil, "q"+strconv.Itoa(a.serial-1)))
	}
	began := time.Now()
	a.c.deadline(patience)
	if err := a.c.send(frames...); err != nil {
		return err
	}
	quoted := []byte(strconv.Quote(id))
	for {
		m, err := a.c.read()
		if err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(m, eventPrefix):
			a.events++
			a.octets += len(m)
		case bytes.HasPrefix(m, eosePrefix) && bytes.Contains(m, quoted):
			a.latencies = append(a.latencies, time.Since(began))
			return nil
		case bytes.HasPrefix(m, closedPrefix) && bytes.Contains(m, quoted):
			return fmt.Errorf("the relay closed the query: %s", m)
		}
	}
}
