package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is what a sync did. Counts are of events, each counted once a run, whatever the number of sessions and
// reconnections it took.
type Report struct {
	Method     string `json:"method"`   // "negentropy", "paging", or both when some windows had to be paged
	Fallback   string `json:"fallback"` // why there was paging, in the relay's words or ours; "" without
	Sessions   int    `json:"sessions"` // NIP-77 sessions opened
	Windows    int    `json:"windows"`  // parts of time that the filter was cut into, at least 1
	Messages   int    `json:"messages"` // of all sessions, both ways
	Reconnects int    `json:"reconnects"`
	BytesIn    int64  `json:"bytes_in"` // octets of all frames
	BytesOut   int64  `json:"bytes_out"`

	// Down.
	Bodies       int            `json:"bodies"`        // event bodies that came over the wire
	New          int            `json:"new"`           // stored here
	KnownRefused map[string]int `json:"known_refused"` // not fetched: refused here before, by reason
	Refused      map[string]int `json:"refused"`       // fetched and refused here, by outcome: "superseded", "deleted", "expired", "policy"…
	Unusable     map[string]int `json:"unusable"`      // served by the relay, but "bad-signature", "outside-filter", or stopped by what the caller asks
	Unavailable  int            `json:"unavailable"`   // listed by the relay, but not served

	// Up.
	Sent         int            `json:"sent"`         // accepted by the relay
	Held         int            `json:"held"`         // the relay said that it holds them already
	KnownNo      map[string]int `json:"known_no"`     // not offered: the relay refused them before, by its reason's prefix
	SentRefused  map[string]int `json:"sent_refused"` // refused for good by the relay, by its reason's prefix
	SentFailed   map[string]int `json:"sent_failed"`  // not taken, but may be another time, by prefix
	Withheld     map[string]int `json:"withheld"`     // never offered: "protected" (NIP-70), "private" (the view), or stopped by what the caller asks
	NotKept      int            `json:"not_kept"`     // accepted by the relay, and still not held by it afterwards
	Disconnected bool           `json:"disconnected"` // the run ended because the connection could not be had again
}

func newReport() Report {
	return Report{
		KnownRefused: map[string]int{}, Refused: map[string]int{}, Unusable: map[string]int{},
		KnownNo: map[string]int{}, SentRefused: map[string]int{}, SentFailed: map[string]int{}, Withheld: map[string]int{},
	}
}

func (r *Report) clone() Report {
	c := *r
	for _, m := range []*map[string]int{&c.KnownRefused, &c.Refused, &c.Unusable, &c.KnownNo, &c.SentRefused, &c.SentFailed, &c.Withheld} {
		*m = maps.Clone(*m)
	}
	return c
}

// moved is what counts as progress.
func (r *Report) moved() int {
	return r.New + r.Sent + r.Held + total(r.Refused) + total(r.Unusable) + total(r.SentRefused) + r.Unavailable
}

func total(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// Down says in one line what came in: "0 new, 3 known-refused (expired 1, policy 1, superseded 1)".
func (r *Report) Down() string {
	parts := []string{fmt.Sprintf("%d new", r.New)}
	parts = append(parts, counted(r.KnownRefused, "known-refused", true)...)
	parts = append(parts, counted(r.Refused, "refused", false)...)
	parts = append(parts, counted(r.Unusable, "unusable", false)...)
	if r.Unavailable > 0 {
		parts = append(parts, fmt.Sprintf("%d not served", r.Unavailable))
	}
	return strings.Join(parts, ", ")
}

// Up says in one line what went out.
func (r *Report) Up() string {
	parts := []string{fmt.Sprintf("%d sent", r.Sent)}
	if r.Held > 0 {
		parts = append(parts, fmt.Sprintf("%d held already", r.Held))
	}
	parts = append(parts, counted(r.KnownNo, "known-refused there", false)...)
	parts = append(parts, counted(r.SentRefused, "refused there", false)...)
	parts = append(parts, counted(r.SentFailed, "not taken now", false)...)
	parts = append(parts, counted(r.Withheld, "withheld", false)...)
	if r.NotKept > 0 {
		parts = append(parts, fmt.Sprintf("%d accepted but not kept there", r.NotKept))
	}
	return strings.Join(parts, ", ")
}

// Summary says in a line or two what the run did in the given direction.
func (r *Report) Summary(d Direction) string {
	switch d {
	case Pull:
		return r.Down()
	case Push:
		return r.Up()
	}
	return r.Down() + "\n" + r.Up()
}

// counted writes a total with its parts in alphabetical order.
func counted(m map[string]int, what string, always bool) []string {
	n := total(m)
	if n == 0 && !always {
		return nil
	}
	if n == 0 {
		return []string{"0 " + what}
	}
	var by []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		by = append(by, fmt.Sprintf("%s %d", k, m[k]))
	}
	return []string{fmt.Sprintf("%d %s (%s)", n, what, strings.Join(by, ", "))}
}
