package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// sizes of the two-node sync: common events, and events that only one of the two holds.
func sizes() (common, apart int) {
	if testing.Short() {
		return 2_000, 1_000
	}
	return 100_000, 50_000
}

// writeEvents signs n events and writes them as JSONL. Authors and times repeat, as they do in life.
func writeEvents(t *testing.T, path string, from, n int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	lines := make([][]byte, n)
	var wg sync.WaitGroup
	const workers = 2
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < n; i += workers {
				var sk nostr.SecretKey
				sk[31], sk[30] = byte((from+i)%200+1), 7
				e := nostr.Event{CreatedAt: 1_700_000_000 + int64(from+i)/3, Kind: 1, Content: fmt.Sprintf("event %d of a set that two nodes reconcile", from+i), Tags: []nostr.Tag{{"t", fmt.Sprint("t", (from+i)%50)}}}
				if err := e.Sign(sk); err != nil {
					t.Error(err)
					return
				}
				lines[i] = e.JSON()
			}
		})
	}
	wg.Wait()
	for _, line := range lines {
		w.Write(line)
		w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

type fingerprint struct {
	Fingerprint string
	Count       int
}

func (n *node) fingerprint(t *testing.T) (f fingerprint) {
	t.Helper()
	if err := json.Unmarshal([]byte(mustRun(t, "", "--dir", n.dir, "--json", "store", "fingerprint", `{"kinds":[1]}`)), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// syncUntil starts a sync and, at the first progress that says so, kills the victim. It returns when the verb has ended.
func (n *node) syncUntil(t *testing.T, remote string, after int, victim *node) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "--dir", n.dir, "--json", "sync", "--direction", "both", remote)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	killed := false
	for lines.Scan() {
		var p struct{ Fetched, Sent int }
		if json.Unmarshal(lines.Bytes(), &p) == nil && p.Fetched+p.Sent >= after && !killed {
			killed = true
			victim.kill()
			cancel()
		}
	}
	err = cmd.Wait()
	if !killed {
		t.Logf("the sync ended before it could be cut: %v", err)
		victim.kill()
	}
}

// TestTwoNodesReconcile loads two nodes with common and different events, cuts the sync by killing each of them in the
// middle, and wants byte-identical fingerprints in the end, and rest after that.
func TestTwoNodesReconcile(t *testing.T) {
	common, apart := sizes()
	tmp := t.TempDir()
	both, onlyA, onlyB := filepath.Join(tmp, "both.jsonl"), filepath.Join(tmp, "a.jsonl"), filepath.Join(tmp, "b.jsonl")
	writeEvents(t, both, 0, common)
	writeEvents(t, onlyA, common, apart)
	writeEvents(t, onlyB, common+apart, apart)

	dirA, dirB := newDir(t), newDir(t)
	for _, load := range []struct{ dir, file string }{{dirA, both}, {dirA, onlyA}, {dirB, both}, {dirB, onlyB}} {
		mustRun(t, "", "--dir", load.dir, "import", load.file)
	}
	unlimit(t, dirA)
	unlimit(t, dirB)
	a, b := up(t, dirA), up(t, dirB)
	if fa, fb := a.fingerprint(t), b.fingerprint(t); fa.Count != common+apart || fb.Count != common+apart || fa.Fingerprint == fb.Fingerprint {
		t.Fatalf("before: %+v and %+v", fa, fb)
	}

	a.syncUntil(t, b.url, apart/4, b) // the remote dies in the middle
	b = up(t, dirB)
	a.syncUntil(t, b.url, apart/4, a) // then the node that syncs
	a = up(t, dirA)

	mustRun(t, "", "--dir", dirA, "sync", "--direction", "both", b.url)
	fa, fb := a.fingerprint(t), b.fingerprint(t)
	if fa != fb || fa.Count != common+2*apart {
		t.Fatalf("after: %+v and %+v, want %d events", fa, fb, common+2*apart)
	}
	var rest struct{ Fetched, Sent int }
	if err := json.Unmarshal(lastLine(mustRun(t, "", "--dir", dirB, "--json", "sync", "--direction", "both", a.url)), &rest); err != nil {
		t.Fatal(err)
	}
	if rest.Fetched != 0 || rest.Sent != 0 {
		t.Errorf("a sync at rest moved %+v", rest)
	}
	a.stop(t)
	b.stop(t)
}

// unlimit switches the rates for clients off: the two nodes of a test are one operator's.
func unlimit(t *testing.T, dir string) {
	t.Helper()
	edit(t, dir, "  relay:\n", "  relay:\n    limits: {eventsPerSecond: -1, requestsPerSecond: -1, bytesPerSecond: -1}\n")
}

// edit replaces a piece of a node's configuration.
func edit(t *testing.T, dir, old, with string) {
	t.Helper()
	path := filepath.Join(dir, "node.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("no %q in %s", old, text)
	}
	text = bytes.Replace(text, []byte(old), []byte(with), 1)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func lastLine(s string) []byte {
	end := len(s)
	for end > 0 && s[end-1] == '\n' {
		end--
	}
	start := end
	for start > 0 && s[start-1] != '\n' {
		start--
	}
	return []byte(s[start:end])
}

// firstID returns the id of the first event of a JSONL file.
func firstID(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var e struct{ ID string }
	if err := json.NewDecoder(f).Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e.ID
}
