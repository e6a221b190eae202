package host

import (
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Withheld says that the budget of a grant does not suffice, or that there is none.
type Withheld struct {
	Code  spec.Code
	Limit spec.Limit // that would have been exceeded, "" if it is not about one
	Until time.Time  // when the window ends, zero if waiting does not help
}

func (w *Withheld) Error() string {
	switch {
	case w.Limit != "":
		return fmt.Sprintf("%s: the grant's %s is used up until %s", w.Code, w.Limit, w.Until.UTC().Format(time.TimeOnly))
	case !w.Until.IsZero():
		return fmt.Sprintf("%s: an account with the peer has to be settled first; try again after %s", w.Code, w.Until.UTC().Format(time.TimeOnly))
	}
	return fmt.Sprintf("%s: there is no grant", w.Code)
}

// verdict reads the Permit or Withhold among effects.
func verdict(effects []mesh.Effect) (mesh.Permit, error) {
	for _, eff := range effects {
		switch eff := eff.(type) {
		case mesh.Permit:
			return eff, nil
		case mesh.Withhold:
			w := &Withheld{Code: eff.Code, Limit: eff.Limit}
			if eff.Until > 0 {
				w.Until = time.Unix(eff.Until, 0)
			}
			return mesh.Permit{}, w
		}
	}
	return mesh.Permit{}, fmt.Errorf("the journal did not take it")
}

// BlobAsked charges a peer's request about a blob of so many octets to the grant that it holds from us. created is its token's created_at. It
// fails with a Withheld.
func (h *Host) BlobAsked(peer nostr.PubKey, created, octets int64) error {
	_, err := verdict(h.step(mesh.BlobAsked{Peer: peer, Created: created, Octets: octets}))
	return err
}

// BlobFetching takes the budget for a blob that we are about to ask a peer for. It fails with a Withheld. ended must be called when the
// outcome is known: true if the peer served the blob, false if it refused. Where nobody can tell, it is not called.
func (h *Host) BlobFetching(peer nostr.PubKey, created, octets int64) (ended func(served bool), err error) {
	permit, err := verdict(h.step(mesh.BlobFetching{Peer: peer, Created: created, Octets: octets}))
	if err != nil {
		return nil, err
	}
	return func(served bool) {
		h.step(mesh.BlobFetched{Peer: peer, Window: permit.Window, Octets: octets, Served: served})
	}, nil
}

// Knows says whether a key is that of a node that we peer with.
func (h *Host) Knows(peer nostr.PubKey) bool {
	for _, p := range h.Peers() {
		if p.Key == peer {
			return true
		}
	}
	return false
}
