package policy

import (
	"context"

	"fleetmesh.org/fleetmesh/nostr"
)

// Filters is a policy written in the language of filters (NIP-01): an event passes if one of accept matches it, or
// there is none, and none of refuse does. A filter's limit and search mean nothing here.
type Filters struct {
	static
	Accept, Refuse []nostr.Filter
	Knob           string // named in refusals, such as "spec.pluginIn"
}

// Admit implements Policy.
func (f *Filters) Admit(_ context.Context, r *Request) *Rejection {
	if matches(f.Refuse, r.Event) {
		return Reject(Blocked, "the event matches a filter of what is not taken (%s.refuse)", f.Knob)
	}
	if len(f.Accept) > 0 && !matches(f.Accept, r.Event) {
		return Reject(Blocked, "the event matches no filter of what is taken (%s.accept)", f.Knob)
	}
	return nil
}

// Describe implements Described.
func (f *Filters) Describe(d *Demands) { d.RestrictedWrites = d.RestrictedWrites || len(f.Accept) > 0 }

func matches(list []nostr.Filter, e *nostr.Event) bool {
	for i := range list {
		if list[i].Matches(e) {
			return true
		}
	}
	return false
}
