package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestConductVerbs lets an operator put a hand on a grant, and ask what there is to ask, between two real nodes.
func TestConductVerbs(t *testing.T) {
	dirs := []string{newDir(t), newDir(t)}
	for _, dir := range dirs {
		mustRun(t, "", "init", dir)
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 8\n    standing: own\n    capacity:\n      events_in: 1000\n")
	}
	a, b := up(t, dirs[0]), up(t, dirs[1])
	da, db := a.did(t), b.did(t)
	on := func(n *node, args ...string) string {
		t.Helper()
		return mustRun(t, "", append([]string{"--dir", n.dir}, args...)...)
	}
	on(b, "peer", "add", "--relay", a.url, "--mode", "none", da)
	on(a, "peer", "add", "--relay", b.url, "--mode", "none", db)
	until(t, "they peer", time.Minute, func() bool { return a.peer(t).Stage == "active" && b.peer(t).Stage == "active" })

	on(b, "peer", "tier", da, "member")
	if out := on(b, "grant", "show", da); !strings.Contains(out, "its tier is member") {
		t.Errorf("%s", out)
	}
	if out, code := run(t, "", "--dir", b.dir, "peer", "amend", da, "--limit", "events_in=3001"); code != 2 {
		t.Errorf("above the ceiling: status %d: %s", code, out)
	}
	on(b, "peer", "amend", da, "--limit", "events_in=500")
	until(t, "the peer holds the amended grant", time.Minute, func() bool {
		p := a.peer(t)
		var list []struct {
			What, Detail string
		}
		if err := jsonLines(on(a, "--json", "peer", "log"), &list); err != nil {
			t.Fatal(err)
		}
		for _, h := range list {
			if h.What == "amended" && strings.Contains(h.Detail, "cause operator") {
				return p.Stage == "active"
			}
		}
		return false
	})
	if out := on(b, "grant", "list"); !strings.Contains(out, "issued") || !strings.Contains(out, "held") {
		t.Errorf("%s", out)
	}
	var answers []struct {
		Answered bool
		Problem  string
	}
	if err := jsonLines(on(a, "--json", "peer", "standing", "did:nostr:79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"), &answers); err != nil || len(answers) != 1 || !answers[0].Answered {
		t.Errorf("whether the threshold is met: %+v, %v", answers, err)
	}
	if out := on(a, "peer", "standing", "--mode", "own", "did:nostr:79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"); !strings.Contains(out, "declined") {
		t.Errorf("of a node that nobody knows: %s", out)
	}
	for _, c := range [][2]string{{"capacity", "events_in"}, {"strain", "breadth"}, {"report list", "no complaint"}} {
		if out := on(b, strings.Fields(c[0])...); !strings.Contains(out, c[1]) {
			t.Errorf("%s: %s", c[0], out)
		}
	}
	a.stop(t)
	b.stop(t)
}

// TestRogueProcesses runs whole programs that misbehave, at the shortest window, and takes the report that comes of it to a place where nothing else
// is: report verify confirms it from the file.
func TestRogueProcesses(t *testing.T) {
	if os.Getenv("FLEETMESH_FULL") == "" {
		t.Skip("takes minutes: FLEETMESH_FULL=1")
	}
	rogue := filepath.Join(t.TempDir(), "rogue")
	if out, err := exec.Command("go", "build", "-tags", "rogue", "-o", rogue, "fleetmesh.org/fleetmesh/cmd/meshnode").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ act, want string }{{"over-spender", "S3"}, {"silent", "S2"}, {"liar", "S2"}, {"boaster", "S2"}, {"receipt-forker", "S4"}, {"hop-forger", "S4"}, {"replayer", "S2"}} {
		t.Run(c.act, func(t *testing.T) { rogueProcess(t, rogue, c.act, c.want) })
	}
}

func rogueProcess(t *testing.T, rogue, act, want string) {
	dirs := []string{newDir(t), newDir(t)}
	file := filepath.Join(t.TempDir(), "events")
	writeEvents(t, file, 0, 1500)
	for _, dir := range dirs {
		mustRun(t, "", "init", dir)
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    windowSeconds: 60\n    descriptorPow: 8\n")
	}
	mustRun(t, "", "--dir", dirs[0], "import", file)
	honest := binary
	binary = rogue
	t.Setenv("MESHNODE_ROGUE", act)
	a := up(t, dirs[0])
	binary = honest
	t.Setenv("MESHNODE_ROGUE", "")
	b := up(t, dirs[1])
	mustRun(t, "", "--dir", b.dir, "peer", "add", "--relay", a.url, "--filter", `{"kinds":[1]}`, "--mode", "pull", a.did(t))
	mustRun(t, "", "--dir", a.dir, "peer", "add", "--relay", b.url, "--filter", `{"kinds":[1]}`, "--mode", "push", b.did(t))
	if act == "hop-forger" { // whoever holds an envelope could have spoilt the hop before: it is priced, and proves nothing to others
		until(t, "it is priced and not reported", 5*time.Minute, func() bool {
			return b.peer(t).Worst == want && strings.Contains(mustRun(t, "", "--dir", b.dir, "--json", "report", "list"), `"unproven"`)
		})
		if out, _ := run(t, "", "req", "--relay", b.url, `{"kinds":[30802]}`); strings.Contains(out, "30802") {
			t.Errorf("it is reported: %s", out)
		}
		a.stop(t)
		b.stop(t)
		return
	}
	var report string
	defer func() {
		if t.Failed() {
			t.Log(run(t, "", "--dir", b.dir, "peer", "log"))
		}
	}()
	until(t, "it is reported", 12*time.Minute, func() bool {
		report, _ = run(t, "", "req", "--relay", b.url, `{"kinds":[30802]}`)
		return strings.Contains(report, "30802")
	})
	path := filepath.Join(t.TempDir(), "report.json") // a directory of its own: t.TempDir makes one at each call
	if err := os.WriteFile(path, []byte(strings.SplitN(report, "\n", 2)[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	var v struct{ Support, Outcome string }
	empty := exec.Command(honest, "--json", "report", "verify", "report.json") // where nothing is but the file
	empty.Dir, empty.Env = filepath.Dir(path), []string{"HOME=" + filepath.Dir(path)}
	out, err := empty.Output()
	if err != nil {
		t.Errorf("report verify: %v", err)
	}
	if err := json.Unmarshal(out, &v); err != nil || v.Support != "supported" || v.Outcome < want {
		t.Errorf("%+v, want %s: %v", v, want, err)
	}
	a.stop(t)
	b.stop(t)
}
