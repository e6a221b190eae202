package gateway

import (
	"sync"
	"time"
)

// pacer keeps to a rate that the relay has shown, once it has shown one, and to the one that the caller set. It is shared by all
// that publish to one relay, and outlives a connection where a Link made it.
type pacer struct {
	mu        sync.Mutex
	least     time.Duration // between two events, as the caller set it; 0 for none
	notBefore time.Time
	interval  time.Duration // between two events; 0 until the relay limits
	delay     time.Duration // the last wait, for doubling
	recent    []time.Time   // of events accepted within the last second
	at        time.Time     // when the relay last limited
}

// paceMemory is how long a rate is kept to that a relay has shown. Finding out anew costs it a few events too many.
const paceMemory = time.Hour

func newPacer(perSecond float64) *pacer {
	p := new(pacer)
	if perSecond > 0 {
		p.least = time.Duration(float64(time.Second) / perSecond)
	}
	return p
}

// wait is how long nothing may be sent yet.
func (p *pacer) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.notBefore.Sub(now)
}

// take takes the right to send one event now, if there is one.
func (p *pacer) take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.notBefore.After(now) {
		return false
	}
	if p.interval > 0 && now.Sub(p.at) > paceMemory {
		p.interval = 0
	}
	if d := max(p.interval, p.least); d > 0 {
		p.notBefore = now.Add(d)
	}
	return true
}

func (p *pacer) accepted(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = 0
	p.forget(now)
	p.recent = append(p.recent, now)
}

func (p *pacer) forget(now time.Time) {
	for len(p.recent) > 0 && now.Sub(p.recent[0]) > time.Second {
		p.recent = p.recent[1:]
	}
}

// limited is called for every refused event; those that were on their way together count once.
func (p *pacer) limited(now time.Time, asked time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = now
	if p.notBefore.Sub(now) > max(p.interval, p.least) {
		p.notBefore = later(p.notBefore, now.Add(asked))
		return
	}
	p.forget(now)
	per := time.Second / time.Duration(max(1, len(p.recent)))
	p.interval = max(p.interval, per+per/10)
	p.delay = min(max(2*p.delay, minDelay), maxDelay)
	p.notBefore = now.Add(max(asked, p.delay))
}
