package web

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/spec"
)

// number groups the digits of a count: 12 345.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}

// size writes octets for people: 8.0 MiB.
func size(n int64) string {
	if n < 1024 && n > -1024 {
		return fmt.Sprintf("%d\u00a0B", n)
	}
	v, unit := float64(n), 0
	for math.Abs(v) >= 1023.95 && unit < 5 {
		v /= 1024
		unit++
	}
	digits := 1
	if math.Abs(v) >= 99.95 {
		digits = 0
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + "\u00a0" + [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[unit]
}

// amount writes a count of a limit in the limit's unit.
func amount(l spec.Limit, n int64) string {
	if strings.HasPrefix(string(l), "bytes") || strings.HasSuffix(string(l), "bytes") {
		return size(n)
	}
	return number(n)
}

// label is a limit in words.
func label(l spec.Limit) string {
	words := map[spec.Limit]string{
		"conn_rate": "sessions", "req": "requests", "events_in": "events in", "bytes_in": "octets in", "bytes_out": "octets out",
		"blob_bytes": "blobs", "sync_ranges": "sync messages", "errors": "errors", spec.LimitDupRatio: "duplicates",
	}
	if s := words[l]; s != "" {
		return s
	}
	return string(l)
}

// span writes a duration coarsely: 3 d 4 h.
func span(seconds int64) string {
	if seconds < 0 {
		seconds = -seconds
	}
	d, h, m := seconds/86400, seconds/3600%24, seconds/60%60
	switch {
	case d > 0 && h > 0 && d < 10:
		return fmt.Sprintf("%d\u00a0d %d\u00a0h", d, h)
	case d > 0:
		return fmt.Sprintf("%d\u00a0d", d)
	case h > 0 && m > 0:
		return fmt.Sprintf("%d\u00a0h %d\u00a0min", h, m)
	case h > 0:
		return fmt.Sprintf("%d\u00a0h", h)
	case m > 0:
		return fmt.Sprintf("%d\u00a0min", m)
	}
	return fmt.Sprintf("%d\u00a0s", seconds)
}

// exact is a moment to the second, in UTC.
func exact(unix int64) string { return time.Unix(unix, 0).UTC().Format("2006-01-02 15:04:05 UTC") }

// relative is a moment against now.
func relative(unix int64, now time.Time) string {
	d := now.Unix() - unix
	switch {
	case d >= 0 && d < 5:
		return "just now"
	case d >= 0:
		return span(d) + " ago"
	}
	return "in " + span(d)
}

// clock writes moments. In live sections the text is the exact one, which does not change with every look; the script puts the relative
// one in its place.
type clock struct {
	now  time.Time
	live bool
}

// Ago is a moment as people read it, with the exact one on hover.
func (c clock) Ago(unix int64) template.HTML {
	if unix == 0 {
		return "never"
	}
	text := relative(unix, c.now)
	if c.live {
		text = exact(unix)
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-at="%d" title="%s">%s</time>`,
		time.Unix(unix, 0).UTC().Format(time.RFC3339), unix, exact(unix), text))
}

// short is the beginning and the end of a long name, which is told apart by both.
func short(s string) string {
	head := strings.TrimPrefix(s, "did:nostr:")
	if r := []rune(head); len(r) > 20 {
		return string(r[:8]) + "…" + string(r[len(r)-6:])
	}
	return head
}

// percent is how much of a limit is used, in whole percent and at most 999.
func percent(used, limit int64) int64 {
	switch {
	case used <= 0:
		return 0
	case limit <= 0:
		return 999
	}
	return min(999, spec.Ratio{Num: used, Den: limit}.Floor(100))
}

var templateFuncs = template.FuncMap{
	"number": number, "size": size, "amount": amount, "label": label, "span": span, "short": short, "percent": percent,
	"int64": func(n int) int64 { return int64(n) },
	"severity": func(s string) string { // a class of the style sheet, and nothing else
		if len(s) == 2 && s[0] == 'S' && s[1] >= '0' && s[1] <= '4' {
			return strings.ToLower(s)
		}
		return "s-none"
	},
	"meaning": func(s string) string {
		return map[string]string{"S0": "clean", "S1": "over a limit", "S2": "well over, or misreported", "S3": "far over, or out of scope", "S4": "forged"}[s]
	},
	"epoch": func(window, length int64) int64 { return window * length },
}
