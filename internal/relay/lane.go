package relay

import (
	"context"
	"sync"
)

// laneDepth is how many queries of one connection may wait; above it the connection is not read.
const laneDepth = 1024

// lane runs jobs of one connection one after the other, in a goroutine that lives only while there
// are some: an idle connection pays nothing for it. The connection's mu guards it.
type lane struct {
	jobs    []func()
	running bool
	idle    chan struct{} // closed when a waiter may go
}

func (l *lane) full() bool { return len(l.jobs) >= laneDepth }

// run appends a job. The caller does not hold mu. After the connection's end the job still runs; it finds
// its context ended.
func (c *conn) run(l *lane, job func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.jobs = append(l.jobs, job)
	if !l.running {
		l.running = true
		go c.drain(l)
	}
}

func (c *conn) drain(l *lane) {
	for {
		c.mu.Lock()
		if len(l.jobs) == 0 {
			l.jobs, l.running = nil, false
			if l.idle != nil {
				close(l.idle)
				l.idle = nil
			}
			c.mu.Unlock()
			return
		}
		job := l.jobs[0]
		l.jobs[0] = nil
		l.jobs = l.jobs[1:]
		c.room.Broadcast()
		c.mu.Unlock()
		job()
	}
}

// wait returns when the lane is at rest. No jobs are added any more.
func (l *lane) wait(mu *sync.Mutex) {
	mu.Lock()
	if !l.running {
		mu.Unlock()
		return
	}
	l.idle = make(chan struct{})
	ch := l.idle
	mu.Unlock()
	<-ch
}

// begin waits for a slot to query the store in. Without a bound, a crowd of queries would leave the
// pipeline too little of the processors. It returns false when ctx ends.
func (r *Relay) begin(ctx context.Context) bool {
	select {
	case r.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// rest gives the slot back.
func (r *Relay) rest() { <-r.slots }
