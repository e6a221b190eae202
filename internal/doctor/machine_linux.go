package doctor

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func fileLimit() int64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int64(min(r.Max, 1<<40)) // a node raises its soft limit to the hard one
}

// memoryLimit is the least of what the control group, the address space limit and the machine allow.
func memoryLimit() int64 {
	least := int64(0)
	take := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if text, err := os.ReadFile(path); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				take(n)
			}
		}
	}
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) == nil {
		take(int64(s.Totalram) * int64(s.Unit))
	}
	return least
}

func ownerOf(path string) (int, bool) {
	var s syscall.Stat_t
	if syscall.Stat(path, &s) != nil {
		return 0, false
	}
	return int(s.Uid), true
}

func writable(path string) bool { return syscall.Access(path, 2) == nil }

func isInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
