package ledger

import (
	"fmt"

	"fleetmesh.org/fleetmesh/spec"
)

// Bucket is the subject's mirror of a grant for one window: it reserves before anything is spent and
// settles after, so that however many spend side by side, what is spent and what may still be
// spent never exceed a limit together. Each call is whole in itself; the type has no lock, so
// callers that share one serialise their calls, not what they do in between.
type Bucket struct {
	window   Window
	limits   Limits
	spent    Counters
	reserved Counters
	open     map[int64]Counters // reservations not settled yet
	next     int64
	bound    spec.Limit // the limit that refused first in this window, "" if none did
}

// Reservation is a right to spend at most what was reserved, until it is settled.
type Reservation struct {
	id     int64
	window int64
}

// Refused says which limit had no room. It is no fault of anybody: the spender waits for the next window.
type Refused struct {
	Limit     spec.Limit
	Allowed   int64
	Spent     int64
	Reserved  int64
	Requested int64
}

// Error names the limit and the numbers.
func (r *Refused) Error() string {
	return fmt.Sprintf("budget: %s allows %d a window, %d spent, %d reserved, %d more asked for", r.Limit, r.Allowed, r.Spent, r.Reserved, r.Requested)
}

// NewBucket is a full bucket for a window.
func NewBucket(w Window, limits Limits) *Bucket {
	return &Bucket{window: w, limits: limits.Clone(), spent: Counters{}.Clone(), reserved: Counters{}.Clone(), open: map[int64]Counters{}}
}

// ResumeBucket is a bucket after a restart: what was claimed so far is spent.
func ResumeBucket(w Window, limits Limits, spent Counters) *Bucket {
	b := NewBucket(w, limits)
	b.spent = spent.Clone()
	return b
}

// Window is the window that the bucket is for. What is spent in another belongs in another bucket.
func (b *Bucket) Window() Window { return b.window }

// Spent is what was settled so far: the counters of the next receipt.
func (b *Bucket) Spent() Counters { return b.spent.Clone() }

// Limits returns the limits in force.
func (b *Bucket) Limits() Limits { return b.limits.Clone() }

// SetLimits follows an amended grant. What is spent or reserved already stays; only new spending is held
// to the new limits.
func (b *Bucket) SetLimits(l Limits) { b.limits = l.Clone() }

// FirstBound is the limit that refused first in this window; ok is false where none did.
func (b *Bucket) FirstBound() (limit spec.Limit, ok bool) { return b.bound, b.bound != "" }

// Reserve sets aside the most that an action can cost, or refuses whole with a *Refused. Counters without
// a limit, such as duplicates, are only counted.
func (b *Bucket) Reserve(most Counters) (Reservation, error) {
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		c := spec.C().CounterOf(n)
		want := most[c]
		if want < 0 {
			return Reservation{}, fault(BadField, "negative reservation of "+string(c))
		}
		if want > 0 && want > b.limits[n]-b.spent[c]-b.reserved[c] {
			if b.bound == "" {
				b.bound = n
			}
			return Reservation{}, &Refused{Limit: n, Allowed: b.limits[n], Spent: b.spent[c], Reserved: b.reserved[c], Requested: want}
		}
	}
	b.reserved.Add(most)
	b.next++
	b.open[b.next] = most.Clone()
	return Reservation{id: b.next, window: b.window.Epoch}, nil
}

// Settle ends a reservation with what was spent in truth, nil or zero for nothing. More than was reserved
// is an error of the caller, and is counted all the same: a receipt states what happened.
func (b *Bucket) Settle(r Reservation, actual Counters) error {
	most, ok := b.open[r.id]
	if !ok || r.window != b.window.Epoch {
		return fault(BadField, "no such reservation")
	}
	delete(b.open, r.id)
	for c, v := range most {
		b.reserved[c] -= v
	}
	b.spent.Add(actual)
	if !most.Covers(actual) {
		for _, c := range spec.C().Counters {
			if actual[c] > most[c] && c != spec.CounterDupsSent && c != spec.CounterErrors {
				return fmt.Errorf("settle: %s is %d, only %d were reserved", c, actual[c], most[c])
			}
		}
	}
	return nil
}

// Count adds what nobody could reserve, because the other side decides it: errors and duplicates.
func (b *Bucket) Count(c Counters) { b.spent.Add(c) }

// Left is what can still be reserved, by limit.
func (b *Bucket) Left() Limits {
	return table(func(n spec.Limit) int64 {
		c := spec.C().CounterOf(n)
		return max(0, b.limits[n]-b.spent[c]-b.reserved[c])
	})
}
