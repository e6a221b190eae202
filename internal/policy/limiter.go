package policy

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Rate is an allowance: so many units a second, and so many at once. A PerSecond of
// zero or less is no limit.
type Rate struct {
	PerSecond float64
	Burst     float64
}

// Limiter keeps one token bucket a client. It is safe for concurrent use, and exact: of any
// number of parallel calls it lets through as many as the Rate says.
type Limiter struct {
	rate   atomic.Pointer[Rate]
	shards [16]shard
}

type shard struct {
	mu      sync.Mutex
	buckets map[netip.Addr]*bucket
	sweepAt int
}

type bucket struct {
	tokens float64
	at     time.Time
	short  float64 // units refused since the last that passed
}

// NewLimiter makes a Limiter. A Burst below one second's allowance, or below one, is raised to it.
func NewLimiter(r Rate) *Limiter {
	l := new(Limiter)
	l.SetRate(r)
	for i := range l.shards {
		l.shards[i] = shard{buckets: make(map[netip.Addr]*bucket), sweepAt: 1024}
	}
	return l
}

// Rate returns the allowance in force.
func (l *Limiter) Rate() Rate { return *l.rate.Load() }

// SetRate changes the allowance. What clients have left is kept, up to the new burst.
func (l *Limiter) SetRate(r Rate) {
	r.Burst = max(r.Burst, 1)
	l.rate.Store(&r)
}

// Take asks for n units for a client. If they are not to be had it returns false, how long it
// takes until they are, and the burst that would have sufficed.
func (l *Limiter) Take(client netip.Addr, n float64, now time.Time) (ok bool, wait time.Duration, enough float64) {
	rate := l.Rate()
	if rate.PerSecond <= 0 {
		return true, 0, 0
	}
	s := l.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[client]
	if b == nil {
		s.sweep(now, rate)
		b = &bucket{tokens: rate.Burst, at: now}
		s.buckets[client] = b
	}
	if dt := now.Sub(b.at).Seconds(); dt > 0 {
		b.tokens = min(rate.Burst, b.tokens+dt*rate.PerSecond)
		b.at = now
	}
	// One request larger than the burst passes on a full bucket and leaves a debt.
	if b.tokens >= min(n, rate.Burst) {
		b.tokens -= n
		b.short = 0
		return true, 0, 0
	}
	b.short += n
	missing := min(n, rate.Burst) - b.tokens
	wait = time.Duration(math.Ceil(missing/rate.PerSecond*1000)) * time.Millisecond
	return false, wait, math.Ceil(rate.Burst + b.short)
}

func (l *Limiter) shard(client netip.Addr) *shard {
	b := client.As16()
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return &l.shards[h%uint32(len(l.shards))]
}

// sweep forgets clients whose bucket is full again; they are as good as new. It runs when
// the table has doubled, so it costs a constant an entry.
func (s *shard) sweep(now time.Time, r Rate) {
	if len(s.buckets) < s.sweepAt {
		return
	}
	for k, b := range s.buckets {
		if b.tokens+now.Sub(b.at).Seconds()*r.PerSecond >= r.Burst {
			delete(s.buckets, k)
		}
	}
	s.sweepAt = max(1024, 2*len(s.buckets))
}

// ClientKey is the unit in which clients are counted: an IPv4 address, or the /64 network of
// an IPv6 address, since a single customer holds at least that.
func ClientKey(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
