//go:build unix

package policy

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a child into a process group of its own, so that what a shell starts ends with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup kills a child and whatever it started.
func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
