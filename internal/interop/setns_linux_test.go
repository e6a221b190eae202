package interop

import "golang.org/x/sys/unix"

func setns(fd uintptr) error { return unix.Setns(int(fd), unix.CLONE_NEWNET) }
