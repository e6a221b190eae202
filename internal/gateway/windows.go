package gateway

import (
	"context"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// firstNostr is the unix second before which hardly any event is dated. Splitting the
// time before it in halves would waste windows.
const firstNostr = 1604188800 // 2020-11-01

// split puts two halves in the place of the last window, which the relay finds too big. It says no when
// the window is one second, or the windows are used up.
func (r *syncRun) split(ctx context.Context, w window) bool {
	if r.report.Windows >= MaxWindows {
		return false
	}
	f := w.narrow(r.Filter)
	at, ok := r.middle(ctx, f)
	if !ok {
		return false
	}
	before := at - 1
	// The newer half goes last, so it comes first: it matters more.
	r.windows = append(r.windows[:len(r.windows)-1], window{f.Since, &before}, window{&at, f.Until})
	r.count(func(p *Report) { p.Windows++ })
	return true
}

// middle finds the first second of the newer half of a filter: by what we hold, if that is something, since the
// relay's events are likely spread as ours are; else in the middle of time.
func (r *syncRun) middle(ctx context.Context, f nostr.Filter) (int64, bool) {
	lo, hi := int64(0), r.now()
	if f.Since != nil {
		lo = *f.Since
	}
	if f.Until != nil {
		hi = *f.Until
	}
	if hi <= lo {
		return 0, false
	}
	if set, release, err := r.local.Set(ctx, []nostr.Filter{f}, store.View{}, r.now()); err == nil {
		defer release()
		if n := set.Len(); n >= 1000 {
			if at := int64(set.Item(n / 2).Time); at > lo && at <= hi {
				return at, true
			}
		}
	}
	if lo < firstNostr && hi > firstNostr+1 {
		lo = firstNostr
	}
	return lo + (hi-lo+1)/2, true
}
