package monitor

import (
	"fmt"
	"strings"
)

// Line is the report as monitoring systems read it: one line, the level first, then what is wrong, then after a bar the numbers as
// performance data ('label'=value[unit];warning;critical;minimum;maximum).
func (r *Report) Line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MESHNODE %s - ", r.Level)
	if len(r.Findings) == 0 && r.Facts != nil {
		f := r.Facts
		fmt.Fprintf(&b, "%d events, %d clients, %d peers, up %s", f.Store.Events, f.Face.Open, activePeers(f), age(f.Uptime))
	}
	for i, f := range r.Findings {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(clean(f.Text))
	}
	if r.Facts != nil {
		fmt.Fprintf(&b, " | %s time=%.3fs", r.Facts.perf(), r.Took)
	}
	return b.String()
}

// clean keeps a sentence out of the way of the format.
func clean(s string) string { return strings.NewReplacer("|", "/", "\n", " ").Replace(s) }

func activePeers(f *Facts) (n int) {
	for _, p := range f.Peers {
		if p.Stage == "active" {
			n++
		}
	}
	return n
}

func (f *Facts) perf() string {
	worst := "S0"
	connected, use := 0, int64(0)
	for _, p := range f.Peers {
		if p.Session != "" {
			connected++
		}
		for _, s := range p.Used {
			if s.Of > 0 {
				use = max(use, s.Used*100/s.Of)
			}
		}
		for _, w := range p.Windows {
			worst = max(worst, w.Severity)
		}
	}
	parts := []string{
		fmt.Sprintf("clients=%d;;;0;%d", f.Face.Open, f.Face.MaxConnections),
		fmt.Sprintf("events=%d", f.Store.Events),
		fmt.Sprintf("store=%dB", f.Store.Bytes),
		fmt.Sprintf("disk_free=%dB;;;0;%d", f.Disk.Free, f.Disk.Total),
		fmt.Sprintf("memory=%dB", f.Memory),
		fmt.Sprintf("files=%d;;;0;%d", f.Files.Open, f.Files.Max),
		fmt.Sprintf("peers=%d", activePeers(f)),
		fmt.Sprintf("sessions=%d", connected),
		fmt.Sprintf("budget_used=%d%%", use),
		fmt.Sprintf("worst_severity=%s", strings.TrimPrefix(worst, "S")),
	}
	if d := f.Descriptor; d != nil {
		parts = append(parts, fmt.Sprintf("descriptor_left=%ds", d.Expires-f.At))
	}
	if c := f.Clock.Offset; c != nil {
		parts = append(parts, fmt.Sprintf("clock_offset=%.1fs", *c))
	}
	if s := f.Strain; s != nil {
		parts = append(parts, fmt.Sprintf("rung=%d", s.Rung))
	}
	return strings.Join(parts, " ")
}
