//go:build unix

package daemon

import "syscall"

// raiseFileLimit raises the soft limit of open files to the hard one and returns what holds, 0 where it cannot be known.
func raiseFileLimit() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	if r.Cur < r.Max {
		up := r
		up.Cur = r.Max
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &up) == nil {
			r = up
		}
	}
	return int(min(r.Cur, 1<<30))
}
