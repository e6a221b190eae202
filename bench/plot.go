package main

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
)

// chart is one picture: cost against size, both on logarithmic scales.
type chart struct {
	title, unit string
	lines       []line
}

// line is one target's points.
type line struct {
	name string
	x, y []float64
}

const (
	chartWidth, chartHeight = 360, 240
	chartLeft, chartRight   = 56, 14
	chartTop, chartBottom   = 40, 30
	chartColumns            = 3
)

var chartColours = []string{"#1f6feb", "#d1242f", "#1a7f37", "#9a6700"}

// plot writes the charts as one SVG picture.
func plot(w io.Writer, charts []chart) error {
	var b bytes.Buffer
	rows := (len(charts) + chartColumns - 1) / chartColumns
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		chartWidth*chartColumns, chartHeight*rows)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i%chartColumns*chartWidth, i/chartColumns*chartHeight)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// scale maps a logarithmic range onto pixels.
type scale struct{ lo, hi, from, to float64 }

func (s scale) at(v float64) float64 {
	return s.from + (math.Log10(v)-s.lo)/(s.hi-s.lo)*(s.to-s.from)
}

// decades is the whole powers of ten around the positive values.
func decades(values []float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 {
			lo, hi = min(lo, math.Floor(math.Log10(v))), max(hi, math.Ceil(math.Log10(v)))
		}
	}
	if lo > hi {
		return 0, 1
	}
	return lo, max(hi, lo+1)
}

func (c *chart) draw(b *bytes.Buffer) {
	var xs, ys []float64
	for _, l := range c.lines {
		xs, ys = append(xs, l.x...), append(ys, l.y...)
	}
	x := scale{from: chartLeft, to: chartWidth - chartRight}
	y := scale{from: chartHeight - chartBottom, to: chartTop}
	x.lo, x.hi = decades(xs)
	y.lo, y.hi = decades(ys)
	fmt.Fprintf(b, `<text x="%d" y="16" font-weight="bold">%s</text><text x="%d" y="30" fill="#666">%s</text>`+"\n", chartLeft, html.EscapeString(c.title), chartLeft, html.EscapeString(c.unit))
	for d := x.lo; d <= x.hi; d++ {
		px := x.at(math.Pow(10, d))
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", px, chartTop, chartHeight-chartBottom, px, chartHeight-chartBottom+14, power(d))
	}
	for d := y.lo; d <= y.hi; d++ {
		py := y.at(math.Pow(10, d))
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", chartLeft, py, chartWidth-chartRight, chartLeft-4, py+4, power(d))
	}
	for i, l := range c.lines {
		l.draw(b, x, y, chartColours[i%len(chartColours)], chartTop+12+14*i)
	}
}

func (l *line) draw(b *bytes.Buffer, x, y scale, colour string, legend int) {
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", chartLeft+8, legend, colour, html.EscapeString(l.name))
	path := ""
	for i := range l.x {
		if !(l.y[i] > 0) {
			continue
		}
		px, py := x.at(l.x[i]), y.at(l.y[i])
		path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(len(path), 1)], px, py)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%.4g at %.0f</title></circle>`+"\n", px, py, colour, l.y[i], l.x[i])
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path, colour)
}

// power names a power of ten.
func power(d float64) string {
	switch {
	case d >= 6:
		return fmt.Sprintf("%gM", math.Pow(10, d-6))
	case d >= 3:
		return fmt.Sprintf("%gk", math.Pow(10, d-3))
	}
	return fmt.Sprintf("%g", math.Pow(10, d))
}
