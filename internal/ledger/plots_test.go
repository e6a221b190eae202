package ledger

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
	"fleetmesh.org/fleetmesh/spec"
)

// series is one curve: events_in in percent of the member ceiling, window after window.
type series struct {
	label  string
	points []float64
}

// curve closes windows one after the other. use gives the events of a window, negative for a window in which
// nothing at all happened.
func curve(label string, s Standing, windows int, use func(limit int64) int64) series {
	share := func(s Standing) float64 {
		return 100 * float64(s.Limits[spec.LimitEventsIn]) / float64(spec.C().Ceiling(spec.LimitEventsIn, spec.TierMember))
	}
	out := series{label, []float64{share(s)}}
	for w := range windows {
		v := Evaluation{}
		if n := use(s.Limits[spec.LimitEventsIn]); n >= 0 {
			used := Counters{spec.CounterReq: 1, spec.CounterEventsIn: n}
			v = Evaluate(s.Limits, used, used)
		}
		s, _ = s.Close(v, int64(w)*3600)
		out.points = append(out.points, share(s))
	}
	return out
}

func part(num, den int64) func(int64) int64 { return func(l int64) int64 { return l * num / den } }

func TestPlots(t *testing.T) {
	open := NewStanding(spec.TierMember)
	high := Standing{Tier: spec.TierMember, Limits: Seeded(spec.TierMember)}
	plots := map[string][]byte{
		"growth.svg": plot("Growth: events_in of a member, in percent of its ceiling", "windows", 40, 1, []series{
			curve("full use", open, 40, part(1, 1)),
			curve("half", open, 40, part(1, 2)),
			curve("a tenth", open, 40, part(1, 10)),
			curve("not used", open, 40, func(int64) int64 { return 0 }),
		}),
		"decay.svg": plot("Decay: events_in of a member at its ceiling, in percent of it", "days", 20*24, 24, []series{
			curve("windows carry other things", high, 20*24, func(int64) int64 { return 0 }),
			curve("nothing at all happens", high, 20*24, func(int64) int64 { return -1 }),
		}),
	}
	for name, want := range plots {
		path := filepath.Join("..", "..", "docs", name)
		if vectors.Updating() {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the arithmetic gives: run with -update-vectors", path)
		}
	}
}

var colours = []string{"#1b6ca8", "#c8553d", "#4f772d", "#6d597a"}

// plot draws curves as SVG. unit is how many windows one step of the horizontal axis has.
func plot(title, axis string, windows, unit int, all []series) []byte {
	const left, top, width, height = 50.0, 40.0, 560.0, 240.0
	x := func(w int) float64 { return left + width*float64(w)/float64(windows) }
	y := func(p float64) float64 { return top + height*(1-p/100) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 330" font-family="sans-serif" font-size="12">`+"\n")
	fmt.Fprintf(&b, `<rect width="780" height="330" fill="#fff"/><text x="%.0f" y="22" font-size="14">%s</text>`+"\n", left, title)
	for p := 0; p <= 100; p += 25 {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%d</text>`+"\n", left, y(float64(p)), left+width, left-8, y(float64(p))+4, p)
	}
	step := windows / unit / 10 * unit
	for w := 0; w <= windows; w += step {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%d</text>`+"\n", x(w), top+height+18, w/unit)
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", left+width/2, top+height+38, axis)
	for i, s := range all {
		var d strings.Builder
		for w, p := range s.points {
			if w > 0 && w < len(s.points)-1 && p == s.points[w-1] && p == s.points[w+1] {
				continue
			}
			fmt.Fprintf(&d, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[w == 0], x(w), y(p))
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`, d.String(), colours[i])
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", left+width+12, top+20+float64(i)*20, colours[i], s.label)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
