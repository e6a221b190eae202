package policy

import (
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// PrivateKinds are the kinds that only the marked recipient reads (NIP-59): the stored gift wrap
// and the ephemeral one.
var PrivateKinds = []nostr.Kind{1059, 21059}

// Gate is the one read gate: what a reader may see, whichever door he comes
// by (REQ, live stream, COUNT and its HLL, NEG, search). A reader is the set of keys
// with which he has authenticated. The Gate never changes.
type Gate struct {
	hide []nostr.Kind
	auth bool // readers can authenticate
}

// NewGate makes a gate that shows events of the private kinds only to readers whom
// every p tag names. canAuth says whether readers can authenticate here; if not, nobody sees them.
func NewGate(private []nostr.Kind, canAuth bool) *Gate {
	return &Gate{slices.Clone(private), canAuth}
}

// Private says whether events of that kind are shown to their recipients only.
func (g *Gate) Private(k nostr.Kind) bool { return slices.Contains(g.hide, k) }

// View is the store's half of the gate for a reader.
func (g *Gate) View(reader []nostr.PubKey) store.View {
	return store.View{Hide: g.hide, Reveal: reader}
}

// MayRead says whether the reader may see e. It agrees with View for every event.
func (g *Gate) MayRead(reader []nostr.PubKey, e *nostr.Event) bool {
	if !g.Private(e.Kind) {
		return true
	}
	v := g.View(reader)
	return v.Allows(e)
}

// Check refuses filters that can only ever match what the reader may not see, so that
// a client learns that it must authenticate instead of waiting for nothing. Filters that
// can also match other events pass; View and MayRead hide the rest.
func (g *Gate) Check(reader []nostr.PubKey, filters []nostr.Filter) *Rejection {
	for i := range filters {
		f := &filters[i]
		if !g.onlyPrivate(f) {
			continue
		}
		switch {
		case !g.auth:
			return Reject(Blocked, "kind %d is for its recipients only, and authentication is switched off here", f.Kinds[0])
		case len(reader) == 0:
			return Reject(AuthRequired, "kind %d is shown to its recipient only", f.Kinds[0])
		case !addressed(f, reader):
			return Reject(Restricted, "kind %d is shown to its recipient only", f.Kinds[0])
		}
	}
	return nil
}

func (g *Gate) onlyPrivate(f *nostr.Filter) bool {
	if len(f.Kinds) == 0 {
		return false
	}
	for _, k := range f.Kinds {
		if !g.Private(k) {
			return false
		}
	}
	return true
}

// addressed says whether the filter can match something addressed to the reader: it names
// no recipient at all, or one of his keys.
func addressed(f *nostr.Filter, reader []nostr.PubKey) bool {
	for _, t := range f.Tags {
		if t.Letter != 'p' {
			continue
		}
		for _, k := range reader {
			if slices.Contains(t.Values, k.String()) {
				return true
			}
		}
		return false
	}
	return true
}
