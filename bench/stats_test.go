package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}, {[]float64{math.NaN(), 7, 1, 4}, 4}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.in, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("nothing has a median")
	}
}

func TestPercentile(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(i+1))
	}
	for _, c := range []struct {
		p    float64
		want time.Duration
	}{{0, 1}, {0.01, 1}, {0.5, 50}, {0.99, 99}, {0.991, 100}, {1, 100}} {
		if got := percentile(d, c.p); got != c.want {
			t.Errorf("percentile %v is %v, want %v", c.p, got, c.want)
		}
	}
	if percentile(nil, 0.5) != 0 {
		t.Error("nothing has a percentile")
	}
}

// The ratio is of rounds that ran side by side: load that met both of a pair does not move it.
func TestPairRatio(t *testing.T) {
	a, b := []float64{10, 100, 1000, 10}, []float64{20, 200, 2000, 0}
	if got := pairRatio(a, b); got != 0.5 {
		t.Errorf("ratio %v, want 0.5", got)
	}
	if !math.IsNaN(pairRatio(nil, b)) {
		t.Error("nothing has a ratio")
	}
}

func TestReport(t *testing.T) {
	r := report{Rounds: 2}
	for round := range 2 {
		for i, name := range []string{"a", "b"} {
			s := &sample{Phase: "query", Cell: "ids", Target: name, Round: round, Values: map[string]float64{}}
			s.set("p50_us", float64((i+1)*(round+1)*10))
			s.latencies([]time.Duration{time.Duration((i + 1) * (round + 1) * 1000)})
			s.set("ops_per_s", 1)
			r.Samples = append(r.Samples, s)
		}
	}
	r.summarise([]target{{name: "a"}, {name: "b"}})
	if len(r.Rows) != 3 || r.Rows[0].Value != "ops_per_s" || r.Rows[1].Value != "p50_us" || *r.Rows[1].Ratio != 0.5 || r.Rows[1].Medians["b"] != 3 {
		t.Fatalf("rows: %+v", r.Rows)
	}
	var text, table bytes.Buffer
	if err := errors.Join(r.print(&text, true), r.print(&table, false)); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text.Bytes()) || !bytes.Contains(table.Bytes(), []byte("p50_us")) {
		t.Errorf("printed:\n%s\n%s", &text, &table)
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	charts := []chart{
		{title: "a & b", unit: "us", lines: []line{{"x<y", []float64{1e4, 1e5, 1e6}, []float64{3, 30, 31}}, {"none", nil, nil}}},
		{title: "nothing", lines: []line{{name: "zero", x: []float64{1e4}, y: []float64{0}}}},
	}
	if err := plot(&b, charts); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b.Bytes(), []byte("NaN")) || bytes.Contains(b.Bytes(), []byte("Inf")) {
		t.Errorf("the picture has points at infinity:\n%s", &b)
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestParseOK(t *testing.T) {
	id := "5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36"
	for _, c := range []struct {
		in     string
		is, ok bool
		reason string
	}{
		{`["OK","` + id + `",true,""]`, true, true, ""},
		{`["OK","` + id + `",true,"duplicate: have it"]`, true, true, "duplicate"},
		{`["OK", "` + id + `", true, ""]`, true, true, ""},
		{`["OK","` + id + `",false,"blocked: no"]`, true, false, "blocked: no"},
		{`["NOTICE","hi"]`, false, false, ""},
		{`nonsense`, false, false, ""},
	} {
		v, is := parseOK([]byte(c.in))
		if is != c.is || v.ok != c.ok || v.reason != c.reason || is && string(v.id) != id {
			t.Errorf("%s: %v %+v", c.in, is, v)
		}
	}
}
