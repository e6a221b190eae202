package sim

import (
	"fmt"
	"strings"
)

// Plot draws curves as SVG: the mean of each, and the band between the least and the most where they differ.
func Plot(title string, curves []*Curve) []byte {
	const left, top, width, height = 50.0, 40.0, 560.0, 240.0
	colours := []string{"#1b6ca8", "#c2571a", "#3a7d44", "#7b3f99"}
	windows := 1
	for _, c := range curves {
		windows = max(windows, len(c.Mean)-1)
	}
	x := func(w int) float64 { return left + width*float64(w)/float64(windows) }
	y := func(v int64) float64 { return top + height*(1-float64(v)/1000) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 330" font-family="sans-serif" font-size="12">`+"\n")
	fmt.Fprintf(&b, `<rect width="800" height="330" fill="#fff"/><text x="%.0f" y="22" font-size="14">%s</text>`+"\n", left, title)
	for p := int64(0); p <= 1000; p += 250 {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%d %%</text>`+"\n", left, y(p), left+width, left-6, y(p)+4, p/10)
	}
	for w, step := 0, max(1, windows/10); w <= windows; w += step {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%d</text>`+"\n", x(w), top+height+18, w)
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">windows</text>`+"\n", left+width/2, top+height+38)
	for i, c := range curves {
		colour := colours[i%len(colours)]
		line := func(points []int64) string {
			var d strings.Builder
			for w, v := range points {
				fmt.Fprintf(&d, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[w == 0], x(w), y(v))
			}
			return d.String()
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-opacity="0.35"/><path d="%s" fill="none" stroke="%s" stroke-opacity="0.35"/>`+"\n", line(c.Least), colour, line(c.Most), colour)
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", line(c.Mean), colour, left+width+12, top+20+float64(i)*20, colour, c.Name)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
