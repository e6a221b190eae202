package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
)

// well is a node with which nothing is wrong.
func well() *Facts {
	return &Facts{
		At: 1_000_000, DID: "did:nostr:" + strings.Repeat("ab", 32), Uptime: 90, Face: Face{Open: 3, MaxConnections: 100},
		Store: Store{Events: 10, Bytes: 1000, Recount: &Recount{Counted: 10, Of: 10, Kept: "aa", Anew: "aa", Read: 10}},
		Disk:  Disk{Path: "/d", Free: 50 << 30, Total: 100 << 30}, Files: FilesInUse{Open: 10, Max: 1000}, Federation: "up",
		Descriptor: &Expiring{Expires: 1_000_000 + 7*24*3600},
		Peers: []Peer{{
			DID: "did:nostr:" + strings.Repeat("cd", 32), Stage: "active", Digest: "same", Session: "wss",
			Issued: &Expiring{Expires: 2_000_000}, Held: &Expiring{Expires: 2_000_000}, Used: []Share{{"req", 10, 150}},
			Windows: []Window{{Epoch: 7, At: 999_000, Severity: "S0"}},
		}},
	}
}

func TestJudge(t *testing.T) {
	off := -75.0
	for _, c := range []struct {
		name  string
		spoil func(*Facts)
		level Level
		check string
		text  string
	}{
		{"all well", func(*Facts) {}, OK, "", ""},
		{"connections", func(f *Facts) { f.Face.Open = 85 }, Warning, "face", "maxConnections"},
		{"connections full", func(f *Facts) { f.Face.Open = 99 }, Critical, "face", "maxConnections"},
		{"files", func(f *Facts) { f.Files.Open = 960 }, Critical, "files", "LimitNOFILE"},
		{"waits for a restart", func(f *Facts) { f.Pending = 2 }, Warning, "config", "restart the node"},
		{"store broken", func(f *Facts) { f.Store = Store{Broken: "EIO"} }, Critical, "store", "meshnode store check"},
		{"damaged", func(f *Facts) { f.Store.Damaged = 1 }, Critical, "store", "sync with a relay"},
		{"fingerprint", func(f *Facts) { f.Store.Recount.Anew = "bb" }, Critical, "store", "meshnode store rebuild"},
		{"bad event", func(f *Facts) { f.Store.Recount.Bad = 1 }, Critical, "store", "meshnode store check"},
		{"over quota", func(f *Facts) { f.Store.Max = 10 }, Warning, "store", "maxBytes"},
		{"share of a large disk low, octets plenty", func(f *Facts) { f.Disk.Free, f.Disk.Total = 20<<30, 1<<50 }, OK, "", ""},
		{"small disk, half free", func(f *Facts) { f.Disk.Free, f.Disk.Total = 32<<20, 64<<20 }, OK, "", ""},
		{"disk low", func(f *Facts) { f.Disk.Free, f.Disk.Total = 900<<20, 100<<30 }, Warning, "disk", "make room"},
		{"disk full", func(f *Facts) { f.Disk.Free = 0 }, Critical, "disk", "make room"},
		{"read-only", func(f *Facts) { f.Disk.ReadOnly = true }, Critical, "disk", "mount it for writing"},
		{"inodes", func(f *Facts) { f.Disk.FreeInodes, f.Disk.TotalInodes = 0, 100 }, Critical, "disk", "inodes"},
		{"disk unknown", func(f *Facts) { f.Disk.Error = "no" }, Warning, "disk", "cannot be read"},
		{"clock", func(f *Facts) { f.Clock.Offset = &off }, Critical, "clock", "NTP"},
		{"clock went back", func(f *Facts) { f.Clock.Ahead = 45 }, Warning, "clock", "went back"},
		{"descriptor due", func(f *Facts) { f.Descriptor.Expires = f.At + 5*3600 }, Warning, "descriptor", "expires in 5h"},
		{"descriptor gone", func(f *Facts) { f.Descriptor.Expires = f.At - 1 }, Critical, "descriptor", "expired 1s ago"},
		{"grant gone", func(f *Facts) { f.Peers[0].Held.Expires = f.At }, Critical, "grants", "was not renewed"},
		{"grant missing", func(f *Facts) { f.Peers[0].Issued = nil }, Warning, "grants", "is missing"},
		{"grant of an ended peering", func(f *Facts) { f.Peers[0].Stage, f.Peers[0].Held = "ended", nil }, OK, "", ""},
		{"budget used", func(f *Facts) { f.Peers[0].Used[0].Used = 140 }, Warning, "grants", "140 of the 150 req"},
		{"finding", func(f *Facts) { f.Peers[0].Windows[0].Severity = "S1" }, Warning, "windows", "window 7"},
		{"grave finding", func(f *Facts) { f.Peers[0].Windows[0].Severity = "S3" }, Critical, "windows", "closed with S3"},
		{"old finding", func(f *Facts) { f.Peers[0].Windows[0] = Window{1, 10, "S3", "req"} }, OK, "", ""},
		{"rung", func(f *Facts) { f.Strain = &Strain{0.8, 1} }, Warning, "rungs", "rung 1"},
		{"top rung", func(f *Facts) { f.Strain = &Strain{1, 3} }, Critical, "rungs", "rung 3"},
		{"federation off", func(f *Facts) { f.Federation, f.Trouble = "off", "no key" }, Warning, "federation", "no key"},
		{"retired", func(f *Facts) { f.Federation = "retired" }, Warning, "federation", "revoked"},
		{"other version", func(f *Facts) { f.Peers[0].Digest = "differs" }, Warning, "federation", "upgraded"},
	} {
		f := well()
		c.spoil(f)
		r := Judge(f, Defaults())
		if r.Level != c.level {
			t.Errorf("%s: %s, want %s: %v", c.name, r.Level, c.level, r.Findings)
			continue
		}
		if c.level > OK && (r.Findings[0].Check != c.check || !strings.Contains(r.Findings[0].Text, c.text)) {
			t.Errorf("%s: %+v, want %s with %q", c.name, r.Findings[0], c.check, c.text)
		}
	}
}

