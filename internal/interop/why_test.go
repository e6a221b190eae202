package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestReceiptsAndWhy lets two real nodes move events, stop and start, and then asks both what was used, claimed and acknowledged, and why.
func TestReceiptsAndWhy(t *testing.T) {
	dirs := []string{newDir(t), newDir(t)}
	file := filepath.Join(t.TempDir(), "events")
	writeEvents(t, file, 0, 60)
	for _, dir := range dirs {
		mustRun(t, "", "init", dir)
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 8\n")
	}
	mustRun(t, "", "--dir", dirs[1], "import", file)
	a, b := up(t, dirs[0]), up(t, dirs[1])
	da, db := a.did(t), b.did(t)
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--relay", a.url, "--mode", "none", da)
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--relay", b.url, "--filter", `{"kinds":[1]}`, "--mode", "pull", db)
	defer func() {
		if t.Failed() {
			t.Log(run(t, "", "--dir", dirs[0], "peer", "log"))
			t.Log(run(t, "", "--dir", dirs[1], "peer", "log"))
		}
	}()
	until(t, "the events are there", time.Minute, func() bool { return a.fingerprint(t).Count == 60 })
	a.stop(t) // a node that stops says what it used
	type chains struct {
		Chains []struct {
			Way, Subject, Issuer string
			Window               int64
			Receipts             []struct {
				Seq      int64
				Status   string
				Claimed  map[string]int64
				Measured map[string]int64
			}
			Verified *struct{ Holds bool }
		}
	}
	receipts := func(n *node, did, way string) (c chains, window int64) {
		t.Helper()
		if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", n.dir, "--json", "receipts", "--verify", did)), &c); err != nil {
			t.Fatal(err)
		}
		var octets int64
		for _, k := range c.Chains {
			if k.Verified == nil || !k.Verified.Holds || len(k.Receipts) == 0 || k.Way != way || k.Subject != da || k.Issuer != db {
				t.Errorf("%+v", k)
				continue
			}
			last := k.Receipts[len(k.Receipts)-1]
			if last.Status == "" || last.Claimed["bytes_out"] != last.Measured["bytes_out"] {
				t.Errorf("claimed and counted differ: %+v", last)
			}
			octets, window = octets+last.Claimed["bytes_out"], k.Window
		}
		if octets < 60*300 { // over the edge of a window there are two
			t.Errorf("%d octets are claimed for 60 events: %+v", octets, c)
		}
		return c, window
	}
	answered := func(n *node, did string) func() bool { // every receipt
		return func() bool {
			out := mustRun(t, "", "--dir", n.dir, "--json", "receipts", did)
			return strings.Contains(out, `"seq"`) && strings.Count(out, `"status"`) == strings.Count(out, `"claimed"`)
		}
	}
	until(t, "the receipt came", time.Minute, answered(b, da))
	_, window := receipts(b, da, "received")
	a = up(t, dirs[0])
	until(t, "the receipts are answered", time.Minute, answered(a, db))
	receipts(a, db, "sent") // what was said is remembered over a stop

	for _, c := range []struct{ ask, want string }{
		{"why " + da, "tier probation"},
		{"why " + da, "no limit is used up"},
		{"why " + da + " --window " + jsonInt(window), "events came from it and were kept"},
		{"why " + jsonInt(window), "what the peer claims"},
		{"why " + jsonInt(window), "bytes_out "},
		{"receipts " + da, "window " + jsonInt(window) + " received"},
	} {
		if out := mustRun(t, "", append([]string{"--dir", b.dir}, strings.Fields(c.ask)...)...); !strings.Contains(out, c.want) {
			t.Errorf("%s lacks %q:\n%s", c.ask, c.want, out)
		}
	}
	if out, code := run(t, "", "--dir", b.dir, "why", "1"); code != 3 {
		t.Errorf("of a window that never was: status %d: %s", code, out)
	}
	if out, code := run(t, "", "--dir", b.dir, "receipts", db); code != 3 {
		t.Errorf("of nobody: status %d: %s", code, out)
	}
	a.stop(t)
	b.stop(t)

	// A receipt that somebody changed in the diary does not pass.
	diary := filepath.Join(b.dir, "happened", "happened.jsonl")
	text, err := os.ReadFile(diary)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.ReplaceAll(text, []byte(`"forwarded_for":[]`), []byte(`"forwarded_for":["`+db+`"]`))
	if err := os.WriteFile(diary, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	b = up(t, dirs[1])
	if out, code := run(t, "", "--dir", b.dir, "receipts", "--verify", da); code != 6 || !strings.Contains(out, "does not hold") {
		t.Errorf("a changed receipt: status %d: %s", code, out)
	}
	b.stop(t)
}

func jsonInt(n int64) string { return strconv.FormatInt(n, 10) }
