//go:build !unix

package schnorr

import "time"

var started = time.Now()

// processorTime is the clock's time, where there is nothing better.
func processorTime() time.Duration { return time.Since(started) }
