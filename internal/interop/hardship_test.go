//go:build linux

package interop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// launchUnder starts a node with a command before it, such as prlimit.
func launchUnder(t *testing.T, dir string, before []string, args ...string) (*node, error) {
	t.Helper()
	plain := binary
	defer func() { binary = plain }()
	wrapper := filepath.Join(t.TempDir(), "meshnode")
	text := "#!/bin/sh\nexec " + strings.Join(before, " ") + " " + plain + " \"$@\"\n"
	if err := os.WriteFile(wrapper, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	binary = wrapper
	return launch(dir, args...)
}

// A node starts where few files and little memory are allowed, says what that costs, and serves.
func TestFewFilesAndLittleMemory(t *testing.T) {
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("no prlimit here")
	}
	dir := newDir(t)
	// RLIMIT_DATA counts what a process may write to, which is what a Go program really takes.
	n, err := launchUnder(t, dir, []string{prlimit, "--nofile=256", "--data=134217728"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	until(t, "the log says what 256 files cost", time.Minute, func() bool {
		log := n.log.String()
		return strings.Contains(log, "LimitNOFILE") && strings.Contains(log, "maxConnections=128")
	})
	var feed strings.Builder
	for i := range 500 {
		fmt.Fprintf(&feed, "note number %d %s\n", i, strings.Repeat("x", 500))
	}
	for range 3 {
		mustRun(t, "", "event", "--content", feed.String()[:60_000], "--relay", n.url)
	}
	if out := mustRun(t, "", "count", "--json", "--relay", n.url, `{"kinds":[1]}`); !strings.Contains(out, `"count":3`) {
		t.Errorf("count: %s", out)
	}
	if out := mustRun(t, "", "--dir", dir, "watch", "--offline"); !strings.Contains(out, "MESHNODE OK") {
		t.Errorf("watch: %s", out)
	}
	if peak := peakMemory(t, n); peak > 128<<20 {
		t.Errorf("the node took %d octets of memory", peak)
	} else {
		t.Logf("peak resident memory: %d KiB", peak>>10)
	}
	n.stop(t)
	if strings.Contains(n.log.String(), "panic") || strings.Contains(n.log.String(), "out of memory") {
		t.Error(n.log.String())
	}
}

// peakMemory is the most that was resident, in octets.
func peakMemory(t *testing.T, n *node) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// smallDisk mounts a file system of so many MiB in memory, where this user may.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	top, err := os.MkdirTemp("", "disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if err := syscall.Mount("none", top, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("this user mounts no file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(top, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return top
}

// A full disk: events are refused with a sentence, the rest is served, and when there is room again all that was taken is there.
func TestFullDiskIsSaidAndCostsNothing(t *testing.T) {
	disk := smallDisk(t, 6)
	dir := filepath.Join(disk, "n")
	n := up(t, dir)
	mustRun(t, "", "event", "--content", "before", "--relay", n.url)
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	text, code := "", 0
	for i := 0; i < 200 && code == 0; i++ {
		text, code = tell(t, "event", "--content", strings.Repeat("y", 60_000), "--relay", n.url)
	}
	if code == 0 || !strings.Contains(text, "error:") {
		t.Fatalf("a full disk took everything, or said (status %d): %s", code, text)
	}
	if out := mustRun(t, "", "req", "--relay", n.url, `{"kinds":[1],"limit":500}`); !strings.Contains(out, `"content":"before"`) {
		t.Error("what was stored is not served")
	}
	if out, code := tell(t, "--dir", dir, "watch", "--offline"); code != 2 || !strings.Contains(out, "make room") {
		t.Errorf("watch, status %d: %s", code, out)
	}
	if out, code := tell(t, "--dir", dir, "doctor"); code != 1 || !strings.Contains(out, "make room") {
		t.Errorf("doctor, status %d: %s", code, out)
	}
	held := strings.Count(mustRun(t, "", "req", "--relay", n.url, `{"kinds":[1],"limit":500}`), "\n")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "", "event", "--content", "after", "--relay", n.url)
	n.stop(t)
	if out, code := tell(t, "--dir", dir, "store", "check"); code != 0 {
		t.Errorf("the store: %s", out)
	}
	again := up(t, dir)
	if out := mustRun(t, "", "req", "--relay", again.url, `{"kinds":[1],"limit":500}`); strings.Count(out, "\n") != held+1 || !strings.Contains(out, `"content":"after"`) {
		t.Errorf("%d events, want %d", strings.Count(out, "\n"), held+1)
	}
	again.stop(t)
}

// fill writes a file until the disk is full but for what an event may need now and then.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// A disk that is read-only: a node there does not start and says why; one that loses its disk while it runs says so, serves, and loses nothing.
func TestReadOnlyDiskIsSaidAndCostsNothing(t *testing.T) {
	disk := smallDisk(t, 16)
	dir := filepath.Join(disk, "n")
	n := up(t, dir)
	mustRun(t, "", "event", "--content", "before", "--relay", n.url)
	n.stop(t)
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(syscall.MS_RDONLY)
	text, code := tell(t, "up", "--dir", dir, "--listen", "127.0.0.1:0")
	if code == 0 || !strings.Contains(text, "read-only") {
		t.Errorf("status %d: %s", code, text)
	}
	text, code = tell(t, "--dir", dir, "doctor")
	if code != 1 || !strings.Contains(text, "read-only") || !strings.Contains(text, "mount it for writing") {
		t.Errorf("doctor, status %d: %s", code, text)
	}
	remount(0)
	again := up(t, dir)
	if out := mustRun(t, "", "req", "--relay", again.url, `{"kinds":[1]}`); !strings.Contains(out, `"content":"before"`) {
		t.Errorf("after the disk came back: %s", out)
	}
	again.stop(t)
}

// A wrong permission is named with the command that mends it, by the verb that meets it.
func TestWrongPermissionSaysTheCommand(t *testing.T) {
	dir := newDir(t)
	mustRun(t, "", "init", "--dir", dir)
	key := filepath.Join(dir, "keys", "node.key")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"up", "--dir", dir, "--listen", "127.0.0.1:0"}, {"doctor", "--dir", dir}} {
		if text, code := tell(t, args...); code != 1 || !strings.Contains(text, "chmod 600 "+key) {
			t.Errorf("%s, status %d: %s", args[0], code, text)
		}
	}
}

// A clock that went back: the monitor and the doctor find files of the future, and the node goes on.
func TestWrongClockIsSaid(t *testing.T) {
	dir := newDir(t)
	n := up(t, dir)
	future := time.Now().Add(2 * time.Hour)
	late := filepath.Join(dir, "store", "of-tomorrow")
	if err := errors.Join(os.WriteFile(late, nil, 0o600), os.Chtimes(late, future, future)); err != nil {
		t.Fatal(err)
	}
	if out, code := tell(t, "--dir", dir, "watch", "--offline"); code != 2 || !strings.Contains(out, "run an NTP client") {
		t.Errorf("watch, status %d: %s", code, out)
	}
	if out, code := tell(t, "--dir", dir, "doctor"); code != 1 || !strings.Contains(out, "timedatectl") {
		t.Errorf("doctor, status %d: %s", code, out)
	}
	mustRun(t, "", "event", "--content", "now", "--relay", n.url)
	n.stop(t)
}
