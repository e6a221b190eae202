package eventlog

import "syscall"

// dropPages gives the pages of a shared mapping back; reading them brings them in again, from the
// system's cache as a rule.
func dropPages(b []byte) error { return syscall.Madvise(b, syscall.MADV_DONTNEED) }
