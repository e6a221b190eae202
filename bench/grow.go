package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"fleetmesh.org/fleetmesh/nostr"
)

// grow fills the targets to one size after another, and measures at each what an event, a query and a reconciliation cost
// there.
func (r *run) grow() error {
	sizes := slices.Clone(r.cmd.Grow)
	slices.Sort(sizes)
	if sizes[0] < 1000 {
		return errors.New("--grow: the least size is 1000")
	}
	all, err := r.corpus.load(r.ctx, r.cmd.Cache, sizes[len(sizes)-1])
	if err != nil {
		return err
	}
	r.report.Events, r.report.EventBytes = len(all), meanSize(all)
	held := 0
	for _, size := range sizes {
		r.note("grow    to %d", size)
		last := max(held, size-max(size/10, 1000)) // the tail of each step is measured
		for i := range r.targets {
			if err := r.loadRest(&r.targets[i], all[held:last]); err != nil {
				return err
			}
		}
		r.items = all[:size]
		if err := r.growStep(size, all[last:size]); err != nil {
			return fmt.Errorf("at %d events: %w", size, err)
		}
		held = size
	}
	f, err := os.Create(r.cmd.Plot)
	if err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	defer f.Close()
	if err := plot(f, r.growthCharts()); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return f.Close()
}

func (r *run) growStep(size int, tail []item) error {
	n := len(tail) / r.cmd.Rounds
	err := r.cell("grow-ingest", fmt.Sprint(size), r.cmd.Rounds, func(t *target, round int, s *sample) error {
		if err := r.ingestOnce(t, s, tail[round*n:(round+1)*n], 8, 64); err != nil {
			return err
		}
		if t.dir == "" {
			return nil
		}
		disk, err := diskBytes(t.dir)
		s.set("disk_bytes_per_event", float64(disk)/float64(size-len(tail)+(round+1)*n))
		return err
	})
	if err != nil {
		return err
	}
	for i := range r.targets {
		if err := r.loadRest(&r.targets[i], tail[n*r.cmd.Rounds:]); err != nil {
			return err
		}
	}
	for k, class := range queryClasses {
		err := r.cell("grow-"+class.name, fmt.Sprint(size), r.cmd.Rounds, func(t *target, round int, s *sample) error {
			return r.queryOnce(t, s, r.filters(k, round), 1)
		})
		if err != nil {
			return err
		}
	}
	cell, until := negCell{"10 different", 10, 3}, corpusEnd(size)
	set := r.negSet(cell.different)
	return r.cell("grow-neg", fmt.Sprint(size), r.cmd.Rounds, func(t *target, _ int, s *sample) error {
		return r.negOnce(t, s, cell, set, nostr.Filter{Until: &until})
	})
}

// growthCharts draws CPU where the process is known, and time where it is not.
func (r *run) growthCharts() []chart {
	var charts []chart
	add := func(phase, title string, values ...string) {
		for _, v := range values {
			c := chart{title: title, unit: v}
			for i := range r.targets {
				c.lines = append(c.lines, r.growthLine(phase, v, r.targets[i].name))
			}
			if slices.ContainsFunc(c.lines, func(l line) bool { return len(l.x) > 0 }) {
				charts = append(charts, c)
				return
			}
		}
	}
	cost := []string{"server_cpu_us_per_op", "p50_us"}
	add("grow-ingest", "an event taken in", cost...)
	for _, class := range queryClasses {
		add("grow-"+class.name, "query: "+class.name, cost...)
	}
	add("grow-neg", "NEG, 10 different", cost...)
	add("grow-ingest", "memory of the process", "server_rss_mb")
	add("grow-ingest", "disk held an event", "disk_bytes_per_event")
	return charts
}

func (r *run) growthLine(phase, value, name string) line {
	l := line{name: name}
	rounds := map[string][]float64{}
	var cells []string
	for _, s := range r.report.Samples {
		v, ok := s.Values[value]
		if s.Phase != phase || s.Target != name || !ok {
			continue
		}
		if rounds[s.Cell] == nil {
			cells = append(cells, s.Cell)
		}
		rounds[s.Cell] = append(rounds[s.Cell], v)
	}
	for _, cell := range cells {
		var x float64
		fmt.Sscan(cell, &x)
		l.x, l.y = append(l.x, x), append(l.y, median(rounds[cell]))
	}
	return l
}
