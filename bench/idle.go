package main

import (
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// settle is how long a relay gets to give memory back, and maxIdleRounds bounds what that costs.
const (
	settle        = 5 * time.Second
	maxIdleRounds = 3
)

// idle opens connections with one subscription each, and reads what the relay's process grows by: while they are open, and
// after they have gone.
func (r *run) idle() error {
	name := fmt.Sprintf("%d conns", r.cmd.Idle)
	for i := range r.targets {
		if r.targets[i].pid == 0 {
			r.note("idle    %s has no --pid: its memory is not measured", r.targets[i].name)
		}
	}
	first := map[string]usage{} // of each target, before its first round: later rounds find memory that was taken before
	return r.cell("idle", name, min(r.cmd.Rounds, maxIdleRounds), func(t *target, round int, s *sample) error {
		if t.pid != 0 && round == 0 {
			u, err := processUsage(t.pid)
			if err != nil {
				return err
			}
			first[t.name] = u
		}
		return r.idleOnce(t, first[t.name], round, s)
	})
}

func (r *run) idleOnce(t *target, before usage, round int, s *sample) error {
	var during, after usage
	var err error
	read := func(u *usage) {
		if err == nil && t.pid != 0 {
			*u, err = processUsage(t.pid)
		}
	}
	began := time.Now()
	conns := make([]*conn, 0, r.cmd.Idle)
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	rng := r.corpus.rng("idle", round)
	for range r.cmd.Idle {
		c, err := dial(r.ctx, t.url, 512)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		a := asker{c: c}
		author := r.corpus.signers[rng.IntN(corpusAuthors)].pub
		if err := a.ask(nostr.Filter{Authors: []nostr.PubKey{author}, Kinds: []nostr.Kind{1}, Limit: new(1)}); err != nil {
			return err
		}
	}
	s.set("opened_per_s", float64(len(conns))/time.Since(began).Seconds())
	if err := r.wait(settle); err != nil {
		return err
	}
	read(&during)
	cpu := during.cpu
	if err := r.wait(settle); err != nil {
		return err
	}
	read(&during)
	s.set("idle_cpu_ms_per_s", float64(during.cpu-cpu)/1e6/settle.Seconds())
	for _, c := range conns {
		c.close()
	}
	conns = conns[:0]
	if err := r.wait(settle); err != nil {
		return err
	}
	read(&after)
	if err != nil || t.pid == 0 {
		return err
	}
	s.set("kb_per_conn", float64(during.rss-before.rss)/1e3/float64(r.cmd.Idle))
	s.set("kb_kept_per_conn", float64(after.rss-before.rss)/1e3/float64(r.cmd.Idle))
	s.set("server_rss_mb", float64(before.rss)/1e6)
	s.set("server_anon_mb", float64(before.anon)/1e6)
	return nil
}

func (r *run) wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}