// perfData is the form that the Monitoring Plugins guidelines give performance data.
var perfData = regexp.MustCompile(`^MESHNODE (OK|WARNING|CRITICAL) - [^|\n]+ \|( [a-z_]+=-?[0-9.]+(s|B|%)?(;[0-9]*;[0-9]*;[0-9]*;[0-9]*)?)+$`)

func TestLineIsOneThatMonitoringSystemsRead(t *testing.T) {
	off := 1.5
	f := well()
	f.Clock.Offset, f.Strain = &off, &Strain{0, 0}
	for _, spoil := range []func(){func() {}, func() { f.Federation, f.Trouble = "off", "a | bar\nand a line" }} {
		spoil()
		r := Judge(f, Defaults())
		if line := r.Line(); !perfData.MatchString(line) {
			t.Errorf("not a plugin's line: %s", line)
		}
	}
}

// fakeNode answers node.health with facts, and its face says ok.
func fakeNode(t *testing.T, answer func() (*Facts, error)) string {
	t.Helper()
	face := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(face.Close)
	dir, err := os.MkdirTemp("", "mon")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	s, err := control.Listen(path, map[string]control.Handler{MethodHealth: func(ctx context.Context, raw json.RawMessage, _ func(any)) (any, error) {
		f, err := answer()
		if f != nil && f.Relay == "" {
			f.Relay = "ws" + strings.TrimPrefix(face.URL, "http")
		}
		if f == nil && err == nil {
			<-ctx.Done() // stuck
			err = ctx.Err()
		}
		return f, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return path
}

func TestAudit(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func() (*Facts, error)
		level  Level
		text   string
	}{
		{"well", func() (*Facts, error) { return well(), nil }, OK, ""},
		{"an error", func() (*Facts, error) { return nil, errors.New("the disk burns") }, Critical, "the disk burns"},
		{"stuck", func() (*Facts, error) { return nil, nil }, Critical, "no answer in 50ms"},
		{"the face is shut", func() (*Facts, error) { f := well(); f.Relay = "ws://127.0.0.1:1"; return f, nil }, Critical, "clients cannot get in"},
	} {
		w := Watcher{Socket: fakeNode(t, c.answer), Thresholds: Defaults()}
		if c.name == "stuck" {
			w.Patience = 50 * time.Millisecond
		}
		r := w.Audit(t.Context())
		if r.Level != c.level || (c.text != "" && !strings.Contains(r.Line(), c.text)) {
			t.Errorf("%s: %s", c.name, r.Line())
		}
	}
	w := Watcher{Socket: filepath.Join(t.TempDir(), "none")}
	if r := w.Audit(t.Context()); r.Level != Critical || !strings.Contains(r.Line(), "meshnode up") {
		t.Errorf("no node: %s", r.Line())
	}
}

func TestFollowGoesOnUntilTold(t *testing.T) {
	n := 0
	w := Watcher{Socket: fakeNode(t, func() (*Facts, error) {
		f := well()
		if n++; n == 2 {
			f.Store.Damaged = 1
		}
		return f, nil
	}), Thresholds: Defaults()}
	ctx, cancel := context.WithCancel(t.Context())
	var seen []Level
	last, err := w.Follow(ctx, time.Millisecond, func(r Report) error {
		if seen = append(seen, r.Level); len(seen) == 2 {
			cancel()
		}
		return nil
	})
	if err != nil || len(seen) != 2 || seen[0] != OK || seen[1] != Critical || last.Level != Critical {
		t.Errorf("saw %v, last %v, %v", seen, last.Level, err)
	}
	if _, err := w.Follow(t.Context(), time.Hour, func(Report) error { return errors.New("pipe") }); err == nil {
		t.Error("a report that cannot be shown was taken for shown")
	}
}

func TestLevelsAreText(t *testing.T) {
	for _, l := range []Level{OK, Warning, Critical} {
		text, err := json.Marshal(l)
		var back Level
		if err != nil || json.Unmarshal(text, &back) != nil || back != l {
			t.Errorf("%v became %s and then %v", l, text, back)
		}
	}
	if new(Level).UnmarshalText([]byte("UNKNOWN")) == nil {
		t.Error("a level that there is not was read")
	}
}

func TestProbesOfThisMachine(t *testing.T) {
	d := DiskOf(t.TempDir())
	if d.Error == "" && (d.Total <= 0 || d.Free < 0 || d.Free > d.Total) {
		t.Errorf("the disk is %+v", d)
	}
	if d := DiskOf(filepath.Join(t.TempDir(), "none")); d.Error == "" {
		t.Error("a path that is not there has a disk")
	}
	_ = Disciplined() // any answer is one
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB"} {
		if Size(n) != want {
			t.Errorf("%d is %s, want %s", n, Size(n), want)
		}
	}
}

func FuzzFacts(f *testing.F) {
	text, _ := json.Marshal(well())
	f.Add(text)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"peers":[{"stage":"active","did":"x","windows":[{"severity":"|S9\n","at":9}]}],"descriptor":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		facts, err := ParseFacts(text)
		if err != nil {
			return
		}
		r := Judge(&facts, Defaults())
		if line := r.Line(); strings.Contains(strings.SplitN(line, " | ", 2)[0], "\n") {
			t.Errorf("%q is more than a line", line)
		}
	})
}
