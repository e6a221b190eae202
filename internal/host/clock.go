package host

import (
	"sync/atomic"
	"time"
)

// ahead is how far this process lives ahead of the machine's clock: in a drill, and otherwise nothing. It is one for the process, as the machine's
// clock is.
var ahead atomic.Int64

// SetClockOffset has this process live ahead of the machine's clock, or behind it.
func SetClockOffset(d time.Duration) { ahead.Store(int64(d)) }

// Now is what this process takes for the time. What mesh decides, what goes on the wire and what is signed is dated by it.
func Now() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
