package main

import (
	"fmt"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// negCell is a reconciliation in which so many events differ, half of them on each side, as far as there are as many.
type negCell struct {
	name      string
	different int
	sessions  int // of one round: the short ones need company to be measured
}

func (r *run) negCells() []negCell {
	n := len(r.items)
	cells := []negCell{{"10 different", 10, 20}}
	if n > 2000 {
		cells = append(cells, negCell{"1,000 different", 1000, 5})
	}
	return append(cells, negCell{"half different", n / 2, 1})
}

// neg reconciles a local set with each target's corpus (NIP-77).
func (r *run) neg() error {
	until := corpusEnd(len(r.items))
	for _, cell := range r.negCells() {
		set := r.negSet(cell.different)
		err := r.cell("neg", cell.name, r.cmd.Rounds, func(t *target, round int, s *sample) error {
			return r.negOnce(t, s, cell, set, nostr.Filter{Until: &until})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// negSet is the corpus without different/2 events, spread evenly, and with as many that no relay has.
func (r *run) negSet(different int) *negentropy.Vector {
	n, half := len(r.items), different/2
	var out []negentropy.Item
	for i, it := range r.items {
		if i*half/n == (i+1)*half/n { // half of the i step to the next number
			out = append(out, negentropy.Item{Time: uint64(it.at), ID: it.id})
		}
	}
	for i := range half {
		out = append(out, negentropy.Item{Time: uint64(corpusStart + int64(i*(n/max(half, 1)))*corpusStep), ID: nostr.ID(r.corpus.digest("local", i))})
	}
	return negentropy.NewVector(out)
}

// negFrame bounds the client's messages, in octets before hex: what every relay takes.
const negFrame = 100_000

// negOnce runs sessions, each on a connection of its own: not every relay takes a second one. What fails is told, and not
// tried again in later rounds.
func (r *run) negOnce(t *target, s *sample, cell negCell, set negentropy.Set, f nostr.Filter) error {
	if r.failedBefore(s) {
		s.Note = "not tried again"
		return nil
	}
	conns := make([]*gateway.Conn, cell.sessions)
	for i := range conns {
		c, err := gateway.Dial(r.ctx, t.url, gateway.Options{ReplyTimeout: patience / 2, MaxMessage: 64 << 20})
		if err != nil {
			return err
		}
		defer c.Close()
		conns[i] = c
	}
	m, err := startMeter(t)
	if err != nil {
		return err
	}
	half := cell.different / 2
	var walls []time.Duration
	for _, c := range conns {
		have, need := 0, 0
		began := time.Now()
		st, err := c.Reconcile(r.ctx, f, set, negFrame, func(h, n []nostr.ID) (bool, error) {
			have, need = have+len(h), need+len(n)
			return true, nil
		})
		if err != nil {
			s.Note = fmt.Sprintf("failed after %d sessions: %v", len(walls), err)
			return nil
		}
		walls = append(walls, time.Since(began))
		s.set("messages", float64(st.Messages))
		s.set("neg_bytes", float64(st.Bytes))
		if have != half || need != half {
			s.Note = fmt.Sprintf("wrong: %d have and %d need, want %d of each", have, need, half)
		}
	}
	if err := m.read(s, cell.sessions); err != nil {
		return err
	}
	s.latencies(walls)
	return nil
}

func (r *run) failedBefore(s *sample) bool {
	for _, q := range r.report.Samples {
		if q.Phase == s.Phase && q.Cell == s.Cell && q.Target == s.Target && strings.HasPrefix(q.Note, "failed") {
			return true
		}
	}
	return false
}
