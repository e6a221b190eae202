package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// sample is what one round of one cell measured on one target. The names of values carry their units; an operation is an
// event published (ingest), a query, a delivery (fanout) or a session (neg).
type sample struct {
	Phase  string             `json:"phase"`
	Cell   string             `json:"cell"`
	Target string             `json:"target"`
	Round  int                `json:"round"`
	Values map[string]float64 `json:"values"`
	Note   string             `json:"note,omitempty"` // what went wrong, such as the first refusal
}

func (s *sample) set(name string, v float64) { s.Values[name] = v }

// row compares one value of one cell over the targets.
type row struct {
	Phase   string             `json:"phase"`
	Cell    string             `json:"cell"`
	Value   string             `json:"value"`
	Medians map[string]float64 `json:"medians"`
	// Ratio is the median of the rounds' ratios, first target to second; absent with other than two targets.
	Ratio *float64 `json:"ratio,omitempty"`
}

// report is the outcome of a run.
type report struct {
	Started    string    `json:"started"`
	Go         string    `json:"go"`
	CPU        string    `json:"cpu"`
	Cores      int       `json:"cores"`
	LoadBefore string    `json:"load_before"`
	LoadAfter  string    `json:"load_after"`
	Rounds     int       `json:"rounds"`
	Seed       uint64    `json:"seed"`
	Events     int       `json:"events"`
	EventBytes float64   `json:"event_bytes"`
	Targets    []string  `json:"targets"`
	Rows       []row     `json:"rows"`
	Samples    []*sample `json:"samples"`
}

// summarise makes the rows out of the samples, in the order of these.
func (r *report) summarise(targets []target) {
	for i := range targets {
		r.Targets = append(r.Targets, targets[i].name)
	}
	type cell struct{ phase, name string }
	var order []cell
	values := map[cell]map[string]map[string][]float64{} // value, target, rounds
	for _, s := range r.Samples {
		c := cell{s.Phase, s.Cell}
		if values[c] == nil {
			values[c] = map[string]map[string][]float64{}
			order = append(order, c)
		}
		for name, v := range s.Values {
			if values[c][name] == nil {
				values[c][name] = map[string][]float64{}
			}
			values[c][name][s.Target] = append(values[c][name][s.Target], v)
		}
	}
	for _, c := range order {
		names := make([]string, 0, len(values[c]))
		for name := range values[c] {
			names = append(names, name)
		}
		slices.SortFunc(names, byImportance)
		for _, name := range names {
			r.Rows = append(r.Rows, r.row(c.phase, c.name, name, values[c][name]))
		}
	}
}

func (r *report) row(phase, cell, name string, rounds map[string][]float64) row {
	out := row{Phase: phase, Cell: cell, Value: name, Medians: map[string]float64{}}
	for t, v := range rounds {
		if m := median(v); !math.IsNaN(m) {
			out.Medians[t] = m
		}
	}
	if len(r.Targets) == 2 {
		if ratio := pairRatio(rounds[r.Targets[0]], rounds[r.Targets[1]]); !math.IsNaN(ratio) {
			out.Ratio = &ratio
		}
	}
	return out
}

var importance = []string{"ops_per_s", "p50_us", "p99_us", "server_cpu_us_per_op", "client_cpu_us_per_op"}

func byImportance(a, b string) int {
	rank := func(s string) int {
		if i := slices.Index(importance, s); i >= 0 {
			return i
		}
		return len(importance)
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// print writes the report as one JSON object, or as a table.
func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	}
	fmt.Fprintf(w, "%d events of %.0f octets, %d rounds, %s on %d cores of %s, load %s before and %s after\n\n", r.Events, r.EventBytes, r.Rounds, r.Go, r.Cores, r.CPU, r.LoadBefore, r.LoadAfter)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "phase\tcell\tvalue\t%s\tratio\t\n", strings.Join(r.Targets, "\t"))
	for _, row := range r.Rows {
		fmt.Fprintf(tw, "%s\t%s\t%s", row.Phase, row.Cell, row.Value)
		for _, t := range r.Targets {
			fmt.Fprintf(tw, "\t%s", number(row.Medians, t))
		}
		ratio := ""
		if row.Ratio != nil {
			ratio = fmt.Sprintf("%.3g", *row.Ratio)
		}
		fmt.Fprintf(tw, "\t%s\t\n", ratio)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return r.notes(w)
}

func (r *report) notes(w io.Writer) error {
	for _, s := range r.Samples {
		if s.Note != "" {
			if _, err := fmt.Fprintf(w, "%s, %s, %s, round %d: %s\n", s.Phase, s.Cell, s.Target, s.Round+1, s.Note); err != nil {
				return err
			}
		}
	}
	return nil
}

func number(m map[string]float64, key string) string {
	v, ok := m[key]
	if !ok {
		return "-"
	}
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
