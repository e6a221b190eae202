package web

import (
	"fmt"
	"math"
	"strings"

	"fleetmesh.org/fleetmesh/spec"
)

// plot is a small picture of one limit over the closed windows, the newest at the right: a bar for what was measured, a line for what was
// allowed. Heights go by the square root, so that small use of a large limit is seen.
type plot struct {
	Title  string // in words, for those who do not see it
	Width  int
	Height int
	Bars   []bar
	Line   string // points of the line of limits
}

type bar struct {
	X, Y, W, H string
	Class      string
}

const (
	plotWidth  = 144
	plotHeight = 30
	plotBars   = 24 // the newest windows
)

// plotLimit draws one limit of a peer's closed windows; nil where there is none.
func plotLimit(windows []windowClose, l spec.Limit) *plot {
	windows = windows[max(0, len(windows)-plotBars):]
	if len(windows) == 0 {
		return nil
	}
	top, first, last := int64(1), int64(-1), int64(-1)
	for _, w := range windows {
		top = max(top, w.Measured.of(l), w.Limits[l])
		if w.Limits != nil {
			if last = w.Limits[l]; first < 0 {
				first = last
			}
		}
	}
	p := &plot{Width: plotWidth, Height: plotHeight}
	scale := func(v int64) float64 { return math.Sqrt(float64(v)/float64(top)) * (plotHeight - 2) }
	step := float64(plotWidth) / plotBars
	var points []string
	for i, w := range windows {
		x, h := float64(plotBars-len(windows)+i)*step, scale(w.Measured.of(l))
		if h > 0 {
			h = max(h, 1)
		}
		class := "ok"
		if w.Severity != "S0" && (w.Limit == l || w.Limit == "") {
			class = "bad"
		}
		p.Bars = append(p.Bars, bar{coord(x + 1), coord(plotHeight - h), coord(step - 2), coord(h), class})
		if w.Limits != nil {
			y := plotHeight - scale(w.Limits[l])
			points = append(points, coord(x)+","+coord(y), coord(x+step)+","+coord(y))
		}
	}
	p.Line = strings.Join(points, " ")
	newest := windows[len(windows)-1]
	p.Title = fmt.Sprintf("%s over %d windows: %s measured in the newest", label(l), len(windows), amount(l, newest.Measured.of(l)))
	if first >= 0 {
		p.Title += fmt.Sprintf(", limit from %s to %s", amount(l, first), amount(l, last))
	}
	return p
}

func coord(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
