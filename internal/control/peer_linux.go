package control

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// trusted says whether the caller is the user of this process, or root: the mode of the socket says so already, unless somebody changed it.
func trusted(conn net.Conn) error {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	var cred *syscall.Ucred
	var got error
	if err := raw.Control(func(fd uintptr) {
		cred, got = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if got != nil {
		return got
	}
	if int(cred.Uid) != os.Geteuid() && cred.Uid != 0 {
		return fmt.Errorf("this socket is for user %d, and the caller is user %d", os.Geteuid(), cred.Uid)
	}
	return nil
}
