package relay

import (
	"runtime/debug"
	"time"
)

// lullTick is how often the relay looks whether it has fallen quiet, and lullMessages how many messages and commits in that
// time count as quiet.
const (
	lullTick     = time.Minute
	lullMessages = 120
)

// lull notices when work is over.
type lull struct {
	seen   int64
	worked bool
}

// falls takes the count of all work so far and says whether the time since the last call was the first quiet one
// after work.
func (l *lull) falls(count int64) bool {
	n := count - l.seen
	l.seen = count
	was := l.worked
	l.worked = n > lullMessages
	return was && !l.worked
}

// watchLulls gives memory back to the system when work is over. The runtime keeps twice what it needs for as long as
// it has nothing to do, and a node that was busy once would look as heavy ever after.
func (r *Relay) watchLulls() {
	tick := time.NewTicker(lullTick)
	defer tick.Stop()
	var l lull
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
			if l.falls(r.m.Messages.Load() + r.m.Commits.Load()) {
				debug.FreeOSMemory()
			}
		}
	}
}
