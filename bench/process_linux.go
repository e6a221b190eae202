package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what a process has used, or holds, at one moment.
type usage struct {
	cpu     time.Duration // user and system, of all threads that ever were
	rss     int64         // resident octets
	anon    int64         // resident octets that no file backs
	wrote   int64         // octets given to write calls
	written int64         // octets that went to the block layer
}

// processUsage reads the usage of a process.
func processUsage(pid int) (usage, error) {
	var u usage
	var err error
	if u.cpu, err = processTime(pid); err != nil {
		return u, err
	}
	status, err := fields(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	u.rss, u.anon = status["VmRSS"]<<10, status["RssAnon"]<<10
	io, err := fields(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return u, err
	}
	u.wrote, u.written = io["wchar"], io["write_bytes"]
	return u, nil
}

// processTime is a process's CPU time: to the nanosecond by its clock (clock_getcpuclockid), else in ticks from
// /proc/PID/stat.
func processTime(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err == nil {
		return time.Duration(t.Nano()), nil
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the process's time: %w", err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("read the process's time: %q", stat)
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("read the process's time: %q", stat)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

// fields reads the numbers of a "Name: number …" file.
func fields(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the process's state: %w", err)
	}
	out := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		if f := strings.Fields(rest); ok && len(f) > 0 {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				out[name] = n
			}
		}
	}
	return out, nil
}

// diskBytes is what the files below a directory occupy: blocks, so that holes do not count.
func diskBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err != nil {
			return ignoreGone(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure the store: %w", err)
	}
	return sum, nil
}

// ignoreGone forgives a file that a store deleted meanwhile.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// ownTime is the CPU time of this process.
func ownTime() time.Duration {
	t, err := processTime(os.Getpid())
	if err != nil {
		return 0
	}
	return t
}

// loadAverage is the machine's load over the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// processor names the machine's processor.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
