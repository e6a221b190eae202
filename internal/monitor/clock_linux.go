package monitor

import "syscall"

// What adjtimex(2) returns and sets where nothing keeps the clock right.
const (
	timeError = 5
	staUnsync = 0x40
)

// Disciplined says whether the kernel believes that something keeps the clock right; nil where it does not say.
func Disciplined() *bool {
	var t syscall.Timex
	state, err := syscall.Adjtimex(&t)
	if err != nil {
		return nil
	}
	ok := state != timeError && t.Status&staUnsync == 0
	return &ok
}
