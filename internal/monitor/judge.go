package monitor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Level is how bad it is: also the exit status of `meshnode watch`, in the sense of monitoring systems.
type Level int

// The levels.
const (
	OK Level = iota
	Warning
	Critical
)

// String is the word that monitoring systems expect.
func (l Level) String() string { return [...]string{"OK", "WARNING", "CRITICAL"}[l] }

// MarshalText writes the word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the word.
func (l *Level) UnmarshalText(text []byte) error {
	for _, x := range []Level{OK, Warning, Critical} {
		if x.String() == string(text) {
			*l = x
			return nil
		}
	}
	return fmt.Errorf("no level is called %q", text)
}

// Finding is one thing that an operator should know, as a sentence that says what to do.
type Finding struct {
	Check string `json:"check"` // face, store, disk, clock, descriptor, grants, windows, rungs, federation, files
	Level Level  `json:"level"`
	Text  string `json:"text"`
}

// Report is one audit.
type Report struct {
	Level    Level     `json:"level"`
	Findings []Finding `json:"findings"` // the worst first; empty when all is well
	Facts    *Facts    `json:"facts,omitempty"`
	Took     float64   `json:"took_seconds"` // of asking the node
}

// Thresholds decide. Shares are of the whole, ages in seconds.
type Thresholds struct {
	Disk     [2]float64 // free share of the disk, warning and critical
	DiskLeft [2]int64   // free octets
	Use      [2]float64 // of connections, open files, and of what a peer's grant lets us cause
	Expiry   [2]int64   // seconds that a descriptor or a grant has left
	Clock    [2]float64 // seconds off
	Recent   int64      // verdicts no older than this many seconds count
}

// Defaults are the thresholds of `meshnode watch`.
func Defaults() Thresholds {
	return Thresholds{
		Disk: [2]float64{0.10, 0.02}, DiskLeft: [2]int64{1 << 30, 128 << 20}, Use: [2]float64{0.80, 0.95},
		Expiry: [2]int64{24 * 3600, 3600}, Clock: [2]float64{30, 60}, Recent: 24 * 3600,
	}
}

// judge collects findings.
type judge struct {
	f   *Facts
	lim Thresholds
	out []Finding
}

// Judge says what is wrong.
func Judge(f *Facts, lim Thresholds) Report {
	j := &judge{f: f, lim: lim, out: []Finding{}}
	for _, check := range []func(){j.face, j.store, j.disk, j.clock, j.descriptor, j.grants, j.windows, j.rungs, j.federation} {
		check()
	}
	slices.SortStableFunc(j.out, func(a, b Finding) int { return cmp.Compare(b.Level, a.Level) })
	r := Report{Findings: j.out, Facts: f}
	if len(j.out) > 0 {
		r.Level = j.out[0].Level
	}
	return r
}

func (j *judge) say(check string, l Level, format string, args ...any) {
	j.out = append(j.out, Finding{check, l, fmt.Sprintf(format, args...)})
}

// above finds the level of a value that should stay low.
func above[T cmp.Ordered](v T, at [2]T) Level {
	switch {
	case v >= at[1]:
		return Critical
	case v >= at[0]:
		return Warning
	}
	return OK
}

// below finds the level of a value that should stay high.
func below[T cmp.Ordered](v T, at [2]T) Level {
	switch {
	case v <= at[1]:
		return Critical
	case v <= at[0]:
		return Warning
	}
	return OK
}

func (j *judge) face() {
	f := j.f.Face
	if f.MaxConnections > 0 {
		if l := above(float64(f.Open)/float64(f.MaxConnections), j.lim.Use); l > OK {
			j.say("face", l, "%d of %d connections are open: raise spec.relay.limits.maxConnections, or the limit of open files if that is what holds it down", f.Open, f.MaxConnections)
		}
	}
	if n := j.f.Files; n.Max > 0 {
		if l := above(float64(n.Open)/float64(n.Max), j.lim.Use); l > OK {
			j.say("files", l, "%d of %d files are open: raise the limit (ulimit -n, LimitNOFILE=)", n.Open, n.Max)
		}
	}
	if j.f.Pending > 0 {
		j.say("config", Warning, "%d keys of node.yaml are not in force yet: restart the node (meshctl get lists them)", j.f.Pending)
	}
}

func (j *judge) store() {
	s := j.f.Store
	if s.Broken != "" {
		j.say("store", Critical, "the store does not answer (%s): stop the node and run meshnode store check", s.Broken)
		return
	}
	if s.Damaged > 0 {
		j.say("store", Critical, "%d events are damaged on disk: sync with a relay that holds them, and look after the disk", s.Damaged)
	}
	if r := s.Recount; r != nil {
		if r.Kept != r.Anew {
			j.say("store", Critical, "the fingerprint that the store keeps of %d ids is not that of a recount: stop the node and run meshnode store rebuild", r.Counted)
		}
		if r.Bad > 0 {
			j.say("store", Critical, "%d of %d events that were read back are not what their id says: stop the node and run meshnode store check", r.Bad, r.Read)
		}
	}
	if s.Max > 0 && s.Bytes > s.Max {
		j.say("store", Warning, "the store holds %s and its quota is %s: raise spec.storage.maxBytes, or the oldest events go", Size(s.Bytes), Size(s.Max))
	}
}

func (j *judge) disk() {
	d := j.f.Disk
	switch {
	case d.Error != "":
		j.say("disk", Warning, "the space under %s cannot be read: %s", d.Path, d.Error)
		return
	case d.ReadOnly:
		j.say("disk", Critical, "the disk under %s is read-only: nothing is stored; mount it for writing, then restart the node", d.Path)
	}
	if d.Total > 0 {
		// A large disk may be nearly full and still have plenty: both the share and the octets have to be low.
		l := min(below(float64(d.Free)/float64(d.Total), j.lim.Disk), below(d.Free, j.lim.DiskLeft))
		if l > OK {
			j.say("disk", l, "%s of %s are free under %s: make room, or set spec.storage.maxBytes", Size(d.Free), Size(d.Total), d.Path)
		}
	}
	if d.TotalInodes > 0 {
		if l := below(float64(d.FreeInodes)/float64(d.TotalInodes), j.lim.Disk); l > OK {
			j.say("disk", l, "%d of %d inodes are free under %s: delete files there", d.FreeInodes, d.TotalInodes, d.Path)
		}
	}
}

func (j *judge) clock() {
	c := j.f.Clock
	if c.Offset != nil {
		off := *c.Offset
		if off < 0 {
			off = -off
		}
		if l := above(off, j.lim.Clock); l > OK {
			j.say("clock", l, "the clock is %.0f s off that of %d other servers, and peers allow 60: run an NTP client", off, c.Compared)
		}
	}
	if c.Ahead > int64(j.lim.Clock[0]) {
		j.say("clock", above(float64(c.Ahead), j.lim.Clock), "the node wrote files %d s in the future of its present clock: the clock went back; run an NTP client", c.Ahead)
	}
}

func (j *judge) descriptor() {
	d := j.f.Descriptor
	if d == nil {
		return
	}
	left := d.Expires - j.f.At
	switch l := below(left, j.lim.Expiry); {
	case left <= 0:
		j.say("descriptor", Critical, "the node's descriptor expired %s ago, so no peer takes it: see the log for why it is not made anew", age(-left))
	case l > OK:
		j.say("descriptor", l, "the node's descriptor expires in %s and was not made anew: see the log", age(left))
	}
}

func (j *judge) grants() {
	for _, p := range j.f.Peers {
		if p.Stage != "active" {
			continue
		}
		for _, g := range []struct {
			what string
			e    *Expiring
		}{{"our grant to", p.Issued}, {"the grant to us of", p.Held}} {
			if g.e == nil {
				j.say("grants", Warning, "%s %s is missing: see meshnode peer log %s", g.what, short(p.DID), p.DID)
				continue
			}
			left := g.e.Expires - j.f.At
			if l := below(left, j.lim.Expiry); l > OK {
				j.say("grants", l, "%s %s expires in %s and was not renewed: see meshnode peer log %s", g.what, short(p.DID), age(max(0, left)), p.DID)
			}
		}
		for _, s := range p.Used {
			if s.Of <= 0 || s.Used*10 < s.Of*9 {
				continue
			}
			j.say("grants", Warning, "we used %d of the %d %s that %s grants in this window: the rest waits for the next", s.Used, s.Of, s.Limit, short(p.DID))
		}
	}
}

func (j *judge) windows() {
	for _, p := range j.f.Peers {
		if p.Stage == "ended" {
			continue
		}
		worst := Window{Severity: "S0"}
		for _, w := range p.Windows {
			if w.At >= j.f.At-j.lim.Recent && w.Severity >= worst.Severity {
				worst = w
			}
		}
		if worst.Severity == "S0" {
			continue
		}
		l := Warning
		if worst.Severity >= "S2" {
			l = Critical
		}
		by := ""
		if worst.Limit != "" {
			by = " by " + worst.Limit
		}
		j.say("windows", l, "window %d of %s closed with %s%s: meshnode peer show %s lays the counts open", worst.Epoch, short(p.DID), worst.Severity, by, p.DID)
	}
}

func (j *judge) rungs() {
	if s := j.f.Strain; s != nil && s.Rung > 0 {
		l := Warning
		if s.Rung > 1 {
			l = Critical
		}
		j.say("rungs", l, "the node sheds load, on rung %d of its ladder at pressure %.2f: give it more of what it lacks, or fewer clients", s.Rung, s.Pressure)
	}
}

func (j *judge) federation() {
	switch j.f.Federation {
	case "off":
		j.say("federation", Warning, "federation is off: %s", j.f.Trouble)
	case "retired":
		j.say("federation", Warning, "this node's key was revoked, so it serves clients and no peer")
	}
	for _, p := range j.f.Peers {
		if p.Stage == "active" && p.Digest == "differs" {
			j.say("federation", Warning, "%s speaks another version of the protocol: one of the two has to be upgraded", short(p.DID))
		}
	}
}

// short names a node in a sentence.
func short(did string) string {
	key := strings.TrimPrefix(did, "did:nostr:")
	return key[:min(12, len(key))] + "…"
}

func age(seconds int64) string { return (time.Duration(seconds) * time.Second).String() }

// Size writes octets for a person, in powers of 1024.
func Size(n int64) string {
	v, unit := float64(n), 0
	for v >= 1024 && unit < 4 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, [...]string{"", "KiB", "MiB", "GiB", "TiB"}[unit])
}
